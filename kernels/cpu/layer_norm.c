#include "kernels/layer_norm.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

// The gradients of gamma and beta are sums over all tokens. Each task has a strip of channels;
// it sums blocks of tokens in float, and their sums in double (kernels/summation.h).
enum { TOKENS_PER_CHUNK = 32, CHANNELS_PER_STRIP = 32, TOKENS_PER_BLOCK = 64 };

// ---- Forward --------------------------------------------------------------------------------

static void forward_token(const bd_layer_norm_forward_args *a, int64_t token)
{
    const int64_t n = a->n_channels;
    const float *x = bd_floats(a->x, token * n), *gamma = a->gamma, *beta = a->beta;
    float *restrict out = bd_floats_out(a->out, token * n);

    const float mean = (float)(bd_sum(x, n) / (double)n);
    for (int64_t c = 0; c < n; c++)
        out[c] = x[c] - mean;
    const double variance = bd_dot(out, out, n) / (double)n;
    const float rstd = (float)(1.0 / sqrt(variance + (double)a->epsilon));
    for (int64_t c = 0; c < n; c++)
        out[c] = out[c] * rstd * gamma[c] + beta[c];
    a->mean[token] = mean;
    a->rstd[token] = rstd;
}

static void layer_norm_forward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_layer_norm_forward_args *a = context;
    for (int64_t token = first; token < last; token++) {
        if (bd_token_used(&a->boundaries, token)) {
            forward_token(a, token);
        } else {
            memset(bd_floats_out(a->out, token * a->n_channels), 0,
                   (size_t)a->n_channels * sizeof(float));
            a->mean[token] = 0.0f;
            a->rstd[token] = 0.0f;
        }
    }
}

BD_CPU_OPERATION(layer_norm_forward)
{
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, layer_norm_forward_loop, args, err);
}

// ---- Backward -------------------------------------------------------------------------------

// With h = (x - mean) * rstd and g = d_out * gamma:
//   d_x += rstd * (g - average(g) - h * average(g * h))
static void input_token(const bd_layer_norm_backward_args *a, int64_t token)
{
    const int64_t n = a->n_channels;
    const float *x = bd_floats(a->x, token * n), *d_out = bd_floats(a->d_out, token * n);
    const float *gamma = a->gamma;
    float *restrict d_x = bd_floats_out(a->d_x, token * n);
    const float mean = a->mean[token], rstd = a->rstd[token];

    const int64_t whole = n / BD_LANES * BD_LANES;
    double g_sum = 0.0, gh_sum = 0.0;
    int64_t c = 0;
    while (c < whole) {
        const int64_t end = bd_min(c + BD_STRETCH * BD_LANES, whole);
        bd_vector g_lanes = {0}, gh_lanes = {0};
        for (; c < end; c += BD_LANES) {
            const bd_vector g = bd_load(d_out + c) * bd_load(gamma + c);
            g_lanes += g;
            gh_lanes += g * ((bd_load(x + c) - mean) * rstd);
        }
        g_sum += bd_add_lanes(g_lanes);
        gh_sum += bd_add_lanes(gh_lanes);
    }
    for (; c < n; c++) {
        const float g = d_out[c] * gamma[c];
        g_sum += (double)g;
        gh_sum += (double)(g * ((x[c] - mean) * rstd));
    }
    const float g_average = (float)(g_sum / (double)n);
    const float gh_average = (float)(gh_sum / (double)n);
    for (c = 0; c < n; c++) {
        const float h = (x[c] - mean) * rstd;
        d_x[c] += rstd * (d_out[c] * gamma[c] - g_average - h * gh_average);
    }
}

static void input_loop(const void *context, int64_t first, int64_t last)
{
    const bd_layer_norm_backward_args *a = context;
    for (int64_t token = first; token < last; token++)
        if (bd_token_used(&a->boundaries, token))
            input_token(a, token);
}

// Channels first … last - 1 of d_gamma and d_beta.
static void parameter_strip(const void *context, int64_t first, int64_t last)
{
    const bd_layer_norm_backward_args *a = context;
    const int64_t n_tokens = a->boundaries.n_rows * a->boundaries.seq_len;
    const int64_t n = last - first;
    double gamma_sum[CHANNELS_PER_STRIP] = {0}, beta_sum[CHANNELS_PER_STRIP] = {0};
    for (int64_t begin = 0; begin < n_tokens; begin += TOKENS_PER_BLOCK) {
        float gamma_block[CHANNELS_PER_STRIP] = {0}, beta_block[CHANNELS_PER_STRIP] = {0};
        const int64_t end = bd_min(begin + TOKENS_PER_BLOCK, n_tokens);
        for (int64_t token = begin; token < end; token++) {
            if (!bd_token_used(&a->boundaries, token))
                continue;
            const float *x = bd_floats(a->x, token * a->n_channels + first);
            const float *d_out = bd_floats(a->d_out, token * a->n_channels + first);
            const float mean = a->mean[token], rstd = a->rstd[token];
            for (int64_t c = 0; c < n; c++) {
                gamma_block[c] += d_out[c] * ((x[c] - mean) * rstd);
                beta_block[c] += d_out[c];
            }
        }
        for (int64_t c = 0; c < n; c++) {
            gamma_sum[c] += (double)gamma_block[c];
            beta_sum[c] += (double)beta_block[c];
        }
    }
    for (int64_t c = 0; c < n; c++) {
        a->d_gamma[first + c] += (float)gamma_sum[c];
        a->d_beta[first + c] += (float)beta_sum[c];
    }
}

BD_CPU_OPERATION(layer_norm_backward)
{
    BD_TRY(bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, input_loop, args, err));
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, parameter_strip, args,
                      err);
}
