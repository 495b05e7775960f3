// awkward_models.h - a small model of every family, of awkward sizes, for tests of the proof.
//
// Heads that do not divide the channels, one head of keys for three of queries, windows shorter than
// most documents, unrotated layers, and all scalings of a rotation with pairs in each of their
// ranges.
#ifndef BINDERY_TESTS_UNIT_TRAINER_AWKWARD_MODELS_H
#define BINDERY_TESTS_UNIT_TRAINER_AWKWARD_MODELS_H

#include "trainer/model/model_config.h"

#define AWKWARD_SHAPE(layers, channels, heads, kv_heads, size, feed_forward) \
    .n_layers = (layers), .n_channels = (channels), .n_heads = (heads),      \
    .n_kv_heads = (kv_heads), .head_size = (size), .n_feed_forward = (feed_forward)
#define LAYER(l) (UINT64_C(1) << (l))
#define LLAMA3                                                                             \
    {                                                                                      \
        .theta = 100, .scaling = BD_SCALING_LLAMA3, .factor = 8, .original_positions = 64, \
        .low_frequency_factor = 1, .high_frequency_factor = 4                              \
    }
#define YARN(attention, rounds)                                                                \
    {                                                                                          \
        .theta = 100, .scaling = BD_SCALING_YARN, .factor = 4, .original_positions = 64,       \
        .beta_fast = 8, .beta_slow = 1, .attention_factor = (attention), .truncates = (rounds) \
    }

static const bd_model_config awkward_models[] = {
    {.family = &bd_family_opt, AWKWARD_SHAPE(2, 8, 2, 2, 4, 12)},
    {.family = &bd_family_gpt2, AWKWARD_SHAPE(2, 8, 2, 2, 4, 12)},
    {.family = &bd_family_llama,
     AWKWARD_SHAPE(2, 7, 3, 1, 8, 5),
     .has_head = true,
     .rotation = LLAMA3},
    {.family = &bd_family_mistral,
     AWKWARD_SHAPE(2, 6, 4, 2, 2, 5),
     .has_head = true,
     .rotation = {.theta = 10, .scaling = BD_SCALING_LINEAR, .factor = 2},
     .window = 3,
     .windowed = {{LAYER(0) | LAYER(1)}}},
    {.family = &bd_family_qwen2,
     AWKWARD_SHAPE(2, 8, 2, 1, 4, 5),
     .rotation = YARN(0, true),
     .window = 1,
     .windowed = {{LAYER(1)}}},
    {.family = &bd_family_qwen3, AWKWARD_SHAPE(2, 5, 4, 2, 8, 6), .rotation = YARN(1.3, false)},
    {.family = &bd_family_olmo2,
     AWKWARD_SHAPE(2, 8, 3, 1, 4, 5),
     .has_head = true,
     .rotation = {.theta = 10}},
    {.family = &bd_family_smollm3,
     AWKWARD_SHAPE(3, 6, 3, 3, 4, 5),
     .rotation = {.theta = 10},
     .window = 4,
     .windowed = {{LAYER(1)}},
     .unrotated = {{LAYER(0) | LAYER(1)}}},
    {.family = &bd_family_gemma3_text,
     AWKWARD_SHAPE(2, 6, 3, 1, 4, 5),
     .query_scale = 7,
     .rotation = {.theta = 30, .scaling = BD_SCALING_LINEAR, .factor = 3},
     .local_theta = 10,
     .window = 2,
     .windowed = {{LAYER(0)}}},
};
enum { N_AWKWARD_MODELS = sizeof awkward_models / sizeof awkward_models[0] };

// The number of the family's model.
static inline int awkward_number(const bd_family *family)
{
    int i = 0;
    while (awkward_models[i].family != family)
        i++;
    return i;
}

// One of them, with the positions and the vocabulary that the test needs.
static inline bd_model_config awkward_model(int i, int64_t n_positions, int64_t n_vocabulary)
{
    bd_model_config config = awkward_models[i];
    config.n_positions = n_positions;
    config.n_vocabulary = n_vocabulary;
    return config;
}

#endif
