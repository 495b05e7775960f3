// arrow_columns.h - one column of a Parquet or Arrow file, group by group: documents as text or
// as token ids. Other columns are not read (compressed Arrow files decompress them all the
// same).
//
// A group is a row group of Parquet or a record batch of Arrow. The file stays mapped while it
// is open. One thread at a time may use one bd_columns; any number may open the same file.
#ifndef BINDERY_COMMON_ARROW_COLUMNS_H
#define BINDERY_COMMON_ARROW_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

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
// Anything else is BD_ERR_FORMAT and says the type; no such column says which there are. A
// stream with a dictionary-encoded column, whichever it is, is BD_ERR_UNSUPPORTED. Learns every
// group's rows and weight: from metadata in Parquet; in Arrow from each batch, which reads
// little of an uncompressed file and all of a compressed one. Close with bd_columns_close().
bd_status bd_columns_open(bd_columns **columns, const char *path, bd_columns_format format,
                          const char *field, bd_error *err);

// 0 if the column is text; else the bytes of an id: 1, 2, 4 or 8.
int bd_columns_id_bytes(const bd_columns *columns);

typedef struct bd_column_group {
    int64_t first_row, n_rows;
    int64_t weight_bytes;  // of the column in this group, in memory and uncompressed; an
                           // estimate that depends on the file's bytes alone
} bd_column_group;

int64_t bd_columns_n_groups(const bd_columns *columns);
bd_column_group bd_columns_group(const bd_columns *columns, int64_t index);

// The values of one group. Row i is the bytes [offsets[i], offsets[i + 1]) of `data`: UTF-8, or
// unsigned little-endian ids of bd_columns_id_bytes().
typedef struct bd_column_values {
    int64_t n_rows;
    const char *data;        // not necessarily aligned for ids; never NULL
    const int64_t *offsets;  // [n_rows + 1], never decreasing, the first is 0
    const uint8_t *is_null;  // [n_rows], 1 where the row has no value (its bytes, if any, mean
                             // nothing); NULL if every row has one
} bd_column_values;

// Reads group `index`; what comes out is borrowed until the next read or close. Every offset
// has been checked. Damage, text that is not UTF-8, a null among a list's items and a negative
// id are BD_ERR_FORMAT. Memory: the group's column, and up to three times that where Arrow
// hands it out in several chunks or as a dictionary. Messages name the file and the group.
bd_status bd_columns_read(bd_columns *columns, int64_t index, bd_column_values *values,
                          bd_error *err);

void bd_columns_close(bd_columns *columns);  // safe on NULL

#endif
