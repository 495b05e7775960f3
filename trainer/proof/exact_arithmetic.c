#include "trainer/proof/exact_arithmetic.h"

#include <math.h>
#include <string.h>

enum {
    TILE = 32,  // rows and columns of a tile, which stays in the cache during a product
    LANES = 8,  // numbers in a vector
};

// The few loops that take nearly all of the time are compiled once for each generation of
// processors. The loader chooses among them, which is before a sanitizer is ready.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTOR_CLONES
#endif

// ---- Random rounding ---------------------------------------------------------------------

static double larger(double a, double b)
{
    return a < b ? b : a;
}

double bd_rounding_draw(bd_rounding *rounding)
{
    return (double)(int64_t)bd_random_next(&rounding->random) * 0x1p-63;
}

// The number of roundings that n successive additions amount to. Within TILE additions all
// errors may have the same sign, since a sum that grows steadily loses the same bits each time:
// they add up. Errors of different groups of TILE are independent: their squares add up.
static double roundings(int64_t n)
{
    return n <= TILE ? (double)n : sqrt((double)(TILE * n));
}

double bd_round_sum(bd_rounding *rounding, double x, double size, int64_t n)
{
    if (rounding->sum == 0.0)
        return x;
    return x +
           rounding->sum * roundings(n) * larger(fabs(x), size) * bd_rounding_draw(rounding);
}

void bd_round_sums(bd_rounding *rounding, double *x, int64_t count, int64_t n)
{
    for (int64_t i = 0; rounding->sum != 0.0 && i < count; i++)
        x[i] = bd_round_sum(rounding, x[i], 0.0, n);
}

void bd_round_stored(bd_rounding *rounding, double *x, int64_t n)
{
    for (int64_t i = 0; rounding->stored != 0.0 && i < n; i++)
        x[i] *= 1.0 + rounding->stored * bd_rounding_draw(rounding);
}

// ---- Matrix products ---------------------------------------------------------------------

static double matrix_element(bd_matrix m, int64_t i, int64_t j)
{
    const double value = m.at[i * m.row_step + j * m.column_step];
    return m.is_absolute ? fabs(value) : value;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// LANES numbers, for which the compiler uses the vectors that the processor has.
typedef double lanes __attribute__((vector_size(LANES * sizeof(double)), may_alias));
enum { TILE_LANES = TILE / LANES };

// c[i][j] += sum over k of a(i, k) * tile[k][j]. c is `width` wide, its rows `c_step` apart.
// With a rounding, c is rounded as often as terms were added to it.
VECTOR_CLONES
static void add_tile_product(bd_rounding *rounding, double *c, int64_t c_step, int64_t width,
                             bd_matrix a, lanes (*tile)[TILE_LANES])
{
    const double share = rounding ? rounding->sum * roundings(a.columns) : 0.0;
    for (int64_t i = 0; i < a.rows; i++) {
        lanes sums[TILE_LANES] = {0};
        for (int64_t k = 0; k < a.columns; k++) {
            const double factor = matrix_element(a, i, k);
#pragma GCC unroll 4
            for (int64_t v = 0; v < TILE_LANES; v++)
                sums[v] += factor * tile[k][v];
        }
        double *row = c + i * c_step;
        for (int64_t j = 0; j < width; j++) {
            const double sum = sums[j / LANES][j % LANES];
            row[j] += sum;
            if (share != 0.0)
                row[j] += share * larger(fabs(row[j]), fabs(sum)) * bd_rounding_draw(rounding);
        }
    }
}

void bd_matrix_add_product(bd_rounding *rounding, double *c, bd_matrix a, bd_matrix b)
{
    lanes tile[TILE][TILE_LANES] = {{{0.0}}};  // a part of b, row-major even if b is not
    for (int64_t j0 = 0; j0 < b.columns; j0 += TILE)
        for (int64_t k0 = 0; k0 < b.rows; k0 += TILE) {
            const int64_t width = smaller(TILE, b.columns - j0);
            bd_matrix part = a;
            part.at += k0 * a.column_step;
            part.columns = smaller(TILE, b.rows - k0);
            for (int64_t k = 0; k < part.columns; k++)
                for (int64_t j = 0; j < width; j++)
                    tile[k][j / LANES][j % LANES] = matrix_element(b, k0 + k, j0 + j);
            add_tile_product(rounding, c + j0, b.columns, width, part, tile);
        }
}

// Returns the sum of a[i] * b[i] and sets *squares to the sum of their squares.
VECTOR_CLONES
static double sum_products(const double *a, const double *b, int64_t n, double *squares)
{
    lanes sums = {0.0}, square_sums = {0.0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sums += x * y;
        square_sums += x * y * (x * y);
    }
    double sum = *squares = 0.0;
    for (; i < n; i++) {
        sum += a[i] * b[i];
        *squares += a[i] * b[i] * (a[i] * b[i]);
    }
    for (int64_t j = 0; j < LANES; j++) {
        sum += sums[j];
        *squares += square_sums[j];
    }
    return sum;
}

double bd_exact_dot(bd_rounding *rounding, const double *a, const double *b, int64_t n)
{
    double squares;
    const double sum = sum_products(a, b, n, &squares);
    return bd_round_sum(rounding, sum, sqrt(squares), n);
}

VECTOR_CLONES
static void add_scaled(double *y, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

void bd_exact_add_scaled(double *y, double factor, const double *x, int64_t n)
{
    add_scaled(y, factor, x, n);
}
