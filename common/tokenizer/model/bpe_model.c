#include "common/tokenizer/model/bpe_model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const bd_added_token *bd_bpe_model_added(const bd_bpe_model *model, uint32_t id)
{
    // Added tokens are in the order of their ids.
    size_t low = 0, high = model->n_added;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (model->added[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < model->n_added && model->added[low].id == id ? &model->added[low] : NULL;
}

bool bd_bpe_model_merges_to(const bd_bpe_model *model, uint32_t id)
{
    if (id >= model->n_ids || model->begins[id] == model->begins[id + 1])
        return false;
    const bd_added_token *added = bd_bpe_model_added(model, id);
    return !added || added->merges;
}

void bd_bpe_model_release(bd_bpe_model *model)
{
    for (size_t i = 0; i < model->n_steps; i++)
        free(model->steps[i].expression);
    free(model->begins);
    free(model->bytes);
    free(model->merges);
    free(model->added);
    free(model->steps);
    *model = (bd_bpe_model){0};
}

// ---- Fingerprint ------------------------------------------------------------------

// Changed whenever the same model would get another fingerprint.
static const char fingerprint_version[] = "bindery bpe 1";

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are hashed as they lie");
static_assert(sizeof(bd_merge) == 3 * sizeof(uint32_t), "merges are hashed as they lie");

static void hash_text(bd_hasher *hasher, const char *text, size_t size_bytes)
{
    bd_hasher_add_number(hasher, size_bytes);
    bd_hasher_add(hasher, text, size_bytes);
}

// Hashes a known pattern by its expression, because its number would change with a new pattern.
static void hash_step(bd_hasher *hasher, const bd_split_step *step)
{
    const bool other = step->pattern == BD_PATTERN_OTHER;
    const char *expression = other ? step->expression : bd_pattern_expression(step->pattern);
    bd_hasher_add_number(hasher, other);
    hash_text(hasher, expression, strlen(expression));
}

static void hash_added(bd_hasher *hasher, const bd_added_token *token)
{
    bd_hasher_add_number(hasher, token->id);
    bd_hasher_add_number(
        hasher, (uint64_t)token->special | (uint64_t)token->left_strip << 1 |
                    (uint64_t)token->right_strip << 2 | (uint64_t)token->single_word << 3 |
                    (uint64_t)token->normalized << 4 | (uint64_t)token->merges << 5);
}

bd_digest bd_bpe_model_fingerprint(const bd_bpe_model *model)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return (bd_digest){{0}};
    bd_hasher_add(hasher, fingerprint_version, sizeof fingerprint_version);
    bd_hasher_add_number(hasher, model->n_ids);
    bd_hasher_add(hasher, model->begins, ((size_t)model->n_ids + 1) * sizeof *model->begins);
    bd_hasher_add(hasher, model->bytes, model->begins[model->n_ids]);
    bd_hasher_add_number(hasher, model->n_merges);
    bd_hasher_add(hasher, model->merges, model->n_merges * sizeof *model->merges);
    bd_hasher_add_number(hasher, model->n_added);
    for (size_t i = 0; i < model->n_added; i++)
        hash_added(hasher, &model->added[i]);
    bd_hasher_add_number(hasher, model->n_steps);
    for (size_t i = 0; i < model->n_steps; i++)
        hash_step(hasher, &model->steps[i]);
    bd_hasher_add_number(hasher, (uint64_t)model->whole_words | (uint64_t)model->nfc << 1 |
                                     (uint64_t)model->prefix_space << 2);
    const bd_digest digest = bd_hasher_take128(hasher);
    bd_hasher_free(hasher);
    return digest;
}
