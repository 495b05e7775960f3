#include "kernels/rotary.h"

#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

enum { TOKENS_PER_CHUNK = 32, MOST_PAIRS = BD_MOST_HEAD_SIZE / 2 };

// All heads of a token turn by the same angles.
static void rotate_token(const bd_rotary_args *a, int64_t token, uint64_t position)
{
    const int64_t n_pairs = a->head_size / 2;
    float cosines[MOST_PAIRS], sines[MOST_PAIRS];
    const float sine_scale = a->inverse ? -a->scale : a->scale;
    for (int64_t i = 0; i < n_pairs; i++) {
        float sine, cosine;
        bd_sin_cos(position * a->turns[i], &sine, &cosine);
        sines[i] = sine_scale * sine;
        cosines[i] = a->scale * cosine;
    }
    for (int64_t h = 0; h < a->n_heads; h++) {
        float *restrict x = bd_floats_out(a->x, token * a->stride + h * a->head_size);
        float *restrict y = x + n_pairs;
        for (int64_t i = 0; i < n_pairs; i++) {
            const float x_before = x[i], y_before = y[i];
            x[i] = x_before * cosines[i] - y_before * sines[i];
            y[i] = y_before * cosines[i] + x_before * sines[i];
        }
    }
}

static void rotary_loop(const void *context, int64_t first, int64_t last)
{
    const bd_rotary_args *a = context;
    for (int64_t token = first; token < last; token++) {
        const int64_t position = bd_token_position(&a->boundaries, a->past, token);
        if (position >= 0)
            rotate_token(a, token, (uint64_t)position);
    }
}

BD_CPU_OPERATION(rotary)
{
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, rotary_loop, args, err);
}
