#include "trainer/generator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "trainer/sampling.h"

bd_status bd_generator_init(bd_generator *g, bd_model *model, const bd_run_tokenizer *tokenizer,
                            bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    *g = (bd_generator){
        .model = model,
        .tokenizer = tokenizer,
        .max_tokens = c->n_positions < model->seq_len ? c->n_positions : model->seq_len,
    };
    g->ids = calloc((size_t)g->max_tokens, sizeof *g->ids);
    g->logits = malloc((size_t)(g->max_tokens * c->n_vocabulary) * sizeof *g->logits);
    g->scratch = malloc((size_t)c->n_vocabulary * sizeof *g->scratch);
    if (!g->ids || !g->logits || !g->scratch)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to generate");
    return BD_OK;
}

void bd_generator_release(bd_generator *g)
{
    free(g->ids);
    free(g->logits);
    free(g->scratch);
    free(g->text);
    *g = (bd_generator){0};
}

// ---- Text -------------------------------------------------------------------------------

static bd_status add_text(bd_generator *g, uint32_t id, bd_error *err)
{
    const bd_tokenizer *tokenizer = g->tokenizer->tokenizer;
    size_t size_bytes;
    const char *bytes = tokenizer->kind->token_bytes(tokenizer, id, &size_bytes);
    BD_TRY(
        bd_array_reserve((void **)&g->text, &g->text_capacity, g->n_text + size_bytes, 1, err));
    if (size_bytes > 0)
        memcpy(g->text + g->n_text, bytes, size_bytes);
    g->n_text += size_bytes;
    return BD_OK;
}

void bd_generator_take(bd_generator *g, size_t n)
{
    if (n > 0)
        memmove(g->text, g->text + n, g->n_text - n);
    g->n_text -= n;
}

// ---- Tokens -----------------------------------------------------------------------------

bd_status bd_generator_begin(bd_generator *g, const char *prompt, bd_error *err)
{
    const bd_tokenizer *tokenizer = g->tokenizer->tokenizer;
    const size_t n_bytes = strlen(prompt);
    const size_t n_bos = g->tokenizer->bos != BD_NO_BOS, max_tokens = (size_t)g->max_tokens;
    bd_encoder encoder;
    size_t n = 0;
    uint32_t *ids = malloc(tokenizer->kind->max_ids(tokenizer, n_bytes) * sizeof *ids + 1);
    if (!ids)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the prompt");
    bd_status status = bd_encoder_init(&encoder, tokenizer, err);
    if (status == BD_OK) {
        status = bd_encode(&encoder, prompt, n_bytes, ids, &n, err);
        bd_encoder_release(&encoder);
    }
    if (status == BD_OK && (n + n_bos == 0 || n + n_bos >= max_tokens))
        status = bd_fail(err, BD_ERR_ARGUMENT, "%zu tokens; a prompt may have from %zu to %zu",
                         n, 1 - n_bos, max_tokens - 1 - n_bos);
    if (status == BD_OK) {
        if (n_bos)
            g->ids[0] = (uint32_t)g->tokenizer->bos;
        if (n > 0)
            memcpy(g->ids + n_bos, ids, n * sizeof *ids);
        g->n = (int64_t)(n + n_bos);
        g->n_text = 0;
    }
    for (size_t i = 0; status == BD_OK && i < n; i++)
        status = add_text(g, ids[i], err);
    free(ids);
    return status;
}

// Computes the whole document again, as one row, for the token after it.
bd_status bd_generator_next(bd_generator *g, bd_drawing drawing, bd_random *random, bool *ended,
                            bd_error *err)
{
    const int64_t n_vocabulary = g->model->parameters->config.n_vocabulary;
    const int32_t offsets[] = {0, 2}, values[] = {0, (int32_t)g->n};
    const bd_boundaries boundaries = {1, g->n, offsets, values};
    const bd_model_batch batch = bd_model_batch_of(g->ids, sizeof *g->ids, boundaries);
    *ended = g->n == g->max_tokens;
    if (*ended)
        return BD_OK;
    BD_TRY(bd_model_forward(g->model, &batch, err));
    BD_TRY(bd_model_row_logits(g->model, &batch, 0, g->logits, err));
    // The model's table may be padded with rows that are no tokens.
    const uint32_t id = bd_sample_token(random, g->logits + (g->n - 1) * n_vocabulary,
                                        g->tokenizer->tokenizer->vocab_size,
                                        drawing.temperature, drawing.top_k, g->scratch);
    *ended = id == g->tokenizer->separator;
    if (*ended)
        return BD_OK;
    g->ids[g->n++] = id;
    return add_text(g, id, err);
}
