#include "trainer/data/mixture.h"

#include <stdlib.h>

#include "common/base/random.h"

bd_status bd_mixture_init(bd_mixture *mixture, const bd_rows *rows, uint64_t seed,
                          bd_error *err)
{
    const size_t n = rows->n_datasets;
    *mixture = (bd_mixture){.rows = rows, .seed = seed, .block = -1};
    mixture->orders = calloc(n, sizeof *mixture->orders);
    bd_status status =
        mixture->orders ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    for (size_t i = 0; status == BD_OK && i < n; i++)
        status = bd_row_order_init(&mixture->orders[i], &rows->manifests[i], seed, err);
    if (status != BD_OK)
        bd_mixture_release(mixture);
    return status;
}

void bd_mixture_release(bd_mixture *mixture)
{
    for (size_t i = 0; mixture->orders && i < mixture->rows->n_datasets; i++)
        bd_row_order_release(&mixture->orders[i]);
    free(mixture->orders);
    *mixture = (bd_mixture){0};
}

// A stream of its own: that of row_order.h is another function of the seed.
static void enter_block(bd_mixture *mixture, int64_t block)
{
    bd_random random = {bd_random_mix(bd_random_mix(~mixture->seed) + (uint64_t)block)};
    int64_t n = 0;
    for (size_t d = 0; d < mixture->rows->n_datasets; d++)
        for (int64_t i = 0; i < mixture->rows->shares[d]; i++)
            mixture->datasets[n++] = (int64_t)d;
    bd_random_shuffle(&random, mixture->datasets, BD_SHARES_BLOCK);
    // Each dataset is read in its own order, so that its windows are entered once.
    for (size_t d = 0; d < mixture->rows->n_datasets; d++) {
        int64_t earlier = 0;
        for (int64_t i = 0; i < BD_SHARES_BLOCK; i++)
            if (mixture->datasets[i] == (int64_t)d)
                mixture->earlier[i] = earlier++;
    }
    mixture->block = block;
}

bd_status bd_mixture_at(bd_mixture *mixture, int64_t g, int64_t *number, bd_error *err)
{
    if (mixture->rows->n_datasets == 1)
        return bd_row_order_at(&mixture->orders[0], g, number, err);
    const int64_t block = g / BD_SHARES_BLOCK, slot = g % BD_SHARES_BLOCK;
    if (block != mixture->block)
        enter_block(mixture, block);
    const int64_t d = mixture->datasets[slot];
    const int64_t place = block * mixture->rows->shares[d] + mixture->earlier[slot];
    BD_TRY(bd_row_order_at(&mixture->orders[d], place, number, err));
    *number += mixture->rows->first_rows[d];
    return BD_OK;
}
