#include "kernels/muon.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/type.h"

// ---- Products -------------------------------------------------------------------------------

// A product and what follows it, which are computed tile by tile while a tile is in the cache.
// The tiles depend only on the shape, so that the number of threads changes no result.
typedef struct muon_product {
    bd_gemm_args gemm;   // the whole product
    bool symmetric;      // only tiles on and below the diagonal are computed, and mirrored
    float p, q;          // c becomes p * other + q * c
    const float *other;  // NULL: c stays
    int64_t rows, columns, across;  // of a tile; tiles side by side
} muon_product;

static bd_gemm_args tile_of(const muon_product *product, int64_t index)
{
    bd_gemm_args tile = product->gemm;
    const int64_t row = index / product->across * product->rows;
    const int64_t column = index % product->across * product->columns;
    tile.m = bd_min(product->rows, tile.m - row);
    tile.n = bd_min(product->columns, tile.n - column);
    tile.a += tile.transpose_a ? row : row * tile.a_stride;
    tile.b += tile.transpose_b ? column * tile.b_stride : column;
    tile.c += row * tile.c_stride + column;
    return tile;
}

static bd_status multiply_tile(void *context, int64_t index, bd_error *err)
{
    const muon_product *product = context;
    const bd_gemm_args tile = tile_of(product, index);
    const int64_t stride = tile.c_stride, at = tile.c - product->gemm.c;
    const int64_t row = at / stride, column = at % stride;
    if (product->symmetric && column > row)
        return BD_OK;
    BD_TRY(BD_CPU(gemm)(&tile, NULL, err));
    for (int64_t i = 0; product->other && i < tile.m; i++) {
        const float *other = product->other + at + i * stride;
        float *restrict c = tile.c + i * stride;
        for (int64_t j = 0; j < tile.n; j++)
            c[j] = product->p * other[j] + product->q * c[j];
    }
    float *mirrored = product->gemm.c + column * stride + row;
    for (int64_t i = 0; product->symmetric && column < row && i < tile.m; i++)
        for (int64_t j = 0; j < tile.n; j++)
            mirrored[j * stride + i] = tile.c[i * stride + j];
    return BD_OK;
}

// Small matrices have small tiles, so that there is work for several threads. Those of a
// symmetric product are square, so that mirrored ones do not overlap.
static bd_status multiply(bd_backend *backend, muon_product product, bd_error *err)
{
    const int64_t shorter = bd_min(product.gemm.m, product.gemm.n);
    product.rows = shorter <= 256 ? 64 : shorter <= 1024 ? 128 : 256;
    product.columns = product.symmetric ? product.rows : 2 * product.rows;
    product.across = bd_ceil_divide(product.gemm.n, product.columns);
    return bd_threads_run(((bd_cpu_backend *)backend)->threads, multiply_tile, &product,
                          product.across * bd_ceil_divide(product.gemm.m, product.rows), err);
}

// ---- Elements -------------------------------------------------------------------------------

enum { PER_CHUNK = 16384 };

typedef struct muon_step {
    const bd_muon_args *args;
    float factor;  // 1 / |u|
    float *x;      // [n_rows][n_columns]: u, then X
} muon_step;

static void momentum_loop(const void *context, int64_t first, int64_t last)
{
    const muon_step *step = context;
    const float scale = step->args->gradient_scale, momentum = step->args->momentum;
    const float *gradient = step->args->gradient;
    float *restrict m = step->args->m;
    float *restrict x = step->x;
    for (int64_t i = first; i < last; i++) {
        const float g = scale * gradient[i];
        m[i] = momentum * m[i] + g;
        x[i] = g + momentum * m[i];
    }
}

static void normalize_loop(const void *context, int64_t first, int64_t last)
{
    const muon_step *step = context;
    float *x = step->x;
    for (int64_t i = first; i < last; i++)
        x[i] *= step->factor;
}

