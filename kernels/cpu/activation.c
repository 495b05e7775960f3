#include "kernels/activation.h"

#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu.h"

enum { PER_CHUNK = 16384 };

void BD_CPU(activate)(bd_activation activation, const float *x, float *out, int64_t n)
{
    if (activation == BD_ACTIVATION_RELU) {
        for (int64_t i = 0; i < n; i++)
            out[i] = bd_relu(x[i]);
    } else if (activation == BD_ACTIVATION_GELU) {
        for (int64_t i = 0; i < n; i++)
            out[i] = bd_gelu(x[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = bd_silu(x[i]);
    }
}

static void backward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_activation_backward_args *a = context;
    const float *x = a->x, *d_out = a->d_out;
    float *d_x = a->d_x;
    if (a->activation == BD_ACTIVATION_RELU) {
        for (int64_t i = first; i < last; i++)
            d_x[i] = x[i] <= 0.0f ? 0.0f : d_out[i];
    } else if (a->activation == BD_ACTIVATION_GELU) {
        for (int64_t i = first; i < last; i++)
            d_x[i] = d_out[i] * bd_gelu_tangent(x[i]).slope;
    } else {
        for (int64_t i = first; i < last; i++)
            d_x[i] = d_out[i] * bd_silu_tangent(x[i]).slope;
    }
}

BD_CPU_OPERATION(activation_backward)
{
    return bd_cpu_for(backend, args->n, PER_CHUNK, backward_loop, args, err);
}

static void add_loop(const void *context, int64_t first, int64_t last)
{
    const bd_add_args *args = context;
    const float *a = args->a, *b = args->b;
    float *out = args->out;
    for (int64_t i = first; i < last; i++)
        out[i] = a[i] + b[i];
}

BD_CPU_OPERATION(add)
{
    return bd_cpu_for(backend, args->n, PER_CHUNK, add_loop, args, err);
}
