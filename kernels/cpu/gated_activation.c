#include "kernels/gated_activation.h"

#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu.h"

enum { PER_CHUNK = 16384 };

static int64_t tokens_per_chunk(int64_t n_channels)
{
    return bd_ceil_divide(PER_CHUNK, n_channels);
}

// ---- Forward --------------------------------------------------------------------------------

// Inlined with a constant f, so that the loop over channels is vectorized.
static inline __attribute__((always_inline)) void
forward_tokens(const bd_gated_activation_forward_args *a, int64_t first, int64_t last,
               float (*f)(float x))
{
    const int64_t n = a->n_channels;
    for (int64_t token = first; token < last; token++) {
        const float *gate = bd_floats(a->x, token * 2 * n), *up = gate + n;
        float *restrict out = bd_floats_out(a->out, token * n);
        for (int64_t c = 0; c < n; c++)
            out[c] = f(gate[c]) * up[c];
    }
}

static void forward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_gated_activation_forward_args *a = context;
    if (a->activation == BD_ACTIVATION_RELU)
        forward_tokens(a, first, last, bd_relu);
    else if (a->activation == BD_ACTIVATION_GELU)
        forward_tokens(a, first, last, bd_gelu);
    else
        forward_tokens(a, first, last, bd_silu);
}

BD_CPU_OPERATION(gated_activation_forward)
{
    return bd_cpu_for(backend, args->n_tokens, tokens_per_chunk(args->n_channels), forward_loop,
                      args, err);
}

// ---- Backward -------------------------------------------------------------------------------

static inline __attribute__((always_inline)) void
backward_tokens(const bd_gated_activation_backward_args *a, int64_t first, int64_t last,
                bd_tangent (*f)(float x))
{
    const int64_t n = a->n_channels;
    for (int64_t token = first; token < last; token++) {
        const float *gate = bd_floats(a->x, token * 2 * n), *up = gate + n;
        const float *d_out = bd_floats(a->d_out, token * n);
        float *restrict d_gate = bd_floats_out(a->d_x, token * 2 * n);
        float *restrict d_up = d_gate + n;
        for (int64_t c = 0; c < n; c++) {
            const bd_tangent t = f(gate[c]);
            d_gate[c] = d_out[c] * up[c] * t.slope;
            d_up[c] = d_out[c] * t.value;
        }
    }
}

static void backward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_gated_activation_backward_args *a = context;
    if (a->activation == BD_ACTIVATION_RELU)
        backward_tokens(a, first, last, bd_relu_tangent);
    else if (a->activation == BD_ACTIVATION_GELU)
        backward_tokens(a, first, last, bd_gelu_tangent);
    else
        backward_tokens(a, first, last, bd_silu_tangent);
}

BD_CPU_OPERATION(gated_activation_backward)
{
    return bd_cpu_for(backend, args->n_tokens, tokens_per_chunk(args->n_channels),
                      backward_loop, args, err);
}
