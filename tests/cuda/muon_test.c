// Muon of the CUDA backend, with products in float and in bf16.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "module_fixture.h"

enum { N_STEPS = 2 };

// One number, one row, one column; wide and tall, with and without whole packs; several parts
// of the sum of squares.
static const int64_t shapes[][2] = {{1, 1},   {1, 65}, {65, 1},   {33, 65},
                                    {65, 33}, {64, 8}, {40, 128}, {150, 31}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const bd_muon_args settings = {
    .learning_rate = 0.05f,
    .momentum = 0.95f,
    .weight_decay = 0.4f,
    .gradient_scale = 0.25f,
};

// ---- The definition in double, rounded where a matrix is stored -----------------------------

static double stored(bd_type type, double x)
{
    return type == BD_BF16 ? (double)rounded_to_bf16((float)x) : x;
}

// out [rows][columns] = a [rows][k] * b [k][columns]
static void multiply(bd_type type, int64_t rows, int64_t k, int64_t columns, const double *a,
                     const double *b, double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * columns + j];
            out[i * columns + j] = stored(type, sum);
        }
}

// The matrix is taken for a wide one: the caller has transposed a tall one.
static void iterate(bd_type type, int64_t rows, int64_t columns, double *x)
{
    const int64_t n = rows * columns, n_square = rows * rows;
    double *transposed = zeros(n), *product = zeros(n);
    double *gram = zeros(n_square), *square = zeros(n_square);
    for (int64_t i = 0; i < n; i++)
        transposed[i % columns * rows + i / columns] = x[i];
    multiply(type, rows, columns, rows, x, transposed, gram);
    multiply(type, rows, rows, rows, gram, gram, square);
    for (int64_t i = 0; i < n_square; i++)
        gram[i] = stored(type, -4.7750 * gram[i] + 2.0315 * square[i]);
    multiply(type, rows, rows, columns, gram, x, product);
    for (int64_t i = 0; i < n; i++)
        x[i] = stored(type, 3.4445 * x[i] + product[i]);
    free(transposed);
    free(product);
    free(gram);
    free(square);
}

static void reference_step(bd_type type, int64_t rows, int64_t columns, const float *gradient,
                           double *parameter, double *m)
{
    const int64_t n = rows * columns;
    const bool tall = rows > columns;
    const double rate = (double)settings.learning_rate, momentum = (double)settings.momentum;
    double *u = zeros(n), *x = zeros(n), squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)settings.gradient_scale * (double)gradient[i];
        m[i] = momentum * m[i] + g;
        u[i] = g + momentum * m[i];
        squares += u[i] * u[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = tall ? i % columns * rows + i / columns : i;
        x[at] = stored(type, u[i] / sqrt(squares));
    }
    for (int i = 0; i < 5; i++)
        iterate(type, tall ? columns : rows, tall ? rows : columns, x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = tall ? i % columns * rows + i / columns : i;
        parameter[i] = parameter[i] * (1.0 - rate * (double)settings.weight_decay) -
                       rate * 0.2 * sqrt((double)(tall ? rows : columns)) * x[at];
    }
    free(u);
    free(x);
}

// ---- Comparisons ----------------------------------------------------------------------------

static void check_muon(bd_type type, int64_t rows, int64_t columns, double tolerance)
{
    const int64_t n = rows * columns;
    uint64_t seed = 70 + (uint64_t)n;
    float *start = random_tensor(&seed, n, 0.02);
    double *wanted = to_double(start, n), *wanted_m = zeros(n);
    bd_muon_args args = settings;
    args.n_rows = rows;
    args.n_columns = columns;
    args.type = type;
    args.parameter = floats_on_device(start, n);
    float *nothing = get_memory((size_t)n * sizeof *nothing);
    memset(nothing, 0, (size_t)n * sizeof *nothing);
    args.m = floats_on_device(nothing, n);
    args.rounded = device_array(NULL, n, sizeof(uint16_t));
    for (int step = 0; step < N_STEPS; step++) {
        float *gradient = random_tensor(&seed, n, 1.0);
        args.gradient = floats_on_device(gradient, n);
        RUN(cuda, muon, args);
        reference_step(type, rows, columns, gradient, wanted, wanted_m);
        free(gradient);
    }
    float *parameter = fetch_bytes(args.parameter, (size_t)n * sizeof *parameter);
    uint16_t *bits = fetch_bytes(args.rounded, (size_t)n * sizeof *bits);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(bits[i], bd_bf16_of_float(parameter[i]));
    expect_floats("parameter", args.parameter, wanted, n, tolerance);
    expect_floats("momentum", args.m, wanted_m, n, few_roundings);
    release_device();
    free(start);
    free(nothing);
    free(parameter);
    free(bits);
}

// As in tests/unit/kernels/muon_test.c: roundings are multiplied by up to 3.4445^5 = 485.
static void muon_agrees_in_float(void)
{
    for (int i = 0; i < N_SHAPES; i++)
        check_muon(BD_FLOAT, shapes[i][0], shapes[i][1], 485 * 6e-8 * 4);
}

// Sums that are added in another order may be rounded to the neighbouring bf16, 2^-8 away, at
// each of five iterations.
static void muon_agrees_in_bf16(void)
{
    for (int i = 0; i < N_SHAPES; i++)
        check_muon(BD_BF16, shapes[i][0], shapes[i][1], 5 / 256.0);
}

// Zeros have no direction: the matrix only decays.
static void nothing_stays_nothing(void)
{
    enum { ROWS = 5, COLUMNS = 33, N = ROWS * COLUMNS };
    static const float nothing[N];
    float ones[N];
    for (int i = 0; i < N; i++)
        ones[i] = 1.0f;
    bd_muon_args args = settings;
    args.n_rows = ROWS;
    args.n_columns = COLUMNS;
    args.gradient = floats_on_device(nothing, N);
    args.m = floats_on_device(nothing, N);
    args.parameter = floats_on_device(ones, N);
    RUN(cuda, muon, args);
    float *parameter = fetch_bytes(args.parameter, sizeof ones);
    for (int i = 0; i < N; i++)
        assert_true(parameter[i] == (float)(1.0 - 0.05f * (double)0.4f));
    free(parameter);
    release_device();
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "muon_agrees_in_float", .check = muon_agrees_in_float, .misaligned = true},
        {.name = "muon_agrees_in_bf16", .check = muon_agrees_in_bf16, .misaligned = true},
        {.name = "nothing_stays_nothing", .check = nothing_stays_nothing},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
