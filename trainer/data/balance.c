#include "trainer/data/balance.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "trainer/data/step_work.h"

typedef struct weighed_row {
    int64_t row, n_pairs, part;
} weighed_row;

typedef struct part {
    int64_t n_pairs, n_rows, room;
} part;

int64_t bd_balance_micro_batches(int64_t batch_rows, int64_t micro_batch_rows, int32_t n_ranks)
{
    const int64_t rank_rows = (batch_rows + n_ranks - 1) / n_ranks;
    return (rank_rows + micro_batch_rows - 1) / micro_batch_rows;
}

int64_t bd_balance_most_rows(int64_t batch_rows, int32_t n_ranks, int64_t n_micro_batches)
{
    const int64_t n_parts = n_ranks * n_micro_batches;
    return (batch_rows + n_parts - 1) / n_parts;
}

static int most_pairs_first(const void *left, const void *right)
{
    const weighed_row *a = left, *b = right;
    if (a->n_pairs != b->n_pairs)
        return a->n_pairs > b->n_pairs ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static int parts_in_order(const void *left, const void *right)
{
    const weighed_row *a = left, *b = right;
    if (a->part != b->part)
        return a->part > b->part ? 1 : -1;
    return (a->row > b->row) - (a->row < b->row);
}

bd_status bd_balance_rows(const bd_boundaries *boundaries, int32_t n_ranks,
                          int64_t n_micro_batches, int64_t *order, int64_t *ends, bd_error *err)
{
    const int64_t n_rows = boundaries->n_rows, n_parts = n_ranks * n_micro_batches;
    weighed_row *rows = calloc((size_t)n_rows, sizeof *rows);
    part *parts = calloc((size_t)n_parts, sizeof *parts);
    bd_status status = BD_OK;
    if (!rows || !parts) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to balance %" PRId64 " rows", n_rows);
        goto done;
    }
    // If the parts cannot be equal, the first micro-batch of each rank has a row more, then the
    // second of each, so that the ranks differ by one row at most.
    for (int64_t p = 0; p < n_parts; p++) {
        const int64_t rank = p / n_micro_batches, micro_batch = p % n_micro_batches;
        const bool has_more = micro_batch * n_ranks + rank < n_rows % n_parts;
        parts[p].room = n_rows / n_parts + has_more;
    }
    for (int64_t r = 0; r < n_rows; r++)
        rows[r] = (weighed_row){.row = r, .n_pairs = bd_count_row_pairs(boundaries, r)};
    qsort(rows, (size_t)n_rows, sizeof *rows, most_pairs_first);
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t least = -1;  // the first of those that have as little
        for (int64_t p = 0; p < n_parts; p++)
            if (parts[p].n_rows < parts[p].room &&
                (least < 0 || parts[p].n_pairs < parts[least].n_pairs))
                least = p;
        rows[i].part = least;
        parts[least].n_pairs += rows[i].n_pairs;
        parts[least].n_rows++;
    }
    qsort(rows, (size_t)n_rows, sizeof *rows, parts_in_order);
    for (int64_t i = 0; i < n_rows; i++)
        order[i] = rows[i].row;
    for (int64_t p = 0; p < n_parts; p++)
        ends[p] = parts[p].n_rows + (p > 0 ? ends[p - 1] : 0);
done:
    free(rows);
    free(parts);
    return status;
}
