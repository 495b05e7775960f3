// arrow_columns.h - reads one column of a Parquet or Arrow file, group by group. Its rows are
// documents, as text or as token ids. The other columns are not read (but they are decompressed
// in a compressed Arrow file).
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
    BD_COLUMNS_ARROW_FILE,    // begins with "ARROW1"
    BD_COLUMNS_ARROW_STREAM,  // the format that Hugging Face's datasets write
} bd_columns_format;

typedef struct bd_columns bd_columns;

// Opens `path` and finds the column `field`; "a.b" is the field b of the struct a, unless there is
// a column "a.b". If `field` is "text" and is not there, "input_ids" or else "tokens" is taken.
//
//   text  string, large_string, and dictionaries of either
//   ids   list, large_list and fixed_size_list of integers of any width
//
// Any other type, and any extension type, is BD_ERR_FORMAT, and the message names it. So is a name
// that no column has (the message lists those that there are) or that several columns have. An
// encrypted column is BD_ERR_UNSUPPORTED, and so is a stream with any dictionary-encoded column.
// A stream must have the mark of its end, and nothing may follow it.
//
// Opening finds the rows and the weight of every group. Parquet has them in its metadata. In Arrow
// it looks at every batch, which reads little of an uncompressed file and the whole column of a
// compressed one. bd_columns_allowed() bounds the memory that reading takes. Close with
// bd_columns_close().
bd_status bd_columns_open(bd_columns **columns, const char *path, bd_columns_format format,
                          const char *field, int64_t allowance_bytes, bd_error *err);

// The same for a column of any type that JSON can say (arrow_json.h). Its rows are then JSON texts;
// a row that is null is the text "null".
bd_status bd_columns_open_json(bd_columns **columns, const char *path, bd_columns_format format,
                               const char *field, int64_t allowance_bytes, bd_error *err);

// Opens the column `name` beside that of `ids` (in the same struct), which says of each id whether
// it is trained: list, large_list and fixed_size_list of integers of any width, or of booleans,
// whose values become bytes, 0 or 1. Its groups are those of `ids`. Otherwise as above.
bd_status bd_columns_open_mask(bd_columns **columns, const bd_columns *ids, const char *name,
                               bd_error *err);

// The size of an id in bytes: 1, 2, 4 or 8; 0 if the column is text. Whether they are of a signed
// type; those of a mask may be negative.
int bd_columns_id_bytes(const bd_columns *columns);
bool bd_columns_is_signed(const bd_columns *columns);

typedef struct bd_column_group {
    int64_t first_row, n_rows;
    int64_t weight_bytes;  // size of the column in this group, in memory and uncompressed; an
                           // estimate that depends on nothing but the file's bytes
    int64_t stored_bytes;  // size in the file; for a batch of an Arrow file, whose size is
                           // not known, that of the whole file
} bd_column_group;

// The name of the column, after the names of the structs that it is in: "a.b".
const char *bd_columns_name(const bd_columns *columns);
// Whether there is a column `name` beside it (in the same struct), and whether the metadata of the
// schema has the key.
bool bd_columns_has_beside(const bd_columns *columns, const char *name);
bool bd_columns_has_metadata(const bd_columns *columns, const char *key);

int64_t bd_columns_n_groups(const bd_columns *columns);
bd_column_group bd_columns_group(const bd_columns *columns, int64_t index);

// Memory that every row counts for besides its bytes: its bd_value and what callers keep of it.
enum { BD_COLUMN_ROW_BYTES = 64 };

// How many bytes the rows of groups may have if the groups take `stored_bytes` in the file: the
// allowance that the file was opened with or 64 times `stored_bytes`, whichever is more. Reading a
// group may take four times as much memory; a group that needs more is BD_ERR_FORMAT. (Text
// compresses to a third or a tenth. A file that expands to a hundred times its size was probably
// made to fill memory.)
int64_t bd_columns_allowed(const bd_columns *columns, int64_t stored_bytes);

// The values of one group: UTF-8, or unsigned little-endian ids of bd_columns_id_bytes() each.
typedef struct bd_column_values {
    const bd_value *rows;  // [n_rows]
    int64_t n_rows;
    int64_t size_bytes;  // of all rows together, INT64_MAX if they have more
} bd_column_values;

// Reads group `index`. The values are borrowed until the next read or close. All of them have been
// checked: damage, text that is not UTF-8, a null among a list's items and a negative id are
// BD_ERR_FORMAT. Messages name the file and the group.
bd_status bd_columns_read(bd_columns *columns, int64_t index, bd_column_values *values,
                          bd_error *err);

void bd_columns_close(bd_columns *columns);  // safe on NULL

#endif
