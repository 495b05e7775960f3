#include "trainer/model/decoder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/cli/human.h"
#include "trainer/model/typed_copy.h"

// ---- Memory -----------------------------------------------------------------------------

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// What the operations read of new tokens, which lie in one row.
typedef struct row_numbers {
    uint32_t ids[BD_DECODER_TOKENS];
    int32_t offsets[2], bounds[BD_DECODER_TOKENS + 1];  // of the row's boundaries
    int32_t past[BD_DECODER_TOKENS];                    // of each segment
    int32_t slots[BD_DECODER_TOKENS];
    int32_t wanted[BD_DECODER_TOKENS];  // the tokens whose logits are wanted
} row_numbers;

// Numbers in the keys, or the values, of one layer.
static int64_t cache_size(const bd_decoder *d)
{
    const bd_model_config *c = &d->parameters->config;
    return d->options.n_documents * d->capacity * c->n_kv_heads * bd_cache_width(c->head_size);
}

// Both backends divide the keys of a document into chunks of this, and keep what each chunk gives
// for a query.
enum { KEYS_PER_CHUNK = 256 };

// Allocates the buffers, or only adds up the sizes of these and of the scratch memory that the
// backend takes while it computes.
static bd_status make_buffers(bd_decoder *d, bool only_counts, size_t *total, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    const int64_t n = BD_DECODER_TOKENS, width = c->n_channels;
    const bool rotates = !c->family->position_table, local = c->family->has_local_rotation;
    const size_t of_type = bd_type_bytes(d->options.type);
    const struct {
        void **memory;
        int64_t n, width;
        size_t each;  // bytes
    } buffers[] = {
        {&d->own_weights, d->options.borrows ? 0 : d->parameters->n_total, 1, of_type},
        {&d->keys, c->n_layers, cache_size(d), of_type},
        {&d->values, c->n_layers, cache_size(d), of_type},
        {(void **)&d->turns, rotates ? c->head_size / 2 : 0, 1, sizeof *d->turns},
        {(void **)&d->local_turns, local ? c->head_size / 2 : 0, 1, sizeof *d->local_turns},
        {&d->numbers, 1, 1, sizeof(row_numbers)},
        {&d->stream, n, width, of_type},
        {&d->normed, n, width, of_type},
        {&d->qkv, n, bd_qkv_width(c), of_type},
        {&d->attended, n, c->n_heads * c->head_size, of_type},
        {&d->branch, n, width, of_type},
        {&d->expanded, c->family->gate ? n : 0, bd_expanded_width(c), of_type},
        {&d->activated, n, c->n_feed_forward, of_type},
        {(void **)&d->mean, n, 1, sizeof *d->mean},
        {(void **)&d->rstd, n, c->n_heads, sizeof *d->rstd},
        {&d->logits, smaller_of(d->options.n_documents, n), c->n_vocabulary, of_type},
    };
    _Static_assert(sizeof buffers / sizeof buffers[0] == BD_DECODER_BUFFERS, "all are owned");
    const int64_t n_partials = smaller_of(n, d->max_tokens * d->options.n_documents) *
                               ((d->max_tokens + KEYS_PER_CHUNK - 1) / KEYS_PER_CHUNK);
    if (!bd_size_mul((size_t)(n_partials * c->n_heads),
                     (size_t)(2 + bd_cache_width(c->head_size)) * sizeof(float), total))
        return bd_fail(err, BD_ERR_MEMORY, "the documents are too long or too many");
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        size_t count, size_bytes;
        if (!bd_size_mul((size_t)buffers[i].n, (size_t)buffers[i].width, &count) ||
            !bd_size_mul(count, buffers[i].each, &size_bytes) ||
            !bd_size_add(*total, size_bytes, total))
            return bd_fail(err, BD_ERR_MEMORY, "the documents are too long or too many");
        if (only_counts || size_bytes == 0)
            continue;
        BD_TRY(
            d->backend->operations->allocate(d->backend, size_bytes, buffers[i].memory, err));
        d->owned[d->n_owned++] = *buffers[i].memory;
    }
    return BD_OK;
}

