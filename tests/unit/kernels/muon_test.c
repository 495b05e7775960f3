#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

enum { N_STEPS = 3 };

// One number; one row and one column; wide, tall and square; more than one chunk of elements.
static const int64_t shapes[][2] = {{1, 1},   {1, 65},  {65, 1},   {33, 65},
                                    {65, 33}, {31, 31}, {300, 70}, {40, 513}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const bd_muon_args settings = {
    .type = BD_FLOAT,
    .learning_rate = 0.05f,
    .momentum = 0.95f,
    .weight_decay = 0.4f,
    .gradient_scale = 0.25f,
};

// ---- The definition, in double --------------------------------------------------------------

// out [rows][columns] = a [rows][k] * b [k][columns]
static void multiply(int64_t rows, int64_t k, int64_t columns, const double *a, const double *b,
                     double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * columns + j];
            out[i * columns + j] = sum;
        }
}

// X becomes a X + b (X X^T) X + c (X X^T)^2 X, which is the same for wide and tall matrices.
static void iterate(int64_t rows, int64_t columns, double *x)
{
    const int64_t n = rows * columns;
    double *transposed = get_memory((size_t)n * sizeof *x);
    double *gram = get_memory((size_t)(rows * rows) * sizeof *x);
    double *once = get_memory((size_t)n * sizeof *x),
           *twice = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        transposed[i % columns * rows + i / columns] = x[i];
    multiply(rows, columns, rows, x, transposed, gram);
    multiply(rows, rows, columns, gram, x, once);
    multiply(rows, rows, columns, gram, once, twice);
    for (int64_t i = 0; i < n; i++)
        x[i] = 3.4445 * x[i] - 4.7750 * once[i] + 2.0315 * twice[i];
    free(transposed);
    free(gram);
    free(once);
    free(twice);
}

static void reference_step(int64_t rows, int64_t columns, const float *gradient,
                           double *parameter, double *m)
{
    const int64_t n = rows * columns;
    const double rate = (double)settings.learning_rate, momentum = (double)settings.momentum;
    double *x = get_memory((size_t)n * sizeof *x), squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)settings.gradient_scale * (double)gradient[i];
        m[i] = momentum * m[i] + g;
        x[i] = g + momentum * m[i];
        squares += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sqrt(squares);
    for (int i = 0; i < 5; i++)
        iterate(rows, columns, x);
    for (int64_t i = 0; i < n; i++)
        parameter[i] = parameter[i] * (1.0 - rate * (double)settings.weight_decay) -
                       rate * 0.2 * sqrt((double)(rows > columns ? rows : columns)) * x[i];
    free(x);
}

// ---- Comparisons ----------------------------------------------------------------------------

static bd_muon_args step_of(int64_t rows, int64_t columns, const float *gradient,
                            float *parameter, float *m)
{
    bd_muon_args args = settings;
    args.n_rows = rows;
    args.n_columns = columns;
    args.gradient = gradient;
    args.parameter = parameter;
    args.m = m;
    return args;
}

static float *zeros(int64_t n)
{
    float *x = guarded(n);
    memset(x, 0, (size_t)n * sizeof *x);
    return x;
}

static void check_shape(bd_backend *backend, int64_t rows, int64_t columns)
{
    const int64_t n = rows * columns;
    uint64_t seed = 50 + (uint64_t)n;
    float *start = random_tensor(&seed, n, 0.02);
    float *parameter = guarded_copy(start, n), *m = zeros(n);
    double *wanted = to_double(start, n), *wanted_m = calloc((size_t)n, sizeof *wanted_m);
    uint16_t *rounded = get_memory((size_t)n * sizeof *rounded);
    for (int step = 0; step < N_STEPS; step++) {
        float *gradient = random_tensor(&seed, n, 1e-3);
        bd_muon_args args = step_of(rows, columns, gradient, parameter, m);
        args.rounded = rounded;
        RUN(backend, muon, args);
        reference_step(rows, columns, gradient, wanted, wanted_m);
        free(gradient);
    }
    // The first factor is 3.4445, so that five iterations multiply a rounding of X, 6e-8 of its
    // norm, by at most 3.4445^5 = 485; the sums of a product round a few times more.
    expect_close("parameter", parameter, wanted, n, 485 * 6e-8 * 4);
    expect_close("m", m, wanted_m, n, 1e-6);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(rounded[i], bd_bf16_of_float(parameter[i]));
    free(start);
    free(rounded);
    free(wanted);
    free(wanted_m);
    guarded_free(parameter);
    guarded_free(m);
}

