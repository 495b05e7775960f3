// arrow_values.h - the values of Arrow arrays (C data interface), gathered into one run of
// bytes with offsets. Knows layouts, not files: arrow_columns.c reads and validates the arrays.
#ifndef BINDERY_COMMON_ARROW_VALUES_H
#define BINDERY_COMMON_ARROW_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct ArrowArray;  // arrow/c/abi.h
struct ArrowSchema;

typedef enum bd_value_layout {
    BD_VALUES_TEXT,
    BD_VALUES_TEXT_DICTIONARY,  // indices into texts
    BD_VALUES_LIST,
    BD_VALUES_FIXED_LIST,
} bd_value_layout;

typedef struct bd_value_type {
    bd_value_layout layout;
    int offset_bytes;   // 4 or 8: of texts (a dictionary's, too) and lists
    int index_bytes;    // of a dictionary's indices
    int item_bytes;     // 1 for text, else of an id
    bool is_signed;     // ids
    int64_t list_size;  // items in a value of BD_VALUES_FIXED_LIST
} bd_value_type;

// False for what is neither text nor a list of integers.
bool bd_value_type_of(bd_value_type *type, const struct ArrowSchema *schema);

// Where the values are in a column: the column itself, or by names[1], names[2]… a field of a
// struct. (names[0] is the column's own name.)
typedef struct bd_value_path {
    const char *const *names;
    size_t n_names;
} bd_value_path;

// What has been gathered. Zero to begin with; the bytes of a single array are borrowed from it,
// those of several are copied.
typedef struct bd_values {
    const char *data;
    size_t size_bytes;
    int64_t *offsets;  // [n_rows + 1], owned; NULL before the first append
    uint8_t *is_null;  // [n_rows], owned
    int64_t n_rows;
    bool has_null;
    char *copy;  // owned
    size_t copy_capacity, offsets_capacity, null_capacity;
} bd_values;

void bd_values_clear(bd_values *values);    // as new, but with its memory
void bd_values_release(bd_values *values);  // safe twice

// Adds the rows of `array`, which has passed Arrow's full validation and stays as it is until
// the values are no longer used. Values that are not of `type`, nulls among a list's items and
// negative ids are BD_ERR_FORMAT.
bd_status bd_values_append(bd_values *values, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, const bd_value_path *path,
                           const bd_value_type *type, bd_error *err);

// The bytes that bd_values_append() would add, from the first and the last offset alone (for a
// dictionary an estimate from its mean text). Arrow's quick validation is enough.
bd_status bd_values_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const bd_value_path *path, const bd_value_type *type,
                          int64_t *weight_bytes, bd_error *err);

#endif
