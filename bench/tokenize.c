// bench_tokenize - tokenising alone: documents in memory to ids in memory.
//
//   bench_tokenize TOKENIZER DOCUMENTS THREADS PASSES
//
// DOCUMENTS is a file as bench/tokenize makes it: u64 n, u64 ends[n], and the documents end to
// end. Every thread takes a part of them and keeps its encoder from pass to pass, so the first
// pass is cold and the others are warm. Prints JSON: seconds of user CPU time of each pass (all
// threads together), the number of ids, and their XXH3-64 as u32, little-endian.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/threads.h"
#include "common/tokenizer/tokenizer.h"

enum { MAX_THREADS = 256, MAX_PASSES = 100 };

typedef struct part {
    bd_encoder encoder;
    size_t first, end;  // documents
    uint32_t *ids;      // owned; room for all of the part's
    size_t n;
} part;

typedef struct bench {
    const bd_tokenizer *tokenizer;
    const char *text;      // borrowed from the file's bytes
    const uint64_t *ends;  // [n_documents], borrowed from them, too
    size_t n_documents;
    part parts[MAX_THREADS];
    int n_parts;
} bench;

static void check(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "bench_tokenize: %s\n", err->message);
    exit(2);
}

static uint64_t begin_of(const bench *b, size_t document)
{
    return document == 0 ? 0 : b->ends[document - 1];
}

// The documents' places are checked, so that a truncated file is an error.
static void open_documents(bench *b, const char *path)
{
    bd_error err;
    char *data;
    size_t size_bytes;
    uint64_t n;
    check(bd_file_read(path, SIZE_MAX / 2, &data, &size_bytes, &err), &err);
    bool sound = size_bytes >= sizeof n;
    if (sound) {
        memcpy(&n, data, sizeof n);
        sound = n < size_bytes / sizeof n;
    }
    if (sound) {
        b->n_documents = (size_t)n;
        b->ends = (const uint64_t *)(data + sizeof n);
        b->text = data + (n + 1) * sizeof n;
        for (size_t d = 0; sound && d < b->n_documents; d++)
            sound = begin_of(b, d) <= b->ends[d];
        sound &= begin_of(b, b->n_documents) == size_bytes - (n + 1) * sizeof n;
    }
    if (!sound)
        check(bd_fail(&err, BD_ERR_FORMAT, "'%s' is not a file of documents", path), &err);
}

// Makes parts of about equal size and touches their pages before the clock starts.
static void make_parts(bench *b, int n_threads)
{
    const uint64_t n_bytes = begin_of(b, b->n_documents);
    size_t document = 0;
    b->n_parts = n_threads;
    for (int i = 0; i < n_threads; i++) {
        part *p = &b->parts[i];
        p->first = document;
        while (document < b->n_documents &&
               b->ends[document] <= n_bytes / (uint64_t)n_threads * (uint64_t)(i + 1))
            document++;
        p->end = i + 1 == n_threads ? b->n_documents : document;
        const size_t part_bytes = (size_t)(begin_of(b, p->end) - begin_of(b, p->first));
        const size_t n_ids =
            b->tokenizer->kind->max_ids(b->tokenizer, part_bytes) + (p->end - p->first);
        bd_error err;
        p->ids = malloc((n_ids + 1) * sizeof *p->ids);
        if (!p->ids)
            check(bd_fail(&err, BD_ERR_MEMORY, "no memory for %zu ids", n_ids), &err);
        memset(p->ids, 0, (n_ids + 1) * sizeof *p->ids);
    }
}

static bd_status encode_part(void *context, int64_t index, bd_error *err)
{
    const bench *b = context;
    part *p = (part *)&b->parts[index];
    if (!p->encoder.tokenizer)
        BD_TRY(bd_encoder_init(&p->encoder, b->tokenizer, err));
    p->n = 0;
    for (size_t d = p->first; d < p->end; d++) {
        const uint64_t begin = begin_of(b, d);
        size_t n;
        BD_TRY(bd_encode(&p->encoder, b->text + begin, (size_t)(b->ends[d] - begin),
                         p->ids + p->n, &n, err));
        p->n += n;
    }
    return BD_OK;
}

static double user_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6;
}

static void print(const bench *b, const double *seconds, int n_passes)
{
    bd_hasher *hasher = bd_hasher_new();
    size_t n_ids = 0;
    for (int i = 0; i < b->n_parts; i++) {
        bd_hasher_add(hasher, b->parts[i].ids, b->parts[i].n * sizeof *b->parts[i].ids);
        n_ids += b->parts[i].n;
    }
    fputs("{\"user_seconds\": [", stdout);
    for (int i = 0; i < n_passes; i++)
        printf("%s%.6f", i > 0 ? ", " : "", seconds[i]);
    printf("], \"n_ids\": %zu, \"hash\": \"%016" PRIx64 "\"}\n", n_ids,
           bd_hasher_take64(hasher));
    bd_hasher_free(hasher);
}

int main(int argc, char **argv)
{
    static bench b;
    bd_error err;
    const int n_threads = argc == 5 ? atoi(argv[3]) : 0;
    const int n_passes = argc == 5 ? atoi(argv[4]) : 0;
    if (n_threads < 1 || n_threads > MAX_THREADS || n_passes < 1 || n_passes > MAX_PASSES) {
        fputs("Usage: bench_tokenize TOKENIZER DOCUMENTS THREADS PASSES\n", stderr);
        return 2;
    }
    check(bd_tokenizer_open(&b.tokenizer, argv[1], &err), &err);
    open_documents(&b, argv[2]);
    make_parts(&b, n_threads);
    bd_threads *threads;
    check(bd_threads_new(&threads, n_threads, &err), &err);
    double seconds[MAX_PASSES];
    for (int i = 0; i < n_passes; i++) {
        const double begun = user_seconds();
        check(bd_threads_run(threads, encode_part, &b, n_threads, &err), &err);
        seconds[i] = user_seconds() - begun;
    }
    print(&b, seconds, n_passes);
    bd_threads_free(threads);
    for (int i = 0; i < n_threads; i++) {
        bd_encoder_release(&b.parts[i].encoder);
        free(b.parts[i].ids);
    }
    bd_tokenizer_close(b.tokenizer);
    return 0;
}
