// The result is divided into tiles, and each tile is one matrix product by one thread. The
// tiles depend only on the shapes, so that the number of threads changes no result. They are
// large enough for the BLAS to be fast and small enough to keep all threads busy.
#include "kernels/linear.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

// Large tiles are faster, because the operands are read and copied less often. If there would
// be too few of them, smaller ones keep more threads busy.
enum { ENOUGH_TILES = 8 };
static const struct {
    int64_t rows, columns;
} tile_sizes[] = {{BD_TILE_ROWS, BD_TILE_COLUMNS}, {512, 512}, {256, 384}};
enum { N_TILE_SIZES = sizeof tile_sizes / sizeof tile_sizes[0] };
enum { CHANNELS_PER_STRIP = 64, TOKENS_PER_BLOCK = 64 };

// A grid of tiles over a result of n_rows x n_columns.
typedef struct grid {
    int64_t n_rows, n_columns;
    int64_t rows, columns;  // of a tile
    int64_t across;         // tiles side by side
    int64_t n_tiles;
} grid;

typedef struct tile {
    int64_t row, column, n_rows, n_columns;
} tile;

// Tiles of equal size, rather than full ones and a narrow last one; multiples of 16 suit every
// BLAS.
static int64_t even_share(int64_t n, int64_t most)
{
    const int64_t share = bd_ceil_divide(n, bd_ceil_divide(n, most));
    return bd_ceil_divide(share, 16) * 16;
}

static grid cut_up(int64_t n_rows, int64_t n_columns, int64_t most_rows, int64_t most_columns)
{
    grid g = {.n_rows = n_rows, .n_columns = n_columns};
    g.rows = even_share(n_rows, most_rows);
    g.columns = even_share(n_columns, most_columns);
    g.across = bd_ceil_divide(n_columns, g.columns);
    g.n_tiles = g.across * bd_ceil_divide(n_rows, g.rows);
    return g;
}

static grid make_grid(int64_t n_rows, int64_t n_columns)
{
    if (n_rows == 0 || n_columns == 0)
        return (grid){0};
    grid g = {0};
    for (int i = 0; i < N_TILE_SIZES && g.n_tiles < ENOUGH_TILES; i++)
        g = cut_up(n_rows, n_columns, tile_sizes[i].rows, tile_sizes[i].columns);
    return g;
}

static tile tile_of(const grid *g, int64_t index)
{
    const int64_t row = index / g->across * g->rows, column = index % g->across * g->columns;
    return (tile){row, column, bd_min(g->rows, g->n_rows - row),
                  bd_min(g->columns, g->n_columns - column)};
}

static void clear_padding(const bd_boundaries *boundaries, const tile *part, float *out,
                          int64_t stride)
{
    for (int64_t token = part->row; token < part->row + part->n_rows; token++)
        if (!bd_token_used(boundaries, token))
            memset(out + token * stride + part->column, 0,
                   (size_t)part->n_columns * sizeof *out);
}

// ---- Forward --------------------------------------------------------------------------------

// The bias is added last: added first, it would go through every rounding of the sum.
static void add_bias(const tile *part, const float *bias, float *out, int64_t stride)
{
    for (int64_t token = part->row; token < part->row + part->n_rows; token++) {
        float *restrict to = out + token * stride + part->column;
        for (int64_t j = 0; j < part->n_columns; j++)
            to[j] += bias[part->column + j];
    }
}

typedef struct linear_forward_work {
    const bd_linear_forward_args *args;
    float *out;
    int64_t stride;  // of out
    grid grid;
} linear_forward_work;

static bd_status multiply_tile(const linear_forward_work *work, tile part, bd_error *err)
{
    const bd_linear_forward_args *a = work->args;
    const int out_in = a->layout == BD_WEIGHT_OUT_IN;
    if (!bd_all_padding(&a->boundaries, part.row, part.n_rows)) {
        const bd_gemm_args gemm = {
            .transpose_b = out_in,
            .m = part.n_rows,
            .n = part.n_columns,
            .k = a->n_in,
            .a = bd_floats(a->x, part.row * a->n_in),
            .a_stride = a->n_in,
            .b = bd_floats(a->weight, part.column * (out_in ? a->n_in : 1)),
            .b_stride = out_in ? a->n_in : a->n_out,
            .c = work->out + part.row * work->stride + part.column,
            .c_stride = work->stride,
        };
        BD_TRY(BD_CPU(gemm)(&gemm, NULL, err));
        if (a->bias)
            add_bias(&part, a->bias, work->out, work->stride);
    }
    clear_padding(&a->boundaries, &part, work->out, work->stride);
    return BD_OK;
}

// The activation is applied while the tile is still in the cache.
static bd_status forward_tile(void *context, int64_t index, bd_error *err)
{
    const linear_forward_work *work = context;
    const bd_linear_forward_args *a = work->args;
    const tile part = tile_of(&work->grid, index);
    BD_TRY(multiply_tile(work, part, err));
    if (a->activation == BD_ACTIVATION_NONE)
        return BD_OK;
    for (int64_t token = part.row; token < part.row + part.n_rows; token++) {
        const int64_t at = token * work->stride + part.column;
        BD_CPU(activate)
        (a->activation, work->out + at, bd_floats_out(a->activated, at), part.n_columns);
    }
    return BD_OK;
}

