#include "common/tokenizer/model/model_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/tokenizer/model/byte_alphabet.h"
#include "common/tokenizer/model/live_merges.h"

// How much of a token a message shows.
enum { SHOWN = 60 };

static int shown(size_t size_bytes)
{
    return size_bytes < SHOWN ? (int)size_bytes : SHOWN;
}

// ---- Adding -----------------------------------------------------------------------

bd_status bd_model_parts_add_entry(bd_model_parts *parts, const char *text, size_t size_bytes,
                                   int64_t id, bd_error *err)
{
    char bytes[BD_MAX_SYMBOL_BYTES * BD_MAX_TOKEN_BYTES];
    size_t n_bytes;
    bd_status status;
    if (size_bytes <= sizeof bytes && bd_bytes_of_symbols(text, size_bytes, bytes, &n_bytes))
        status = bd_vocabulary_add(&parts->tokens, id, bytes, n_bytes, err);
    else
        status = bd_vocabulary_add(&parts->foreign, id, text, size_bytes, err);
    return status == BD_OK
               ? BD_OK
               : bd_error_prefix(err, status, "entry '%.*s'", shown(size_bytes), text);
}

int64_t bd_model_parts_find_entry(const bd_model_parts *parts, const char *text,
                                  size_t size_bytes)
{
    char bytes[BD_MAX_SYMBOL_BYTES * BD_MAX_TOKEN_BYTES];
    size_t n_bytes;
    uint32_t id;
    if (size_bytes > sizeof bytes)
        return -1;
    const bool found = bd_bytes_of_symbols(text, size_bytes, bytes, &n_bytes)
                           ? bd_vocabulary_find(&parts->tokens, bytes, n_bytes, &id)
                           : bd_vocabulary_find(&parts->foreign, text, size_bytes, &id);
    return found ? (int64_t)id : -1;
}

static bd_status find_part(const bd_model_parts *parts, const char *text, size_t size_bytes,
                           char *bytes, size_t *n_bytes, uint32_t *id, bd_error *err)
{
    *n_bytes = 0;
    if (size_bytes > BD_MAX_SYMBOL_BYTES * BD_MAX_TOKEN_BYTES ||
        !bd_bytes_of_symbols(text, size_bytes, bytes, n_bytes) ||
        !bd_vocabulary_find(&parts->tokens, bytes, *n_bytes, id))
        return bd_fail(err, BD_ERR_FORMAT, "'%.*s' is not in the vocabulary", shown(size_bytes),
                       text);
    return BD_OK;
}

bd_status bd_model_parts_add_merge(bd_model_parts *parts, const char *left, size_t left_bytes,
                                   const char *right, size_t right_bytes, bd_error *err)
{
    char bytes[2 * BD_MAX_SYMBOL_BYTES * BD_MAX_TOKEN_BYTES];
    size_t n_left, n_right;
    bd_merge merge;
    if (parts->n_merges >= 8 * (size_t)BD_MAX_VOCABULARY)
        return bd_fail(err, BD_ERR_FORMAT, "more than %d merges", 8 * BD_MAX_VOCABULARY);
    BD_TRY(find_part(parts, left, left_bytes, bytes, &n_left, &merge.left, err));
    BD_TRY(find_part(parts, right, right_bytes, bytes + n_left, &n_right, &merge.right, err));
    if (!bd_vocabulary_find(&parts->tokens, bytes, n_left + n_right, &merge.product))
        return bd_fail(err, BD_ERR_FORMAT, "'%.*s%.*s' is not in the vocabulary",
                       shown(left_bytes), left, shown(right_bytes), right);
    BD_TRY(bd_array_reserve((void **)&parts->merges, &parts->merge_capacity,
                            parts->n_merges + 1, sizeof *parts->merges, err));
    parts->merges[parts->n_merges++] = merge;
    return BD_OK;
}

bd_status bd_model_parts_add_token(bd_model_parts *parts, bd_added_token token, int64_t id,
                                   const char *text, size_t size_bytes, bd_error *err)
{
    const bd_status status = bd_vocabulary_add(&parts->added_texts, id, text, size_bytes, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "added token '%.*s'", shown(size_bytes), text);
    BD_TRY(bd_array_reserve((void **)&parts->added, &parts->added_capacity, parts->n_added + 1,
                            sizeof *parts->added, err));
    token.id = (uint32_t)id;
    token.size_bytes = size_bytes;
    parts->added[parts->n_added++] = token;
    return BD_OK;
}

