#include "trainer/data/step_work.h"

// The pairs of a segment in which a query sees at most `window` keys: the first `window` queries
// see all before them, the others so many.
static int64_t count_pairs(int64_t length, int64_t window)
{
    const int64_t whole = window > 0 && window < length ? window : length;
    return whole * (whole + 1) / 2 + (length - whole) * whole;
}

static int64_t count_row(const bd_boundaries *boundaries, int64_t row, int64_t window)
{
    int64_t n_segments, n_pairs = 0;
    const int32_t *bounds = bd_row_bounds(boundaries, row, &n_segments);
    for (int64_t k = 0; k < n_segments; k++)
        n_pairs += count_pairs(bounds[k + 1] - bounds[k], window);
    return n_pairs;
}

int64_t bd_count_row_pairs(const bd_boundaries *boundaries, int64_t row)
{
    return count_row(boundaries, row, 0);
}

bd_step_work bd_count_work(const bd_boundaries *boundaries, int64_t window)
{
    bd_step_work work = {0};
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        work.n_used += bd_row_used(boundaries, r);
        work.n_pairs += count_row(boundaries, r, 0);
        work.n_window_pairs += count_row(boundaries, r, window);
    }
    return work;
}
