#include "tests/unit/trainer/trainer_fixture.h"

#include "common/base/random.h"
#include "packer/input/examine.h"
#include "packer/pack/pack.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"
#include "trainer/weights/safetensors.h"

enum { MAX_FILE_BYTES = 1 << 20, N_THREADS = 2 };

void check(bd_status status, const bd_error *err)
{
    if (status != BD_OK)
        fail_msg("%s", err->message);
}

void assert_mentions(const bd_error *err, const char *text)
{
    if (!strstr(err->message, text))
        fail_msg("'%s' does not mention '%s'", err->message, text);
}

bd_json *read_golden(const char *name)
{
    bd_error err;
    bd_json *json;
    check(bd_json_read_file(in(BINDERY_GOLDEN "/train-1", name), MAX_FILE_BYTES, &json, &err),
          &err);
    return json;
}

// ---- Datasets -----------------------------------------------------------------------------

static void write_letters(FILE *file, uint64_t *random, int length)
{
    fputs("\"text\":\"", file);
    for (int t = 0; t < length; t++)
        fputc(random_between(random, 'a', 'z'), file);
    fputs("\"", file);
}

// Stretches of up to 12 characters; the last is trained, so that no document is left out.
static void write_stretches(FILE *file, uint64_t *random, int length)
{
    fputs("\"segments\":[", file);
    do {
        const int longest = length < 12 ? length : 12;
        const int n = longest > 0 ? random_between(random, 1, longest) : 0;
        const bool trained = n == length || random_between(random, 0, 1) == 1;
        fputs("{", file);
        write_letters(file, random, n);
        fprintf(file, ",\"train\":%s}%s", trained ? "true" : "false", n < length ? "," : "]");
        length -= n;
    } while (length > 0);
}

