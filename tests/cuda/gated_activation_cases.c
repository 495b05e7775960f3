#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

static void check_gate(bd_activation activation, int64_t n_tokens, int64_t n_channels)
{
    uint64_t seed = 25;
    const int64_t n = n_tokens * n_channels;
    float *x = random_tensor(&seed, 2 * n, 12.0), *d_out = random_tensor(&seed, n, 1.0);
    float *out = guarded(n), *d_x = guarded(2 * n);
    for (int64_t c = 0; c < 2 * n_channels; c++)
        x[c] = 0.0f;                      // padding
    x[2 * n - n_channels - 1] = -100.0f;  // where exp() overflows
    bd_gated_activation_forward_args f = {BD_FLOAT, activation, n_tokens, n_channels, x, out};
    bd_gated_activation_backward_args g = {BD_FLOAT, activation, n_tokens, n_channels,
                                           x,        d_out,      d_x};
    RUN(cpu, gated_activation_forward, f);
    RUN(cpu, gated_activation_backward, g);
    f.x = g.x = floats_on_device(x, 2 * n);
    f.out = floats_on_device(NULL, n);
    g.d_out = floats_on_device(d_out, n);
    g.d_x = floats_on_device(NULL, 2 * n);
    RUN(cuda, gated_activation_forward, f);
    RUN(cuda, gated_activation_backward, g);
    compare("gated", f.out, out, n, few_roundings);
    compare("gradient of gate and up", g.d_x, d_x, 2 * n, few_roundings);
    release_device();
    free(x);
    free(d_out);
    guarded_free(out);
    guarded_free(d_x);
}

// The last shape has several strips of channels.
void gated_activation_agrees(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {9, 31}, {33, 33}, {65, 64}, {2, 2}, {3, 1100}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int activation = BD_ACTIVATION_RELU; activation <= BD_ACTIVATION_SILU;
             activation++)
            check_gate((bd_activation)activation, shapes[i][0], shapes[i][1]);
}
