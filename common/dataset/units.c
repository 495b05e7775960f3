#include "common/dataset/units.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { TINY_UNIT_BYTES = 1 << 20, MAX_TINY_UNITS = 4096 };

int64_t bd_units_most(int64_t unit_bytes)
{
    return unit_bytes < TINY_UNIT_BYTES ? MAX_TINY_UNITS : BD_MAX_UNITS;
}

bd_status bd_units_fail_many(const char *path, int64_t unit_bytes, bd_error *err)
{
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "%s%s%s more than %lld units%s: give a larger --unit-size", path ? "'" : "",
                   path ? path : "the inputs", path ? "' makes" : " make",
                   (long long)bd_units_most(unit_bytes),
                   unit_bytes < TINY_UNIT_BYTES ? " of less than 1 MiB" : "");
}

static bd_status append_unit(bd_units *units, bd_planned planned, bd_error *err)
{
    if (units->n == BD_MAX_UNITS)
        return bd_units_fail_many(NULL, INT64_MAX, err);
    BD_TRY(bd_array_reserve((void **)&units->items, &units->capacity, units->n + 1,
                            sizeof *units->items, err));
    units->items[units->n++] = planned;
    return BD_OK;
}

bd_status bd_units_add(bd_units *units, const bd_input_entry *entry, int64_t unit_bytes,
                       bd_error *err)
{
    const int64_t input = units->n_inputs++;
    const bool same_source = units->source && strcmp(units->source, entry->source) == 0;
    const bool may_join = units->is_group && same_source;
    units->source = entry->source;
    units->is_group = false;
    if (entry->extent == BD_UNKNOWN)
        return append_unit(units, (bd_planned){.unit = {input, 0, 1, false}, .is_stream = true},
                           err);
    if (entry->weight > unit_bytes) {
        const int64_t n_slices = bd_input_entry_n_slices(entry);
        for (int64_t k = 0; k < n_slices; k++) {
            const bd_unit unit = {input, k, 1, k == n_slices - 1};
            BD_TRY(append_unit(units, (bd_planned){.unit = unit}, err));
        }
        return BD_OK;
    }
    units->is_group = true;
    if (may_join && entry->weight <= unit_bytes - units->group_bytes) {
        units->items[units->n - 1].unit.n_inputs++;
        units->group_bytes += entry->weight;
        return BD_OK;
    }
    units->group_bytes = entry->weight;
    return append_unit(units, (bd_planned){.unit = {input, 0, 1, true}}, err);
}

void bd_units_release(bd_units *units)
{
    free(units->items);
    *units = (bd_units){0};
}
