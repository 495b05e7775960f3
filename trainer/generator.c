#include "trainer/generator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

BD_ENUM_NAMES(bd_ending, BD_ENDINGS);

// ---- Prompts ----------------------------------------------------------------------------

// What all prompts are encoded with, and its memory.
typedef struct prompt_encoder {
    bd_encoder encoder;
    bd_spans spans;
    bd_span_ids ids;
} prompt_encoder;

// Without a chat a prompt is one text, which may spell special tokens; in a chat they come from
// its format alone.
static bd_status render_prompt(const bd_generator *g, const char *prompt, bd_spans *spans,
                               bd_error *err)
{
    const bd_generator_options *options = &g->options;
    if (options->chat)
        return bd_chat_render_prompt(options->chat, options->system, prompt, spans, err);
    spans->n = 0;
    return bd_spans_add_text(spans, prompt, strlen(prompt), false, err);
}

// `document` gets the ids of the prompt, which leaves room for a token.
static bd_status encode_prompt(bd_generator *g, prompt_encoder *p, const char *prompt,
                               int64_t n_positions, bd_continuation *document, bd_error *err)
{
    const int64_t bos = g->tokenizer->bos;
    const int64_t least = bos != BD_NO_BOS ? 0 : 1, most = n_positions - 1 - (1 - least);
    if (most < least)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has no room for a prompt and a token: its positions are "
                       "%" PRId64,
                       n_positions);
    BD_TRY(render_prompt(g, prompt, &p->spans, err));
    BD_TRY(bd_spans_encode(&p->spans, &p->encoder, &p->ids, err));
    // A chat format that begins with BOS needs no second one.
    const bool has_bos =
        g->options.chat && p->spans.n > 0 && bos != BD_NO_BOS && p->spans.items[0].token == bos;
    const uint32_t *ids = p->ids.ids + (has_bos ? 1 : 0);
    const size_t n = p->ids.n - (has_bos ? 1 : 0), n_bos = bos != BD_NO_BOS;
    if ((int64_t)n < least || (int64_t)n > most)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "%zu tokens; a prompt may have from %" PRId64 " to %" PRId64, n, least,
                       most);
    document->ids = malloc((n_bos + n + 1) * sizeof(uint32_t));
    if (!document->ids)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the prompt");
    if (n_bos)
        document->ids[0] = (uint32_t)bos;
    if (n > 0)
        memcpy(document->ids + n_bos, ids, n * sizeof *ids);
    document->n_prompt = (int64_t)(n + n_bos);
    return BD_OK;
}

static bd_status encode_prompts(bd_generator *g, const char *const *prompts,
                                int64_t n_positions, bd_error *err)
{
    prompt_encoder p = {0};
    BD_TRY(bd_encoder_init(&p.encoder, g->tokenizer->tokenizer, err));
    if (g->options.chat)
        p.encoder.special_tokens = BD_SPECIAL_TEXT;
    bd_status status = BD_OK;
    for (size_t i = 0; i < g->n_documents && status == BD_OK; i++) {
        status = encode_prompt(g, &p, prompts[i], n_positions, &g->documents[i], err);
        if (status != BD_OK && status != BD_ERR_MEMORY)
            g->refused = i;
    }
    bd_span_ids_release(&p.ids);
    bd_spans_release(&p.spans);
    bd_encoder_release(&p.encoder);
    return status;
}

// ---- Beginning and end ------------------------------------------------------------------

// Documents beyond the first take at most half of the memory that the first leaves free, because
// others may want some of it later.
static bd_status choose_slots(bd_generator *g, bd_backend *backend,
                              const bd_parameters *parameters, bd_decoder_options *of_decoder,
                              bd_error *err)
{
    const int64_t n = (int64_t)g->n_documents;
    size_t one_bytes, free_bytes;
    of_decoder->n_documents = 1;
    BD_TRY(bd_decoder_measure(parameters, of_decoder, &one_bytes, err));
    BD_TRY(backend->operations->free_memory(backend, &free_bytes, err));
    if (one_bytes < free_bytes) {
        of_decoder->n_documents = n < BD_DECODER_TOKENS ? n : BD_DECODER_TOKENS;
        of_decoder->n_documents = bd_decoder_most_documents(
            parameters, of_decoder, one_bytes + (free_bytes - one_bytes) / 2);
    }
    g->n_slots = (size_t)of_decoder->n_documents;
    return BD_OK;
}

