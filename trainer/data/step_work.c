#include "trainer/data/step_work.h"

int64_t bd_count_row_pairs(const bd_boundaries *boundaries, int64_t row)
{
    int64_t n_segments, n_pairs = 0;
    const int32_t *bounds = bd_row_bounds(boundaries, row, &n_segments);
    for (int64_t k = 0; k < n_segments; k++) {
        const int64_t length = bounds[k + 1] - bounds[k];
        n_pairs += length * (length + 1) / 2;
    }
    return n_pairs;
}

void bd_count_work(const bd_boundaries *boundaries, int64_t *n_used, int64_t *n_pairs)
{
    *n_used = *n_pairs = 0;
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        *n_used += bounds[n_segments];
        *n_pairs += bd_count_row_pairs(boundaries, r);
    }
}