static void update_loop(const void *context, int64_t first, int64_t last)
{
    const muon_step *step = context;
    const float rate = bd_muon_rate(step->args), decay = bd_muon_decay(step->args);
    float *restrict parameter = step->args->parameter;
    const float *x = step->x;
    for (int64_t i = first; i < last; i++)
        parameter[i] = parameter[i] * decay - rate * x[i];
    for (int64_t i = first; step->args->rounded && i < last; i++)
        step->args->rounded[i] = bd_bf16_of_float(parameter[i]);
}

// ---- The step -------------------------------------------------------------------------------

// Moves the momentum, and makes X of it.
static bd_status make_direction(bd_backend *backend, muon_step *step, int64_t n, bd_error *err)
{
    double squares;
    BD_TRY(bd_cpu_for(backend, n, PER_CHUNK, momentum_loop, step, err));
    const bd_sum_of_squares_args sum = {.n = n, .x = step->x, .sum = &squares};
    BD_TRY(BD_CPU(sum_of_squares)(backend, &sum, err));
    const double norm = sqrt(squares);
    step->factor = norm > bd_muon_least_norm ? (float)(1.0 / norm) : 0.0f;
    return bd_cpu_for(backend, n, PER_CHUNK, normalize_loop, step, err);
}

// next = a X + B X with B = b A + c A A and A = X X^T; for a tall matrix X B and X^T X. `gram`
// and `polynomial` are A and B, [side][side].
static bd_status iterate(bd_backend *backend, const bd_muon_args *args, const float *x,
                         float *next, float *gram, float *polynomial, bd_error *err)
{
    const int64_t rows = args->n_rows, columns = args->n_columns;
    const int64_t side = bd_muon_short_side(args), longest = rows + columns - side;
    const bool wide = rows <= columns;
    const muon_product make_gram = {
        .gemm = {.transpose_a = !wide,
                 .transpose_b = wide,
                 .m = side,
                 .n = side,
                 .k = longest,
                 .a = x,
                 .a_stride = columns,
                 .b = x,
                 .b_stride = columns,
                 .c = gram,
                 .c_stride = side},
        .symmetric = true,
    };
    const muon_product make_polynomial = {
        .gemm = {.m = side,
                 .n = side,
                 .k = side,
                 .a = gram,
                 .a_stride = side,
                 .b = gram,
                 .b_stride = side,
                 .c = polynomial,
                 .c_stride = side},
        .symmetric = true,
        .p = bd_muon_b,
        .q = bd_muon_c,
        .other = gram,
    };
    const muon_product make_next = {
        .gemm = {.m = rows,
                 .n = columns,
                 .k = side,
                 .a = wide ? polynomial : x,
                 .a_stride = side,
                 .b = wide ? x : polynomial,
                 .b_stride = columns,
                 .c = next,
                 .c_stride = columns},
        .p = bd_muon_a,
        .q = 1.0f,
        .other = x,
    };
    BD_TRY(multiply(backend, make_gram, err));
    BD_TRY(multiply(backend, make_polynomial, err));
    return multiply(backend, make_next, err);
}

BD_CPU_OPERATION(muon)
{
    const int64_t n = args->n_rows * args->n_columns, side = bd_muon_short_side(args);
    void *memory;
    BD_TRY(bd_cpu_scratch(backend, bd_muon_matrix_bytes(args), &memory, err));
    float *next = (float *)memory + n, *gram = next + n, *polynomial = gram + side * side;
    muon_step step = {.args = args, .x = memory};
    BD_TRY(make_direction(backend, &step, n, err));
    for (int i = 0; i < BD_MUON_ITERATIONS; i++) {
        float *x = step.x;
        BD_TRY(iterate(backend, args, x, next, gram, polynomial, err));
        step.x = next;
        next = x;
    }
    return bd_cpu_for(backend, n, PER_CHUNK, update_loop, &step, err);
}
