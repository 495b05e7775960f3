#include "packer/pack/update.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/dataset/manifest.h"
#include "common/dataset/units.h"
#include "packer/input/input_options.h"
#include "packer/pack/pack_log.h"
#include "packer/pack/pack_plan.h"

// ---- What no unit has any more -----------------------------------------------------------------

// The units of a plan.
typedef struct planned_units {
    bd_input_entry *entries;  // [n_entries], owned
    size_t n_entries;
    bd_units units;
} planned_units;

static void release_units(planned_units *planned)
{
    for (size_t i = 0; i < planned->n_entries; i++)
        bd_input_entry_release(&planned->entries[i]);
    free(planned->entries);
    bd_units_release(&planned->units);
}

static bd_status read_planned_units(planned_units *planned, const bd_json *plan, bd_error *err)
{
    int64_t unit_bytes;
    BD_TRY(
        bd_pack_plan_entries(plan, &planned->entries, &planned->n_entries, &unit_bytes, err));
    for (size_t i = 0; i < planned->n_entries; i++)
        BD_TRY(bd_units_add(&planned->units, &planned->entries[i], unit_bytes, err));
    return BD_OK;
}

// Whether a shard may be one of the plan's, whose units are in order.
static bool has_unit(const planned_units *planned, const bd_unit *unit)
{
    size_t low = 0, high = planned->units.n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const bd_planned *item = &planned->units.items[middle];
        const bool same_input = item->unit.input == unit->input;
        if (same_input && (item->is_stream || item->unit.slice == unit->slice))
            return true;
        if (same_input ? item->unit.slice < unit->slice : item->unit.input < unit->input)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

typedef struct two_plans {
    planned_units before, now;
} two_plans;

static bd_status remove_if_old(void *context, const char *folder, const char *name,
                               bd_error *err)
{
    const two_plans *plans = context;
    bd_unit unit;
    if (!bd_unit_from_name(&unit, name, ".arrow") || !has_unit(&plans->before, &unit) ||
        has_unit(&plans->now, &unit))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

static bd_status remove_old_shards(const char *folder, const char *holdout,
                                   const bd_json *before, const bd_json *now, bd_error *err)
{
    two_plans plans = {0};
    bd_status status = read_planned_units(&plans.before, before, err);
    if (status == BD_OK)
        status = read_planned_units(&plans.now, now, err);
    if (status == BD_OK)
        status = bd_folder_visit(folder, remove_if_old, &plans, err);
    if (status == BD_OK && holdout)
        status = bd_folder_visit(holdout, remove_if_old, &plans, err);
    release_units(&plans.before);
    release_units(&plans.now);
    return status;
}

// ---- The steps ---------------------------------------------------------------------------------

static bd_status replace_plan(const char *folder, const bd_json *plan, bd_error *err)
{
    char *text;
    BD_TRY(bd_pack_plan_print(plan, &text, err));
    const bd_status status = bd_file_publish(folder, BD_PLAN_NAME, text, strlen(text), err);
    free(text);
    return status;
}

// The order allows a kill at any step. After the first step the dataset is unfinished, and after
// the third its log trusts no shard. Before that, the old plan refuses any run without --update.
// The old plan stays until the shards that only it names are removed.
bd_status bd_update_begin(const char *folder, const char *holdout, const bd_json *old,
                          const bd_json *plan, bd_error *err)
{
    char where[256];
    if (bd_pack_plan_compare(plan, old, where, sizeof where) == BD_PLANS_DIFFER)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds a dataset of another plan, which --update does not change: "
                       "%s (--overwrite replaces it)",
                       folder, where);
    BD_TRY(bd_folder_remove(folder, BD_MANIFEST_NAME, err));
    if (holdout)
        BD_TRY(bd_folder_remove(holdout, BD_MANIFEST_NAME, err));
    BD_TRY(bd_pack_log_begin_update(folder, err));
    BD_TRY(remove_old_shards(folder, holdout, old, plan, err));
    return replace_plan(folder, plan, err);
}
