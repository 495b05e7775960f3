// arrow_values.h - where the values of Arrow arrays (C data interface) lie, row by row. Knows
// layouts, not files: arrow_columns.c reads and validates the arrays.
#ifndef BINDERY_PACKER_INPUT_ARROW_VALUES_H
#define BINDERY_PACKER_INPUT_ARROW_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

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

// The key of metadata that has the name of an extension type.
extern const char bd_extension_key[];

// The name of an extension type that `schema` is or that something inside of it is (a child, at
// any depth, or the values of a dictionary); *length is that of the name, which is borrowed and
// not terminated. NULL if there is none.
const char *bd_extension_name(const struct ArrowSchema *schema, size_t *length);

// The value of a key of the schema's metadata, borrowed and not terminated; NULL if there is no
// such key.
const char *bd_schema_metadata(const struct ArrowSchema *schema, const char *key,
                               size_t *length);

// Where the values are in a column: the column itself, or by names[1], names[2]… a field of a
// struct. (names[0] is the column's own name.)
typedef struct bd_value_path {
    const char *const *names;
    size_t n_names;
} bd_value_path;

// A row: its bytes, borrowed from the array or its dictionary.
typedef struct bd_value {
    const char *data;  // not necessarily aligned for ids; NULL if the row has no value
    int64_t size_bytes;
} bd_value;

// The rows of all arrays that were appended. Zero to begin with. Nothing is copied: a
// dictionary's text that a thousand rows name is in memory once.
typedef struct bd_values {
    bd_value *rows;  // [n_rows], owned
    int64_t n_rows;
    int64_t size_bytes;  // of all rows together, INT64_MAX if they have more
    size_t capacity;
} bd_values;

void bd_values_clear(bd_values *values);    // as new, but with its memory
void bd_values_release(bd_values *values);  // safe twice

// Adds the rows of `array`, which has passed Arrow's full validation and must stay as it is
// until the values are no longer used. Values that are not of `type`, nulls among a list's
// items and negative ids are BD_ERR_FORMAT.
bd_status bd_values_append(bd_values *values, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, const bd_value_path *path,
                           const bd_value_type *type, bd_error *err);

// The bytes that the rows have together, those of nulls included, from the first and the last
// offset alone (for a dictionary an estimate from its mean text). Arrow's quick validation is
// enough.
bd_status bd_values_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const bd_value_path *path, const bd_value_type *type,
                          int64_t *weight_bytes, bd_error *err);

#endif
