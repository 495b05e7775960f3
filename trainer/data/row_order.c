#include "trainer/data/row_order.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/random.h"

enum { WINDOW_BLOCKS = 16 };

bd_status bd_row_order_init(bd_row_order *order, const bd_manifest *manifest, uint64_t seed,
                            bd_error *err)
{
    const int64_t batch_rows = manifest->config.batch_rows;
    *order = (bd_row_order){
        .seed = seed, .n_rows = manifest->totals.rows, .epoch = -1, .window = -1};
    for (size_t s = 0; s < manifest->n_shards; s++)
        order->n_blocks += (manifest->shards[s].figures.rows + batch_rows - 1) / batch_rows;
    if (order->n_rows == 0 || order->n_blocks > UINT32_MAX)
        return bd_fail(err, BD_ERR_ARGUMENT, "a dataset of %lld rows cannot be trained on",
                       (long long)order->n_rows);
    order->n_windows = (order->n_blocks + WINDOW_BLOCKS - 1) / WINDOW_BLOCKS;
    order->block_begins = calloc((size_t)order->n_blocks + 1, sizeof *order->block_begins);
    order->blocks = calloc((size_t)order->n_blocks, sizeof *order->blocks);
    order->window_begins = calloc((size_t)order->n_windows + 1, sizeof *order->window_begins);
    if (!order->block_begins || !order->blocks || !order->window_begins) {
        bd_row_order_release(order);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the order of the rows");
    }
    int64_t block = 0, row = 0;
    for (size_t s = 0; s < manifest->n_shards; s++) {
        const int64_t end = row + manifest->shards[s].figures.rows;
        for (; row < end; row += batch_rows)
            order->block_begins[block++] = row;
        row = end;  // the last block of a shard may be short
    }
    order->block_begins[block] = row;
    return BD_OK;
}

void bd_row_order_release(bd_row_order *order)
{
    free(order->block_begins);
    free(order->blocks);
    free(order->window_begins);
    free(order->rows);
    *order = (bd_row_order){0};
}

static uint64_t epoch_state(const bd_row_order *order, int64_t epoch)
{
    return bd_random_mix(bd_random_mix(order->seed) + (uint64_t)epoch);
}

static int64_t block_rows(const bd_row_order *order, int64_t block)
{
    return order->block_begins[block + 1] - order->block_begins[block];
}

static void enter_epoch(bd_row_order *order, int64_t epoch)
{
    bd_random random = {epoch_state(order, epoch)};
    for (int64_t b = 0; b < order->n_blocks; b++)
        order->blocks[b] = b;
    bd_random_shuffle(&random, order->blocks, order->n_blocks);
    int64_t place = 0;
    for (int64_t b = 0; b < order->n_blocks; b++) {
        if (b % WINDOW_BLOCKS == 0)
            order->window_begins[b / WINDOW_BLOCKS] = place;
        place += block_rows(order, order->blocks[b]);
    }
    order->window_begins[order->n_windows] = place;
    order->epoch = epoch;
    order->window = -1;
}

static bd_status enter_window(bd_row_order *order, int64_t window, bd_error *err)
{
    const int64_t n = order->window_begins[window + 1] - order->window_begins[window];
    BD_TRY(bd_array_reserve((void **)&order->rows, &order->rows_capacity, (size_t)n,
                            sizeof *order->rows, err));
    const int64_t first = window * WINDOW_BLOCKS;
    int64_t filled = 0;
    for (int64_t b = first; b < first + WINDOW_BLOCKS && b < order->n_blocks; b++) {
        const int64_t block = order->blocks[b];
        for (int64_t i = 0; i < block_rows(order, block); i++)
            order->rows[filled++] = order->block_begins[block] + i;
    }
    bd_random random = {bd_random_mix(epoch_state(order, order->epoch) + 1 + (uint64_t)window)};
    bd_random_shuffle(&random, order->rows, n);
    order->window = window;
    return BD_OK;
}

bd_status bd_row_order_at(bd_row_order *order, int64_t g, int64_t *row, bd_error *err)
{
    const int64_t epoch = g / order->n_rows, place = g % order->n_rows;
    if (epoch != order->epoch)
        enter_epoch(order, epoch);
    int64_t window = 0, end = order->n_windows;  // the place lies in [window, end)
    while (end - window > 1) {
        const int64_t middle = window + (end - window) / 2;
        if (order->window_begins[middle] <= place)
            window = middle;
        else
            end = middle;
    }
    if (window != order->window)
        BD_TRY(enter_window(order, window, err));
    *row = order->rows[place - order->window_begins[window]];
    return BD_OK;
}
