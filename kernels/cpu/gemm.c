// Our own matrix product follows GotoBLAS: both factors are copied into panels, which are then
// read from beginning to end. So strides that are multiples of a page, which are common in a
// model, cost nothing (the gradient of 768 x 3072 weights from 1024 tokens on one core of Zen
// 3: oneDNN 2.6 has 37 GFLOP/s, this code 82; the peak is 99).
//
//   b, a piece of the sum by all columns   [columns / WIDTH][BD_PIECE][WIDTH]    a panel fits L1
//   a, a block of rows by the same piece   [BLOCK_ROWS / HEIGHT][BD_PIECE][HEIGHT]    fits L2
//
// The edges of panels are filled with zeros, so that every element of c is computed by the same
// sequence of operations, wherever it lies in the tile.
#include "kernels/cpu/gemm.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/vector.h"

#ifdef BD_CPU_OWN_GEMM

// The registers hold HEIGHT x VECTORS sums, a row of b, and one broadcast element of a.
enum { HEIGHT = 6, VECTORS = 2, WIDTH = VECTORS * BD_LANES };
enum { BLOCK_ROWS = 32 * HEIGHT };
_Static_assert(BD_TILE_COLUMNS % WIDTH == 0, "the panels of b have no room for an edge");

typedef struct panels {
    _Alignas(64) float a[BLOCK_ROWS * BD_PIECE];
    _Alignas(64) float b[BD_TILE_COLUMNS * BD_PIECE];
} panels;

// ---- Copying --------------------------------------------------------------------------------

// A factor in terms of its panels: the sum runs along a panel, and `width` of the n rows of a
// (or columns of b) lie side by side across it.
typedef struct operand {
    const float *from;
    int64_t stride;
    int64_t n;       // across
    bool is_turned;  // rows of memory lie along the sum, not across it
} operand;

static inline const float *element(const operand *o, int64_t across, int64_t along)
{
    return o->is_turned ? o->from + across * o->stride + along
                        : o->from + along * o->stride + across;
}

static inline __attribute__((always_inline)) void
copy_panel(float *restrict to, const operand *o, int64_t first, int64_t k, const int width)
{
    for (int64_t l = 0; l < k; l++)
        memcpy(to + l * width, element(o, first, l), (size_t)width * sizeof *to);
}

// In squares of 4 x 4. If the width is no multiple of 4, the last square overlaps the one
// before.
static inline __attribute__((always_inline)) void
turn_panel(float *restrict to, const operand *o, int64_t first, int64_t k, const int width)
{
    int64_t l = 0;
    for (; l + 4 <= k; l += 4)
        for (int i = 0; i < width; i += 4) {
            const int at = i < width - 4 ? i : width - 4;
            bd_transpose_quad(to + l * width + at, width, element(o, first + at, l), o->stride,
                              1.0f);
        }
    for (; l < k; l++)
        for (int i = 0; i < width; i++)
            to[l * width + i] = *element(o, first + i, l);
}

static void edge_panel(float *restrict to, const operand *o, int64_t first, int64_t k,
                       int width)
{
    for (int64_t l = 0; l < k; l++)
        for (int i = 0; i < width; i++)
            to[l * width + i] = first + i < o->n ? *element(o, first + i, l) : 0.0f;
}

static inline __attribute__((always_inline)) void
make_panels(float *restrict to, const operand *o, int64_t k, const int width)
{
    for (int64_t first = 0; first < o->n; first += width, to += width * k) {
        if (first + width > o->n)
            edge_panel(to, o, first, k, width);
        else if (o->is_turned)
            turn_panel(to, o, first, k, width);
        else
            copy_panel(to, o, first, k, width);
    }
}

// ---- Multiplying ----------------------------------------------------------------------------

// c[HEIGHT][WIDTH] = a · b, or += with add, one product after the other.
static inline __attribute__((always_inline)) void multiply_run(const float *a, const float *b,
                                                               int64_t k, float *c,
                                                               int64_t stride, const bool add)
{
    bd_vector sum[HEIGHT][VECTORS] = {0};
#pragma GCC unroll 1
    for (int64_t l = 0; l < k; l++) {
        bd_vector row[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            row[v] = bd_load(b + v * BD_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < HEIGHT; i++) {
            const float factor = a[i];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] += factor * row[v];
        }
        a += HEIGHT;
        b += WIDTH;
    }
#pragma GCC unroll 8
    for (int i = 0; i < HEIGHT; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            float *to = c + i * stride + v * BD_LANES;
            bd_store(to, add ? bd_load(to) + sum[i][v] : sum[i][v]);
        }
}

// Not inlined, so that all registers are free for the sums.
static __attribute__((noinline)) void write_run(const float *a, const float *b, int64_t k,
                                                float *c, int64_t stride)
{
    multiply_run(a, b, k, c, stride, false);
}

static __attribute__((noinline)) void add_run(const float *a, const float *b, int64_t k,
                                              float *c, int64_t stride)
{
    multiply_run(a, b, k, c, stride, true);
}

