// bad_records.h - records that cannot become documents: what is wrong with them, and where the
// first of them lie.
#ifndef BINDERY_PACKER_INPUT_BAD_RECORDS_H
#define BINDERY_PACKER_INPUT_BAD_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/dataset/figures.h"

// A name follows "records" in messages.
#define BD_BAD_KINDS(X)                                                                 \
    X(BD_BAD_NONE, "good")                                                              \
    X(BD_BAD_MISSING_TEXT, "without text")  /* null, no such field, or no text in it */ \
    X(BD_BAD_JSON, "of broken JSON or CSV") /* or JSON that says two things */          \
    X(BD_BAD_UTF8, "not UTF-8")             /* or an escape of half a character */      \
    X(BD_BAD_TOO_LARGE, "larger than --max-document-bytes")                             \
    X(BD_BAD_PATTERN, "too hard to split") /* a tokenizer's expression works too long */
BD_ENUM(bd_bad_kind, BD_BAD_KINDS);

// The count of a kind, which must not be BD_BAD_NONE.
int64_t *bd_figures_bad(bd_figures *figures, bd_bad_kind kind);

// Where one lies and what is wrong with it.
typedef struct bd_bad_place {
    int64_t input, position;
    bd_bad_kind kind;
    char message[200];
} bd_bad_place;

enum { BD_MAX_BAD_PLACES = 100 };

// The first of them, in the order of the inputs.
typedef struct bd_bad_places {
    bd_bad_place *items;  // [n], owned; by input, then by position
    size_t n, capacity;
} bd_bad_places;

// Adds one, unless it is there or there are BD_MAX_BAD_PLACES before it; the last one goes if
// they are too many.
bd_status bd_bad_places_add(bd_bad_places *places, const bd_bad_place *place, bd_error *err);

// Adds all of `others`.
bd_status bd_bad_places_merge(bd_bad_places *places, const bd_bad_places *others,
                              bd_error *err);

void bd_bad_places_release(bd_bad_places *places);  // safe on an empty struct and safe twice

#endif
