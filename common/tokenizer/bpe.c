// The byte-level BPE tokenizer: a model from a file, the tables made from it, and for each
// thread a reader of words and an encoder of words.
//
//   text -> added tokens -> normal form -> added tokens -> words -> ids
//           encode_around()  encode_normalised()           encode_plain()
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/memory.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/merge/bpe_tables.h"
#include "common/tokenizer/merge/word_encoder.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/normal_form.h"
#include "common/tokenizer/split/splitter.h"
#include "common/tokenizer/tokenizer.h"

typedef struct bpe_tokenizer {
    bd_tokenizer base;
    bd_bpe_model model;
    bd_bpe_tables tables;
    bd_splitter *splitter;
    bd_added_tokens *raw_tokens;         // looked for in the text as it is
    bd_added_tokens *normalized_tokens;  // and in its normal form
} bpe_tokenizer;

// The state of one thread.
typedef struct bpe_encoding {
    const bpe_tokenizer *bpe;
    const bd_encoder *encoder;  // whose text is encoded, borrowed
    const char *document;       // that text
    const char *normalised;     // the part of it whose normal form is encoded now; NULL: none
    bd_word_reader *reader;
    bd_word_encoder words;
    char *prefixed;  // a text with a space before it, owned
    size_t prefixed_capacity;
    uint32_t ends[BD_WORD_BATCH];
} bpe_encoding;

static const bpe_tokenizer *bpe_of(const bd_tokenizer *tokenizer)
{
    return (const bpe_tokenizer *)tokenizer;  // its first member
}

// ---- Encoding ------------------------------------------------------------------------------
// Each of these writes ids to *ids, which moves behind them.

// Encodes a text that contains no added token.
static bd_status encode_plain(bpe_encoding *e, const char *text, size_t size_bytes,
                              uint32_t **ids, bd_error *err)
{
    if (size_bytes == 0)
        return BD_OK;
    if (e->bpe->model.prefix_space && text[0] != ' ') {
        BD_TRY(bd_array_reserve((void **)&e->prefixed, &e->prefixed_capacity, size_bytes + 1, 1,
                                err));
        e->prefixed[0] = ' ';
        memcpy(e->prefixed + 1, text, size_bytes);
        text = e->prefixed;
        size_bytes++;
    }
    bd_word_batch batch = {.text = text, .size_bytes = size_bytes, .ends = e->ends};
    BD_TRY(bd_word_reader_begin(e->reader, text, size_bytes, err));
    for (;;) {
        BD_TRY(bd_word_reader_next(e->reader, e->ends, BD_WORD_BATCH, &batch.n, err));
        if (batch.n == 0)
            return BD_OK;
        *ids = bd_word_encoder_encode(&e->words, &batch, *ids);
        // A signal also ends a long word before its end, so the ids count only without one.
        BD_TRY(bd_interrupt_check(err));
        batch.begin = e->ends[batch.n - 1];
    }
}

// Fails because `text` spells out a special token.
static bd_status fail_special(const bpe_encoding *e, const char *text,
                              const bd_added_match *match, bd_error *err)
{
    enum { SHOWN = 60 };  // bytes of its name
    const bd_added_token *token = match->token;
    const int n = (int)(token->size_bytes < SHOWN ? token->size_bytes : SHOWN);
    const char *from = e->normalised ? e->normalised : text + match->at;
    return bd_fail(
        err, BD_ERR_FORMAT,
        "the text spells the special token '%.*s', id %u, %s byte %zu of the document "
        "(--special-tokens text takes it as text)",
        n, token->text, token->id,
        e->normalised ? "in the normal form of the text that begins at" : "at",
        (size_t)(from - e->document));
}

typedef bd_status encode_function(bpe_encoding *e, const char *text, size_t size_bytes,
                                  uint32_t **ids, bd_error *err);

