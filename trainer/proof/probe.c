#include "trainer/proof/probe.h"

#include <stdlib.h>
#include <string.h>

// Hashes each token's logits and gradient, so that a change of any bit is seen.
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
        status = bd_model_train(model, batch, gradient_scale, &loss_sum, err);
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

static int64_t length_of(span segment)
{
    return segment.end - segment.begin;
}

// Inserts the segment into chosen[], sorted by length with the longest first; drops what
// exceeds n_most.
static void insert_longest(span *chosen, int64_t *n, int64_t n_most, span segment)
{
    int64_t at = *n;
    while (at > 0 && length_of(chosen[at - 1]) < length_of(segment))
        at--;
    if (at == n_most)
        return;
    *n += *n < n_most;
    memmove(chosen + at + 1, chosen + at, (size_t)(*n - 1 - at) * sizeof *chosen);
    chosen[at] = segment;
}

// Chooses the longest segments among those that another one follows in its row, or the longest
// of all if there are none; the earlier one among equals. Returns how many.
static int64_t choose_segments(const bd_boundaries *boundaries, span *chosen, int64_t n_most)
{
    span longest[1];
    int64_t n_chosen = 0, n_longest = 0;
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n);
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = r * boundaries->seq_len;
            const span segment = {row + bounds[k], row + bounds[k + 1]};
            insert_longest(longest, &n_longest, 1, segment);
            if (k + 1 < n)
                insert_longest(chosen, &n_chosen, n_most, segment);
        }
    }
    if (n_chosen == 0 && n_longest == 1)
        chosen[n_chosen++] = longest[0];
    return n_chosen;
}

// Replaces every token of the span by another id of the model's vocabulary, whether or not the
// tokenizer has it.
static void change_ids(void *ids, int32_t id_bytes, span changed, int64_t n_vocabulary)
{
    for (int64_t t = changed.begin; t < changed.end; t++) {
        const uint32_t other =
            (uint32_t)((bd_id_at(ids, id_bytes, t) + INT64_C(1)) % n_vocabulary);
        if (id_bytes == 2)
            ((uint16_t *)ids)[t] = (uint16_t)other;
        else
            ((uint32_t *)ids)[t] = other;
    }
}

static void compare_fingerprints(bd_probe *probe, const bd_boundaries *boundaries, span changed,
                                 const int64_t *row_numbers, const uint64_t *before,
                                 const uint64_t *after)
{
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n);
        const int64_t row = r * boundaries->seq_len;
        for (int64_t k = 0; k < n; k++) {
            const span segment = {row + bounds[k], row + bounds[k + 1]};
            const bool probed = segment.begin == changed.begin;
            int64_t n_changed = 0;
            for (int64_t t = segment.begin; t < segment.end; t++)
                n_changed += before[t] != after[t];
            *(probed ? &probe->probed_tokens : &probe->other_tokens) += length_of(segment);
            *(probed ? &probe->changed_tokens : &probe->leaked_tokens) += n_changed;
            if (!probed && n_changed > 0 && probe->leak_row < 0) {
                probe->leak_row = row_numbers[r];
                probe->leak_segment = k;
            }
        }
    }
}

bool bd_probe_is_clean(const bd_probe *probe)
{
    return probe->n_documents > 0 && probe->n_silent == 0 && probe->leaked_tokens == 0;
}

bd_status bd_probe_batch(bd_probe *probe, bd_model *model, const bd_batch *rows, int64_t first,
                         int64_t n_rows, int64_t n_documents, bd_error *err)
{
    bd_model_batch batch = bd_batch_part(rows, first, n_rows);
    const bd_boundaries boundaries = batch.attention;
    const size_t n = (size_t)(n_rows * boundaries.seq_len);
    const int64_t n_vocabulary = model->parameters->config.n_vocabulary;
    const double scale =
        bd_loss_scale(bd_count_row_targets(&boundaries, &batch.mask), model->loss);
    span chosen[BD_MOST_PROBED_DOCUMENTS];
    uint64_t *before = calloc(n, sizeof *before), *after = calloc(n, sizeof *after);
    void *ids = malloc(n * (size_t)batch.id_bytes);
    bd_status status = BD_OK;
    *probe = (bd_probe){.n_rows = n_rows,
                        .n_segments = bd_count_segments(&boundaries),
                        .n_documents = choose_segments(&boundaries, chosen, n_documents),
                        .leak_row = -1,
                        .leak_segment = -1};
    if (!before || !after || !ids)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the probe");
    if (status == BD_OK)
        status = fingerprint_tokens(model, &batch, scale, before, err);
    const void *own_ids = batch.ids;
    batch.ids = ids;
    for (int64_t d = 0; status == BD_OK && d < probe->n_documents; d++) {
        memcpy(ids, own_ids, n * (size_t)batch.id_bytes);
        change_ids(ids, batch.id_bytes, chosen[d], n_vocabulary);
        status = fingerprint_tokens(model, &batch, scale, after, err);
        const int64_t changed_before = probe->changed_tokens;
        if (status == BD_OK)
            compare_fingerprints(probe, &boundaries, chosen[d], rows->row_numbers + first,
                                 before, after);
        probe->n_silent += probe->changed_tokens == changed_before;
    }
    free(before);
    free(after);
    free(ids);
    return status;
}
