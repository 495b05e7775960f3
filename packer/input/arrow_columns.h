// arrow_columns.h - one column of a Parquet or Arrow file, group by group: documents as text or
// as token ids. Other columns are not read (compressed Arrow files decompress them all the
// same).
//
// A group is a row group of Parquet or a record batch of Arrow. The file stays mapped while it
// is open. One thread at a time may use one bd_columns; any number may open the same file.
#ifndef BINDERY_PACKER_INPUT_ARROW_COLUMNS_H
#define BINDERY_PACKER_INPUT_ARROW_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/arrow_values.h"

typedef enum bd_columns_format {
    BD_COLUMNS_PARQUET,
    BD_COLUMNS_ARROW_FILE,    // "ARROW1"
    BD_COLUMNS_ARROW_STREAM,  // what Hugging Face's datasets write
} bd_columns_format;

typedef struct bd_columns bd_columns;

// Opens `path`. The column is the one named `field` ("a.b": field b of struct a, unless a
// column has that very name); if there is none and `field` is "text", the first of "input_ids"
// and "tokens" that is there.
//
//   text  string, large_string, and dictionaries of either
//   ids   list, large_list and fixed_size_list of integers of any width
//
// Anything else is BD_ERR_FORMAT and says the type, extension types among it; no such column
// says which there are, and several of the name are BD_ERR_FORMAT. A stream with a
// dictionary-encoded column, whichever it is, is BD_ERR_UNSUPPORTED, as is an encrypted column.
// A stream must end with the mark of its end, and so must the file. Learns every group's rows
// and weight: from metadata in Parquet; in Arrow from each batch, which reads little of an
// uncompressed file and all of the column in a compressed one. What is read may take the memory
// that bd_columns_allowed() says. Close with bd_columns_close().
bd_status bd_columns_open(bd_columns **columns, const char *path, bd_columns_format format,
                          const char *field, int64_t allowance_bytes, bd_error *err);

// 0 if the column is text; else the bytes of an id: 1, 2, 4 or 8.
int bd_columns_id_bytes(const bd_columns *columns);

typedef struct bd_column_group {
    int64_t first_row, n_rows;
    int64_t weight_bytes;  // of the column in this group, in memory and uncompressed; an
                           // estimate that depends on the file's bytes alone
    int64_t stored_bytes;  // as they are in the file; of a batch in an Arrow file not known,
                           // and so those of the file
} bd_column_group;

// The column's own name, with those of the structs that it is in: "a.b".
const char *bd_columns_name(const bd_columns *columns);
// Whether a column of that name lies beside it (in the same struct), and whether the schema's
// metadata has that key.
bool bd_columns_has_beside(const bd_columns *columns, const char *name);
bool bd_columns_has_metadata(const bd_columns *columns, const char *key);

int64_t bd_columns_n_groups(const bd_columns *columns);
bd_column_group bd_columns_group(const bd_columns *columns, int64_t index);

// Memory that is counted for a row besides its bytes: for its place and the caller's records.
enum { BD_COLUMN_ROW_BYTES = 64 };

// How many bytes rows may have whose groups take `stored_bytes` in the file: the allowance that
// the file was opened with, or 64 times what is stored, whichever is more. Reading a group
// takes up to four times that; a group that needs more is BD_ERR_FORMAT. (Text compresses to a
// third or a tenth. What stands for a hundred times its size is made to fill memory.)
int64_t bd_columns_allowed(const bd_columns *columns, int64_t stored_bytes);

// The values of one group: UTF-8, or unsigned little-endian ids of bd_columns_id_bytes().
typedef struct bd_column_values {
    const bd_value *rows;  // [n_rows]
    int64_t n_rows;
    int64_t size_bytes;  // of all rows together, INT64_MAX if they have more
} bd_column_values;

// Reads group `index`; what comes out is borrowed until the next read or close. Every row has
// been checked. Damage, text that is not UTF-8, a null among a list's items and a negative id
// are BD_ERR_FORMAT. Messages name the file and the group.
bd_status bd_columns_read(bd_columns *columns, int64_t index, bd_column_values *values,
                          bd_error *err);

void bd_columns_close(bd_columns *columns);  // safe on NULL

#endif
