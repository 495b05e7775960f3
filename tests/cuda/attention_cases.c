#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

enum { N_HEADS = 4, N_KV_HEADS = 2 };

static void check_window(const batch *b, int64_t head_size, int64_t window)
{
    uint64_t seed = 22;
    const int64_t q_width = N_HEADS * head_size, kv_width = N_KV_HEADS * head_size;
    const int64_t n_q = b->n_tokens * q_width, n_kv = b->n_tokens * kv_width;
    const int64_t n_lse = b->n_tokens * N_HEADS;
    float *q = random_activations(&seed, b, q_width, 1.0);
    float *k = random_activations(&seed, b, kv_width, 1.0);
    float *v = random_activations(&seed, b, kv_width, 1.0);
    float *out = guarded(n_q), *lse = guarded(n_lse);
    bd_attention_forward_args f = {
        .boundaries = b->boundaries,
        .n_heads = N_HEADS,
        .n_kv_heads = N_KV_HEADS,
        .head_size = head_size,
        .q_stride = q_width,
        .kv_stride = kv_width,
        .window = window,
        .scale = 0.3f,
        .q = q,
        .k = k,
        .v = v,
        .out = out,
        .lse = lse,
    };
    const bd_attention_forward_args on_host = f;
    RUN(cpu, attention_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.q = floats_on_device(q, n_q);
    f.k = floats_on_device(k, n_kv);
    f.v = floats_on_device(v, n_kv);
    f.out = floats_on_device(NULL, n_q);
    f.lse = floats_on_device(NULL, n_lse);
    RUN(cuda, attention_forward, f);
    compare_padded("attention", b, f.out, out, q_width, long_sums);
    compare_padded("lse", b, f.lse, lse, N_HEADS, long_sums);

    float *d_out = random_activations(&seed, b, q_width, 1.0);
    float *d_q = guarded(n_q), *d_k = guarded(n_kv), *d_v = guarded(n_kv);
    bd_attention_backward_args g = bd_attention_backward_of(&on_host);
    g.d_out = d_out;
    g.d_q = d_q;
    g.d_k = d_k;
    g.d_v = d_v;
    RUN(cpu, attention_backward, g);
    g.boundaries = f.boundaries;
    g.q = f.q;
    g.k = f.k;
    g.v = f.v;
    g.out = floats_on_device(out, n_q);
    g.lse = floats_on_device(lse, n_lse);
    g.d_out = floats_on_device(d_out, n_q);
    g.d_q = floats_on_device(NULL, n_q);
    g.d_k = floats_on_device(NULL, n_kv);
    g.d_v = floats_on_device(NULL, n_kv);
    RUN(cuda, attention_backward, g);
    compare_cancelled("gradient of q", b, g.d_q, d_q, q_width);
    compare_cancelled("gradient of k", b, g.d_k, d_k, kv_width);
    compare_padded("gradient of v", b, g.d_v, d_v, kv_width, long_sums);
    release_device();
    free(q);
    free(k);
    free(v);
    free(d_out);
    guarded_free(out);
    guarded_free(lse);
    guarded_free(d_q);
    guarded_free(d_k);
    guarded_free(d_v);
}

static void check_attention(const batch *b, int64_t head_size, int32_t id_bytes)
{
    (void)id_bytes;
    if (head_size > 65 || (BRIEF && b->n_tokens > 200))
        return;
    check_window(b, head_size, 0);
    check_window(b, head_size, 20);
}

// Only shows that the table has these operations; attention_test.c tests them thoroughly.
void attention_agrees(void)
{
    for_each_batch(check_attention);
}
