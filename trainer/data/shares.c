#include "trainer/data/shares.h"

#include <math.h>
#include <stdlib.h>

// The dataset that lost most by rounding down; of equals the first.
static size_t most_rounded(const double *exact, const int64_t *shares, size_t n)
{
    size_t most = 0;
    for (size_t i = 1; i < n; i++)
        if (exact[i] - (double)shares[i] > exact[most] - (double)shares[most])
            most = i;
    return most;
}

bd_status bd_shares_round(const double *weights, size_t n, int64_t *shares, bd_error *err)
{
    double *exact = calloc(n, sizeof *exact);
    if (!exact)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    double sum = 0;
    int64_t left = BD_SHARES_BLOCK;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    for (size_t i = 0; i < n; i++) {
        exact[i] = weights[i] / sum * BD_SHARES_BLOCK;
        shares[i] = (int64_t)floor(exact[i]);
        left -= shares[i];
    }
    for (; left > 0; left--)
        shares[most_rounded(exact, shares, n)]++;
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < n; i++)
        if (shares[i] == 0)
            status = bd_fail(err, BD_ERR_ARGUMENT,
                             "dataset %zu has a weight of %g in %g: less than one row in %d; "
                             "give its --data more",
                             i + 1, weights[i], sum, BD_SHARES_BLOCK);
    free(exact);
    return status;
}
