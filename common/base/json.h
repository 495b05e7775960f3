// json.h - small JSON documents (manifest, plan, metadata, summaries): building, printing,
// reading with errors that name the key. Corpus records have their own, faster reader.
//
// Integers are int64; 64-bit checksums are written as strings. Order of keys is kept.
#ifndef BINDERY_COMMON_BASE_JSON_H
#define BINDERY_COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"

typedef struct bd_json bd_json;  // a value of any kind, reference-counted by the library below

// ---- Building. Running out of memory is remembered and reported by bd_json_print().
bd_json *bd_json_object(void);
bd_json *bd_json_array(void);
bd_json *bd_json_integer(int64_t value);
bd_json *bd_json_string(const char *text);  // UTF-8
bd_json *bd_json_real(double value);        // finite
void bd_json_set_integer(bd_json *object, const char *key, int64_t value);
void bd_json_set_real(bd_json *object, const char *key, double value);
// The same, but null for a value that is not finite, because JSON has no number for it.
void bd_json_set_figure(bd_json *object, const char *key, double value);
void bd_json_set_bool(bd_json *object, const char *key, bool value);
void bd_json_set_null(bd_json *object, const char *key);
// Bytes of `text` that are not UTF-8, as in some file names, become U+FFFD.
void bd_json_set_string(bd_json *object, const char *key, const char *text);
// Takes over the caller's reference to `value`.
void bd_json_set(bd_json *object, const char *key, bd_json *value);
void bd_json_append(bd_json *array, bd_json *value);
// Another reference to the same value, to put it into two documents.
bd_json *bd_json_share(const bd_json *value);
void bd_json_free(bd_json *value);  // safe on NULL

typedef enum bd_json_style { BD_JSON_COMPACT, BD_JSON_INDENTED } bd_json_style;
// *text is malloc'd, NUL-terminated, without a newline at its end; the caller frees it.
bd_status bd_json_print(const bd_json *value, bd_json_style style, char **text, bd_error *err);

// ---- Reading. Text from outside: depth is limited, duplicate keys and bad UTF-8 are refused.
bd_status bd_json_parse(const char *text, size_t size_bytes, bd_json **value, bd_error *err);
// Reads and parses a file of at most `max_bytes`; the message names the file.
bd_status bd_json_read_file(const char *path, size_t max_bytes, bd_json **value, bd_error *err);

// Each fails with BD_ERR_FORMAT when `key` is missing or is something else, and names it.
// The results are borrowed from `object`.
bd_status bd_json_get_integer(const bd_json *object, const char *key, int64_t min, int64_t max,
                              int64_t *value, bd_error *err);
// Any number, also one that is written as an integer.
bd_status bd_json_get_real(const bd_json *object, const char *key, double min, double max,
                           double *value, bd_error *err);
bd_status bd_json_get_bool(const bd_json *object, const char *key, bool *value, bd_error *err);
bd_status bd_json_get_string(const bd_json *object, const char *key, const char **value,
                             bd_error *err);
// A string that is one of `words`, which ends with NULL; *index says which.
bd_status bd_json_get_word(const bd_json *object, const char *key, const char *const *words,
                           int *index, bd_error *err);
bd_status bd_json_get_object(const bd_json *object, const char *key, const bd_json **value,
                             bd_error *err);
bd_status bd_json_get_array(const bd_json *object, const char *key, const bd_json **value,
                            bd_error *err);
bool bd_json_is_null(const bd_json *object, const char *key);  // also when it is missing
size_t bd_json_length(const bd_json *array);
const bd_json *bd_json_at(const bd_json *array, size_t index);
bd_status bd_json_as_integer(const bd_json *value, int64_t min, int64_t max, int64_t *out,
                             bd_error *err);
bd_status bd_json_as_string(const bd_json *value, const char **out, bd_error *err);

// The members of an object whose keys are not known beforehand, in their order; a value that is
// not an object has none. Both parts are borrowed.
//
//   for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m))
typedef struct bd_json_member {
    const char *key;  // NULL after the last
    const bd_json *value;
} bd_json_member;
bd_json_member bd_json_first(const bd_json *object);
bd_json_member bd_json_next(const bd_json *object, bd_json_member member);

// Prints it and a newline to `out`, and frees it.
bd_status bd_json_put(bd_json *value, bd_json_style style, FILE *out, bd_error *err);

// ---- Sealed: the last member, "checksum", is XXH3-128 over every byte before the comma that
// precedes it, so that no change of the text goes unnoticed.

// Prints a non-empty object without that member. *text is malloc'd and ends with a newline; the
// caller frees it.
bd_status bd_json_seal(const bd_json *object, char **text, size_t *size_bytes, bd_error *err);
// Refuses a text that is not, byte for byte, what bd_json_seal() printed.
bd_status bd_json_unseal(const char *text, size_t size_bytes, bd_json **value, bd_error *err);

// Where two documents first differ: false if they are equal, else a path such as
// "inputs[2 'a.jsonl'].bytes: 10 here, 12 there" in `where`.
bool bd_json_difference(const bd_json *here, const bd_json *there, char *where,
                        size_t where_size);

#endif
