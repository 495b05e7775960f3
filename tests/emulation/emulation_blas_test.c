// The emulated cuBLASLt: column-major products, checked arguments, queued on the stream.
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <cublasLt.h>

#include "tests/emulation/emulation.h"
#include "tests/emulation/run_again.h"
#include "tests/unit/random.h"

enum { SEED = 20260714, WORKSPACE = 1 << 16 };

static cublasLtHandle_t handle;
static cudaStream_t stream;
static void *workspace;

static int open_library(void **state)
{
    (void)state;
    return cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS ||
           cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
           cudaMalloc(&workspace, WORKSPACE) != cudaSuccess;
}

static int close_library(void **state)
{
    (void)state;
    return cublasLtDestroy(handle) != CUBLAS_STATUS_SUCCESS ||
           cudaFree(workspace) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess;
}

// ---- Matrices -------------------------------------------------------------------------------

// Whole numbers, which bf16 represents exactly; the gaps between the columns are NaN.
typedef struct matrix {
    int rows, columns, ld;
    cudaDataType_t type;
    size_t size_bytes;
    float *values;  // [columns][ld]
    void *device;
    cublasLtMatrixLayout_t layout;
} matrix;

static size_t element_size(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static void upload(matrix *m)
{
    const int n = m->ld * m->columns;
    unsigned char *bytes = malloc(m->size_bytes);
    assert_non_null(bytes);
    for (int i = 0; i < n; i++) {
        const size_t size = element_size(m->type);
        memcpy(bytes + (size_t)i * size, (const char *)&m->values[i] + 4 - size, size);
    }
    assert_int_equal(
        cudaMemcpyAsync(m->device, bytes, m->size_bytes, cudaMemcpyHostToDevice, stream),
        cudaSuccess);
    free(bytes);
}

static void download(matrix *m)
{
    const int n = m->ld * m->columns;
    unsigned char *bytes = malloc(m->size_bytes);
    assert_non_null(bytes);
    assert_int_equal(
        cudaMemcpyAsync(bytes, m->device, m->size_bytes, cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    memset(m->values, 0, (size_t)n * sizeof *m->values);
    for (int i = 0; i < n; i++) {
        const size_t size = element_size(m->type);
        memcpy((char *)&m->values[i] + 4 - size, bytes + (size_t)i * size, size);
    }
    free(bytes);
}

static matrix new_matrix(int rows, int columns, int ld, cudaDataType_t type, uint64_t *seed)
{
    matrix m = {.rows = rows, .columns = columns, .ld = ld, .type = type};
    m.size_bytes = (size_t)ld * (size_t)columns * element_size(type);
    m.values = malloc((size_t)ld * (size_t)columns * sizeof *m.values);
    assert_non_null(m.values);
    for (int i = 0; i < ld * columns; i++)
        m.values[i] = i % ld < rows ? (float)random_between(seed, -4, 4) : NAN;
    assert_int_equal(cudaMalloc(&m.device, m.size_bytes), cudaSuccess);
    assert_int_equal(
        cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)columns, ld),
        CUBLAS_STATUS_SUCCESS);
    upload(&m);
    return m;
}

static void free_matrix(matrix *m)
{
    free(m->values);
    assert_int_equal(cudaFree(m->device), cudaSuccess);
    cublasLtMatrixLayoutDestroy(m->layout);
}

// ---- Products -------------------------------------------------------------------------------

static cublasLtMatmulDesc_t new_product(int32_t trans_a, int32_t trans_b, uint32_t epilogue,
                                        const void *bias)
{
    cublasLtMatmulDesc_t p;
    assert_int_equal(cublasLtMatmulDescCreate(&p, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, 4), 0);
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, 4), 0);
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4), 0);
    assert_int_equal(cublasLtMatmulDescSetAttribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                    sizeof bias),
                     0);
    return p;
}

