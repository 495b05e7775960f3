#include "packer/scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/folder.h"
#include "packer/units.h"

static bd_status copy_input(const bd_scan *scan, size_t i, bd_error *err)
{
    BD_TRY(bd_input_entry_copy(&scan->inputs[i], &scan->manifest->inputs[i], err));
    return bd_plan_complete_entry(&scan->cuts, &scan->inputs[i], err);
}

bd_status bd_scan_init(bd_scan *scan, const char *folder, const bd_manifest *manifest,
                       bd_error *err)
{
    *scan = (bd_scan){.folder = folder, .manifest = manifest};
    BD_TRY(bd_plan_read_cuts(&scan->cuts, folder, err));
    scan->inputs = calloc(manifest->n_inputs + 1, sizeof *scan->inputs);
    if (!scan->inputs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", manifest->n_inputs);
    bd_status status = BD_OK;
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
    *scan = (bd_scan){0};
}

static bool ends_in_arrow(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".arrow") == 0;
}

// People hand *.arrow to other tools: a file too many there is rows too many. One that is
// missing shows when it is opened.
static bd_status refuse_stray(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    const bd_manifest *manifest = context;
    bd_unit unit;
    if (!ends_in_arrow(name) ||
        (bd_unit_from_name(&unit, name, ".arrow") && bd_manifest_find_unit(manifest, &unit)))
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

static bd_status check_items(const bd_scan *scan, const bd_units *units, bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    // A held-out dataset does not count the documents of the other.
    const bool knows = manifest->packing.part != BD_PART_HELD_OUT;
    const int64_t n_read = bd_figures_documents_read(&manifest->totals);
    const bool limited = scan->cuts.limit != BD_NO_LIMIT;
    size_t next = 0, i;
    if (limited && knows && n_read > scan->cuts.limit)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: %" PRId64 " documents, the limit is %" PRId64, scan->folder,
                       n_read, scan->cuts.limit);
    const bool may_end = limited && (!knows || n_read == scan->cuts.limit);
    for (i = 0; i < units->n && !(may_end && next == manifest->n_shards); i++)
        BD_TRY(check_item(scan, &units->items[i], &next, err));
    if (next != manifest->n_shards)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: the manifest has %zu shards more than the plan has units",
                       scan->folder, manifest->n_shards - next);
    return BD_OK;
}

bd_status bd_scan_check_units(const bd_scan *scan, bd_error *err)
{
    bd_units units = {0};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < scan->manifest->n_inputs; i++)
        status = bd_units_add(&units, &scan->inputs[i], scan->cuts.unit_bytes, err);
    if (status == BD_ERR_UNSUPPORTED)  // no dataset has so many
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D2: the plan has more than %d units",
                         scan->folder, BD_MAX_UNITS);
    if (status == BD_OK)
        status = check_items(scan, &units, err);
    bd_units_release(&units);
    if (status == BD_OK)
        status = bd_folder_visit(scan->folder, refuse_stray, (void *)scan->manifest, err);
    return status;
}