bd_status bd_model_parts_add_step(bd_model_parts *parts, bd_pattern pattern,
                                  const char *expression, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&parts->steps, &parts->step_capacity, parts->n_steps + 1,
                            sizeof *parts->steps, err));
    char *copy = pattern == BD_PATTERN_OTHER ? strdup(expression) : NULL;
    if (pattern == BD_PATTERN_OTHER && !copy)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    parts->steps[parts->n_steps++] = (bd_split_step){pattern, copy};
    return BD_OK;
}

// ---- Added tokens -----------------------------------------------------------------

int64_t bd_next_added_id(size_t n_entries, int64_t highest)
{
    return highest >= (int64_t)n_entries ? highest + 1 : (int64_t)n_entries;
}

// Hugging Face's `tokenizers` ignores the ids that the file gives to added tokens. If they
// differ from those that it would use, nobody can tell which are meant.
static bd_status check_added_ids(const bd_model_parts *parts, bd_error *err)
{
    const size_t n_entries = parts->tokens.n_tokens + parts->foreign.n_tokens;
    int64_t highest = -1;
    for (size_t i = 0; i < parts->n_added; i++) {
        const bd_added_token *token = &parts->added[i];
        size_t n;
        const char *text = bd_vocabulary_bytes(&parts->added_texts, token->id, &n);
        const int64_t entry = bd_model_parts_find_entry(parts, text, n);
        const int64_t id = entry >= 0 ? entry : bd_next_added_id(n_entries, highest);
        if (entry < 0 && !parts->ids_are_ranks &&
            (bd_vocabulary_has(&parts->tokens, token->id) ||
             bd_vocabulary_has(&parts->foreign, token->id)))
            return bd_fail(err, BD_ERR_FORMAT,
                           "added token '%.*s' has id %u, which another entry has", shown(n),
                           text, token->id);
        if (id != token->id && !parts->ids_are_ranks)
            return bd_fail(err, BD_ERR_FORMAT,
                           "added token '%.*s' has id %u, but Hugging Face's tokenizers would "
                           "give it id %" PRId64,
                           shown(n), text, token->id, id);
        if ((int64_t)token->id > highest)
            highest = token->id;
    }
    return BD_OK;
}

static bd_status check_foreign(const bd_model_parts *parts, bd_error *err)
{
    for (uint32_t id = 0; id < parts->foreign.n_ids; id++) {
        size_t n;
        uint32_t added;
        if (!bd_vocabulary_has(&parts->foreign, id))
            continue;
        const char *text = bd_vocabulary_bytes(&parts->foreign, id, &n);
        if (bd_vocabulary_has(&parts->tokens, id))
            return bd_fail(err, BD_ERR_FORMAT, "entry '%.*s': id %u is used twice", shown(n),
                           text, id);
        if (!bd_vocabulary_find(&parts->added_texts, text, n, &added))
            return bd_fail(err, BD_ERR_FORMAT,
                           "entry '%.*s' with id %u is not written in the alphabet of bytes, "
                           "and is not an added token",
                           shown(n), text, id);
    }
    return BD_OK;
}

// After the added tokens were found, the text between them contains none, with two exceptions:
// single_word leaves some, and normalising or the space in front may create some. Only then can
// a whole word be the vocabulary's own entry of an added token.
static bool added_tokens_may_remain(const bd_model_parts *parts)
{
    bool single_word = false;
    for (size_t i = 0; i < parts->n_added; i++)
        single_word = single_word || parts->added[i].single_word;
    return single_word || parts->nfc || parts->prefix_space;
}

// Decides for each added token whether it also belongs to the merging vocabulary.
static bd_status settle_added(bd_model_parts *parts, const bool *reached, bd_error *err)
{
    const bool remain = parts->whole_words && added_tokens_may_remain(parts);
    bool all_normalized = true;
    for (size_t i = 0; i < parts->n_added; i++) {
        bd_added_token *token = &parts->added[i];
        token->merges =
            bd_vocabulary_has(&parts->tokens, token->id) && (reached[token->id] || remain);
        all_normalized = all_normalized && token->normalized;
        if (!token->merges)
            continue;
        size_t n, n_text;
        const char *bytes = bd_vocabulary_bytes(&parts->tokens, token->id, &n);
        const char *text = bd_vocabulary_bytes(&parts->added_texts, token->id, &n_text);
        if (n != n_text || memcmp(bytes, text, n) != 0)
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "added token '%.*s' with id %u is also the vocabulary's token for "
                           "other bytes",
                           shown(n_text), text, token->id);
    }
    // If all tokens are normalised, and text is not, they are found in the same places as raw
    // ones.
    for (size_t i = 0; i < parts->n_added && all_normalized && !parts->nfc; i++)
        parts->added[i].normalized = false;
    return BD_OK;
}

