#include "packer/dataset_writer.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "packer/plan.h"

static bd_status publish_text(const char *folder, const char *name, const char *text,
                              bd_digest *digest, bd_error *err)
{
    const size_t n = strlen(text);
    *digest = bd_digest_of(text, n);
    return bd_file_publish(folder, name, text, n, err);
}

bd_status bd_dataset_publish_head(const char *folder, const bd_json *plan,
                                  const char *tokenizer, bd_manifest *manifest, bd_error *err)
{
    char *plan_text;
    BD_TRY(bd_plan_print(plan, &plan_text, err));
    bd_status status =
        publish_text(folder, BD_PLAN_NAME, plan_text, &manifest->plan_digest, err);
    if (status == BD_OK)
        status = publish_text(folder, BD_TOKENIZER_NAME, tokenizer, &manifest->tokenizer_digest,
                              err);
    free(plan_text);
    return status;
}

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

bd_status bd_dataset_publish_manifest(const char *folder, bd_manifest *manifest,
                                      const bd_input_entry *const *entries, size_t n,
                                      bd_error *err)
{
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&manifest->totals, &manifest->shards[i].figures, err));
    BD_TRY(list_inputs(manifest, entries, n, err));
    return bd_manifest_publish(manifest, folder, err);
}
