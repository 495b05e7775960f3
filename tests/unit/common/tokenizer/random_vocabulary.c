#include "tests/unit/common/tokenizer/random_vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/random.h"

enum { MAX_TOKEN = 40 };

static size_t size_of(const bd_bpe_model *model, uint32_t id)
{
    return model->begins[id + 1] - model->begins[id];
}

static const bd_merge *lowest_merge(const bd_bpe_model *model, const uint32_t *ids, size_t n,
                                    size_t *at)
{
    for (size_t k = 0; k < model->n_merges; k++)
        for (size_t i = 0; i + 1 < n; i++)
            if (model->merges[k].left == ids[i] && model->merges[k].right == ids[i + 1]) {
                *at = i;
                return &model->merges[k];
            }
    return NULL;
}

size_t plain_merge(const bd_bpe_model *model, const char *word, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = model->byte_ids[(unsigned char)word[i]];
    size_t at;
    for (const bd_merge *merge; (merge = lowest_merge(model, ids, n, &at)); n--) {
        ids[at] = merge->product;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
    }
    return n;
}

static bool is_token(const bd_bpe_model *model, uint32_t n_ids, const char *bytes, size_t n)
{
    for (uint32_t id = 0; id < n_ids; id++)
        if (size_of(model, id) == n && memcmp(model->bytes + model->begins[id], bytes, n) == 0)
            return true;
    return false;
}

// Ids are assigned in the order of creation and shuffled afterwards.
static void add_merge(bd_bpe_model *model, uint32_t left, uint32_t right)
{
    char bytes[2 * MAX_TOKEN];
    const size_t n_left = size_of(model, left), n = n_left + size_of(model, right);
    if (n > MAX_TOKEN)
        return;
    memcpy(bytes, model->bytes + model->begins[left], n_left);
    memcpy(bytes + n_left, model->bytes + model->begins[right], n - n_left);
    if (is_token(model, model->n_ids, bytes, n))
        return;
    const uint32_t product = model->n_ids++;
    memcpy(model->bytes + model->begins[product], bytes, n);
    model->begins[product + 1] = model->begins[product] + (uint32_t)n;
    model->merges[model->n_merges++] = (bd_merge){left, right, product};
    uint32_t ids[MAX_TOKEN];
    if (plain_merge(model, bytes, n, ids) != 1) {  // other merges come first: it is never made
        model->n_merges--;
        model->n_ids--;
    }
}

static void shuffle_ids(bd_bpe_model *model, uint64_t *state)
{
    const uint32_t n = model->n_ids;
    uint32_t *to = malloc(n * sizeof *to), *begins = malloc((n + 1) * sizeof *begins);
    char *bytes = malloc(model->begins[n]);
    assert(to && begins && bytes);
    for (uint32_t i = 0; i < n; i++)
        to[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = (uint32_t)random_between(state, 0, (int32_t)i), kept = to[i];
        to[i] = to[j];
        to[j] = kept;
    }
    begins[0] = 0;
    for (uint32_t id = 0; id < n; id++)
        for (uint32_t old = 0; old < n; old++)
            if (to[old] == id) {
                memcpy(bytes + begins[id], model->bytes + model->begins[old],
                       size_of(model, old));
                begins[id + 1] = begins[id] + (uint32_t)size_of(model, old);
            }
    for (size_t k = 0; k < model->n_merges; k++) {
        bd_merge *merge = &model->merges[k];
        *merge = (bd_merge){to[merge->left], to[merge->right], to[merge->product]};
    }
    for (int byte = 0; byte < 256; byte++)
        model->byte_ids[byte] = to[byte];
    free(model->begins);
    free(model->bytes);
    model->begins = begins;
    model->bytes = bytes;
    free(to);
}

bd_bpe_model random_vocabulary(uint64_t seed, int n_letters, size_t n_merges)
{
    const size_t most = 256 + n_merges;
    bd_bpe_model model = {
        .n_ids = 256,
        .begins = malloc((most + 2) * sizeof *model.begins),
        .bytes = malloc((most + 1) * MAX_TOKEN),
        .merges = malloc((n_merges + 1) * sizeof *model.merges),
    };
    assert(model.begins && model.bytes && model.merges);
    for (uint32_t byte = 0; byte < 256; byte++) {
        model.begins[byte] = byte;
        model.bytes[byte] = (char)byte;
        model.byte_ids[byte] = byte;
    }
    model.begins[256] = 256;
    for (size_t tries = 0; model.n_merges < n_merges && tries < n_merges * 20; tries++) {
        uint32_t parts[2];
        for (int i = 0; i < 2; i++) {
            const int pick = random_between(&seed, 0, n_letters + (int)model.n_merges - 1);
            parts[i] = (uint32_t)(pick < n_letters ? 'a' + pick : 256 + pick - n_letters);
        }
        add_merge(&model, parts[0], parts[1]);
    }
    shuffle_ids(&model, &seed);
    return model;
}

void random_vocabulary_release(bd_bpe_model *model)
{
    free(model->begins);
    free(model->bytes);
    free(model->merges);
    *model = (bd_bpe_model){0};
}