static bd_status describe(bd_decoder *d, bd_backend *backend, const bd_parameters *parameters,
                          const bd_decoder_options *options, bd_error *err)
{
    const int64_t max_tokens = smaller_of(options->max_tokens, parameters->config.n_positions);
    const int64_t per_token =
        parameters->config.n_kv_heads * bd_cache_width(parameters->config.head_size);
    int64_t capacity, size;
    *d = (bd_decoder){.backend = backend, .parameters = parameters, .options = *options};
    if (!bd_int64_add(max_tokens, BD_CACHE_BLOCK - 1, &capacity) ||
        !bd_int64_mul(capacity, options->n_documents, &size) ||
        !bd_int64_mul(size, per_token, &size))
        return bd_fail(err, BD_ERR_MEMORY, "the documents are too long or too many");
    d->max_tokens = max_tokens;
    d->capacity = capacity / BD_CACHE_BLOCK * BD_CACHE_BLOCK;
    return BD_OK;
}

bd_status bd_decoder_measure(const bd_parameters *parameters, const bd_decoder_options *options,
                             size_t *size_bytes, bd_error *err)
{
    bd_decoder d;
    BD_TRY(describe(&d, NULL, parameters, options, err));
    return make_buffers(&d, true, size_bytes, err);
}

int64_t bd_decoder_most_documents(const bd_parameters *parameters,
                                  const bd_decoder_options *options, size_t size_bytes)
{
    int64_t fit = 0, too_many = options->n_documents + 1;
    while (too_many - fit > 1) {
        bd_decoder_options tried = *options;
        size_t needed;
        tried.n_documents = fit + (too_many - fit) / 2;
        if (bd_decoder_measure(parameters, &tried, &needed, NULL) == BD_OK &&
            needed <= size_bytes)
            fit = tried.n_documents;
        else
            too_many = tried.n_documents;
    }
    return fit;
}

// Linux grants memory that it does not have and kills the process that touches it; so compare
// first.
static bd_status check_memory(bd_decoder *d, bd_error *err)
{
    size_t needed, free_bytes;
    BD_TRY(make_buffers(d, true, &needed, err));
    BD_TRY(d->backend->operations->free_memory(d->backend, &free_bytes, err));
    if (needed <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "a model of %s parameters and the keys and values of %" PRId64
                   " document%s of up to %" PRId64
                   " tokens take %s of the memory of %s, and %s are free: shorter documents "
                   "take less",
                   bd_format_count((uint64_t)d->parameters->n_total).text,
                   d->options.n_documents, d->options.n_documents == 1 ? "" : "s",
                   d->max_tokens, bd_format_bytes(needed).text, d->backend->operations->name,
                   bd_format_bytes(free_bytes).text);
}

static bd_status fill(bd_decoder *d, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    size_t size_bytes;
    BD_TRY(bd_backend_check_type(d->backend, d->options.type, err));
    BD_TRY(check_memory(d, err));
    BD_TRY(make_buffers(d, false, &size_bytes, err));
    d->weights = d->own_weights;
    d->lengths = calloc((size_t)d->options.n_documents, sizeof *d->lengths);
    if (!d->lengths)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " documents",
                       d->options.n_documents);
    if (d->turns)
        BD_TRY(bd_upload_turns(d->backend, d->turns, &c->rotation, c->head_size, err));
    if (!d->local_turns)
        return BD_OK;
    return bd_upload_turns(d->backend, d->local_turns, &(bd_rotation){.theta = c->local_theta},
                           c->head_size, err);
}

bd_status bd_decoder_init(bd_decoder *decoder, bd_backend *backend,
                          const bd_parameters *parameters, const bd_decoder_options *options,
                          bd_error *err)
{
    BD_TRY(describe(decoder, backend, parameters, options, err));
    const bd_status status = fill(decoder, err);
    if (status != BD_OK)
        bd_decoder_release(decoder);
    return status;
}

void bd_decoder_release(bd_decoder *d)
{
    for (size_t i = 0; i < d->n_owned; i++)
        d->backend->operations->release(d->backend, d->owned[i]);
    free(d->lengths);
    *d = (bd_decoder){0};
}

bd_status bd_decoder_set_weights(bd_decoder *decoder, const float *weights, bd_error *err)
{
    return bd_upload_floats(decoder->backend, decoder->options.type, decoder->own_weights,
                            weights, decoder->parameters->n_total, err);
}

void bd_decoder_borrow(bd_decoder *decoder, const void *weights)
{
    decoder->weights = weights;
}

// ---- Operations with this model's parameters --------------------------------------------

