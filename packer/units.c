#include "packer/units.h"

#include <stdlib.h>

#include "common/array.h"

static bool is_sliced(const bd_input *input, int64_t unit_bytes, bool text_is_whole)
{
    return input->size_bytes > unit_bytes && !(text_is_whole && input->format == BD_INPUT_TEXT);
}

static bd_status append(bd_units *units, bd_unit unit, bd_error *err)
{
    if (units->n == BD_MAX_UNITS)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "the inputs make more than %d units: give a larger --unit-size",
                       BD_MAX_UNITS);
    BD_TRY(bd_array_reserve((void **)&units->items, &units->capacity, units->n + 1,
                            sizeof *units->items, err));
    units->items[units->n++] = unit;
    return BD_OK;
}

bd_status bd_units_plan(bd_units *units, const bd_inputs *inputs, int64_t unit_bytes,
                        bool text_is_whole, bd_error *err)
{
    *units = (bd_units){0};
    bd_status status = BD_OK;
    int64_t group_bytes = INT64_MAX;  // of the last unit, if it is a group that may still grow
    for (size_t i = 0; status == BD_OK && i < inputs->n; i++) {
        const int64_t size = inputs->items[i].size_bytes;
        if (is_sliced(&inputs->items[i], unit_bytes, text_is_whole)) {
            const int64_t n_slices = size / unit_bytes + (size % unit_bytes != 0);
            for (int64_t k = 0; status == BD_OK && k < n_slices; k++)
                status = append(units, (bd_unit){(int64_t)i, k, 1}, err);
            group_bytes = INT64_MAX;
        } else if (group_bytes <= unit_bytes && size <= unit_bytes - group_bytes) {
            units->items[units->n - 1].n_inputs++;
            group_bytes += size;
        } else {
            status = append(units, (bd_unit){(int64_t)i, 0, 1}, err);
            group_bytes = size;
        }
    }
    if (status != BD_OK)
        bd_units_release(units);
    return status;
}

bd_slice bd_unit_slice(const bd_unit *unit, const bd_input *input, int64_t unit_bytes,
                       bool text_is_whole)
{
    if (!is_sliced(input, unit_bytes, text_is_whole))
        return (bd_slice){0, input->size_bytes};
    if (unit->slice > input->size_bytes / unit_bytes)
        return (bd_slice){input->size_bytes, input->size_bytes};
    const int64_t begin = unit->slice * unit_bytes;
    const int64_t rest = input->size_bytes - begin;
    return (bd_slice){begin, begin + (rest < unit_bytes ? rest : unit_bytes)};
}

void bd_units_release(bd_units *units)
{
    free(units->items);
    *units = (bd_units){0};
}
