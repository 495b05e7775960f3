// Attention of the CUDA backend in bf16, called through its table; attention_test.c tests the
// kernels more strictly. The reference is the CPU backend in float.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "module_fixture.h"

// Probabilities and results are rounded, each by 1/256 at most. Gradients are allowed twice
// that, because they also depend on the gradient of the scores. All relative to the largest
// value.
static const double of_results = 2.0 / 256.0;
static const double of_gradients = 4.0 / 256.0;

static bd_backend *cpu;

typedef struct heads {
    int64_t n, n_kv, size;
} heads;

typedef struct tensors {
    int64_t n_q, n_kv, n_lse;
    float *q, *k, *v, *d_out;            // inputs
    float *out, *lse, *d_q, *d_k, *d_v;  // the CPU's results
} tensors;

static bd_attention_forward_args forward_args(const batch *b, heads h, int64_t window)
{
    return (bd_attention_forward_args){
        .boundaries = b->boundaries,
        .n_heads = h.n,
        .n_kv_heads = h.n_kv,
        .head_size = h.size,
        .q_stride = h.n * h.size,
        .kv_stride = h.n_kv * h.size,
        .window = window,
        .scale = 0.1f,
    };
}

static tensors compute_on_host(const batch *b, heads h, int64_t window)
{
    uint64_t seed = 48;
    tensors t = {.n_q = b->n_tokens * h.n * h.size,
                 .n_kv = b->n_tokens * h.n_kv * h.size,
                 .n_lse = b->n_tokens * h.n};
    t.q = bf16_activations(&seed, b, h.n * h.size, 2.0);
    t.k = bf16_activations(&seed, b, h.n_kv * h.size, 2.0);
    t.v = bf16_activations(&seed, b, h.n_kv * h.size, 2.0);
    t.d_out = bf16_activations(&seed, b, h.n * h.size, 1.0);
    t.out = guarded(t.n_q);
    t.lse = guarded(t.n_lse);
    t.d_q = guarded(t.n_q);
    t.d_k = guarded(t.n_kv);
    t.d_v = guarded(t.n_kv);
    bd_attention_forward_args f = forward_args(b, h, window);
    f.q = t.q;
    f.k = t.k;
    f.v = t.v;
    f.out = t.out;
    f.lse = t.lse;
    bd_attention_backward_args g = bd_attention_backward_of(&f);
    g.d_out = t.d_out;
    g.d_q = t.d_q;
    g.d_k = t.d_k;
    g.d_v = t.d_v;
    RUN(cpu, attention_forward, f);
    RUN(cpu, attention_backward, g);
    return t;
}

static void free_tensors(tensors *t)
{
    float *inputs[] = {t->q, t->k, t->v, t->d_out};
    float *results[] = {t->out, t->lse, t->d_q, t->d_k, t->d_v};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        free(inputs[i]);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        guarded_free(results[i]);
}

static void expect_near(const char *what, const batch *b, const void *device,
                        const float *wanted, int64_t n, double tolerance)
{
    float *got = fetch_bf16(what, device, n);
    double *precise = to_double(wanted, n);
    expect_padding_zero(what, b, got, n / b->n_tokens);
    expect_close(what, got, precise, n, tolerance);
    free(got);
    free(precise);
}

static void check_attention(const batch *b, heads h, int64_t window)
{
    tensors t = compute_on_host(b, h, window);
    bd_attention_forward_args f = forward_args(b, h, window);
    f.type = BD_BF16;
    f.boundaries = boundaries_on_device(b);
    f.q = bf16_on_device(t.q, t.n_q);
    f.k = bf16_on_device(t.k, t.n_kv);
    f.v = bf16_on_device(t.v, t.n_kv);
    f.out = bf16_nan_on_device(t.n_q);
    f.lse = floats_on_device(NULL, t.n_lse);
    bd_attention_backward_args g = bd_attention_backward_of(&f);
    g.d_out = bf16_on_device(t.d_out, t.n_q);
    g.d_q = bf16_nan_on_device(t.n_q);
    g.d_k = bf16_nan_on_device(t.n_kv);
    g.d_v = bf16_nan_on_device(t.n_kv);
    RUN(cuda, attention_forward, f);
    RUN(cuda, attention_backward, g);
    expect_near("attention", b, f.out, t.out, t.n_q, of_results);
    expect_floats("lse", f.lse, to_double(t.lse, t.n_lse), t.n_lse, 1e-5);
    expect_near("gradient of q", b, g.d_q, t.d_q, t.n_q, of_gradients);
    expect_near("gradient of k", b, g.d_k, t.d_k, t.n_kv, of_gradients);
    expect_near("gradient of v", b, g.d_v, t.d_v, t.n_kv, of_gradients);
    release_device();
    free_tensors(&t);
}

