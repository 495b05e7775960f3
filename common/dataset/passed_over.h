// passed_over.h - the part of a manifest that counts files that were found and not read, by
// reason.
#ifndef BINDERY_COMMON_DATASET_PASSED_OVER_H
#define BINDERY_COMMON_DATASET_PASSED_OVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"

// The files that were passed over for one reason.
typedef struct bd_passed_kind {
    char *reason;  // owned
    int64_t n_files;
    int64_t size_bytes;  // of those that are regular files
    char *first;         // owned; the name of the first of them
} bd_passed_kind;

typedef struct bd_passed_over {
    bd_passed_kind *items;  // [n], owned; in the order in which the reasons were met
    size_t n, capacity;
    bool is_known;  // false where nothing was counted: before format 1.2
} bd_passed_over;

// Counts `n_files`, which have `size_bytes` in all; `first` is the name of the first.
bd_status bd_passed_over_add(bd_passed_over *passed, const char *reason, int64_t n_files,
                             int64_t size_bytes, const char *first, bd_error *err);

// Adds all counts of `other`. The result is known only if both are.
bd_status bd_passed_over_join(bd_passed_over *passed, const bd_passed_over *other,
                              bd_error *err);

// Their files, all reasons together.
int64_t bd_passed_over_files(const bd_passed_over *passed);

// Sets the member `passed_over` of a manifest: an array of `reason`, `files`, `bytes`, `first`,
// or null if it is not known.
void bd_passed_over_to_json(const bd_passed_over *passed, bd_json *manifest);

// The inverse; the member may also be absent. Release what comes out, also after a failure.
bd_status bd_passed_over_from_json(bd_passed_over *passed, const bd_json *manifest,
                                   bd_error *err);

void bd_passed_over_release(bd_passed_over *passed);  // safe on an empty struct, safe twice

#endif
