#include "packer/dataset_writer.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/tokenizer/tokenizer_config.h"
#include "packer/dataset_card.h"
#include "packer/plan.h"

static bd_status publish_text(const char *folder, const char *name, const char *text,
                              bd_digest *digest, bd_error *err)
{
    const size_t n = strlen(text);
    *digest = bd_digest_of(text, n);
    return bd_file_publish(folder, name, text, n, err);
}

// The rows' length is no limit of the tokenizer: documents may be longer.
static bd_status publish_tokenizer_config(const char *folder, const char *tokenizer,
                                          const bd_packing *packing, bd_error *err)
{
    const bd_tokenizer_config config = {
        .tokenizer = tokenizer,
        .eos = packing->separator,
        .bos = packing->bos == BD_NO_BOS ? BD_NO_TOKEN : packing->bos,
        .pad = packing->padding == packing->separator ? BD_NO_TOKEN : packing->padding,
        .max_length = BD_NO_MAX_LENGTH,
    };
    char *text;
    BD_TRY(bd_tokenizer_config_print(&config, &text, err));
    const bd_status status =
        bd_file_publish(folder, BD_TOKENIZER_CONFIG_NAME, text, strlen(text), err);
    free(text);
    return status;
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
    if (status == BD_OK)
        status = publish_tokenizer_config(folder, tokenizer, &manifest->packing, err);
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

bd_status bd_dataset_publish_tail(const char *folder, bd_manifest *manifest,
                                  const bd_manifest *held_out,
                                  const bd_input_entry *const *entries, size_t n,
                                  bool *card_kept, bd_error *err)
{
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&manifest->totals, &manifest->shards[i].figures, err));
    BD_TRY(list_inputs(manifest, entries, n, err));
    BD_TRY(bd_card_publish(folder, manifest, held_out, card_kept, err));
    return bd_manifest_publish(manifest, folder, err);
}
