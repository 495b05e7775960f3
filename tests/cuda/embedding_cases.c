#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

enum { FIRST_POSITION = 2, POSITIONS_LEFT_OVER = 3 };

// Bits are those of the CPU, whose gradients are added to the tables in the same order; only a
// scaled vector plus a position may be rounded once or twice.
static void check_embedding(const batch *b, int64_t width, int32_t id_bytes, float token_scale,
                            bool with_positions)
{
    uint64_t seed = 11;
    const int64_t n = b->n_tokens * width;
    const int64_t first_position = with_positions ? FIRST_POSITION : 0;
    const int64_t n_positions =
        with_positions ? FIRST_POSITION + b->boundaries.seq_len + POSITIONS_LEFT_OVER : 0;
    const int64_t n_words = b->n_vocabulary * width, n_places = n_positions * width;
    float *words = random_tensor(&seed, n_words, 1.0),
          *places = random_tensor(&seed, n_places, 1.0);
    float *out = guarded(n);
    bd_embedding_forward_args f = {
        .boundaries = b->boundaries,
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = first_position,
        .token_scale = token_scale,
        .token_table = words,
        .position_table = with_positions ? places : NULL,
        .out = out,
    };
    RUN(cpu, embedding_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.ids = ids_on_device(b, id_bytes);
    f.token_table = floats_on_device(words, n_words);
    f.position_table = with_positions ? floats_on_device(places, n_places) : NULL;
    f.out = floats_on_device(NULL, n);
    RUN(cuda, embedding_forward, f);
    compare_padded("embedding", b, f.out, out, width,
                   with_positions && token_scale != 1.0f ? few_roundings : 0.0);

    float *d_out = random_activations(&seed, b, width, 1.0);
    bd_embedding_backward_args g = {
        .boundaries = b->boundaries,
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = first_position,
        .token_scale = token_scale,
        .d_out = d_out,
        .d_token_table = words,
        .d_position_table = with_positions ? places : NULL,
    };
    bd_embedding_backward_args h = g;
    h.boundaries = f.boundaries;
    h.ids = f.ids;
    h.d_out = floats_on_device(d_out, n);
    h.d_token_table = floats_on_device(words, n_words);
    h.d_position_table = with_positions ? floats_on_device(places, n_places) : NULL;
    RUN(cpu, embedding_backward, g);
    RUN(cuda, embedding_backward, h);
    compare("gradient of words", h.d_token_table, words, n_words, 0.0);
    if (with_positions)
        compare("gradient of positions", h.d_position_table, places, n_places, 0.0);
    release_device();
    free(words);
    free(places);
    free(d_out);
    guarded_free(out);
}

static void check_every_embedding(const batch *b, int64_t width, int32_t id_bytes)
{
    check_embedding(b, width, id_bytes, 1.0f, true);
    check_embedding(b, width, id_bytes, 24.1f, false);
    check_embedding(b, width, id_bytes, 0.3f, true);
}

void embedding_agrees(void)
{
    for_each_batch(check_every_embedding);
}
