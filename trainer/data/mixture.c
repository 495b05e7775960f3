#include "trainer/data/mixture.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/random.h"

bd_status bd_mixture_shares(const double *weights, size_t n, int64_t *shares, bd_error *err)
{
    double *exact = calloc(n, sizeof *exact);
    if (!exact)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    double sum = 0;
    int64_t left = BD_MIXTURE_BLOCK;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    for (size_t i = 0; i < n; i++) {
        exact[i] = weights[i] / sum * BD_MIXTURE_BLOCK;
        shares[i] = (int64_t)floor(exact[i]);
        left -= shares[i];
    }
    for (; left > 0; left--) {
        size_t most = 0;  // the dataset that lost most by rounding down; the first of equals
        for (size_t i = 1; i < n; i++)
            if (exact[i] - (double)shares[i] > exact[most] - (double)shares[most])
                most = i;
        shares[most]++;
    }
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < n; i++)
        if (shares[i] == 0)
            status = bd_fail(err, BD_ERR_ARGUMENT,
                             "dataset %zu has a weight of %g in %g: less than one row in %d; "
                             "give its --data more",
                             i + 1, weights[i], sum, BD_MIXTURE_BLOCK);
    free(exact);
    return status;
}

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

// The random numbers must not be those of row_order.h, so the state is another function of the
// seed.
static void enter_block(bd_mixture *mixture, int64_t block)
{
    bd_random random = {bd_random_mix(bd_random_mix(~mixture->seed) + (uint64_t)block)};
    int64_t n = 0;
    for (size_t d = 0; d < mixture->rows->n_datasets; d++)
        for (int64_t i = 0; i < mixture->rows->shares[d]; i++)
            mixture->datasets[n++] = (int64_t)d;
    bd_random_shuffle(&random, mixture->datasets, BD_MIXTURE_BLOCK);
    for (size_t d = 0; d < mixture->rows->n_datasets; d++) {
        int64_t earlier = 0;
        for (int64_t i = 0; i < BD_MIXTURE_BLOCK; i++)
            if (mixture->datasets[i] == (int64_t)d)
                mixture->earlier[i] = earlier++;
    }
    mixture->block = block;
}

bd_status bd_mixture_at(bd_mixture *mixture, int64_t g, int64_t *number, bd_error *err)
{
    if (mixture->rows->n_datasets == 1)
        return bd_row_order_at(&mixture->orders[0], g, number, err);
    const int64_t block = g / BD_MIXTURE_BLOCK, slot = g % BD_MIXTURE_BLOCK;
    if (block != mixture->block)
        enter_block(mixture, block);
    const int64_t d = mixture->datasets[slot];
    const int64_t place = block * mixture->rows->shares[d] + mixture->earlier[slot];
    BD_TRY(bd_row_order_at(&mixture->orders[d], place, number, err));
    *number += mixture->rows->first_rows[d];
    return BD_OK;
}