#define OP(decoder, name, ...)                                                               \
    (decoder)->backend->operations->name((decoder)->backend, &(bd_##name##_args)__VA_ARGS__, \
                                         err)

// The new tokens of a call: one row whose segments are those of one document each. All pointers
// are the backend's memory.
typedef struct token_row {
    bd_boundaries boundaries;
    const uint32_t *ids;
    const int32_t *past, *slots, *wanted;
    int64_t n_wanted;
    int64_t longest;  // tokens of a document, the new ones included
} token_row;

// Element i of a tensor of the decoder's type.
static void *element(const bd_decoder *d, const void *tensor, int64_t i)
{
    return (char *)tensor + i * (int64_t)bd_type_bytes(d->options.type);
}

static const void *weight_at(const bd_decoder *d, int64_t offset)
{
    return offset == BD_NO_PARAMETER ? NULL : element(d, d->weights, offset);
}

// RMS norms of `n_vectors` vectors of each token, in rows that are `stride` apart.
static bd_status rms_norm(bd_decoder *d, const token_row *row, int64_t n_vectors,
                          int64_t n_channels, int64_t stride, int64_t gain, const void *x,
                          void *out, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    return OP(d, rms_norm_forward,
              {.boundaries = row->boundaries,
               .type = d->options.type,
               .n_vectors = n_vectors,
               .n_channels = n_channels,
               .x_stride = stride,
               .out_stride = stride,
               .epsilon = (float)c->norm_epsilon,
               .gain_offset = bd_gain_offset(c),
               .x = x,
               .gain = weight_at(d, gain),
               .out = out,
               .rstd = d->rstd});
}

// The norm of x in d->normed, or x itself if there is none.
static bd_status norm(bd_decoder *d, const token_row *row, const bd_norm_offsets *offsets,
                      const void *x, const void **out, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    *out = bd_norm_exists(offsets) ? d->normed : x;
    if (!bd_norm_exists(offsets))
        return BD_OK;
    if (!c->family->has_layer_norms)
        return rms_norm(d, row, 1, c->n_channels, 0, offsets->gain, x, d->normed, err);
    return OP(d, layer_norm_forward,
              {.boundaries = row->boundaries,
               .type = d->options.type,
               .n_channels = c->n_channels,
               .epsilon = (float)c->norm_epsilon,
               .x = x,
               .gamma = weight_at(d, offsets->gain),
               .beta = weight_at(d, offsets->shift),
               .out = d->normed,
               .mean = d->mean,
               .rstd = d->rstd});
}

static bd_status linear(bd_decoder *d, const token_row *row, const bd_linear_offsets *offsets,
                        int64_t n_in, int64_t n_out, bd_activation activation, const void *x,
                        void *out, bd_error *err)
{
    return OP(d, linear_by_token,
              {.type = d->options.type,
               .n_tokens = row->boundaries.seq_len,
               .n_in = n_in,
               .n_out = n_out,
               .layout = d->parameters->config.family->layout,
               .activation = activation,
               .x = x,
               .weight = weight_at(d, offsets->weight),
               .bias = weight_at(d, offsets->bias),
               .out = out});
}

// ---- Layers -----------------------------------------------------------------------------

// Norm and rotation of n heads of queries or keys, in place; the first one's number is `first`.
static bd_status prepare_heads(bd_decoder *d, const token_row *row, int64_t l, int64_t first,
                               int64_t n, const bd_norm_offsets *offsets, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    const bool whole = c->family->norms_whole_width;
    const bool local = bd_layer_has_local_rotation(c, l);
    void *heads = element(d, d->qkv, first * c->head_size);
    if (bd_norm_exists(offsets))
        BD_TRY(rms_norm(d, row, whole ? 1 : n, whole ? n * c->head_size : c->head_size,
                        bd_qkv_width(c), offsets->gain, heads, heads, err));
    if (!bd_layer_rotates(c, l))
        return BD_OK;
    return OP(d, rotary,
              {.boundaries = row->boundaries,
               .past = row->past,
               .type = d->options.type,
               .n_heads = n,
               .head_size = c->head_size,
               .stride = bd_qkv_width(c),
               .turns = local ? d->local_turns : d->turns,
               .scale = local ? 1.0f : (float)bd_rotation_scale(&c->rotation),
               .x = heads});
}

static bd_status attend(bd_decoder *d, const token_row *row, int64_t l, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    return OP(d, attention_cached,
              {.boundaries = row->boundaries,
               .type = d->options.type,
               .n_heads = c->n_heads,
               .n_kv_heads = c->n_kv_heads,
               .head_size = c->head_size,
               .q_stride = bd_qkv_width(c),
               .kv_stride = bd_qkv_width(c),
               .window = bd_layer_window(c, l),
               .capacity = d->capacity,
               .longest = row->longest,
               .scale = bd_score_scale(c),
               .slots = row->slots,
               .past = row->past,
               .q = d->qkv,
               .k = element(d, d->qkv, c->n_heads * c->head_size),
               .v = element(d, d->qkv, (c->n_heads + c->n_kv_heads) * c->head_size),
               .keys = element(d, d->keys, l * cache_size(d)),
               .values = element(d, d->values, l * cache_size(d)),
               .out = d->attended});
}

// The linear layer with which a block ends, the norm after it, if there is one, and the sum with
// the stream.
static bd_status leave_block(bd_decoder *d, const token_row *row,
                             const bd_linear_offsets *offsets, int64_t n_in, const void *x,
                             const bd_norm_offsets *post_norm, bd_error *err)
{
    const int64_t width = d->parameters->config.n_channels;
    const void *branch;
    BD_TRY(linear(d, row, offsets, n_in, width, BD_ACTIVATION_NONE, x, d->branch, err));
    BD_TRY(norm(d, row, post_norm, d->branch, &branch, err));
    return OP(d, add,
              {.type = d->options.type,
               .n = row->boundaries.seq_len * width,
               .a = d->stream,
               .b = branch,
               .out = d->stream});
}

// The first half of a feed-forward block: from x to what the last matrix is multiplied by.
static bd_status expand(bd_decoder *d, const token_row *row, const bd_linear_offsets *offsets,
                        const void *x, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    if (!c->family->gate)
        return linear(d, row, offsets, c->n_channels, c->n_feed_forward, c->family->activation,
                      x, d->activated, err);
    BD_TRY(linear(d, row, offsets, c->n_channels, bd_expanded_width(c), BD_ACTIVATION_NONE, x,
                  d->expanded, err));
    return OP(d, gated_activation_forward,
              {.type = d->options.type,
               .activation = c->family->activation,
               .n_tokens = row->boundaries.seq_len,
               .n_channels = c->n_feed_forward,
               .x = d->expanded,
               .out = d->activated});
}

static bd_status run_layer(bd_decoder *d, const token_row *row, int64_t l, bd_error *err)
{
    const bd_model_config *c = &d->parameters->config;
    const bd_layer_offsets *offsets = &d->parameters->layers[l];
    const void *in;
    BD_TRY(norm(d, row, &offsets->attention_norm, d->stream, &in, err));
    BD_TRY(linear(d, row, &offsets->qkv, c->n_channels, bd_qkv_width(c), BD_ACTIVATION_NONE, in,
                  d->qkv, err));
    BD_TRY(prepare_heads(d, row, l, 0, c->n_heads, &offsets->query_norm, err));
    BD_TRY(prepare_heads(d, row, l, c->n_heads, c->n_kv_heads, &offsets->key_norm, err));
    BD_TRY(attend(d, row, l, err));
    BD_TRY(leave_block(d, row, &offsets->projection, c->n_heads * c->head_size, d->attended,
                       &offsets->attention_post_norm, err));

    BD_TRY(norm(d, row, &offsets->feed_forward_norm, d->stream, &in, err));
    BD_TRY(expand(d, row, &offsets->expand, in, err));
    return leave_block(d, row, &offsets->contract, c->n_feed_forward, d->activated,
                       &offsets->feed_forward_post_norm, err);
}

// From the ids to the logits that are wanted.
static bd_status run_row(bd_decoder *d, const token_row *row, bd_error *err)
{
    const bd_parameters *p = d->parameters;
    const bd_model_config *c = &p->config;
    const void *last;
    BD_TRY(OP(d, embedding_forward,
              {.boundaries = row->boundaries,
               .past = row->past,
               .type = d->options.type,
               .ids = row->ids,
               .id_bytes = sizeof *row->ids,
               .n_channels = c->n_channels,
               .n_vocabulary = c->n_vocabulary,
               .n_positions = p->n_position_rows,
               .first_position = c->family->first_position,
               .token_scale = bd_token_scale(c),
               .token_table = weight_at(d, p->token_table),
               .position_table = weight_at(d, p->position_table),
               .out = d->stream}));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(run_layer(d, row, l, err));
    if (row->n_wanted == 0)
        return BD_OK;
    BD_TRY(norm(d, row, &p->final_norm, d->stream, &last, err));
    return OP(d, linear_by_token,
              {.type = d->options.type,
               .n_tokens = row->n_wanted,
               .n_in = c->n_channels,
               .n_out = c->n_vocabulary,
               .layout = BD_WEIGHT_OUT_IN,
               .x = last,
               .rows = row->wanted,
               .weight = weight_at(d, p->head),
               .out = d->logits});
}

// ---- Tokens -----------------------------------------------------------------------------

// Up to BD_DECODER_TOKENS tokens on the host.
typedef struct gathering {
    row_numbers numbers;
    float *logits[BD_DECODER_TOKENS];  // where the wanted ones go
    int64_t n_segments, n_wanted, longest;
} gathering;

// How far the tokens of a call of bd_decoder_add() have come.
typedef struct progress {
    int64_t part, done;  // tokens of that part
} progress;

static int64_t count_gathered(const gathering *g)
{
    return g->numbers.bounds[g->n_segments];
}

// Takes the next tokens of the parts, as many as there is room for.
static void gather(bd_decoder *d, const bd_new_tokens *parts, int64_t n, progress *at,
                   gathering *g)
{
    *g = (gathering){0};
    while (at->part < n && count_gathered(g) < BD_DECODER_TOKENS) {
        const bd_new_tokens *part = &parts[at->part];
        const int64_t first = count_gathered(g), segment = g->n_segments++;
        const int64_t count = smaller_of(BD_DECODER_TOKENS - first, part->n - at->done);
        int64_t *length = &d->lengths[part->document];
        memcpy(g->numbers.ids + first, part->ids + at->done,
               (size_t)count * sizeof *g->numbers.ids);
        g->numbers.bounds[segment + 1] = (int32_t)(first + count);
        g->numbers.past[segment] = (int32_t)*length;
        g->numbers.slots[segment] = (int32_t)part->document;
        *length += count;
        g->longest = larger_of(g->longest, *length);
        at->done += count;
        if (at->done < part->n)
            continue;
        if (part->logits) {
            g->logits[g->n_wanted] = part->logits;
            g->numbers.wanted[g->n_wanted++] = (int32_t)(first + count - 1);
        }
        *at = (progress){at->part + 1, 0};
    }
    g->numbers.offsets[1] = (int32_t)(g->n_segments + 1);
}

static bd_status run_gathered(bd_decoder *d, const gathering *g, bd_error *err)
{
    const int64_t n_vocabulary = d->parameters->config.n_vocabulary;
    BD_TRY(d->backend->operations->upload(d->backend, d->numbers, &g->numbers,
                                          sizeof g->numbers, err));
    const row_numbers *there = d->numbers;
    const token_row row = {
        .boundaries = {1, count_gathered(g), there->offsets, there->bounds},
        .ids = there->ids,
        .past = there->past,
        .slots = there->slots,
        .longest = g->longest,
        .wanted = there->wanted,
        .n_wanted = g->n_wanted,
    };
    BD_TRY(run_row(d, &row, err));
    for (int64_t i = 0; i < g->n_wanted; i++)
        BD_TRY(bd_download_floats(d->backend, d->options.type, g->logits[i],
                                  element(d, d->logits, i * n_vocabulary), n_vocabulary, err));
    return BD_OK;
}

bd_status bd_decoder_add(bd_decoder *decoder, const bd_new_tokens *tokens, int64_t n,
                         bd_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i].n > decoder->max_tokens - decoder->lengths[tokens[i].document])
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "a document of more than %" PRId64 " tokens does not fit",
                           decoder->max_tokens);
    progress at = {0, 0};
    while (at.part < n) {
        gathering g;
        gather(decoder, tokens, n, &at, &g);
        BD_TRY(run_gathered(decoder, &g, err));
    }
    return BD_OK;
}

void bd_decoder_empty(bd_decoder *decoder, int64_t document)
{
    decoder->lengths[document] = 0;
}
