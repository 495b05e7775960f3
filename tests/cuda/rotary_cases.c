#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

// Every second pair turns as in Llama; the others turn nearly once, or any part of a turn, for
// each token, so that products overflow.
static uint64_t *make_turns(int64_t n_pairs)
{
    uint64_t *turns = get_memory((size_t)n_pairs * sizeof *turns);
    for (int64_t i = 0; i < n_pairs; i++) {
        const double frequency = pow(10000.0, -(double)i / (double)n_pairs);
        turns[i] = i % 2 == 0 ? (uint64_t)(ldexp(frequency / (2.0 * M_PI), 64))
                              : UINT64_MAX - (uint64_t)i * 0x123456789abcdefu;
    }
    return turns;
}

static void check_rotary(const batch *b, int64_t head_size, int64_t n_heads, int64_t gap,
                         float scale, int32_t inverse)
{
    uint64_t seed = 24;
    const int64_t width = n_heads * head_size, stride = width + gap, n = b->n_tokens * stride;
    float *x = spread_tensor(&seed, b, width, stride, 1.0);
    float *turned = guarded_copy(x, n);
    uint64_t *turns = make_turns(head_size / 2);
    bd_rotary_args a = {
        .boundaries = b->boundaries,
        .n_heads = n_heads,
        .head_size = head_size,
        .stride = stride,
        .turns = turns,
        .scale = scale,
        .inverse = inverse,
        .x = turned,
    };
    RUN(cpu, rotary, a);
    a.boundaries = boundaries_on_device(b);
    a.turns = device_array(turns, head_size / 2, sizeof *turns);
    a.x = floats_on_device(x, n);
    RUN(cuda, rotary, a);
    compare("turned", a.x, turned, n, few_roundings);
    expect_untouched("gaps and padding", b, a.x, x, width, stride, true);
    release_device();
    free(x);
    free(turns);
    guarded_free(turned);
}

// Heads of one pair, of single values, of packs that divide a warp or do not, and of the most.
void rotary_agrees(void)
{
    static const int64_t head_sizes[] = {2, 30, 64, 66, 200, 256};
    for (int which = 0; which < N_BATCHES; which++) {
        batch b = make_batch(which);
        check_rotary(&b, head_sizes[which], 3, 0, 1.0f, which % 2);
        check_rotary(&b, head_sizes[(which + 2) % N_BATCHES], 1, 4, 1.25f, 0);
        check_rotary(&b, head_sizes[(which + 4) % N_BATCHES], 5, 7, 0.75f, 1);
        batch_release(&b);
    }
}
