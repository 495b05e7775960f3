#include "packer/pack/dataset_writer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/dataset/stored_tokenizer.h"
#include "common/tokenizer/tokenizer_config.h"
#include "packer/pack/dataset_card.h"
#include "packer/pack/pack_plan.h"

static bd_status publish_text(const char *folder, const char *name, const char *text,
                              bd_digest *digest, bd_error *err)
{
    const size_t n = strlen(text);
    *digest = bd_digest_of(text, n);
    return bd_file_publish(folder, name, text, n, err);
}

// The length of the rows is no limit for the tokenizer: documents may be longer.
static bd_status print_tokenizer_config(const char *tokenizer, const bd_dataset_config *dataset,
                                        char **text, bd_error *err)
{
    const bd_tokenizer_config config = {
        .tokenizer = tokenizer,
        .eos = dataset->separator,
        .bos = dataset->bos == BD_NO_BOS ? BD_NO_TOKEN : dataset->bos,
        .pad = dataset->padding == dataset->separator ? BD_NO_TOKEN : dataset->padding,
        .max_length = BD_NO_MAX_LENGTH,
    };
    return bd_tokenizer_config_print(&config, text, err);
}

bd_status bd_dataset_publish_head(const char *folder, const bd_json *plan,
                                  const char *tokenizer, bd_manifest *manifest, bd_error *err)
{
    char *plan_text, *config = NULL;
    BD_TRY(bd_pack_plan_print(plan, &plan_text, err));
    bd_status status =
        publish_text(folder, BD_PLAN_NAME, plan_text, &manifest->plan_digest, err);
    if (status == BD_OK)
        status = publish_text(folder, BD_TOKENIZER_NAME, tokenizer, &manifest->tokenizer_digest,
                              err);
    if (status == BD_OK)
        status = print_tokenizer_config(tokenizer, &manifest->config, &config, err);
    if (status == BD_OK)
        status = bd_file_publish(folder, BD_TOKENIZER_CONFIG_NAME, config, strlen(config), err);
    free(config);
    free(plan_text);
    return status;
}

// ---- Looking again -------------------------------------------------------------------------
//
// Between the first shard and the manifest lie hours, in which cleaners of scratch folders and
// people remove files, or cut or replace them. A manifest that names such a file would be wrong
// from the first moment on.

static bd_status fail_lost(const char *path, bd_error *err)
{
    return bd_fail(err, BD_ERR_IO,
                   "'%s' %s since it was written; the same command makes it again", path,
                   access(path, F_OK) == 0 ? "has changed" : "is gone");
}

// The small files are compared by content, because other processes of this job write them as well.
static bd_status check_content(const char *folder, const char *name, const bd_digest *expected,
                               bd_error *err)
{
    bd_digest digest;
    int64_t size_bytes;
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = bd_digest_file(path, &digest, &size_bytes, err);
    if (status == BD_ERR_IO || (status == BD_OK && strcmp(digest.hex, expected->hex) != 0))
        status = fail_lost(path, err);
    free(path);
    return status;
}

static bd_status check_tokenizer_config(const char *folder, const bd_manifest *manifest,
                                        bd_error *err)
{
    char *tokenizer = NULL, *config = NULL;
    bd_status status =
        bd_stored_tokenizer_read(folder, &manifest->tokenizer_digest, &tokenizer, err);
    if (status == BD_OK)
        status = print_tokenizer_config(tokenizer, &manifest->config, &config, err);
    if (status == BD_OK) {
        const bd_digest expected = bd_digest_of(config, strlen(config));
        status = check_content(folder, BD_TOKENIZER_CONFIG_NAME, &expected, err);
    }
    free(config);
    free(tokenizer);
    return status;
}

static bd_status check_shard_unchanged(const char *folder, const bd_shard_entry *entry,
                                       bd_error *err)
{
    bd_file_mark now;
    char *path = bd_path_join(folder, bd_unit_shard_name(&entry->unit).text);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (bd_file_mark_of(path, &now, NULL) != BD_OK || !bd_file_mark_equal(&now, &entry->mark))
        status = fail_lost(path, err);
    free(path);
    return status;
}

static bd_status refuse_stray_shard(void *context, const char *folder, const char *name,
                                    bd_error *err)
{
    if (!bd_manifest_is_stray(context, name))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s/%s' is no part of the dataset: move it elsewhere, and the same command "
                   "finishes",
                   folder, name);
}

static bd_status check_published(const char *folder, const bd_manifest *manifest, bd_error *err)
{
    BD_TRY(check_content(folder, BD_PLAN_NAME, &manifest->plan_digest, err));
    BD_TRY(check_content(folder, BD_TOKENIZER_NAME, &manifest->tokenizer_digest, err));
    BD_TRY(check_tokenizer_config(folder, manifest, err));
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(check_shard_unchanged(folder, &manifest->shards[i], err));
    return bd_folder_visit(folder, refuse_stray_shard, (void *)manifest, err);
}

// ---- The end -------------------------------------------------------------------------------

static bd_status list_inputs(bd_manifest *manifest, const bd_input_entry *const *entries,
                             size_t n, bd_error *err)
{
    manifest->inputs = calloc(n, sizeof *manifest->inputs);
    if (!manifest->inputs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", n);
    for (size_t i = 0; i < n; i++) {
        BD_TRY(bd_input_entry_copy(&manifest->inputs[i], entries[i], err));
        manifest->n_inputs++;
    }
    return BD_OK;
}

bd_status bd_dataset_publish_tail(const char *folder, bd_manifest *manifest,
                                  const bd_manifest *held_out,
                                  const bd_input_entry *const *entries, size_t n,
                                  bool *card_kept, bd_error *err)
{
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&manifest->totals, &manifest->shards[i].figures, err));
    BD_TRY(list_inputs(manifest, entries, n, err));
    BD_TRY(bd_card_publish(folder, manifest, held_out, card_kept, err));
    BD_TRY(check_published(folder, manifest, err));
    return bd_manifest_publish(manifest, folder, err);
}
