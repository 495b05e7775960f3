#include "packer/pack/joined.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/dataset/units.h"
#include "packer/pack/output.h"

// ---- Which can be joined -------------------------------------------------------------------

static bool configs_differ(const bd_dataset_config *here, const bd_dataset_config *there,
                           char *where, size_t where_size)
{
    bd_json *a = bd_dataset_config_to_json(here), *b = bd_dataset_config_to_json(there);
    const bool differ = bd_json_difference(a, b, where, where_size);
    bd_json_free(a);
    bd_json_free(b);
    return differ;
}

// Options that repacking changes may differ. The meaning of ids, and which documents were left out,
// may not.
static bd_status check_config(const bd_joined_dataset *item, const bd_joined_dataset *first,
                              bd_error *err)
{
    const bd_dataset_config *here = &item->manifest.config;
    bd_dataset_config there = first->manifest.config;
    char where[256];
    if (strcmp(here->fingerprint.hex, there.fingerprint.hex) != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' cannot be joined with '%s': it has another tokenizer (%s; there "
                       "%s), so pack its corpus with that one",
                       item->folder, first->folder, bd_dataset_tokenizer(here).text,
                       bd_dataset_tokenizer(&there).text);
    there.seq_len = here->seq_len;
    there.batch_rows = here->batch_rows;
    there.strategy = here->strategy;
    there.long_policy = here->long_policy;
    there.max_documents = here->max_documents;
    there.shuffle = here->shuffle;
    there.codec = here->codec;
    there.loss_mask = here->loss_mask;
    if (configs_differ(here, &there, where, sizeof where))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' cannot be joined with '%s': %s (pack its corpus with the options "
                       "of that one)",
                       item->folder, first->folder, where);
    return BD_OK;
}

// Whether both were made from the same records, cut in the same way: a copy, or the same dataset
// packed again.
static bool have_same_records(const bd_manifest *a, const bd_manifest *b)
{
    if (a->n_shards != b->n_shards)
        return false;
    for (size_t i = 0; i < a->n_shards; i++) {
        const bd_shard_entry *here = &a->shards[i], *there = &b->shards[i];
        const bool known = here->records.hex[0] != '\0';  // format 1.0 does not have it
        const bd_digest *x = known ? &here->records : &here->digest;
        const bd_digest *y = known ? &there->records : &there->digest;
        if (here->unit.input != there->unit.input || here->unit.slice != there->unit.slice ||
            strcmp(x->hex, y->hex) != 0)
            return false;
    }
    return true;
}

static bd_status refuse_twice(const bd_joined *joined, size_t index, bd_error *err)
{
    const bd_joined_dataset *item = &joined->items[index];
    for (size_t i = 0; i < index; i++) {
        const bd_joined_dataset *other = &joined->items[i];
        if (bd_same_file(item->folder, other->folder))
            return bd_fail(err, BD_ERR_ARGUMENT, "'%s' and '%s' are one dataset, given twice",
                           other->folder, item->folder);
        if (have_same_records(&item->manifest, &other->manifest))
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "'%s' and '%s' hold the same records: joined, every document would "
                           "be there twice",
                           other->folder, item->folder);
    }
    return BD_OK;
}

// Refuses at the beginning what could not be published at the end.
static bd_status check_amount(const bd_joined *joined, bd_error *err)
{
    if (joined->n_shards > BD_MAX_UNITS)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "the datasets have more than %d units",
                       BD_MAX_UNITS);
    bd_manifest all = {.inputs = calloc(joined->n_inputs + 1, sizeof *all.inputs)};
    if (!all.inputs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", joined->n_inputs);
    for (size_t i = 0; i < joined->n; i++) {
        const bd_manifest *manifest = &joined->items[i].manifest;
        for (size_t k = 0; k < manifest->n_inputs; k++)
            all.inputs[all.n_inputs++] = manifest->inputs[k];
    }
    bd_source_figures *sources;
    size_t n_sources;
    const bd_status status = bd_manifest_sources(&all, &sources, &n_sources, err);
    if (status == BD_OK)
        free(sources);
    free(all.inputs);  // the datasets own what the entries point to
    return status;
}

static bd_status check_all(const bd_joined *joined, bd_error *err)
{
    for (size_t i = 1; i < joined->n; i++) {
        BD_TRY(check_config(&joined->items[i], &joined->items[0], err));
        BD_TRY(refuse_twice(joined, i, err));
    }
    return check_amount(joined, err);
}

// ---- Opening -------------------------------------------------------------------------------

// A manifest of format 1.0 does not tell how its inputs were cut.
static bd_status complete_inputs(bd_joined_dataset *item, bd_error *err)
{
    const bd_pack_plan *plan = &item->plan;
    for (size_t i = 0; i < item->manifest.n_inputs; i++)
        BD_TRY(bd_pack_plan_complete_entry(&plan->parts[bd_pack_plan_find_part(plan, i)],
                                           &item->manifest.inputs[i], err));
    return BD_OK;
}

