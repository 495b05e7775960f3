#include "common/dataset/passed_over.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// A bound for manifests, which come from outside. Our own have far fewer reasons.
enum { MAX_KINDS = 1000 };

// The counts of a reason, which are added if it is new; NULL without memory.
static bd_passed_kind *find_reason(bd_passed_over *passed, const char *reason,
                                   const char *first, bd_error *err)
{
    for (size_t i = 0; i < passed->n; i++)
        if (strcmp(passed->items[i].reason, reason) == 0)
            return &passed->items[i];
    if (bd_array_reserve((void **)&passed->items, &passed->capacity, passed->n + 1,
                         sizeof *passed->items, err) != BD_OK)
        return NULL;
    bd_passed_kind *kind = &passed->items[passed->n++];
    *kind = (bd_passed_kind){.reason = strdup(reason), .first = strdup(first)};
    if (kind->reason && kind->first)
        return kind;
    bd_fail(err, BD_ERR_MEMORY, "no memory for the files that are passed over");
    return NULL;
}

bd_status bd_passed_over_add(bd_passed_over *passed, const char *reason, int64_t n_files,
                             int64_t size_bytes, const char *first, bd_error *err)
{
    bd_passed_kind *kind = find_reason(passed, reason, first, err);
    if (!kind)
        return BD_ERR_MEMORY;
    if (!bd_int64_add(kind->n_files, n_files, &kind->n_files) ||
        !bd_int64_add(kind->size_bytes, size_bytes, &kind->size_bytes))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "the files that are passed over are too many to count");
    return BD_OK;
}

bd_status bd_passed_over_join(bd_passed_over *passed, const bd_passed_over *other,
                              bd_error *err)
{
    passed->is_known = passed->is_known && other->is_known;
    for (size_t i = 0; i < other->n; i++) {
        const bd_passed_kind *kind = &other->items[i];
        BD_TRY(bd_passed_over_add(passed, kind->reason, kind->n_files, kind->size_bytes,
                                  kind->first, err));
    }
    return BD_OK;
}

int64_t bd_passed_over_files(const bd_passed_over *passed)
{
    int64_t n = 0;
    for (size_t i = 0; i < passed->n; i++)
        n += passed->items[i].n_files;
    return n;
}

void bd_passed_over_to_json(const bd_passed_over *passed, bd_json *manifest)
{
    if (!passed->is_known) {
        bd_json_set_null(manifest, "passed_over");
        return;
    }
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < passed->n; i++) {
        const bd_passed_kind *kind = &passed->items[i];
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "reason", kind->reason);
        bd_json_set_integer(json, "files", kind->n_files);
        bd_json_set_integer(json, "bytes", kind->size_bytes);
        bd_json_set_string(json, "first", kind->first);
        bd_json_append(array, json);
    }
    bd_json_set(manifest, "passed_over", array);
}

static bd_status kind_from_json(bd_passed_over *passed, const bd_json *json, bd_error *err)
{
    const char *reason, *first;
    int64_t n_files, size_bytes;
    BD_TRY(bd_json_get_string(json, "reason", &reason, err));
    BD_TRY(bd_json_get_integer(json, "files", 1, INT64_MAX / MAX_KINDS, &n_files, err));
    BD_TRY(bd_json_get_integer(json, "bytes", 0, INT64_MAX, &size_bytes, err));
    BD_TRY(bd_json_get_string(json, "first", &first, err));
    return bd_passed_over_add(passed, reason, n_files, size_bytes, first, err);
}

bd_status bd_passed_over_from_json(bd_passed_over *passed, const bd_json *manifest,
                                   bd_error *err)
{
    const bd_json *array;
    *passed = (bd_passed_over){0};
    if (bd_json_is_null(manifest, "passed_over"))
        return BD_OK;
    BD_TRY(bd_json_get_array(manifest, "passed_over", &array, err));
    if (bd_json_length(array) > MAX_KINDS)
        return bd_fail(err, BD_ERR_FORMAT, "'passed_over' has more than %d reasons", MAX_KINDS);
    passed->is_known = true;
    for (size_t i = 0; i < bd_json_length(array); i++) {
        const bd_status status = kind_from_json(passed, bd_json_at(array, i), err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "passed_over[%zu]", i);
    }
    return BD_OK;
}

void bd_passed_over_release(bd_passed_over *passed)
{
    for (size_t i = 0; i < passed->n; i++) {
        free(passed->items[i].reason);
        free(passed->items[i].first);
    }
    free(passed->items);
    *passed = (bd_passed_over){0};
}