static void write_documents(const char *path, const int *lengths, size_t n, bool masked)
{
    uint64_t random = 7;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < n; i++) {
        fputs("{", file);
        if (masked)
            write_stretches(file, &random, lengths[i]);
        else
            write_letters(file, &random, lengths[i]);
        fputs("}\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

void pack_documents(bd_rows *rows, const char *folder, const int *lengths, size_t n,
                    packed_as how)
{
    const char *operand = "documents.jsonl";
    bd_error err;
    bd_inputs inputs = {0};
    bd_pack_result result;
    write_documents(operand, lengths, n, how.masked);
    check(bd_inputs_add(&inputs, operand, &(bd_collect_options){.source = BD_DEFAULT_SOURCE},
                        &err),
          &err);
    bd_pack_job job = {
        .config = {.seq_len = how.seq_len,
                   .vocab_size = how.vocab_size,
                   .separator = 256,
                   .bos = BD_NO_BOS,
                   .padding = 256,
                   .batch_rows = how.batch_rows,
                   .shuffle = BD_NO_SHUFFLE,
                   .codec = how.codec,
                   .tokenizer = "bytes",
                   .loss_mask = how.masked},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = &inputs,
        .reading = {.form = how.masked ? BD_FORM_SEGMENTS : BD_FORM_TEXT,
                    .text_field = "text",
                    .fields = {"segments"},
                    .unit_bytes = how.unit_bytes,
                    .max_document_bytes = 1 << 20},
        .limit = BD_NO_LIMIT,
        .folder = folder,
    };
    const bd_pack_settings settings = {.n_ranks = 1, .n_threads = 1};
    job.config.fingerprint = job.tokenizer->fingerprint;
    check(bd_input_examine(&inputs.items[0], &job.reading, &err), &err);
    check(bd_pack(&job, &settings, &result, &err), &err);
    bd_pack_result_release(&result);
    bd_inputs_release(&inputs);
    check(bd_rows_open(rows, folder, &err), &err);
}

void open_golden_rows(bd_rows *rows)
{
    bd_error err;
    check(bd_rows_open(rows, BINDERY_GOLDEN "/train-1/dataset", &err), &err);
}

void pack_masked_rows(bd_rows *rows)
{
    static const int lengths[] = {30, 3,  9, 14, 31, 1, 70, 5,  22, 8,  17, 29, 2,  6,  12, 40,
                                  64, 33, 7, 19, 23, 3, 15, 28, 11, 90, 5,  2,  50, 61, 8,  44};
    pack_documents(rows, "masked", lengths, sizeof lengths / sizeof *lengths,
                   (packed_as){.seq_len = 63,
                               .batch_rows = 64,
                               .unit_bytes = 1 << 20,
                               .vocab_size = 257,
                               .masked = true});
}

void damage_row(bd_rows *rows, const char *folder, int64_t number)
{
    bd_error err;
    size_t shard, n;
    int64_t row_in_shard;
    bd_row row;
    bd_hasher *hasher = bd_hasher_new();
    assert_true(bd_manifest_find_row(&rows->manifests[0], number, &shard, &row_in_shard));
    const bd_shard *from = &rows->shards[shard];
    check(bd_shard_row(from, row_in_shard, hasher, &row, &err), &err);
    const ptrdiff_t at = (const char *)row.ids - (const char *)from->file.data;
    char *path = strdup(from->path), *data = read_file(path, &n);
    bd_rows_close(rows);
    data[at] ^= 1;
    write_file(path, data, n);
    check(bd_rows_open(rows, folder, &err), &err);
    bd_hasher_free(hasher);
    free(path);
    free(data);
}

bd_batch load_batch(const bd_rows *rows, const int64_t *numbers, int64_t n)
{
    bd_error err;
    bd_batch batch = {0};
    bd_hasher *hasher = bd_hasher_new();
    check(bd_batch_load(&batch, rows, numbers, n, hasher, &err), &err);
    bd_hasher_free(hasher);
    return batch;
}

// ---- Models -------------------------------------------------------------------------------

static void read_weights(subject *s, const char *folder)
{
    bd_error err;
    bd_safetensors *file;
    s->weights = malloc((size_t)s->parameters.n_total * sizeof *s->weights);
    assert_non_null(s->weights);
    check(bd_safetensors_open(&file, in(folder, "weights.safetensors"), &err), &err);
    for (size_t i = 0; i < s->parameters.n; i++) {
        const bd_parameter *p = &s->parameters.items[i];
        check(bd_safetensors_copy_f32(file, p->name, p->n_dimensions, p->shape,
                                      s->weights + p->offset, &err),
              &err);
    }
    bd_safetensors_close(file);
}

static void open_backend(subject *s)
{
    bd_error err;
    check(bd_group_join(&s->group, &err), &err);
    check(bd_backend_open_cpu(&s->backend, N_THREADS, &err), &err);
    s->honest = s->backend->operations;
    s->operations = *s->honest;
    s->backend->operations = &s->operations;
}

void open_subject(subject *s, const char *model)
{
    bd_error err;
    bd_model_config config;
    *s = (subject){0};
    open_golden_rows(&s->rows);
    bd_json *json = read_golden(in(model, "config.json"));
    check(bd_model_config_from_json(&config, json, &err), &err);
    bd_json_free(json);
    check(bd_parameters_init(&s->parameters, &config, &err), &err);
    read_weights(s, in(BINDERY_GOLDEN "/train-1", model));
    open_backend(s);
}

void open_random_subject(subject *s, bd_model_config config)
{
    bd_error err;
    bd_random random = {20};
    *s = (subject){0};
    open_golden_rows(&s->rows);
    check(bd_model_config_complete(&config, &err), &err);
    check(bd_parameters_init(&s->parameters, &config, &err), &err);
    s->weights = malloc((size_t)s->parameters.n_total * sizeof *s->weights);
    assert_non_null(s->weights);
    for (int64_t i = 0; i < s->parameters.n_total; i++)
        s->weights[i] = (float)(0.1 + 0.3 * bd_random_normal(&random));
    open_backend(s);
}

void give_masked_rows(subject *s)
{
    bd_rows_close(&s->rows);
    pack_masked_rows(&s->rows);
}

void close_subject(subject *s)
{
    s->honest->close(s->backend);
    bd_group_leave(s->group, false, 0);
    free(s->weights);
    bd_parameters_release(&s->parameters);
    bd_rows_close(&s->rows);
}

bd_trainer_needs needs_of(const subject *s)
{
    return (bd_trainer_needs){&s->rows, &s->parameters, s->backend, s->group,
                              s->group->collectives};
}

void set_state(bd_trainer *trainer, const float *weights, const float *m, const float *v,
               const float *average)
{
    bd_error err;
    bd_backend *backend = trainer->needs.backend;
    const bd_optimizer *optimizer = &trainer->optimizer;
    const bd_rank_slice slice = optimizer->slice;
    const size_t size_bytes = (size_t)(slice.end - slice.begin) * sizeof *m;
    check(bd_model_set_weights(&trainer->model, weights, &err), &err);
    check(backend->operations->upload(backend, optimizer->m, m, size_bytes, &err), &err);
    const size_t v_bytes = (size_t)optimizer->n_v * sizeof *v;
    check(backend->operations->upload(backend, optimizer->v, v, v_bytes, &err), &err);
    if (average)
        check(
            backend->operations->upload(backend, optimizer->average, average, size_bytes, &err),
            &err);
}
