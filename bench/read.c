// bench_read - reading alone: the records of an input and the text of each, not tokenised.
//
//   bench_read FILE...
//
// Prints a line for each file, for bench/pack.py: its name, CPU seconds (the best of five rounds),
// documents, and bytes of text. JSONL and text, plain, gzip or zstd; bench_json is the floor.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "packer/input/examine.h"
#include "packer/input/json_text.h"
#include "packer/input/kinds.h"
#include "packer/input/reader.h"

enum { N_ROUNDS = 5 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct counted {
    int64_t n_documents, n_text_bytes;
} counted;

static bd_status read_all(const bd_input *input, const bd_input_options *reading, counted *c,
                          bd_error *err)
{
    bd_reader *reader;
    bd_json_text *json = bd_json_text_new(reading->text_field);
    *c = (counted){0};
    if (!json)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a JSON parser");
    bd_status status = bd_reader_open(&reader, input, reading, err);
    bd_reader_begin(reader, (bd_slice){0, INT64_MAX});
    while (status == BD_OK) {
        bd_record record;
        bool found;
        const char *text;
        size_t n;
        bd_json_problem problem;
        status = bd_reader_next(reader, &record, &found, err);
        if (status != BD_OK || !found)
            break;
        n = record.size_bytes;
        if (input->kind->is_json)
            status = bd_json_text_extract(json, record.data, record.size_bytes, &text, &n,
                                          &problem, err);
        c->n_documents++;
        c->n_text_bytes += (int64_t)n;
    }
    bd_reader_close(reader);
    bd_json_text_free(json);
    return status;
}

static bd_status measure(const char *path, bd_error *err)
{
    const bd_input_options reading = {.text_field = "text",
                                      .delimiter = "%",
                                      .unit_bytes = INT64_C(64) << 20,
                                      .max_document_bytes = INT64_C(256) << 20};
    bd_inputs inputs = {0};
    counted c = {0};
    double best = 1e300;
    bd_status status =
        bd_inputs_add(&inputs, path, &(bd_collect_options){.source = BD_DEFAULT_SOURCE}, err);
    if (status == BD_OK)
        status = bd_input_examine(&inputs.items[0], &reading, err);
    for (int round = 0; status == BD_OK && round < N_ROUNDS; round++) {
        const double begin = cpu_seconds();
        status = read_all(&inputs.items[0], &reading, &c, err);
        const double seconds = cpu_seconds() - begin;
        best = seconds < best ? seconds : best;
    }
    if (status == BD_OK)
        printf("%s %.4f %" PRId64 " %" PRId64 "\n", path, best, c.n_documents, c.n_text_bytes);
    bd_inputs_release(&inputs);
    return status;
}

int main(int argc, char **argv)
{
    bd_error err;
    if (argc < 2) {
        fputs("Usage: bench_read FILE...\n", stderr);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        if (measure(argv[i], &err) == BD_OK)
            continue;
        fprintf(stderr, "bench_read: %s\n", err.message);
        return 2;
    }
    return 0;
}