// An algorithm for matrices of that alignment; 0 means the library's default.
static cublasStatus_t find_algorithm(cublasLtMatmulDesc_t product, const matrix *a,
                                     const matrix *b, const matrix *d, uint32_t alignment,
                                     cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    const uint64_t most = WORKSPACE;
    int n_found = 7;
    assert_int_equal(cublasLtMatmulPreferenceCreate(&preference), 0);
    assert_int_equal(
        cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
        0);
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; i < 4 && alignment; i++)
        assert_int_equal(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i],
                                                              &alignment, sizeof alignment),
                         0);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, product, a->layout, b->layout, d->layout,
                                       d->layout, preference, 1, &result, &n_found);
    assert_int_equal(n_found, status == CUBLAS_STATUS_SUCCESS);
    *algorithm = result.algo;
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static cublasStatus_t multiply(cublasLtMatmulDesc_t product, float alpha, const matrix *a,
                               const matrix *b, float beta, const matrix *d,
                               const cublasLtMatmulAlgo_t *algorithm)
{
    return cublasLtMatmul(handle, product, &alpha, a->device, a->layout, b->device, b->layout,
                          &beta, d->device, d->layout, d->device, d->layout, algorithm,
                          workspace, WORKSPACE, stream);
}

static float element(const matrix *m, bool transposed, int row, int column)
{
    return transposed ? m->values[column + row * m->ld] : m->values[row + column * m->ld];
}

static double activated(uint32_t epilogue, double x)
{
    if (epilogue & CUBLASLT_EPILOGUE_RELU)
        return x > 0.0 ? x : 0.0;
    if (epilogue & CUBLASLT_EPILOGUE_GELU)
        return x / 2.0 * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * pow(x, 3))));
    return x;
}

typedef struct problem {
    int m, n, k, gap;  // gap: numbers between the columns of all matrices
    bool trans_a, trans_b;
    cudaDataType_t type;
    uint32_t epilogue;
    float alpha, beta;
} problem;

static void check_product(problem p, uint64_t *seed)
{
    const int a_rows = p.trans_a ? p.k : p.m, b_rows = p.trans_b ? p.n : p.k;
    matrix a = new_matrix(a_rows, p.trans_a ? p.m : p.k, a_rows + p.gap, p.type, seed);
    matrix b = new_matrix(b_rows, p.trans_b ? p.k : p.n, b_rows + p.gap, p.type, seed);
    matrix d = new_matrix(p.m, p.n, p.m + p.gap, CUDA_R_32F, seed);
    matrix before = new_matrix(p.m, p.n, p.m + p.gap, CUDA_R_32F, seed);
    matrix bias = new_matrix(p.m, 1, p.m, CUDA_R_32F, seed);
    memcpy(before.values, d.values, d.size_bytes);
    cublasLtMatmulAlgo_t algorithm;
    const cublasLtMatmulDesc_t product =
        new_product(p.trans_a, p.trans_b, p.epilogue, bias.device);
    assert_int_equal(find_algorithm(product, &a, &b, &d, 0, &algorithm), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(product, p.alpha, &a, &b, p.beta, &d, &algorithm),
                     CUBLAS_STATUS_SUCCESS);
    download(&d);
    for (int j = 0; j < p.n; j++)
        for (int i = 0; i < p.m + p.gap; i++) {
            const float got = d.values[i + j * d.ld];
            if (i >= p.m) {
                assert_true(got != got);  // the gaps between the columns are not written
                continue;
            }
            double x = 0.0;
            for (int l = 0; l < p.k; l++)
                x += (double)element(&a, p.trans_a, i, l) * element(&b, p.trans_b, l, j);
            x = p.alpha * x + (p.beta != 0.0f ? p.beta * element(&before, false, i, j) : 0.0);
            if (p.epilogue & CUBLASLT_EPILOGUE_BIAS)
                x += bias.values[i];
            x = activated(p.epilogue, x);
            assert_true(fabs(got - x) <= 1e-6 * fabs(x) + 1e-6);
        }
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&d);
    free_matrix(&before);
    free_matrix(&bias);
    cublasLtMatmulDescDestroy(product);
}