// Encodes the added tokens that `tokens` finds, and the texts between them by `between`.
static bd_status encode_around(bpe_encoding *e, const bd_added_tokens *tokens,
                               encode_function *between, const char *text, size_t size_bytes,
                               uint32_t **ids, bd_error *err)
{
    const bd_encoder *encoder = e->encoder;
    if (encoder->ordinary)
        return between(e, text, size_bytes, ids, err);
    const bool with_special = encoder->special_tokens != BD_SPECIAL_TEXT;
    size_t done = 0;
    bd_added_match match;
    for (size_t from = 0;
         bd_added_tokens_find(tokens, text, size_bytes, from, with_special, &match);
         from = match.resume) {
        if (match.begin > done)
            BD_TRY(between(e, text + done, match.begin - done, ids, err));
        if (match.token->special && encoder->special_tokens == BD_SPECIAL_ERROR)
            return fail_special(e, text, &match, err);
        if (encoder->recognised)
            bd_added_counts_count(encoder->recognised, match.token->id);
        *(*ids)++ = match.token->id;
        done = match.end;
    }
    return between(e, text + done, size_bytes - done, ids, err);
}

// Encodes a text between two tokens that are looked for in the text as it is: brings it to its
// normal form, if the model asks for that, and looks for the other tokens there.
static bd_status encode_normalised(bpe_encoding *e, const char *text, size_t size_bytes,
                                   uint32_t **ids, bd_error *err)
{
    const bd_added_tokens *tokens = e->bpe->normalized_tokens;
    if (!e->bpe->model.nfc || bd_is_normal_form(text, size_bytes))
        return encode_around(e, tokens, encode_plain, text, size_bytes, ids, err);
    char *normal;
    size_t normal_bytes;
    BD_TRY(bd_normal_form(text, size_bytes, &normal, &normal_bytes, err));
    e->normalised = text;
    const bd_status status =
        encode_around(e, tokens, encode_plain, normal, normal_bytes, ids, err);
    e->normalised = NULL;
    free(normal);
    return status;
}

static bd_status bpe_encode(bd_encoder *encoder, const char *text, size_t size_bytes,
                            uint32_t *ids, size_t *n, bd_error *err)
{
    bpe_encoding *e = encoder->state;
    e->encoder = encoder;
    e->document = text;
    bd_word_reader_begin_document(e->reader, size_bytes);
    uint32_t *end = ids;
    BD_TRY(
        encode_around(e, e->bpe->raw_tokens, encode_normalised, text, size_bytes, &end, err));
    *n = (size_t)(end - ids);
    return BD_OK;
}

static size_t bpe_max_ids(const bd_tokenizer *tokenizer, size_t size_bytes)
{
    const bd_bpe_model *model = &bpe_of(tokenizer)->model;
    // The normal form C of a text has at most 3 times as many bytes. A space is put before each
    // text between two added tokens, each of which has at least one byte.
    return size_bytes * (model->nfc ? 3 : 1) * (model->prefix_space ? 2 : 1) + 1 + BD_SPARE_IDS;
}

static void bpe_end_encoding(void *state)
{
    bpe_encoding *e = state;
    if (!e)
        return;
    bd_word_reader_free(e->reader);
    bd_word_encoder_release(&e->words);
    free(e->prefixed);
    free(e);
}

static bd_status bpe_begin_encoding(const bd_tokenizer *tokenizer, void **state, bd_error *err)
{
    bpe_encoding *e = calloc(1, sizeof *e);
    if (!e)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a tokenizer");
    e->bpe = bpe_of(tokenizer);
    bd_status status = bd_word_reader_new(e->bpe->splitter, &e->reader, err);
    if (status == BD_OK)
        status = bd_word_encoder_init(&e->words, &e->bpe->tables, err);
    if (status != BD_OK) {
        bpe_end_encoding(e);
        return status;
    }
    *state = e;
    return BD_OK;
}

// ---- Decoding, files, opening --------------------------------------------------------------

static const char *bpe_token_name(const bd_tokenizer *tokenizer, uint32_t id,
                                  size_t *size_bytes)
{
    const bd_bpe_model *model = &bpe_of(tokenizer)->model;
    *size_bytes = id < model->n_ids ? model->begins[id + 1] - model->begins[id] : 0;
    return *size_bytes > 0 ? model->bytes + model->begins[id] : NULL;
}