static int compare_added(const void *left, const void *right)
{
    const bd_added_token *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

// ---- Assembling -------------------------------------------------------------------

static bd_status find_byte_tokens(const bd_model_parts *parts, bd_bpe_model *model,
                                  bd_error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)byte;
        if (!bd_vocabulary_find(&parts->tokens, &text, 1, &model->byte_ids[byte]))
            return bd_fail(err, BD_ERR_FORMAT, "byte 0x%02X has no token", byte);
    }
    return BD_OK;
}

// Whether a token of the merging vocabulary is one that merging does not make.
static bool whole_words_differ(const bd_model_parts *parts, const bool *reached)
{
    for (size_t i = 0; i < parts->n_added; i++)
        if (parts->added[i].merges && !reached[parts->added[i].id])
            return true;
    for (uint32_t id = 0; id < parts->tokens.n_ids; id++)
        if (bd_vocabulary_has(&parts->tokens, id) && !reached[id] &&
            !bd_vocabulary_has(&parts->added_texts, id))
            return true;
    return false;
}

// Lays out the bytes of all ids one after the other; those of an added token are its text.
static bd_status lay_out_bytes(const bd_model_parts *parts, bd_bpe_model *model, bd_error *err)
{
    const bd_vocabulary *tokens = &parts->tokens, *texts = &parts->added_texts;
    model->n_ids = tokens->n_ids > texts->n_ids ? tokens->n_ids : texts->n_ids;
    const size_t n_bytes = tokens->n_bytes + texts->n_bytes;
    model->begins = malloc(((size_t)model->n_ids + 1) * sizeof *model->begins);
    model->bytes = malloc(n_bytes + 1);
    if (!model->begins || !model->bytes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %u tokens", model->n_ids);
    uint32_t at = 0;
    for (uint32_t id = 0; id < model->n_ids; id++) {
        const bd_vocabulary *from = bd_vocabulary_has(texts, id) ? texts : tokens;
        model->begins[id] = at;
        if (!bd_vocabulary_has(from, id))
            continue;
        size_t n;
        const char *bytes = bd_vocabulary_bytes(from, id, &n);
        memcpy(model->bytes + at, bytes, n);
        at += (uint32_t)n;
    }
    model->begins[model->n_ids] = at;
    return BD_OK;
}

// Moves what the model owns from the parts to it.
static void hand_over(bd_model_parts *parts, bd_bpe_model *model)
{
    if (parts->n_added > 1)
        qsort(parts->added, parts->n_added, sizeof *parts->added, compare_added);
    for (size_t i = 0; i < parts->n_added; i++)
        parts->added[i].text = model->bytes + model->begins[parts->added[i].id];
    model->added = parts->added;
    model->n_added = parts->n_added;
    model->merges = parts->merges;
    model->n_merges = parts->n_merges;
    model->steps = parts->steps;
    model->n_steps = parts->n_steps;
    model->nfc = parts->nfc;
    model->prefix_space = parts->prefix_space;
    parts->added = NULL;
    parts->merges = NULL;
    parts->steps = NULL;
    parts->n_added = parts->n_merges = parts->n_steps = 0;
}

bd_status bd_model_parts_assemble(bd_model_parts *parts, bd_bpe_model *model, bd_error *err)
{
    *model = (bd_bpe_model){0};
    bool *reached = NULL;
    bd_status status = find_byte_tokens(parts, model, err);
    if (status == BD_OK)
        status = check_foreign(parts, err);
    if (status == BD_OK)
        status = check_added_ids(parts, err);
    if (status == BD_OK)
        status = parts->ids_are_ranks ? bd_live_merges_of_ranks(&parts->tokens, &parts->merges,
                                                                &parts->n_merges, &reached, err)
                                      : bd_live_merges_keep(&parts->tokens, parts->merges,
                                                            &parts->n_merges, &reached, err);
    if (status == BD_OK)
        status = settle_added(parts, reached, err);
    if (status == BD_OK)
        status = lay_out_bytes(parts, model, err);
    if (status == BD_OK) {
        model->whole_words = parts->whole_words && whole_words_differ(parts, reached);
        hand_over(parts, model);
    } else {
        bd_bpe_model_release(model);
    }
    free(reached);
    return status;
}

void bd_model_parts_release(bd_model_parts *parts)
{
    bd_vocabulary_release(&parts->tokens);
    bd_vocabulary_release(&parts->foreign);
    bd_vocabulary_release(&parts->added_texts);
    for (size_t i = 0; i < parts->n_steps; i++)
        free(parts->steps[i].expression);
    free(parts->added);
    free(parts->merges);
    free(parts->steps);
    *parts = (bd_model_parts){0};
}