static bd_status open_joined_dataset(bd_joined *joined, size_t index, const char *folder,
                                     bd_error *err)
{
    bd_joined_dataset *item = &joined->items[index];
    bd_manifest *manifest = &item->manifest;
    item->folder = strdup(folder);
    if (!item->folder)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    BD_TRY(bd_manifest_read(manifest, folder, err));
    BD_TRY(bd_pack_plan_read(&item->plan, item->folder, &manifest->config, manifest->n_inputs,
                             err));
    BD_TRY(complete_inputs(item, err));
    item->first_input = joined->n_inputs;
    item->first_shard = joined->n_shards;
    joined->n_inputs += manifest->n_inputs;
    joined->n_shards += manifest->n_shards;
    joined->n_bytes += bd_manifest_bytes(manifest);
    return BD_OK;
}

bd_status bd_joined_open(bd_joined *joined, const char *const *folders, size_t n, bd_error *err)
{
    *joined = (bd_joined){.items = calloc(n, sizeof *joined->items)};
    if (!joined->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    joined->n = n;
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < n; i++)
        status = open_joined_dataset(joined, i, folders[i], err);
    if (status == BD_OK)
        status = check_all(joined, err);
    if (status != BD_OK)
        bd_joined_release(joined);
    return status;
}

void bd_joined_release(bd_joined *joined)
{
    for (size_t i = 0; i < joined->n; i++) {
        bd_joined_dataset *item = &joined->items[i];
        free(item->folder);
        bd_manifest_release(&item->manifest);
        bd_pack_plan_release(&item->plan);
    }
    free(joined->items);
    *joined = (bd_joined){0};
}

// ---- The held-out datasets -----------------------------------------------------------------

// The held-out dataset must have the config of the dataset around it, and be its other side.
static bd_status check_other_side(const bd_joined_dataset *held_out,
                                  const bd_joined_dataset *around, bd_error *err)
{
    bd_dataset_config expected = around->manifest.config;
    expected.part = BD_PART_HELD_OUT;
    char where[256];
    if (!configs_differ(&held_out->manifest.config, &expected, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' is not what was held out of the dataset around it: %s (move it "
                   "elsewhere to repack without it)",
                   held_out->folder, where);
}

static bool has_holdout(const bd_joined_dataset *item, const char *folder)
{
    return item->manifest.config.part == BD_PART_TRAINING &&
           bd_folder_holds(folder, BD_MANIFEST_NAME);
}

static bd_status open_all_holdouts(bd_joined *holdouts, const bd_joined *around,
                                   char *const *folders, bd_error *err)
{
    size_t with = around->n, without = around->n;  // the first of each
    for (size_t i = around->n; i-- > 0;)
        *(has_holdout(&around->items[i], folders[i]) ? &with : &without) = i;
    if (with == around->n)
        return BD_OK;
    if (without < around->n)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' has its holdout in it, and '%s' has none: move '%s' elsewhere to "
                       "join them without it",
                       around->items[with].folder, around->items[without].folder,
                       folders[with]);
    BD_TRY(bd_joined_open(holdouts, (const char *const *)folders, around->n, err));
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < around->n; i++)
        status = check_other_side(&holdouts->items[i], &around->items[i], err);
    if (status != BD_OK)
        bd_joined_release(holdouts);
    return status;
}

bd_status bd_joined_open_holdouts(bd_joined *holdouts, const bd_joined *around, bd_error *err)
{
    *holdouts = (bd_joined){0};
    char **folders = calloc(around->n, sizeof *folders);
    bool complete = folders != NULL;
    for (size_t i = 0; complete && i < around->n; i++) {
        folders[i] = bd_path_join(around->items[i].folder, BD_HOLDOUT_NAME);
        complete = folders[i] != NULL;
    }
    const bd_status status = complete
                                 ? open_all_holdouts(holdouts, around, folders, err)
                                 : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    for (size_t i = 0; folders && i < around->n; i++)
        free(folders[i]);
    free(folders);
    return status;
}

bool bd_joined_has_masks(const bd_joined *joined)
{
    bool has_masks = false;
    for (size_t i = 0; i < joined->n; i++)
        has_masks = has_masks || joined->items[i].manifest.config.loss_mask;
    return has_masks;
}

// ---- As one --------------------------------------------------------------------------------

const bd_joined_dataset *bd_joined_find_shard(const bd_joined *joined, size_t index)
{
    size_t low = 0, high = joined->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (joined->items[middle].first_shard <= index)
            low = middle;
        else
            high = middle;
    }
    return &joined->items[low];
}

bd_status bd_joined_plan(const bd_joined *joined, const bd_dataset_config *config,
                         bd_json **plan, bd_error *err)
{
    const bd_pack_plan **plans = calloc(joined->n, sizeof *plans);
    *plan = NULL;
    if (!plans)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu plans", joined->n);
    for (size_t i = 0; i < joined->n; i++)
        plans[i] = &joined->items[i].plan;
    const bd_status status = bd_pack_plan_join(plans, joined->n, config, plan, err);
    free(plans);
    return status;
}