bd_status bd_generator_init(bd_generator *g, bd_backend *backend,
                            const bd_parameters *parameters, const bd_run_tokenizer *tokenizer,
                            const char *const *prompts, size_t n,
                            const bd_generator_options *options, bd_error *err)
{
    const bd_model_config *c = &parameters->config;
    *g = (bd_generator){
        .options = *options, .tokenizer = tokenizer, .n_documents = n, .refused = n};
    g->turn_end.token = BD_SPAN_IS_TEXT;
    if (options->chat)
        BD_TRY(bd_chat_format_turn_end(options->chat, &g->turn_end, err));
    g->documents = calloc(n, sizeof *g->documents);
    if (!g->documents)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu prompts", n);
    BD_TRY(encode_prompts(g, prompts, c->n_positions, err));
    bd_decoder_options of_decoder = {.type = options->type, .borrows = options->borrows};
    for (size_t i = 0; i < n; i++)
        if (g->documents[i].n_prompt + options->max_tokens > of_decoder.max_tokens)
            of_decoder.max_tokens = g->documents[i].n_prompt + options->max_tokens;
    BD_TRY(choose_slots(g, backend, parameters, &of_decoder, err));
    BD_TRY(bd_decoder_init(&g->decoder, backend, parameters, &of_decoder, err));
    g->in_slot = calloc(g->n_slots, sizeof *g->in_slot);
    g->tokens = calloc(g->n_slots, sizeof *g->tokens);
    g->logits = calloc(g->n_slots, (size_t)c->n_vocabulary * sizeof *g->logits);
    g->scratch = calloc((size_t)c->n_vocabulary, sizeof *g->scratch);
    if (!g->in_slot || !g->tokens || !g->logits || !g->scratch)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the logits of %zu documents",
                       g->n_slots);
    return bd_generator_begin(g, err);
}

void bd_generator_release(bd_generator *g)
{
    bd_decoder_release(&g->decoder);
    for (size_t i = 0; g->documents && i < g->n_documents; i++) {
        free(g->documents[i].ids);
        free(g->documents[i].text);
    }
    free(g->documents);
    free(g->turn_end.text);
    free(g->in_slot);
    free(g->tokens);
    free(g->logits);
    free(g->scratch);
    *g = (bd_generator){0};
}

// ---- Text -------------------------------------------------------------------------------

static bd_status add_text(const bd_generator *g, bd_continuation *document, uint32_t id,
                          bd_error *err)
{
    const bd_tokenizer *tokenizer = g->tokenizer->tokenizer;
    size_t size_bytes;
    const char *bytes = tokenizer->kind->token_bytes(tokenizer, id, &size_bytes);
    BD_TRY(bd_array_reserve((void **)&document->text, &document->text_capacity,
                            document->n_text + size_bytes, 1, err));
    if (size_bytes > 0)
        memcpy(document->text + document->n_text, bytes, size_bytes);
    document->n_text += size_bytes;
    return BD_OK;
}

char *bd_continuation_text(const bd_continuation *document)
{
    const size_t n = document->n_text - document->n_prompt_text;
    char *copy = malloc(n + 1);
    for (size_t i = 0; copy && i < n; i++) {
        const char byte = document->text[document->n_prompt_text + i];
        copy[i] = byte ? byte : '\xff';
    }
    if (copy)
        copy[n] = '\0';
    return copy;
}

// Ends the document before the first of the texts to stop at, or that ends a turn. If there is
// none, what could still become one stays uncertain. Only what follows n_certain can be part of
// either.
static void look_for_stops(const bd_generator *g, bd_continuation *document)
{
    const bd_texts *stops = &g->options.stops;
    const size_t n_text = document->n_text, n_stops = stops->n + (g->turn_end.text ? 1 : 0);
    size_t n_certain = n_text;
    for (size_t at = document->n_certain; at < n_text; at++)
        for (size_t i = 0; i < n_stops; i++) {
            const char *stop = i < stops->n ? stops->items[i] : g->turn_end.text;
            const size_t size = strlen(stop), left = n_text - at;
            if (memcmp(document->text + at, stop, left < size ? left : size) != 0)
                continue;
            if (size <= left) {
                document->n_text = at;
                document->ending = i < stops->n ? BD_ENDING_STOP : BD_ENDING_TURN;
                return;
            }
            // The search goes on: another text may be complete before this one is.
            if (at < n_certain)
                n_certain = at;
        }
    document->n_certain = n_certain;
}

