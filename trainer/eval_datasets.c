#include "trainer/eval_datasets.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "trainer/evaluation.h"

static bd_status fail_on(const char *dataset, bd_status status, bd_error *err)
{
    return status == BD_OK ? BD_OK
                           : bd_error_prefix(err, status, "cannot --eval on '%s'", dataset);
}

static bd_status open_dataset(bd_rows *rows, const char *folder,
                              const bd_dataset_config *trained_on, bd_error *err)
{
    BD_TRY(bd_rows_open(rows, folder, err));
    BD_TRY(bd_evaluation_check_tokenizer(trained_on->fingerprint.hex, rows, err));
    if (bd_rows_config(rows)->seq_len > trained_on->seq_len)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "its rows have %" PRId64 " tokens, more than the %" PRId64
                       " of the training data: bindery repack --seq-len %" PRId64
                       " makes them fit",
                       bd_rows_config(rows)->seq_len, trained_on->seq_len, trained_on->seq_len);
    return BD_OK;
}

bd_status bd_eval_datasets_open(bd_eval_datasets *datasets, const bd_texts *folders,
                                const bd_dataset_config *trained_on, bd_error *err)
{
    const size_t n = folders->n;
    *datasets = (bd_eval_datasets){.n = n};
    datasets->rows = calloc(n + 1, sizeof *datasets->rows);
    datasets->values = calloc(n + 1, sizeof *datasets->values);
    datasets->names = calloc(n + 1, sizeof *datasets->names);
    if (!datasets->rows || !datasets->values || !datasets->names)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    for (size_t i = 0; i < n; i++) {
        const char *folder = folders->items[i];
        BD_TRY(fail_on(folder, open_dataset(&datasets->rows[i], folder, trained_on, err), err));
        if (!(datasets->names[i] = bd_path_last_name(folder)))
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a name");
    }
    for (size_t i = 0; i < n; i++) {
        bool is_unique = datasets->names[i][0] != '\0';
        for (size_t k = 0; k < n; k++)
            is_unique &= k == i || strcmp(datasets->names[k], datasets->names[i]) != 0;
        datasets->values[i].dataset = is_unique ? datasets->names[i] : folders->items[i];
    }
    return BD_OK;
}

void bd_eval_datasets_close(bd_eval_datasets *datasets)
{
    for (size_t i = 0; i < datasets->n; i++) {
        if (datasets->rows)
            bd_rows_close(&datasets->rows[i]);
        if (datasets->names)
            free(datasets->names[i]);
    }
    free(datasets->rows);
    free(datasets->values);
    free(datasets->names);
    *datasets = (bd_eval_datasets){0};
}

int64_t bd_eval_datasets_longest_segment(const bd_eval_datasets *datasets)
{
    int64_t longest = 0;
    for (size_t i = 0; i < datasets->n; i++) {
        const int64_t length = bd_rows_longest_segment(&datasets->rows[i]);
        longest = length > longest ? length : longest;
    }
    return longest;
}

bd_status bd_eval_datasets_check_fit(const bd_eval_datasets *datasets,
                                     const bd_model_config *config, bd_error *err)
{
    for (size_t i = 0; i < datasets->n; i++)
        BD_TRY(fail_on(datasets->values[i].dataset,
                       bd_check_fit(config, &datasets->rows[i], err), err));
    return BD_OK;
}

bd_status bd_eval_datasets_evaluate(bd_eval_datasets *datasets, bd_model *model,
                                    int64_t max_rows, bd_error *err)
{
    for (size_t i = 0; i < datasets->n; i++) {
        bd_evaluation evaluation;
        bd_eval_value *value = &datasets->values[i];
        const bd_status status =
            bd_evaluate(&evaluation, model, &datasets->rows[i], NULL, max_rows, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "cannot evaluate on '%s'", value->dataset);
        value->loss = bd_evaluation_mean(&evaluation.total);
        value->n_targets = evaluation.total.n_targets;
        bd_evaluation_release(&evaluation);
    }
    return BD_OK;
}
