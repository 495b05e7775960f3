#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_blas.h"
#include "tests/unit/kernels/kernel_fixture.h"

typedef bd_status gemm(const bd_gemm_args *args, const bd_boundaries *tokens, bd_error *err);

gemm bd_cpu_gemm_baseline, bd_cpu_gemm_avx2, bd_cpu_gemm_avx512;

static gemm *const gemms[BD_CPU_N_ISA] = {
    bd_cpu_gemm_baseline,
#ifdef __x86_64__
    bd_cpu_gemm_avx2,
    bd_cpu_gemm_avx512,
#endif
};

enum { GAP = 5 };  // between rows

// Returns element (i, j) of a · b, and the sum of the products' absolute values.
static double element(const bd_gemm_args *p, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t l = 0; l < p->k; l++) {
        const int64_t at_a = p->transpose_a ? l * p->a_stride + i : i * p->a_stride + l;
        const int64_t at_b = p->transpose_b ? j * p->b_stride + l : l * p->b_stride + j;
        const double term = (double)p->a[at_a] * (double)p->b[at_b];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void check_gemm(gemm *multiply, bd_gemm_args p)
{
    uint64_t seed = 3;
    const int64_t rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
    p.a_stride = (p.transpose_a ? p.m : p.k) + GAP;
    p.b_stride = (p.transpose_b ? p.k : p.n) + GAP;
    p.c_stride = p.n + GAP;
    float *a = random_tensor(&seed, rows_a * p.a_stride, 1.0);
    float *b = random_tensor(&seed, rows_b * p.b_stride, 1.0);
    float *before = random_tensor(&seed, p.m * p.c_stride, 1.0);
    float *c = guarded_copy(before, p.m * p.c_stride);
    p.a = a;
    p.b = b;
    p.c = c;
    bd_error err;
    assert_int_equal(multiply(&p, NULL, &err), BD_OK);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.c_stride; j++) {
            const int64_t at = i * p.c_stride + j;
            double size = 0, wanted = (double)before[at];
            if (j < p.n)
                wanted = element(&p, i, j, &size) + (p.add ? wanted : 0.0);
            if (!(fabs((double)c[at] - wanted) <= 1e-6 * (size + 1.0) * (j < p.n)))
                fail_msg("m %d n %d k %d: [%d][%d] is %g, not %g", (int)p.m, (int)p.n, (int)p.k,
                         (int)i, (int)j, (double)c[at], wanted);
        }
    free(a);
    free(b);
    free(before);
    guarded_free(c);
}

// Sizes on both sides of every size with special treatment: registers, pieces, blocks.
static void agrees_with_double_precision(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 1, 1},     {5, 15, 3},         {6, 16, 4},    {7, 17, 5},   {191, 33, 9},
        {193, 31, 9},  {3, 767, 2},        {512, 768, 2}, {9, 20, 31},  {9, 20, 33},
        {9, 20, 129},  {9, 20, 255},       {9, 20, 257},  {9, 20, 513}, {7, 17, 4096},
        {7, 17, 4097}, {7, 17, 8192 + 300}};
    for (int isa = 0; isa <= (int)bd_cpu_isa_best(); isa++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int how = 0; how < 8; how++)
                check_gemm(gemms[isa], (bd_gemm_args){
                                           .transpose_a = how & 1,
                                           .transpose_b = how & 2,
                                           .add = how & 4,
                                           .m = shapes[s][0],
                                           .n = shapes[s][1],
                                           .k = shapes[s][2],
                                       });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