static void attention_agrees(void)
{
    static const struct {
        int64_t seq_len;
        heads h;
    } cases[] = {{1, {2, 1, 64}}, {31, {3, 1, 128}}, {65, {8, 1, 64}}, {300, {2, 1, 128}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        batch b = random_batch(60 + i, 2, cases[i].seq_len);
        const heads h = cases[i].h;
        check_attention(&b, h, 0);
        check_attention(&b, h, 20);
        batch_release(&b);
    }
}

// Enough blocks to fill a device, where their order differs from run to run. The emulation is
// told its order and needs few: one head of keys with its group.
static void long_documents_agree(void)
{
    const int64_t n_rows = configure_emulation ? 1 : 2;
    const int64_t seq_len = configure_emulation ? 200 : 4096;
    const heads shapes[] = {{12, 12, 64}, {12, 4, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        heads h = shapes[i];
        if (configure_emulation)
            h = (heads){h.n / h.n_kv, 1, h.size};
        batch whole = batch_of_rows(n_rows, seq_len);
        batch mixed = random_batch(70 + i, n_rows, seq_len);
        check_attention(&whole, h, 0);
        check_attention(&mixed, h, 0);
        check_attention(&whole, h, seq_len / 3);
        check_attention(&whole, h, 2);
        batch_release(&whole);
        batch_release(&mixed);
    }
}

static void expect_refusal(bd_attention_forward_args f, const char *message)
{
    bd_error err = {0};
    bd_attention_backward_args g = bd_attention_backward_of(&f);
    g.d_out = f.out;
    assert_int_equal(cuda->operations->attention_forward(cuda, &f, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, message);
    assert_int_equal(cuda->operations->attention_backward(cuda, &g, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, message);
}

static void impossible_requests_are_refused(void)
{
    batch b = batch_of_one(8);
    const bd_boundaries boundaries = boundaries_on_device(&b);
    char *memory = bf16_nan_on_device(4096);
    static const struct {
        int64_t head_size, more_stride;
        size_t shift;
        const char *message;
    } refused[] = {
        {32, 0, 0, "attention in bf16 has head sizes 64 and 128, not 32"},
        {65, 6, 0, "attention in bf16 has head sizes 64 and 128, not 65"},
        {64, 4, 0, "attention in bf16 needs tokens that are aligned to 16 bytes"},
        {64, 0, 2, "attention in bf16 needs tokens that are aligned to 16 bytes"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        bd_attention_forward_args f = forward_args(&b, (heads){2, 1, refused[i].head_size}, 0);
        f.boundaries = boundaries;
        f.type = BD_BF16;
        f.q_stride += refused[i].more_stride;
        f.kv_stride += refused[i].head_size == 65 ? 7 : 0;
        f.q = f.k = f.v = f.out = memory + refused[i].shift;
        f.lse = (float *)(void *)memory;
        expect_refusal(f, refused[i].message);
    }
    release_device();
    batch_release(&b);
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "attention_agrees", .check = attention_agrees},
        {.name = "long_documents_agree", .check = long_documents_agree},
        {.name = "impossible_requests_are_refused", .check = impossible_requests_are_refused},
    };
    bd_error err;
    if (bd_backend_open_cpu(&cpu, 2, &err) != BD_OK)
        return 1;
    const int status = run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
    cpu->operations->close(cpu);
    return status;
}