BD_CPU_OPERATION(linear_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    linear_forward_work work = {
        .args = args,
        .out = args->out ? args->out : args->activated,
        .stride = bd_stride(args->out_stride, args->n_out),
        .grid = make_grid(n_tokens, args->n_out),
    };
    return bd_threads_run(((bd_cpu_backend *)backend)->threads, forward_tile, &work,
                          work.grid.n_tiles, err);
}

// ---- Backward -------------------------------------------------------------------------------

typedef struct linear_backward_work {
    const bd_linear_backward_args *args;
    int64_t n_tokens;
    int64_t stride;  // of d_out
    grid d_x, d_weight;
} linear_backward_work;

static bd_status input_tile(const linear_backward_work *work, int64_t index, bd_error *err)
{
    const bd_linear_backward_args *a = work->args;
    const tile part = tile_of(&work->d_x, index);
    const int out_in = a->layout == BD_WEIGHT_OUT_IN;
    if (!bd_all_padding(&a->boundaries, part.row, part.n_rows)) {
        const bd_gemm_args gemm = {
            .transpose_b = !out_in,
            .m = part.n_rows,
            .n = part.n_columns,
            .k = a->n_out,
            .a = bd_floats(a->d_out, part.row * work->stride),
            .a_stride = work->stride,
            .b = bd_floats(a->weight, part.column * (out_in ? 1 : a->n_out)),
            .b_stride = out_in ? a->n_in : a->n_out,
            .c = bd_floats_out(a->d_x, part.row * a->n_in + part.column),
            .c_stride = a->n_in,
        };
        BD_TRY(BD_CPU(gemm)(&gemm, NULL, err));
    }
    clear_padding(&a->boundaries, &part, a->d_x, a->n_in);
    return BD_OK;
}

static bd_status weight_tile(const linear_backward_work *work, int64_t index, bd_error *err)
{
    const bd_linear_backward_args *a = work->args;
    const tile part = tile_of(&work->d_weight, index);
    const int out_in = a->layout == BD_WEIGHT_OUT_IN;
    const float *rows = out_in ? a->d_out : a->x, *columns = out_in ? a->x : a->d_out;
    const int64_t row_stride = out_in ? work->stride : a->n_in;
    const int64_t column_stride = out_in ? a->n_in : work->stride;
    const int64_t n_columns = out_in ? a->n_in : a->n_out;
    const bd_gemm_args gemm = {
        .transpose_a = true,
        .add = true,
        .m = part.n_rows,
        .n = part.n_columns,
        .k = work->n_tokens,
        .a = rows + part.row,
        .a_stride = row_stride,
        .b = columns + part.column,
        .b_stride = column_stride,
        .c = a->d_weight + part.row * n_columns + part.column,
        .c_stride = n_columns,
    };
    return BD_CPU(gemm)(&gemm, &a->boundaries, err);
}

// Blocks of tokens are summed in float, and their sums in double.
static void bias_strip(const linear_backward_work *work, int64_t index)
{
    const bd_linear_backward_args *a = work->args;
    const int64_t first = index * CHANNELS_PER_STRIP;
    const int64_t n = bd_min(CHANNELS_PER_STRIP, a->n_out - first);
    double sum[CHANNELS_PER_STRIP] = {0};
    for (int64_t begin = 0; begin < work->n_tokens; begin += TOKENS_PER_BLOCK) {
        float block[CHANNELS_PER_STRIP] = {0};
        const int64_t end = bd_min(begin + TOKENS_PER_BLOCK, work->n_tokens);
        for (int64_t token = begin; token < end; token++) {
            const float *d_out = bd_floats(a->d_out, token * work->stride + first);
            for (int64_t j = 0; j < n; j++)
                block[j] += d_out[j];
        }
        for (int64_t j = 0; j < n; j++)
            sum[j] += (double)block[j];
    }
    for (int64_t j = 0; j < n; j++)
        a->d_bias[first + j] += (float)sum[j];
}

// The three gradients do not depend on one another, so their tasks form one list: first the
// tiles of d_weight, then the tiles of d_x, then the strips of d_bias.
static bd_status backward_part(void *context, int64_t index, bd_error *err)
{
    const linear_backward_work *work = context;
    if (index < work->d_weight.n_tiles)
        return weight_tile(work, index, err);
    index -= work->d_weight.n_tiles;
    if (index < work->d_x.n_tiles)
        return input_tile(work, index, err);
    bias_strip(work, index - work->d_x.n_tiles);
    return BD_OK;
}

BD_CPU_OPERATION(linear_backward)
{
    const int out_in = args->layout == BD_WEIGHT_OUT_IN;
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    linear_backward_work work = {
        .args = args,
        .n_tokens = n_tokens,
        .stride = bd_stride(args->d_out_stride, args->n_out),
        .d_x = args->d_x ? make_grid(n_tokens, args->n_in) : (grid){0},
        .d_weight =
            out_in ? make_grid(args->n_out, args->n_in) : make_grid(args->n_in, args->n_out),
    };
    const int64_t n_strips = args->d_bias ? bd_ceil_divide(args->n_out, CHANNELS_PER_STRIP) : 0;
    return bd_threads_run(((bd_cpu_backend *)backend)->threads, backward_part, &work,
                          work.d_weight.n_tiles + work.d_x.n_tiles + n_strips, err);
}
