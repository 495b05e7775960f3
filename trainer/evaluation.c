#include "trainer/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"

double bd_evaluation_mean(const bd_evaluation_sum *sum)
{
    return sum->n_targets > 0 ? sum->loss / (double)sum->n_targets : NAN;
}

double bd_evaluation_bits_per_byte(const bd_evaluation_sum *sum)
{
    return sum->n_bytes > 0 ? sum->loss / M_LN2 / (double)sum->n_bytes : NAN;
}

bd_status bd_evaluation_check_tokenizer(const char *fingerprint, const bd_rows *rows,
                                        bd_error *err)
{
    const bd_dataset_config *dataset = bd_rows_config(rows);
    if (strcmp(dataset->fingerprint.hex, fingerprint) != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the dataset's tokenizer (%s) is not the one that the model was trained "
                       "with: its fingerprint is %s instead of %s; pack it with the model's "
                       "--tokenizer",
                       bd_dataset_tokenizer(dataset).text, dataset->fingerprint.hex,
                       fingerprint);
    return BD_OK;
}

typedef struct evaluator {
    bd_evaluation *evaluation;
    bd_model *model;
    const bd_rows *rows;
    const bd_tokenizer *tokenizer;
    uint32_t *source_of_input;  // [n_inputs], owned
    int64_t batch_rows;
    int64_t *numbers;  // [batch_rows], owned
    float *losses;     // [batch_rows][seq_len], owned
    bd_batch batch;    // owned
    bd_hasher *hasher;
} evaluator;

// ---- Rows -------------------------------------------------------------------------------

static void add_target(bd_evaluation_sum *sum, double loss, size_t n_bytes)
{
    sum->loss += loss;
    sum->n_targets++;
    sum->n_bytes += (int64_t)n_bytes;
}

static bd_status add_losses(evaluator *e, int64_t number, const float *losses, bd_error *err)
{
    int64_t row_in_shard;
    const bd_shard *shard = bd_rows_shard(e->rows, number, &row_in_shard);
    bd_row row;
    BD_TRY(bd_rows_row(e->rows, number, e->hasher, &row, err));
    for (int64_t k = 0; k < row.n_segments; k++) {
        const uint32_t input = row.segments.input[k];
        if (input >= e->rows->manifests[0].n_inputs)
            return bd_shard_fail_row(shard, row_in_shard, "a document of an unknown input",
                                     err);
        bd_evaluation_sum *own = &e->evaluation->sources[e->source_of_input[input]].sum;
        for (int64_t t = row.bounds[k]; t < row.bounds[k + 1]; t++) {
            if (!bd_row_is_target(&row, k, t + 1))
                continue;
            const uint32_t target = bd_id_at(row.ids, e->batch.id_bytes, t + 1);
            size_t n_bytes = 0;
            if (e->tokenizer)
                e->tokenizer->kind->token_bytes(e->tokenizer, target, &n_bytes);
            if (!isfinite(losses[t]))
                return bd_fail(err, BD_ERR_FORMAT,
                               "the loss of token %" PRId64 " of row %" PRId64 " is %f", t,
                               number, losses[t]);
            add_target(&e->evaluation->total, losses[t], n_bytes);
            add_target(own, losses[t], n_bytes);
        }
    }
    return BD_OK;
}

// Adds rows first … first + n - 1 of the n_rows that are evaluated.
static bd_status add_rows(evaluator *e, int64_t first, int64_t n, bd_error *err)
{
    const int64_t seq_len = bd_rows_config(e->rows)->seq_len;
    const int64_t there = bd_rows_count(e->rows), asked = e->evaluation->n_rows;
    BD_TRY(bd_interrupt_check(err));
    for (int64_t i = first; i < first + n; i++)  // floor(i * there / asked)
        e->numbers[i - first] = i * (there / asked) + i * (there % asked) / asked;
    BD_TRY(bd_batch_load(&e->batch, e->rows, e->numbers, n, e->hasher, err));
    const bd_model_batch batch = bd_batch_part(&e->batch, 0, n);
    BD_TRY(bd_model_losses(e->model, &batch, e->losses, err));
    for (int64_t i = 0; i < n; i++)
        BD_TRY(add_losses(e, e->numbers[i], e->losses + i * seq_len, err));
    return BD_OK;
}

// ---- Evaluating -------------------------------------------------------------------------

static bd_status prepare_evaluator(evaluator *e, bd_error *err)
{
    bd_evaluation *evaluation = e->evaluation;
    const bd_manifest *manifest = &e->rows->manifests[0];
    const int64_t seq_len = bd_rows_config(e->rows)->seq_len;
    e->batch_rows = e->model->max_rows * e->model->seq_len / seq_len;
    if (e->batch_rows < 1 || seq_len > e->model->seq_len)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "rows have %" PRId64 " tokens, the model's buffers room for %" PRId64,
                       seq_len, e->model->seq_len);
    bd_source_figures *figures;
    BD_TRY(bd_manifest_sources(manifest, &figures, &evaluation->n_sources, err));
    evaluation->sources = calloc(evaluation->n_sources + 1, sizeof *evaluation->sources);
    for (size_t i = 0; evaluation->sources && i < evaluation->n_sources; i++)
        evaluation->sources[i].name = figures[i].name;
    free(figures);
    e->source_of_input = calloc(manifest->n_inputs + 1, sizeof *e->source_of_input);
    e->numbers = calloc((size_t)e->batch_rows, sizeof *e->numbers);
    e->losses = calloc((size_t)(e->batch_rows * seq_len), sizeof *e->losses);
    e->hasher = bd_hasher_new();
    if (!evaluation->sources || !e->source_of_input || !e->numbers || !e->losses || !e->hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for an evaluation");
    // There are few sources and maybe many inputs, most of them in the order of the sources: the
    // search for an input's source begins at that of the input before.
    size_t source = 0;
    for (size_t i = 0; i < manifest->n_inputs; i++) {
        while (strcmp(evaluation->sources[source].name, manifest->inputs[i].source) != 0)
            source = (source + 1) % evaluation->n_sources;
        e->source_of_input[i] = (uint32_t)source;
    }
    return BD_OK;
}

bd_status bd_evaluate(bd_evaluation *evaluation, bd_model *model, const bd_rows *rows,
                      const bd_tokenizer *tokenizer, int64_t max_rows, bd_error *err)
{
    const int64_t n_rows = bd_rows_count(rows);
    *evaluation = (bd_evaluation){
        .n_rows = max_rows > 0 && max_rows < n_rows ? max_rows : n_rows,
    };
    evaluator e = {
        .evaluation = evaluation, .model = model, .rows = rows, .tokenizer = tokenizer};
    bd_status status = prepare_evaluator(&e, err);
    for (int64_t first = 0; status == BD_OK && first < evaluation->n_rows;
         first += e.batch_rows) {
        const int64_t left = evaluation->n_rows - first;
        status = add_rows(&e, first, left < e.batch_rows ? left : e.batch_rows, err);
    }
    free(e.source_of_input);
    free(e.numbers);
    free(e.losses);
    bd_batch_release(&e.batch);
    bd_hasher_free(e.hasher);
    if (status != BD_OK)
        bd_evaluation_release(evaluation);
    return status;
}

void bd_evaluation_release(bd_evaluation *evaluation)
{
    free(evaluation->sources);
    *evaluation = (bd_evaluation){0};
}