static void check_shapes(bd_backend *backend, void *context)
{
    (void)context;
    for (int i = 0; i < N_SHAPES; i++)
        check_shape(backend, shapes[i][0], shapes[i][1]);
}

static void muon_agrees_with_double_precision(void **state)
{
    (void)state;
    for_each_isa(check_shapes, NULL);
}

// ---- Properties -----------------------------------------------------------------------------

// The rows of the update are nearly orthogonal, and of nearly the same length, though those of
// the gradient differ by a factor of ten.
static void check_orthogonal(bd_backend *backend, void *context)
{
    (void)context;
    enum { ROWS = 33, COLUMNS = 200 };
    uint64_t seed = 60;
    float *gradient = random_tensor(&seed, ROWS * COLUMNS, 1.0);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        gradient[i] *= (float)(0.1 + 0.9 * (double)(i / COLUMNS) / ROWS);
    float *parameter = zeros(ROWS * COLUMNS), *m = zeros(ROWS * COLUMNS);
    bd_muon_args args = step_of(ROWS, COLUMNS, gradient, parameter, m);
    RUN(backend, muon, args);
    const double rate = 0.05 * 0.2 * sqrt(COLUMNS);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < ROWS; j++) {
            double product = 0.0;
            for (int64_t k = 0; k < COLUMNS; k++)
                product += (double)parameter[i * COLUMNS + k] / rate *
                           (double)parameter[j * COLUMNS + k] / rate;
            // Singular values of at least 0.01 come out between 0.68 and 1.14.
            if (i == j)
                assert_true(product > 0.68 * 0.68 && product < 1.14 * 1.14);
            else
                assert_true(fabs(product) < (1.14 * 1.14 - 0.68 * 0.68) / 2);
        }
    free(gradient);
    guarded_free(parameter);
    guarded_free(m);
}

static void updates_are_nearly_orthogonal(void **state)
{
    (void)state;
    for_each_isa(check_orthogonal, NULL);
}

static void check_scale(bd_backend *backend, void *context)
{
    (void)context;
    enum { ROWS = 33, COLUMNS = 65, N = ROWS * COLUMNS };
    uint64_t seed = 61;
    float *gradient = random_tensor(&seed, N, 1.0), *small = get_memory(N * sizeof *small);
    float *parameter = zeros(N), *other = zeros(N), *m = zeros(N), *other_m = zeros(N);
    for (int i = 0; i < N; i++)
        small[i] = gradient[i] * 0x1p-60f;
    RUN(backend, muon, step_of(ROWS, COLUMNS, gradient, parameter, m));
    RUN(backend, muon, step_of(ROWS, COLUMNS, small, other, other_m));
    expect_same("update", other, parameter, N);
    free(gradient);
    free(small);
    guarded_free(parameter);
    guarded_free(other);
    guarded_free(m);
    guarded_free(other_m);
}

static void scale_of_the_gradient_does_not_matter(void **state)
{
    (void)state;
    for_each_isa(check_scale, NULL);
}

static void check_nothing(bd_backend *backend, void *context)
{
    (void)context;
    enum { ROWS = 5, COLUMNS = 33, N = ROWS * COLUMNS };
    float *gradient = zeros(N), *parameter = guarded(N), *m = zeros(N);
    for (int i = 0; i < N; i++)
        parameter[i] = 1.0f;
    RUN(backend, muon, step_of(ROWS, COLUMNS, gradient, parameter, m));
    for (int i = 0; i < N; i++)
        assert_true(parameter[i] == (float)(1.0 - 0.05f * (double)0.4f));
    guarded_free(gradient);
    guarded_free(parameter);
    guarded_free(m);
}

static void without_a_gradient_a_matrix_only_decays(void **state)
{
    (void)state;
    for_each_isa(check_nothing, NULL);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    (void)context;
    for (int s = 0; s < N_SHAPES; s++) {
        const int64_t n = shapes[s][0] * shapes[s][1];
        uint64_t seed = 62;
        float *gradient = random_tensor(&seed, n, 1.0);
        memset(out, 0, 2 * (size_t)n * sizeof *out);
        RUN(backend, muon, step_of(shapes[s][0], shapes[s][1], gradient, out, out + n));
        out += 2 * n;
        free(gradient);
    }
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    int64_t n = 0;
    for (int s = 0; s < N_SHAPES; s++)
        n += 2 * shapes[s][0] * shapes[s][1];
    expect_same_for_any_threads(compute_everything, n, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(muon_agrees_with_double_precision),
        cmocka_unit_test(updates_are_nearly_orthogonal),
        cmocka_unit_test(scale_of_the_gradient_does_not_matter),
        cmocka_unit_test(without_a_gradient_a_matrix_only_decays),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