static void products_agree_with_double(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1}, {31, 33, 5}, {7, 1, 64}, {16, 16, 16}};
    static const uint32_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_RELU,      CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS,
    };
    uint64_t seed = SEED;
    for (int v = 0; v < 4 * 4 * 5; v++) {
        const int *size = sizes[v % 4];
        problem p = {.m = size[0], .n = size[1], .k = size[2], .gap = v % 3};
        p.trans_a = v / 4 % 2 == 1;
        p.trans_b = v / 8 % 2 == 1;
        p.epilogue = epilogues[v / 16];
        p.alpha = 0.5f;
        p.beta = v % 5 == 0 ? 1.0f : 0.0f;
        p.type = v % 2 ? CUDA_R_32F : CUDA_R_16BF;
        check_product(p, &seed);
    }
}

static void products_wait_on_their_stream_and_spoil_the_workspace(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    matrix a = new_matrix(3, 4, 3, CUDA_R_32F, &seed),
           b = new_matrix(4, 2, 4, CUDA_R_32F, &seed);
    matrix d = new_matrix(3, 2, 3, CUDA_R_32F, &seed);
    const cublasLtMatmulDesc_t product = new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL);
    cublasLtMatmulAlgo_t algorithm;
    unsigned char byte = 1;
    assert_int_equal(find_algorithm(product, &a, &b, &d, 0, &algorithm), 0);
    assert_int_equal(cudaMemsetAsync(workspace, 0, WORKSPACE, stream), cudaSuccess);
    assert_int_equal(multiply(product, 1.0f, &a, &b, 0.0f, &d, &algorithm), 0);
    // Queued after the product, which must not see it.
    assert_int_equal(cudaMemsetAsync(a.device, 0xff, a.size_bytes, stream), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(&byte, workspace, 1, cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    assert_int_equal(byte, 0xff);
    download(&d);
    assert_true(d.values[0] == d.values[0]);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&d);
    cublasLtMatmulDescDestroy(product);
}

// ---- Refusals -------------------------------------------------------------------------------

static void conflicting_shapes_are_refused(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    matrix a = new_matrix(3, 4, 3, CUDA_R_32F, &seed),
           b = new_matrix(4, 2, 4, CUDA_R_32F, &seed);
    matrix d = new_matrix(3, 2, 3, CUDA_R_32F, &seed),
           e = new_matrix(2, 3, 2, CUDA_R_32F, &seed);
    matrix half = new_matrix(4, 2, 4, CUDA_R_16BF, &seed);
    const cublasLtMatmulDesc_t plain = new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL);
    const cublasLtMatmulDesc_t turned = new_product(1, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL);
    const cublasLtMatmulDesc_t biased = new_product(0, 0, CUBLASLT_EPILOGUE_BIAS, NULL);
    const cublasLtMatmulDesc_t unknown = new_product(0, 0, CUBLASLT_EPILOGUE_BGRADB, NULL);
    const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
    assert_int_equal(multiply(plain, 1, &a, &b, 0, &d, NULL), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(plain, 1, &b, &a, 0, &d, NULL), invalid);
    assert_int_equal(multiply(plain, 1, &a, &b, 0, &e, NULL), invalid);
    assert_int_equal(multiply(turned, 1, &a, &b, 0, &d, NULL), invalid);
    assert_int_equal(multiply(biased, 1, &a, &b, 0, &d, NULL), invalid);  // no bias
    assert_int_equal(multiply(plain, 1, &a, &half, 0, &d, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(multiply(unknown, 1, &a, &b, 0, &d, NULL), CUBLAS_STATUS_NOT_SUPPORTED);

    const int64_t short_ld = 2;
    cublasLtMatmulAlgo_t algorithm;
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, 8), 0);
    assert_int_equal(multiply(plain, 1, &a, &b, 0, &d, NULL), invalid);
    assert_int_equal(find_algorithm(plain, &a, &b, &d, 0, &algorithm), invalid);
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, 4),
        invalid);  // an attribute of the wrong size

    matrix *const all[] = {&a, &b, &d, &e, &half};
    for (int i = 0; i < 5; i++)
        free_matrix(all[i]);
    const cublasLtMatmulDesc_t products[] = {plain, turned, biased, unknown};
    for (int i = 0; i < 4; i++)
        cublasLtMatmulDescDestroy(products[i]);
}