static const char *bpe_token_bytes(const bd_tokenizer *tokenizer, uint32_t id,
                                   size_t *size_bytes)
{
    const bd_bpe_model *model = &bpe_of(tokenizer)->model;
    const bd_added_token *added = bd_bpe_model_added(model, id);
    *size_bytes = 0;
    return added && added->special ? NULL : bpe_token_name(tokenizer, id, size_bytes);
}

// An added token comes before another token of the same text.
static bool bpe_find_token(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                           uint32_t *id)
{
    const bd_bpe_model *model = &bpe_of(tokenizer)->model;
    for (size_t k = 0; k < model->n_added; k++)
        if (model->added[k].size_bytes == size_bytes &&
            memcmp(model->added[k].text, text, size_bytes) == 0) {
            *id = model->added[k].id;
            return true;
        }
    for (*id = 0; *id < model->n_ids; ++*id)
        if (model->begins[*id + 1] - model->begins[*id] == size_bytes &&
            memcmp(model->bytes + model->begins[*id], text, size_bytes) == 0)
            return bd_bpe_model_merges_to(model, *id);
    return false;
}

static bd_status bpe_to_file(const bd_tokenizer *tokenizer, char **text, bd_error *err)
{
    return bd_bpe_model_to_json(&bpe_of(tokenizer)->model, text, err);
}

static void bpe_close(bd_tokenizer *tokenizer)
{
    bpe_tokenizer *bpe = (bpe_tokenizer *)tokenizer;
    bd_added_tokens_free(bpe->raw_tokens);
    bd_added_tokens_free(bpe->normalized_tokens);
    bd_splitter_free(bpe->splitter);
    bd_bpe_tables_release(&bpe->tables);
    bd_bpe_model_release(&bpe->model);
    free(bpe);
}

// The token that ends a document, by the names that vocabularies give it.
static int64_t bpe_default_separator(const bd_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    uint32_t id;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bpe_find_token(tokenizer, names[i], strlen(names[i]), &id) &&
            bd_bpe_model_added(&bpe_of(tokenizer)->model, id))
            return id;
    return BD_NO_SEPARATOR;
}

static bd_status bpe_prepare(bpe_tokenizer *bpe, bd_error *err)
{
    static const bd_tokenizer_kind kind = {
        .max_ids = bpe_max_ids,
        .begin_encoding = bpe_begin_encoding,
        .end_encoding = bpe_end_encoding,
        .encode = bpe_encode,
        .token_bytes = bpe_token_bytes,
        .token_name = bpe_token_name,
        .find_token = bpe_find_token,
        .to_file = bpe_to_file,
        .close = bpe_close,
    };
    const bd_bpe_model *model = &bpe->model;
    BD_TRY(bd_bpe_tables_init(&bpe->tables, model, err));
    BD_TRY(bd_splitter_new(model->steps, model->n_steps, &bpe->splitter, err));
    BD_TRY(bd_added_tokens_new(model, false, &bpe->raw_tokens, err));
    BD_TRY(bd_added_tokens_new(model, true, &bpe->normalized_tokens, err));
    bpe->base = (bd_tokenizer){
        .kind = &kind,
        .name = BD_BPE_NAME,
        .vocab_size = model->n_ids,
        .separator = bpe_default_separator(&bpe->base),
        .takes_text = true,
        .tokens_per_byte = 0.3,
        .fingerprint = bd_bpe_model_fingerprint(model),
    };
    if (bpe->base.fingerprint.hex[0] == '\0')
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a fingerprint");
    return BD_OK;
}

bd_status bd_tokenizer_open_bpe(const bd_tokenizer **tokenizer, const char *spec, bd_error *err)
{
    *tokenizer = NULL;
    bpe_tokenizer *bpe = calloc(1, sizeof *bpe);
    if (!bpe)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a tokenizer");
    bd_status status = bd_bpe_model_load(&bpe->model, spec, err);
    if (status == BD_OK) {
        status = bpe_prepare(bpe, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "tokenizer '%s'", spec);
    }
    if (status != BD_OK) {
        bpe_close(&bpe->base);
        return status;
    }
    *tokenizer = &bpe->base;
    return BD_OK;
}
