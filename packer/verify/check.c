#include "packer/verify/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/folder.h"
#include "common/dataset/units.h"

static bd_status copy_input(const bd_check *check, size_t i, bd_error *err)
{
    BD_TRY(bd_input_entry_copy(&check->inputs[i], &check->manifest->inputs[i], err));
    const bd_pack_plan *plan = &check->plan;
    return bd_pack_plan_complete_entry(&plan->parts[bd_pack_plan_find_part(plan, i)],
                                       &check->inputs[i], err);
}

bd_status bd_check_init(bd_check *check, const char *folder, const bd_manifest *manifest,
                        bd_error *err)
{
    *check = (bd_check){.folder = folder, .manifest = manifest};
    BD_TRY(bd_pack_plan_read(&check->plan, folder, &manifest->config, manifest->n_inputs, err));
    check->inputs = calloc(manifest->n_inputs + 1, sizeof *check->inputs);
    bd_status status = check->inputs ? BD_OK
                                     : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs",
                                               manifest->n_inputs);
    for (size_t i = 0; status == BD_OK && i < manifest->n_inputs; i++)
        status = copy_input(check, i, err);
    if (status != BD_OK)
        bd_check_release(check);
    return status;
}

void bd_check_release(bd_check *check)
{
    for (size_t i = 0; check->inputs && i < check->manifest->n_inputs; i++)
        bd_input_entry_release(&check->inputs[i]);
    free(check->inputs);
    bd_pack_plan_release(&check->plan);
    *check = (bd_check){0};
}

// People pass *.arrow to other tools, so that an additional file means additional rows. A missing
// one is noticed when it is opened.
static bd_status refuse_stray(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    if (!bd_manifest_is_stray(context, name))
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s/%s': D2: the manifest does not name it", folder,
                   name);
}

// Whether shard `i` of the manifest is the unit `planned`, or slice `slice` of the stream.
static bool is_unit(const bd_manifest *manifest, size_t i, const bd_planned *planned,
                    int64_t slice)
{
    if (i >= manifest->n_shards)
        return false;
    const bd_shard_entry *shard = &manifest->shards[i];
    const bd_unit *unit = &shard->unit;
    const bool is_1_0 = shard->records.hex[0] == '\0';  // which does not tell what is last
    return unit->input == planned->unit.input && unit->slice == slice &&
           unit->n_inputs == planned->unit.n_inputs &&
           (planned->is_stream || is_1_0 || unit->last == planned->unit.last);
}

static bd_status fail_unit(const bd_check *check, size_t i, const bd_planned *planned,
                           bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s': D2: shard %zu is not the plan's unit %s",
                   check->folder, i, bd_unit_shard_name(&planned->unit).text);
}

// The shards of one item of the plan, from shard *next on.
static bd_status check_planned(const bd_check *check, const bd_planned *planned, size_t *next,
                               bd_error *err)
{
    const bd_manifest *manifest = check->manifest;
    if (!is_unit(manifest, *next, planned, planned->unit.slice))
        return fail_unit(check, *next, planned, err);
    ++*next;
    for (int64_t slice = 1; planned->is_stream; slice++) {
        const bool ended = manifest->shards[*next - 1].unit.last;
        if (ended)
            return BD_OK;
        if (!is_unit(manifest, *next, planned, slice))
            return fail_unit(check, *next, planned, err);
        ++*next;
    }
    return BD_OK;
}

// Counts the documents that were read for the shards of one part, from `first` on.
static bd_status count_read(const bd_check *check, const bd_pack_plan_part *part, size_t first,
                            int64_t *n_read, bd_error *err)
{
    const bd_manifest *manifest = check->manifest;
    const int64_t end = (int64_t)(part->first_input + part->n_inputs);
    bd_figures figures = {0};
    for (size_t i = first; i < manifest->n_shards && manifest->shards[i].unit.input < end; i++)
        BD_TRY(bd_figures_add(&figures, &manifest->shards[i].figures, err));
    *n_read = bd_figures_documents_read(&figures);
    return BD_OK;
}

// Whether the shards of the part may end before its units do: only if they have reached the limit
// on documents.
static bd_status may_end_early(const bd_check *check, const bd_pack_plan_part *part,
                               size_t first, bool *may_end, bd_error *err)
{
    // A held-out dataset does not count the documents of the other.
    const bool knows = check->manifest->config.part != BD_PART_HELD_OUT;
    const int64_t limit = part->limit;
    int64_t n_read;
    *may_end = limit != BD_NO_LIMIT;
    if (limit == BD_NO_LIMIT || !knows)
        return BD_OK;
    BD_TRY(count_read(check, part, first, &n_read, err));
    if (n_read > limit)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: %" PRId64 " documents, the limit is %" PRId64, check->folder,
                       n_read, limit);
    *may_end = n_read == limit;
    return BD_OK;
}

// The shards of one part of the plan, from shard *next on.
static bd_status check_part(const bd_check *check, const bd_pack_plan_part *part,
                            const bd_units *units, size_t *next, bd_error *err)
{
    const bd_manifest *manifest = check->manifest;
    const int64_t end = (int64_t)(part->first_input + part->n_inputs);
    bool may_end;
    BD_TRY(may_end_early(check, part, *next, &may_end, err));
    for (size_t i = 0; i < units->n; i++) {
        const bool ended =
            *next == manifest->n_shards || manifest->shards[*next].unit.input >= end;
        if (may_end && ended)
            return BD_OK;
        BD_TRY(check_planned(check, &units->items[i], next, err));
    }
    return BD_OK;
}

static bd_status plan_part(const bd_check *check, const bd_pack_plan_part *part,
                           bd_units *units, bd_error *err)
{
    *units = (bd_units){.n_inputs = (int64_t)part->first_input};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < part->n_inputs; i++)
        status = bd_units_add(units, &check->inputs[part->first_input + i],
                              part->reading.unit_bytes, err);
    if (status == BD_ERR_UNSUPPORTED)  // no dataset has so many
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D2: the plan has more than %d units",
                         check->folder, BD_MAX_UNITS);
    return status;
}

bd_status bd_check_units(const bd_check *check, bd_error *err)
{
    bd_status status = BD_OK;
    size_t next = 0;
    for (size_t i = 0; status == BD_OK && i < check->plan.n_parts; i++) {
        bd_units units;
        status = plan_part(check, &check->plan.parts[i], &units, err);
        if (status == BD_OK)
            status = check_part(check, &check->plan.parts[i], &units, &next, err);
        bd_units_release(&units);
    }
    if (status == BD_OK && next != check->manifest->n_shards)
        status = bd_fail(err, BD_ERR_FORMAT,
                         "'%s': D2: the manifest has %zu shards more than the plan has units",
                         check->folder, check->manifest->n_shards - next);
    if (status == BD_OK)
        status = bd_folder_visit(check->folder, refuse_stray, (void *)check->manifest, err);
    return status;
}
