#include "trainer/probe.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/training.h"

// One number for each token that changes if any bit of its logits or of its gradient does.
static bd_status fingerprint_tokens(bd_model *model, const bd_model_batch *batch,
                                    double gradient_scale, uint64_t *fingerprints,
                                    bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const int64_t seq_len = batch->attention.seq_len, n_rows = batch->attention.n_rows;
    const int64_t n_stream = n_rows * seq_len * c->n_channels;
    double loss_sum;
    bd_hasher *hasher = bd_hasher_new();
    float *logits = malloc((size_t)(seq_len * c->n_vocabulary) * sizeof *logits);
    float *d_stream = malloc((size_t)n_stream * sizeof *d_stream);
    bd_status status = BD_OK;
    if (!hasher || !logits || !d_stream)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the probe");
    if (status == BD_OK)
        status = bd_model_train(model, batch, NULL, gradient_scale, &loss_sum, err);
    if (status == BD_OK)
        status = bd_model_download(model, d_stream, model->d_stream, n_stream, err);
    for (int64_t r = 0; status == BD_OK && r < n_rows; r++) {
        status = bd_model_row_logits(model, batch, r, logits, err);
        for (int64_t t = 0; status == BD_OK && t < seq_len; t++) {
            const int64_t token = r * seq_len + t;
            bd_hasher_add(hasher, logits + t * c->n_vocabulary,
                          (size_t)c->n_vocabulary * sizeof *logits);
            bd_hasher_add(hasher, d_stream + token * c->n_channels,
                          (size_t)c->n_channels * sizeof *d_stream);
            fingerprints[token] = bd_hasher_take64(hasher);
        }
    }
    bd_hasher_free(hasher);
    free(logits);
    free(d_stream);
    return status;
}

typedef struct span {
    int64_t begin, end;  // tokens of the batch, row by row
} span;

// The longest segment; if there are any, of those that another one follows in its row: that is
// where a leak through attention goes.
static span choose_segment(const bd_boundaries *boundaries)
{
    span longest = {0}, followed = {0};
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n);
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = r * boundaries->seq_len, length = bounds[k + 1] - bounds[k];
            const span segment = {row + bounds[k], row + bounds[k + 1]};
            if (length > longest.end - longest.begin)
                longest = segment;
            if (k + 1 < n && length > followed.end - followed.begin)
                followed = segment;
        }
    }
    return followed.end > followed.begin ? followed : longest;
}

// A copy of the batch's ids in which every token of the span is another one.
static void *change_ids(const bd_model_batch *batch, span changed, int64_t n_vocabulary)
{
    const int64_t n = batch->attention.n_rows * batch->attention.seq_len;
    void *ids = malloc((size_t)(n * batch->id_bytes));
    if (!ids)
        return NULL;
    memcpy(ids, batch->ids, (size_t)(n * batch->id_bytes));
    for (int64_t t = changed.begin; t < changed.end; t++) {
        const uint32_t other =
            (uint32_t)((bd_id_at(ids, batch->id_bytes, t) + INT64_C(1)) % n_vocabulary);
        if (batch->id_bytes == 2)
            ((uint16_t *)ids)[t] = (uint16_t)other;
        else
            ((uint32_t *)ids)[t] = other;
    }
    return ids;
}

// Tokens [begin, end) of the batch, one of its segments; how many of them changed.
static int64_t count_changes(bd_probe *probe, span segment, span changed,
                             const uint64_t *before, const uint64_t *after)
{
    const bool probed = segment.begin == changed.begin;
    int64_t n = 0;
    for (int64_t t = segment.begin; t < segment.end; t++)
        n += before[t] != after[t];
    *(probed ? &probe->probed_tokens : &probe->other_tokens) += segment.end - segment.begin;
    *(probed ? &probe->changed_tokens : &probe->leaked_tokens) += n;
    return probed ? 0 : n;
}

static void compare(bd_probe *probe, const bd_boundaries *boundaries, span changed,
                    const int64_t *row_numbers, const uint64_t *before, const uint64_t *after)
{
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n);
        const int64_t row = r * boundaries->seq_len;
        probe->n_segments += n;
        for (int64_t k = 0; k < n; k++) {
            const span segment = {row + bounds[k], row + bounds[k + 1]};
            if (count_changes(probe, segment, changed, before, after) > 0 &&
                probe->leak_row < 0) {
                probe->leak_row = row_numbers[r];
                probe->leak_segment = k;
            }
        }
    }
}

// Of the first rows of a batch.
static int64_t count_targets(const bd_boundaries *boundaries)
{
    int64_t n_targets = 0;
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n;
        bd_row_bounds(boundaries, r, &n);
        n_targets += bd_row_used(boundaries, r) - n;
    }
    return n_targets;
}

bd_status bd_probe_batch(bd_probe *probe, bd_model *model, const bd_batch *rows, int64_t first,
                         int64_t n_rows, bd_error *err)
{
    bd_model_batch batch = bd_batch_part(rows, first, n_rows);
    const bd_boundaries boundaries = batch.attention;
    const size_t n = (size_t)(n_rows * boundaries.seq_len);
    const int64_t n_targets = count_targets(&boundaries);
    const double scale = 1.0 / (double)(n_targets > 0 ? n_targets : 1);
    const span changed = choose_segment(&boundaries);
    uint64_t *before = calloc(n, sizeof *before), *after = calloc(n, sizeof *after);
    void *ids = change_ids(&batch, changed, model->parameters->config.n_vocabulary);
    bd_status status = BD_OK;
    *probe = (bd_probe){.n_rows = n_rows, .leak_row = -1, .leak_segment = -1};
    if (!before || !after || !ids)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the probe");
    if (status == BD_OK)
        status = fingerprint_tokens(model, &batch, scale, before, err);
    batch.ids = ids;
    if (status == BD_OK)
        status = fingerprint_tokens(model, &batch, scale, after, err);
    if (status == BD_OK)
        compare(probe, &boundaries, changed, rows->row_numbers + first, before, after);
    free(before);
    free(after);
    free(ids);
    return status;
}
