#include "common/tokenizer/merge/whole_words.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_ID UINT32_MAX

static size_t token_size(const bd_bpe_model *model, uint32_t id)
{
    return model->begins[id + 1] - model->begins[id];
}

static uint32_t *find_slot(const bd_whole_words *words, const char *word, size_t n)
{
    const bd_bpe_model *model = words->model;
    const size_t mask = ((size_t)1 << words->bits) - 1;
    size_t at = bd_hash64(word, n, words->seed) & mask;
    for (;; at = (at + 1) & mask) {
        const uint32_t id = words->slots[at];
        if (id == NO_ID || (token_size(model, id) == n &&
                            memcmp(model->bytes + model->begins[id], word, n) == 0))
            return &words->slots[at];
    }
}

static bd_status add_whole_words(bd_whole_words *words, const bool *made, bd_error *err)
{
    const bd_bpe_model *model = words->model;
    size_t n = 0;
    for (uint32_t id = 0; id < model->n_ids; id++)
        n += !made[id] && bd_bpe_model_merges_to(model, id);
    if (n == 0)
        return BD_OK;
    for (words->bits = 4; ((size_t)1 << words->bits) < n * 2;)
        words->bits++;
    words->slots = malloc(sizeof *words->slots << words->bits);
    if (!words->slots)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    memset(words->slots, 0xFF, sizeof *words->slots << words->bits);
    for (uint32_t id = 0; id < model->n_ids; id++) {
        const size_t size = token_size(model, id);
        if (made[id] || !bd_bpe_model_merges_to(model, id))
            continue;
        *find_slot(words, model->bytes + model->begins[id], size) = id;
        words->max_bytes = size > words->max_bytes ? size : words->max_bytes;
    }
    return BD_OK;
}

bd_status bd_whole_words_init(bd_whole_words *words, const bd_bpe_model *model, bd_error *err)
{
    *words = (bd_whole_words){.model = model};
    if (!model->whole_words)
        return BD_OK;
    if (getentropy(&words->seed, sizeof words->seed) != 0)
        words->seed = (uintptr_t)words;
    bool *made = calloc(model->n_ids, sizeof *made);
    if (!made)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    for (int byte = 0; byte < 256; byte++)
        made[model->byte_ids[byte]] = true;
    for (size_t k = 0; k < model->n_merges; k++)
        made[model->merges[k].product] = true;
    const bd_status status = add_whole_words(words, made, err);
    free(made);
    return status;
}

void bd_whole_words_release(bd_whole_words *words)
{
    free(words->slots);
    *words = (bd_whole_words){0};
}

bool bd_whole_words_find(const bd_whole_words *words, const char *word, size_t n, uint32_t *id)
{
    if (n > words->max_bytes)
        return false;
    *id = *find_slot(words, word, n);
    return *id != NO_ID;
}
