#include "packer/verify/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/folder.h"
#include "common/dataset/units.h"

static bd_status copy_input(const bd_scan *scan, size_t i, bd_error *err)
{
    BD_TRY(bd_input_entry_copy(&scan->inputs[i], &scan->manifest->inputs[i], err));
    const bd_pack_plan *plan = &scan->plan;
    return bd_pack_plan_complete_entry(&plan->parts[bd_pack_plan_find_part(plan, i)],
                                       &scan->inputs[i], err);
}

bd_status bd_scan_init(bd_scan *scan, const char *folder, const bd_manifest *manifest,
                       bd_error *err)
{
    *scan = (bd_scan){.folder = folder, .manifest = manifest};
    BD_TRY(bd_pack_plan_read(&scan->plan, folder, &manifest->packing, manifest->n_inputs, err));
    scan->inputs = calloc(manifest->n_inputs + 1, sizeof *scan->inputs);
    bd_status status = scan->inputs ? BD_OK
                                    : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs",
                                              manifest->n_inputs);
    for (size_t i = 0; status == BD_OK && i < manifest->n_inputs; i++)
        status = copy_input(scan, i, err);
    if (status != BD_OK)
        bd_scan_release(scan);
    return status;
}

void bd_scan_release(bd_scan *scan)
{
    for (size_t i = 0; scan->inputs && i < scan->manifest->n_inputs; i++)
        bd_input_entry_release(&scan->inputs[i]);
    free(scan->inputs);
    bd_pack_plan_release(&scan->plan);
    *scan = (bd_scan){0};
}

// People hand *.arrow to other tools: a file too many there is rows too many. One that is
// missing shows when it is opened.
static bd_status refuse_stray(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    if (!bd_manifest_is_stray(context, name))
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s/%s': D2: the manifest does not name it", folder,
                   name);
}

// Whether shard `i` of the manifest is the unit `planned`, or slice `slice` of the series.
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
           (planned->is_series || is_1_0 || unit->last == planned->unit.last);
}

static bd_status fail_unit(const bd_scan *scan, size_t i, const bd_planned *planned,
                           bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s': D2: shard %zu is not the plan's unit %s",
                   scan->folder, i, bd_unit_shard_name(&planned->unit).text);
}

// The shards of one item of the plan, from shard *next on.
static bd_status check_item(const bd_scan *scan, const bd_planned *planned, size_t *next,
                            bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    if (!is_unit(manifest, *next, planned, planned->unit.slice))
        return fail_unit(scan, *next, planned, err);
    ++*next;
    for (int64_t slice = 1; planned->is_series; slice++) {
        const bool ended = manifest->shards[*next - 1].unit.last;
        if (ended)
            return BD_OK;
        if (!is_unit(manifest, *next, planned, slice))
            return fail_unit(scan, *next, planned, err);
        ++*next;
    }
    return BD_OK;
}

// What was read for the shards of one part, from `first` on.
static bd_status count_read(const bd_scan *scan, const bd_pack_plan_part *part, size_t first,
                            int64_t *n_read, bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    const int64_t end = (int64_t)(part->first_input + part->n_inputs);
    bd_figures figures = {0};
    for (size_t i = first; i < manifest->n_shards && manifest->shards[i].unit.input < end; i++)
        BD_TRY(bd_figures_add(&figures, &manifest->shards[i].figures, err));
    *n_read = bd_figures_documents_read(&figures);
    return BD_OK;
}

// Whether the shards of the part may end before its units do: if it has its documents by then.
static bd_status may_end_early(const bd_scan *scan, const bd_pack_plan_part *part, size_t first,
                               bool *may_end, bd_error *err)
{
    // A held-out dataset does not count the documents of the other.
    const bool knows = scan->manifest->packing.part != BD_PART_HELD_OUT;
    const int64_t limit = part->limit;
    int64_t n_read;
    *may_end = limit != BD_NO_LIMIT;
    if (limit == BD_NO_LIMIT || !knows)
        return BD_OK;
    BD_TRY(count_read(scan, part, first, &n_read, err));
    if (n_read > limit)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: %" PRId64 " documents, the limit is %" PRId64, scan->folder,
                       n_read, limit);
    *may_end = n_read == limit;
    return BD_OK;
}

// The shards of one part of the plan, from shard *next on.
static bd_status check_part(const bd_scan *scan, const bd_pack_plan_part *part,
                            const bd_units *units, size_t *next, bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    const int64_t end = (int64_t)(part->first_input + part->n_inputs);
    bool may_end;
    BD_TRY(may_end_early(scan, part, *next, &may_end, err));
    for (size_t i = 0; i < units->n; i++) {
        const bool ended =
            *next == manifest->n_shards || manifest->shards[*next].unit.input >= end;
        if (may_end && ended)
            return BD_OK;
        BD_TRY(check_item(scan, &units->items[i], next, err));
    }
    return BD_OK;
}

static bd_status plan_part(const bd_scan *scan, const bd_pack_plan_part *part, bd_units *units,
                           bd_error *err)
{
    *units = (bd_units){.n_inputs = (int64_t)part->first_input};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < part->n_inputs; i++)
        status = bd_units_add(units, &scan->inputs[part->first_input + i],
                              part->reading.unit_bytes, err);
    if (status == BD_ERR_UNSUPPORTED)  // no dataset has so many
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D2: the plan has more than %d units",
                         scan->folder, BD_MAX_UNITS);
    return status;
}

bd_status bd_scan_check_units(const bd_scan *scan, bd_error *err)
{
    bd_status status = BD_OK;
    size_t next = 0;
    for (size_t i = 0; status == BD_OK && i < scan->plan.n_parts; i++) {
        bd_units units;
        status = plan_part(scan, &scan->plan.parts[i], &units, err);
        if (status == BD_OK)
            status = check_part(scan, &scan->plan.parts[i], &units, &next, err);
        bd_units_release(&units);
    }
    if (status == BD_OK && next != scan->manifest->n_shards)
        status = bd_fail(err, BD_ERR_FORMAT,
                         "'%s': D2: the manifest has %zu shards more than the plan has units",
                         scan->folder, scan->manifest->n_shards - next);
    if (status == BD_OK)
        status = bd_folder_visit(scan->folder, refuse_stray, (void *)scan->manifest, err);
    return status;
}