static void algorithms_hold_to_what_they_were_found_for(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    matrix a = new_matrix(3, 5, 3, CUDA_R_32F, &seed),
           b = new_matrix(4, 2, 4, CUDA_R_32F, &seed);
    matrix d = new_matrix(3, 2, 3, CUDA_R_32F, &seed);
    const cublasLtMatmulDesc_t product = new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL);
    const cublasLtMatmulDesc_t relu = new_product(0, 0, CUBLASLT_EPILOGUE_RELU, NULL);
    const uint64_t four = 4;
    cublasLtMatmulAlgo_t strict, modest;
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_COLS, &four, 8), 0);
    assert_int_equal(find_algorithm(product, &a, &b, &d, 0, &strict), 0);
    assert_int_equal(find_algorithm(product, &a, &b, &d, 4, &modest), 0);
    assert_int_equal(multiply(product, 1, &a, &b, 0, &d, &strict), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(relu, 1, &a, &b, 0, &d, &strict), CUBLAS_STATUS_NOT_SUPPORTED);

    matrix moved = a;  // the default alignment is 256 bytes
    moved.device = (char *)a.device + 4;
    assert_int_equal(multiply(product, 1, &moved, &b, 0, &d, &strict),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(product, 1, &moved, &b, 0, &d, &modest), CUBLAS_STATUS_SUCCESS);

    const float one = 1.0f;
    assert_int_equal(cublasLtMatmul(handle, product, &one, a.device, a.layout, b.device,
                                    b.layout, &one, d.device, d.layout, d.device, d.layout,
                                    &strict, NULL, 0, stream),
                     CUBLAS_STATUS_INVALID_VALUE);  // the algorithm has asked for a workspace
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&d);
    cublasLtMatmulDescDestroy(product);
    cublasLtMatmulDescDestroy(relu);
}

// ---- Faults that end the process ------------------------------------------------------------

static void output_over_input(void)
{
    uint64_t seed = SEED;
    matrix a = new_matrix(4, 4, 4, CUDA_R_32F, &seed),
           b = new_matrix(4, 4, 4, CUDA_R_32F, &seed);
    multiply(new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL), 1, &a, &b, 0, &a, NULL);
}

// A leading dimension that belongs to another matrix and is too large for this one.
static void swapped_leading_dimension(void)
{
    uint64_t seed = SEED;
    matrix a = new_matrix(4, 8, 4, CUDA_R_32F, &seed),
           b = new_matrix(8, 4, 8, CUDA_R_32F, &seed);
    matrix d = new_matrix(4, 4, 4, CUDA_R_32F, &seed);
    const int64_t ld = 8;
    cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld);
    multiply(new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL), 1, &a, &b, 0, &d, NULL);
}

static void host_memory_as_input(void)
{
    uint64_t seed = SEED;
    matrix a = new_matrix(4, 4, 4, CUDA_R_32F, &seed),
           d = new_matrix(4, 4, 4, CUDA_R_32F, &seed);
    matrix b = a;
    b.device = b.values;
    multiply(new_product(0, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL), 1, &a, &b, 0, &d, NULL);
}

static const struct {
    void (*act)(void);
    const char *says;
} fatal_acts[] = {
    {output_over_input, "D overlaps A"},
    {swapped_leading_dimension, "matrix A (4 x 8, ld 8) is not in device memory"},
    {host_memory_as_input, "matrix B (4 x 4, ld 4) is not in device memory"},
};
enum { N_FATAL_ACTS = sizeof fatal_acts / sizeof *fatal_acts };

static void wrong_memory_ends_the_process(void **state)
{
    (void)state;
    for (int i = 0; i < N_FATAL_ACTS; i++) {
        char text[4096];
        const int status = run_again(&i, 1, text, sizeof text);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        if (!strstr(text, fatal_acts[i].says))
            fail_msg("'%s' expected, got: %s", fatal_acts[i].says, text);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        if (open_library(NULL) == 0)
            fatal_acts[atoi(argv[1])].act();
        return 0;
    }
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_double),
        cmocka_unit_test(products_wait_on_their_stream_and_spoil_the_workspace),
        cmocka_unit_test(conflicting_shapes_are_refused),
        cmocka_unit_test(algorithms_hold_to_what_they_were_found_for),
        cmocka_unit_test(wrong_memory_ends_the_process),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
