#include "kernels/rms_norm.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

enum { TOKENS_PER_CHUNK = 32 };

// ---- Forward --------------------------------------------------------------------------------

static float forward_vector(const bd_rms_norm_forward_args *a, const float *x, float *out)
{
    const int64_t n = a->n_channels;
    const float *gain = a->gain;
    const float offset = a->gain_offset;
    const double mean_of_squares = bd_dot(x, x, n) / (double)n;
    const float rstd = (float)(1.0 / sqrt(mean_of_squares + (double)a->epsilon));
    for (int64_t c = 0; c < n; c++)
        out[c] = x[c] * rstd * (offset + gain[c]);
    return rstd;
}

static void forward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_rms_norm_forward_args *a = context;
    const int64_t n = a->n_channels, width = a->n_vectors * n;
    for (int64_t token = first; token < last; token++) {
        const float *x = bd_floats(a->x, token * bd_stride(a->x_stride, width));
        float *out = bd_floats_out(a->out, token * bd_stride(a->out_stride, width));
        float *rstd = a->rstd + token * a->n_vectors;
        if (bd_token_used(&a->boundaries, token)) {
            for (int64_t v = 0; v < a->n_vectors; v++)
                rstd[v] = forward_vector(a, x + v * n, out + v * n);
        } else {
            memset(out, 0, (size_t)width * sizeof *out);
            memset(rstd, 0, (size_t)a->n_vectors * sizeof *rstd);
        }
    }
}

BD_CPU_OPERATION(rms_norm_forward)
{
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, forward_loop, args, err);
}

// ---- Backward -------------------------------------------------------------------------------

// One task computes d_x of a block of vectors, and their sum for d_gain in float. Afterwards the
// sums of blocks are added in double (kernels/summation.h). So x and d_out come from memory
// once; and d_x may overwrite d_out, of which d_gain needs every value.
enum { VECTORS_PER_BLOCK = 64, CHANNELS_PER_STRIP = 32 };

typedef struct backward_work {
    const bd_rms_norm_backward_args *args;
    int64_t n_blocks;
    float *block_sums;  // [n_blocks][n_channels]
} backward_work;

static void backward_vector(const bd_rms_norm_backward_args *a, float rstd, const float *x,
                            const float *d_out, float *d_x, float *d_gain)
{
    const int64_t n = a->n_channels, whole = n / BD_LANES * BD_LANES;
    const float *gain = a->gain;
    const float offset = a->gain_offset;
    double gh_sum = 0.0;
    int64_t c = 0;
    while (c < whole) {
        const int64_t end = bd_min(c + BD_STRETCH * BD_LANES, whole);
        bd_vector gh_lanes = {0};
        for (; c < end; c += BD_LANES) {
            const bd_vector dh = bd_load(d_out + c) * (bd_load(x + c) * rstd);
            bd_store(d_gain + c, bd_load(d_gain + c) + dh);
            gh_lanes += dh * (offset + bd_load(gain + c));
        }
        gh_sum += bd_add_lanes(gh_lanes);
    }
    for (; c < n; c++) {
        const float dh = d_out[c] * (x[c] * rstd);
        d_gain[c] += dh;
        gh_sum += (double)(dh * (offset + gain[c]));
    }

    const float gh_average = (float)(gh_sum / (double)n);
    for (c = 0; c < n; c++) {
        const float g = d_out[c] * (offset + gain[c]), h = x[c] * rstd;
        d_x[c] = (a->adds ? d_x[c] : 0.0f) + rstd * (g - h * gh_average);
    }
}

// Vectors first … last - 1 of all tokens: one block.
static void backward_block(const void *context, int64_t first, int64_t last)
{
    const backward_work *work = context;
    const bd_rms_norm_backward_args *a = work->args;
    const int64_t n = a->n_channels, width = a->n_vectors * n;
    float *d_gain = work->block_sums + first / VECTORS_PER_BLOCK * n;
    memset(d_gain, 0, (size_t)n * sizeof *d_gain);
    for (int64_t at = first; at < last;) {
        const int64_t token = at / a->n_vectors, v = at % a->n_vectors;
        const int64_t n_here = bd_min(a->n_vectors - v, last - at);
        const float *x = bd_floats(a->x, token * bd_stride(a->x_stride, width) + v * n);
        const float *d_out =
            bd_floats(a->d_out, token * bd_stride(a->d_out_stride, width) + v * n);
        float *d_x = bd_floats_out(a->d_x, token * bd_stride(a->d_x_stride, width) + v * n);
        if (bd_token_used(&a->boundaries, token)) {
            for (int64_t i = 0; i < n_here; i++)
                backward_vector(a, a->rstd[at + i], x + i * n, d_out + i * n, d_x + i * n,
                                d_gain);
        } else if (!a->adds) {
            memset(d_x, 0, (size_t)(n_here * n) * sizeof *d_x);
        }
        at += n_here;
    }
}

// Channels first … last - 1 of d_gain.
static void gain_strip(const void *context, int64_t first, int64_t last)
{
    const backward_work *work = context;
    double sum[CHANNELS_PER_STRIP] = {0};
    for (int64_t b = 0; b < work->n_blocks; b++)
        for (int64_t c = first; c < last; c++)
            sum[c - first] += (double)work->block_sums[b * work->args->n_channels + c];
    for (int64_t c = first; c < last; c++)
        work->args->d_gain[c] += (float)sum[c - first];
}

BD_CPU_OPERATION(rms_norm_backward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const int64_t n_vectors = n_tokens * args->n_vectors;
    const int64_t n_blocks = bd_ceil_divide(n_vectors, VECTORS_PER_BLOCK);
    void *block_sums;
    BD_TRY(bd_cpu_scratch(backend, (size_t)(n_blocks * args->n_channels) * sizeof(float),
                          &block_sums, err));
    const backward_work work = {args, n_blocks, block_sums};
    BD_TRY(bd_cpu_for(backend, n_vectors, VECTORS_PER_BLOCK, backward_block, &work, err));
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, gain_strip, &work, err);
}
