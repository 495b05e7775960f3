#include "common/dataset/input_entry.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STARTS = 1 << 20 };  // more slices than a manifest can list

int64_t bd_input_entry_n_slices(const bd_input_entry *entry)
{
    if (entry->n_starts > 0)
        return (int64_t)entry->n_starts;
    if (entry->extent == BD_UNKNOWN)
        return BD_UNKNOWN;
    const int64_t n = entry->extent / entry->stride + (entry->extent % entry->stride != 0);
    return n > 0 ? n : 1;
}

bd_slice bd_input_entry_slice(const bd_input_entry *entry, int64_t slice)
{
    const int64_t extent = entry->extent == BD_UNKNOWN ? INT64_MAX : entry->extent;
    const int64_t n_starts = (int64_t)entry->n_starts;
    if (n_starts > 0 ? slice >= n_starts : slice > extent / entry->stride)
        return (bd_slice){extent, extent};
    if (n_starts > 0)
        return (bd_slice){entry->starts[slice],
                          slice + 1 == n_starts ? extent : entry->starts[slice + 1]};
    const int64_t begin = slice * entry->stride, rest = extent - begin;
    return (bd_slice){begin, begin + (rest < entry->stride ? rest : entry->stride)};
}

// ---- JSON ----------------------------------------------------------------------------------

static void set_size(bd_json *json, const char *key, int64_t size)
{
    if (size == BD_UNKNOWN)
        bd_json_set_null(json, key);
    else
        bd_json_set_integer(json, key, size);
}

void bd_input_entry_to_json(const bd_input_entry *entry, bd_json *json)
{
    bd_json_set_string(json, "name", entry->name);
    bd_json_set_string(json, "source", entry->source);
    bd_json_set_string(json, "format", entry->format);
    bd_json_set_string(json, "compression", entry->compression);
    set_size(json, "bytes", entry->size_bytes);
    if (entry->n_starts == 0 && entry->stride == 0)  // of format 1.0, and not completed
        return;
    set_size(json, "weight", entry->weight);
    set_size(json, "extent", entry->extent);
    if (entry->n_starts == 0) {
        bd_json_set_integer(json, "stride", entry->stride);
        return;
    }
    bd_json *starts = bd_json_array();
    for (size_t i = 0; i < entry->n_starts; i++)
        bd_json_append(starts, bd_json_integer(entry->starts[i]));
    bd_json_set(json, "starts", starts);
}

static bd_status get_size(const bd_json *json, const char *key, int64_t *size, bd_error *err)
{
    *size = BD_UNKNOWN;
    return bd_json_is_null(json, key) ? BD_OK
                                      : bd_json_get_integer(json, key, 0, INT64_MAX, size, err);
}

static bd_status get_starts(bd_input_entry *entry, const bd_json *json, bd_error *err)
{
    const bd_json *array;
    BD_TRY(bd_json_get_array(json, "starts", &array, err));
    const size_t n = bd_json_length(array);
    if (n == 0 || n > MAX_STARTS)
        return bd_fail(err, BD_ERR_FORMAT, "'starts' has %zu entries", n);
    entry->starts = malloc(n * sizeof *entry->starts);
    if (!entry->starts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu slices", n);
    entry->n_starts = n;
    for (size_t i = 0; i < n; i++) {
        const int64_t min = i == 0 ? 0 : entry->starts[i - 1] + 1;
        const int64_t max = i == 0 ? 0 : entry->extent - 1;
        if (bd_json_as_integer(bd_json_at(array, i), min, max, &entry->starts[i], err) != BD_OK)
            return bd_error_prefix(err, BD_ERR_FORMAT, "'starts[%zu]'", i);
    }
    return BD_OK;
}

static bd_status get_cuts(bd_input_entry *entry, const bd_json *json, bd_error *err)
{
    const bool has_starts = !bd_json_is_null(json, "starts");
    if (!has_starts && bd_json_is_null(json, "stride")) {
        entry->weight = entry->extent = entry->size_bytes;
        return entry->size_bytes == BD_UNKNOWN
                   ? bd_fail(err, BD_ERR_FORMAT, "'bytes' is missing")
                   : BD_OK;
    }
    BD_TRY(get_size(json, "weight", &entry->weight, err));
    BD_TRY(get_size(json, "extent", &entry->extent, err));
    if ((entry->weight == BD_UNKNOWN) != (entry->extent == BD_UNKNOWN))
        return bd_fail(err, BD_ERR_FORMAT, "'weight' and 'extent': only one of them is known");
    if (has_starts)
        return get_starts(entry, json, err);
    return bd_json_get_integer(json, "stride", 1, INT64_MAX, &entry->stride, err);
}

// ---- Ownership -----------------------------------------------------------------------------

static bd_status set_words(bd_input_entry *entry, const char *name, const char *source,
                           const char *format, const char *compression, bd_error *err)
{
    entry->name = strdup(name);
    entry->source = strdup(source);
    entry->format = strdup(format);
    entry->compression = strdup(compression);
    if (!entry->name || !entry->source || !entry->format || !entry->compression)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    return BD_OK;
}

bd_status bd_input_entry_from_json(bd_input_entry *entry, const bd_json *json, bd_error *err)
{
    const char *name, *source, *format, *compression = "none";
    *entry = (bd_input_entry){0};
    BD_TRY(bd_json_get_string(json, "name", &name, err));
    BD_TRY(bd_json_get_string(json, "source", &source, err));
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    if (!bd_json_is_null(json, "compression"))
        BD_TRY(bd_json_get_string(json, "compression", &compression, err));
    bd_status status = set_words(entry, name, source, format, compression, err);
    if (status == BD_OK)
        status = get_size(json, "bytes", &entry->size_bytes, err);
    if (status == BD_OK)
        status = get_cuts(entry, json, err);
    if (status != BD_OK)
        bd_input_entry_release(entry);
    return status;
}

bd_status bd_input_entry_copy(bd_input_entry *copy, const bd_input_entry *entry, bd_error *err)
{
    *copy = *entry;
    copy->starts = NULL;
    bd_status status =
        set_words(copy, entry->name, entry->source, entry->format, entry->compression, err);
    if (status == BD_OK && entry->n_starts > 0) {
        const size_t n_bytes = entry->n_starts * sizeof *entry->starts;
        copy->starts = malloc(n_bytes);
        if (copy->starts)
            memcpy(copy->starts, entry->starts, n_bytes);
        else
            status = bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    }
    if (status != BD_OK)
        bd_input_entry_release(copy);
    return status;
}

void bd_input_entry_release(bd_input_entry *entry)
{
    free(entry->name);
    free(entry->source);
    free(entry->format);
    free(entry->compression);
    free(entry->starts);
    *entry = (bd_input_entry){0};
}