// ---- Tokens -----------------------------------------------------------------------------

bd_status bd_generator_begin(bd_generator *g, bd_error *err)
{
    // Odd, and far larger than any seed that a person would try.
    const uint64_t apart = UINT64_C(0xd1b54a32d192ed03);
    for (size_t i = 0; i < g->n_documents; i++) {
        bd_continuation *document = &g->documents[i];
        document->n_drawn = 0;
        document->n_text = 0;
        document->ending = BD_ENDING_NONE;
        document->random = (bd_random){bd_random_mix(g->options.seed + i * apart)};
        for (int64_t t = g->tokenizer->bos != BD_NO_BOS; t < document->n_prompt; t++)
            BD_TRY(add_text(g, document, document->ids[t], err));
        document->n_prompt_text = document->n_certain = document->n_text;
    }
    g->n_begun = 0;
    for (size_t slot = 0; slot < g->n_slots; slot++)
        g->in_slot[slot] = g->n_documents;
    return BD_OK;
}

static bd_status draw(bd_generator *g, bd_continuation *document, const float *logits,
                      bd_error *err)
{
    // The model's table may be padded with rows that are no tokens.
    const uint32_t id =
        bd_sample_token(&document->random, logits, g->tokenizer->tokenizer->vocab_size,
                        &g->options.drawing, g->scratch);
    if (id == g->tokenizer->separator) {
        document->ending = BD_ENDING_SEPARATOR;
    } else if (id == g->turn_end.token) {
        document->ending = BD_ENDING_TURN;
    } else {
        document->last = id;
        document->n_drawn++;
        BD_TRY(add_text(g, document, id, err));
        if (document->n_prompt + document->n_drawn >= g->decoder.parameters->config.n_positions)
            document->ending = BD_ENDING_POSITIONS;
        if (document->n_drawn == g->options.max_tokens)
            document->ending = BD_ENDING_TOKENS;
        look_for_stops(g, document);  // last, because it outranks both
    }
    if (document->ending != BD_ENDING_NONE)
        document->n_certain = document->n_text;
    return BD_OK;
}

static bool has_ended(const bd_generator *g, size_t slot)
{
    const size_t i = g->in_slot[slot];
    return i == g->n_documents || g->documents[i].ending != BD_ENDING_NONE;
}

bd_status bd_generator_step(bd_generator *g, bool *ended, bd_error *err)
{
    const int64_t n_vocabulary = g->decoder.parameters->config.n_vocabulary;
    int64_t n = 0;
    for (size_t slot = 0; slot < g->n_slots; slot++) {
        if (has_ended(g, slot) && g->n_begun < g->n_documents) {
            g->in_slot[slot] = g->n_begun++;
            bd_decoder_empty(&g->decoder, (int64_t)slot);
        }
        if (has_ended(g, slot))
            continue;
        const bd_continuation *document = &g->documents[g->in_slot[slot]];
        const bool first = document->n_drawn == 0;
        g->tokens[n] = (bd_new_tokens){.document = (int64_t)slot,
                                       .ids = first ? document->ids : &document->last,
                                       .n = first ? document->n_prompt : 1,
                                       .logits = g->logits + n * n_vocabulary};
        n++;
    }
    BD_TRY(bd_decoder_add(&g->decoder, g->tokens, n, err));
    *ended = g->n_begun == g->n_documents;
    for (int64_t i = 0; i < n; i++) {
        const size_t slot = (size_t)g->tokens[i].document;
        BD_TRY(draw(g, &g->documents[g->in_slot[slot]], g->tokens[i].logits, err));
        *ended = *ended && has_ended(g, slot);
    }
    return BD_OK;
}
