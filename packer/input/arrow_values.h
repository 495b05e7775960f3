// arrow_values.h - finds the bytes of every row in Arrow arrays (C data interface). This module
// knows layouts, not files: arrow_columns.c reads and validates the arrays.
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
    int offset_bytes;   // size of an offset, 4 or 8; 0 for BD_VALUES_FIXED_LIST
    int index_bytes;    // size of an index into the dictionary; 0 if there is none
    int item_bytes;     // 1 for text, otherwise the size of an id
    bool is_signed;     // the ids are of a signed type
    bool is_mask;       // items say which ids are trained: they may be negative, or booleans
    bool is_boolean;    // items are bits in the array, and become bytes, 0 or 1, in values
    int64_t list_size;  // items in a value of BD_VALUES_FIXED_LIST
} bd_value_type;

// Sets *type to the type that `schema` has. False if it is neither text nor a list of integers.
bool bd_value_type_of(bd_value_type *type, const struct ArrowSchema *schema);

// The same for a column beside the ids that says which of them are trained: a list of integers or
// of booleans. False if it is something else.
bool bd_mask_type_of(bd_value_type *type, const struct ArrowSchema *schema);

// The key under which metadata has the name of an extension type.
extern const char bd_extension_key[];

// The name of an extension type that `schema` is or contains (in a child, at any depth, or in the
// values of a dictionary); NULL if there is none. The name is borrowed and has *length bytes
// without a terminator.
const char *bd_extension_name(const struct ArrowSchema *schema, size_t *length);

// The value of a key in the schema's metadata, NULL if it has no such key. The value is borrowed
// and has *length bytes without a terminator.
const char *bd_schema_metadata(const struct ArrowSchema *schema, const char *key,
                               size_t *length);

// The way from a column to its values: names[0] is the name of the column. If that is a struct,
// names[1] is the name of its field, and so on.
typedef struct bd_value_path {
    const char *const *names;
    size_t n_names;
} bd_value_path;

// A row: its bytes, borrowed from the array or its dictionary.
typedef struct bd_value {
    const char *data;  // not necessarily aligned for ids; NULL if the row is null
    int64_t size_bytes;
} bd_value;

// The rows of all arrays that were appended. Initialize it with zero. No bytes are copied (but
// booleans are unpacked): if a thousand rows have the same text of a dictionary, it is in memory
// once.
typedef struct bd_values {
    bd_value *rows;  // [n_rows], owned
    int64_t n_rows;
    int64_t size_bytes;  // of all rows together, INT64_MAX if they have more
    size_t capacity;
    uint8_t **unpacked;  // [n_unpacked], owned; the booleans of each array, a byte for each
    size_t n_unpacked, unpacked_capacity;
} bd_values;

void bd_values_clear(bd_values *values);    // keeps its memory
void bd_values_release(bd_values *values);  // safe twice

// Adds the rows of `array`, which has passed Arrow's full validation and must not be changed or
// released as long as the values are used. Values of another type than `type`, nulls among a
// list's items and negative ids are BD_ERR_FORMAT.
bd_status bd_values_append(bd_values *values, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, const bd_value_path *path,
                           const bd_value_type *type, bd_error *err);

// Finds how many bytes all rows have together, including those of nulls. It reads only the first
// and the last offset, so that Arrow's quick validation is enough. For a dictionary it is an
// estimate from the mean length of its texts.
bd_status bd_values_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const bd_value_path *path, const bd_value_type *type,
                          int64_t *weight_bytes, bd_error *err);

#endif
