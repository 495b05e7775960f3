// arrow_json.h - the rows of a column of lists or structs, as JSON. Records of tables then have the
// same reader, and the same messages, as those of JSON.
//
//   list<struct<role: string, content: string>>   [{"role":"user","content":"Hi"}]
#ifndef BINDERY_PACKER_INPUT_ARROW_JSON_H
#define BINDERY_PACKER_INPUT_ARROW_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/arrow_values.h"

// Whether a column of that type can be written: text, booleans, numbers, nulls, lists and structs of
// these, and dictionaries of text. Times, decimals and binary values are taken, too, because a
// struct may have them beside what is asked for; they become null.
bool bd_arrow_json_accepts(const struct ArrowSchema *schema);

// The texts of rows. Initialize it with zero.
typedef struct bd_json_rows {
    char *text;  // owned; one after another
    size_t n_bytes, capacity;
    size_t *ends;  // [n_rows], owned; where each text ends
    int64_t n_rows;
    size_t ends_capacity;
} bd_json_rows;

void bd_json_rows_clear(bd_json_rows *rows);    // keeps its memory
void bd_json_rows_release(bd_json_rows *rows);  // safe twice

// Adds the rows of `array`, which has passed Arrow's full validation. If the texts would take more
// than `most_bytes`, *too_large becomes true and the rest is left out.
bd_status bd_arrow_json_append(bd_json_rows *rows, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const bd_value_path *path,
                               int64_t most_bytes, bool *too_large, bd_error *err);

// Finds about how many bytes the values of all rows have. Arrow's quick validation is enough.
bd_status bd_arrow_json_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                              int64_t *weight_bytes, bd_error *err);

#endif
