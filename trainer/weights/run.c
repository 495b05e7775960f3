#include "trainer/weights/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/dataset/stored_tokenizer.h"

BD_ENUM_NAMES(bd_weights_choice, BD_WEIGHTS_CHOICES);

bd_status bd_run_open(bd_run *run, const char *folder, bd_weights_choice choice, bd_error *err)
{
    *run = (bd_run){0};
    int64_t step;
    BD_TRY(bd_checkpoint_find_latest(folder, &step, err));
    return bd_run_open_step(run, folder, step, choice, err);
}

static bd_status fill_run(bd_run *run, const char *folder, bd_weights_choice choice,
                          bd_error *err)
{
    const bool has_average = run->checkpoint.kept.has_average;
    if (choice == BD_WEIGHTS_AVERAGE && !has_average)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--weights average: '%s' has none, because it was trained without "
                       "--average",
                       folder);
    run->averaged = has_average && choice != BD_WEIGHTS_TRAINED;
    BD_TRY(bd_parameters_init(&run->parameters, &run->checkpoint.config, err));
    const int64_t n = run->parameters.n_total;
    run->weights = malloc((size_t)n * sizeof *run->weights);
    if (!run->weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " parameters", n);
    const bd_moments average = {.slice = {0, n}, .average = run->weights};
    return bd_checkpoint_load_tensors(&run->checkpoint, &run->parameters, run->weights,
                                      run->averaged ? &average : NULL, err);
}

bd_status bd_run_open_step(bd_run *run, const char *folder, int64_t step,
                           bd_weights_choice choice, bd_error *err)
{
    *run = (bd_run){0};
    BD_TRY(bd_checkpoint_load(&run->checkpoint, folder, step, err));
    const bd_status status = fill_run(run, folder, choice, err);
    if (status != BD_OK)
        bd_run_release(run);
    return status;
}

void bd_run_forget_weights(bd_run *run)
{
    free(run->weights);
    run->weights = NULL;
}

void bd_run_release(bd_run *run)
{
    bd_run_forget_weights(run);
    bd_checkpoint_release(&run->checkpoint);
    bd_parameters_release(&run->parameters);
    *run = (bd_run){0};
}

bd_status bd_run_type(const bd_run *run, bd_type *type, bd_error *err)
{
    int word = BD_FLOAT;  // older checkpoints do not mention it
    if (!bd_json_is_null(run->checkpoint.training, "precision"))
        BD_TRY(bd_json_get_word(run->checkpoint.training, "precision", bd_precision_names,
                                &word, err));
    *type = (bd_type)word;
    return BD_OK;
}

bd_status bd_run_settle_type(const bd_run *run, bd_precision_choice choice,
                             const bd_backend *backend, bd_type *type, bd_error *why,
                             bd_error *err)
{
    bd_type own;
    BD_TRY(bd_run_type(run, &own, err));
    *type = bd_precision_settle(choice, own, backend, &run->parameters.config, why);
    return BD_OK;
}

bd_status bd_run_open_tokenizer(const bd_run *run, const char *folder, bd_run_tokenizer *opened,
                                bd_error *err)
{
    const bd_json *data = run->checkpoint.data;
    const int64_t n_vocabulary = run->parameters.config.n_vocabulary;
    const char *name, *fingerprint;
    *opened = (bd_run_tokenizer){.bos = BD_NO_BOS};
    BD_TRY(bd_json_get_string(data, "tokenizer", &name, err));
    BD_TRY(bd_json_get_string(data, "fingerprint", &fingerprint, err));
    BD_TRY(bd_json_get_integer(data, "separator", 0, UINT32_MAX, &opened->separator, err));
    if (!bd_json_is_null(data, "bos"))
        BD_TRY(bd_json_get_integer(data, "bos", 0, n_vocabulary - 1, &opened->bos, err));
    BD_TRY(bd_tokenizer_open_stored(&opened->tokenizer, folder, name, err));
    if (strcmp(opened->tokenizer->fingerprint.hex, fingerprint) != 0 ||
        opened->tokenizer->vocab_size > n_vocabulary) {
        bd_run_tokenizer_close(opened);
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model was trained with another tokenizer '%s'", name);
    }
    return BD_OK;
}

void bd_run_tokenizer_close(bd_run_tokenizer *opened)
{
    bd_tokenizer_close(opened->tokenizer);
    *opened = (bd_run_tokenizer){0};
}

static bd_status describe_dataset(bd_json *json, const char *folder, bd_error *err)
{
    bd_digest digest;
    int64_t size_bytes;
    char *path = bd_path_join(folder, BD_MANIFEST_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    const bd_status status = bd_digest_file(path, &digest, &size_bytes, err);
    free(path);
    if (status == BD_OK)
        bd_json_set_string(json, "manifest_checksum", digest.hex);
    return status;
}

// In the order of the options, which is the order of the shares in a block.
static bd_status describe_several(bd_json *json, const char *const *folders,
                                  const bd_rows *rows, bd_error *err)
{
    bd_json *datasets = bd_json_array();
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < rows->n_datasets; i++) {
        bd_json *dataset = bd_json_object();
        bd_json_set_integer(dataset, "share", rows->shares[i]);
        status = describe_dataset(dataset, folders[i], err);
        bd_json_append(datasets, dataset);
    }
    bd_json_set(json, "datasets", datasets);
    return status;
}

bd_status bd_run_describe_data(const char *const *folders, const bd_rows *rows, bd_json **json,
                               bd_error *err)
{
    const bd_dataset_config *dataset = bd_rows_config(rows);
    *json = bd_json_object();
    const bd_status status = rows->n_datasets == 1
                                 ? describe_dataset(*json, folders[0], err)
                                 : describe_several(*json, folders, rows, err);
    bd_json_set_string(*json, "tokenizer", dataset->tokenizer);
    bd_json_set_string(*json, "fingerprint", dataset->fingerprint.hex);
    bd_json_set_integer(*json, "separator", dataset->separator);
    if (dataset->bos == BD_NO_BOS)
        bd_json_set_null(*json, "bos");
    else
        bd_json_set_integer(*json, "bos", dataset->bos);
    bd_json_set_integer(*json, "seq_len", dataset->seq_len);
    if (status != BD_OK) {
        bd_json_free(*json);
        *json = NULL;
    }
    return status;
}

bd_status bd_run_find_settings(const char *folder, char **path, bd_error *err)
{
    *path = bd_path_join(folder, BD_RUN_SETTINGS_NAME);
    if (!*path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    if (access(*path, F_OK) != 0) {
        free(*path);
        *path = NULL;
    }
    return BD_OK;
}