// c[HEIGHT][WIDTH] = a · b, or += with add. The runs of the piece are summed before c is
// touched.
static void multiply_panels(const float *a, const float *b, int64_t k, float *c, int64_t stride,
                            bool add)
{
    for (int i = 0; i < HEIGHT; i++)
        __builtin_prefetch(c + i * stride, 1);  // it is needed only after the runs
    _Alignas(64) float sum[HEIGHT * WIDTH];
    write_run(a, b, bd_min(BD_RUN, k), sum, WIDTH);
    for (int64_t l = BD_RUN; l < k; l += BD_RUN)
        add_run(a + l * HEIGHT, b + l * WIDTH, bd_min(BD_RUN, k - l), sum, WIDTH);
    for (int i = 0; i < HEIGHT; i++)
        for (int v = 0; v < VECTORS; v++) {
            float *to = c + i * stride + v * BD_LANES;
            const bd_vector share = bd_load(sum + i * WIDTH + v * BD_LANES);
            bd_store(to, add ? bd_load(to) + share : share);
        }
}

static void multiply_edge(const float *a, const float *b, int64_t k, float *c, int64_t stride,
                          int64_t n_rows, int64_t n_columns, bool add)
{
    float sum[HEIGHT * WIDTH];
    multiply_panels(a, b, k, sum, WIDTH, false);
    for (int64_t i = 0; i < bd_min(HEIGHT, n_rows); i++)
        for (int64_t j = 0; j < bd_min(WIDTH, n_columns); j++) {
            float *to = c + i * stride + j;
            *to = add ? *to + sum[i * WIDTH + j] : sum[i * WIDTH + j];
        }
}

// The product of m rows from the panels of a and n columns from those of b.
static void multiply_block(const panels *p, int64_t m, int64_t n, int64_t k, float *c,
                           int64_t stride, bool add)
{
    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t i = 0; i < m; i += HEIGHT) {
            const float *a = p->a + i * k, *b = p->b + j * k;
            float *to = c + i * stride + j;
            if (i + HEIGHT <= m && j + WIDTH <= n)
                multiply_panels(a, b, k, to, stride, add);
            else
                multiply_edge(a, b, k, to, stride, m - i, n - j, add);
        }
}

static bd_status multiply_piece(panels *p, const bd_gemm_args *args, bd_error *err)
{
    (void)err;
    const operand a = {args->a, args->a_stride, args->m, !args->transpose_a};
    const operand b = {args->b, args->b_stride, args->n, args->transpose_b};
    make_panels(p->b, &b, args->k, WIDTH);
    for (int64_t i = 0; i < args->m; i += BLOCK_ROWS) {
        const int64_t m = bd_min(BLOCK_ROWS, args->m - i);
        const operand rows = {element(&a, i, 0), a.stride, m, a.is_turned};
        make_panels(p->a, &rows, args->k, HEIGHT);
        multiply_block(p, m, args->n, args->k, args->c + i * args->c_stride, args->c_stride,
                       args->add);
    }
    return BD_OK;
}

#else

typedef struct panels {
    char none;  // the BLAS has its own copies
} panels;

static bd_status multiply_piece(panels *p, const bd_gemm_args *args, bd_error *err)
{
    (void)p;
    return bd_gemm_blas(args, err);
}

#endif

// ---- Pieces and groups ----------------------------------------------------------------------

// Terms first … first + k - 1 of the sum.
static bd_gemm_args terms_of(const bd_gemm_args *args, int64_t first, int64_t k)
{
    bd_gemm_args part = *args;
    part.k = bd_min(k, args->k - first);
    part.a += args->transpose_a ? first * args->a_stride : first;
    part.b += args->transpose_b ? first : first * args->b_stride;
    return part;
}

// Adds up the pieces of one group. If the sum runs over tokens, `token` is the first one of the
// group. *any says whether there was a piece that was not skipped.
static bd_status multiply_group(panels *p, const bd_gemm_args *args,
                                const bd_boundaries *tokens, int64_t token, bool *any,
                                bd_error *err)
{
    *any = false;
    for (int64_t l = 0; l < args->k; l += BD_PIECE) {
        bd_gemm_args piece = terms_of(args, l, BD_PIECE);
        if (tokens && bd_all_padding(tokens, token + l, piece.k))
            continue;
        piece.add = args->add || *any;
        BD_TRY(multiply_piece(p, &piece, err));
        *any = true;
    }
    return BD_OK;
}

static void add_group_sum(const bd_gemm_args *args, const float *sum)
{
    for (int64_t i = 0; i < args->m; i++)
        for (int64_t j = 0; j < args->n; j++)
            args->c[i * args->c_stride + j] += sum[i * args->n + j];
}

typedef float tile_sums[BD_TILE_ROWS * BD_TILE_COLUMNS];
_Static_assert(sizeof(panels) + sizeof(tile_sums) <= BD_THREADS_STACK_BYTES / 2,
               "a gemm takes more than half of its thread's stack");

bd_status BD_CPU(gemm)(const bd_gemm_args *args, const bd_boundaries *tokens, bd_error *err)
{
    assert(args->m <= BD_TILE_ROWS && args->n <= BD_TILE_COLUMNS && args->k > 0);
    assert(!tokens || args->add);
    panels p;
    _Alignas(64) tile_sums sum;
    for (int64_t first = 0; first < args->k; first += BD_GROUP) {
        bd_gemm_args group = terms_of(args, first, BD_GROUP);
        group.add = args->add || first > 0;
        // The group is summed apart from c, so that the former value of c goes through one
        // rounding for each group and not for each piece.
        const bool apart = group.add && group.k > BD_PIECE;
        if (apart) {
            group.add = false;
            group.c = sum;
            group.c_stride = args->n;
        }
        bool any;
        BD_TRY(multiply_group(&p, &group, tokens, first, &any, err));
        if (apart && any)
            add_group_sum(args, sum);
    }
    return BD_OK;
}
