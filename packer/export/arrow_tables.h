// arrow_tables.h - tables whose columns are lists of integers, into files that other programs
// read: an Arrow IPC stream or Parquet.
#ifndef BINDERY_PACKER_EXPORT_ARROW_TABLES_H
#define BINDERY_PACKER_EXPORT_ARROW_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"

#define BD_TABLE_FORMATS(X)                                                     \
    X(BD_TABLE_STREAM, "stream")   /* uncompressed, so that it can be mapped */ \
    X(BD_TABLE_PARQUET, "parquet") /* compressed by zstd */
BD_ENUM(bd_table_format, BD_TABLE_FORMATS);

typedef struct bd_table_column {
    const char *name;
    int item_bytes;  // 4 or 8: a list of int32 or of int64
} bd_table_column;

// The values of one column in a batch: row r is items[offsets[r]] … items[offsets[r + 1] - 1].
typedef struct bd_table_lists {
    const int32_t *offsets;  // [n_rows + 1], from 0
    const void *items;
} bd_table_lists;

typedef struct bd_table_writer bd_table_writer;

// Opens `path` for writing (it is replaced). `columns` is only read during the call. The bytes
// depend on the columns, the batches and the version of Arrow alone. Free with
// bd_table_writer_free(); without close the file is unreadable.
bd_status bd_table_writer_open(bd_table_writer **writer, const char *path,
                               bd_table_format format, const bd_table_column *columns,
                               size_t n_columns, bd_error *err);
// Appends `n_rows` > 0 rows as one record batch or row group. `lists` has an entry for each
// column and is only read during the call.
bd_status bd_table_writer_write(bd_table_writer *writer, const bd_table_lists *lists,
                                int64_t n_rows, bd_error *err);
// Writes what belongs at the end and closes the file. Not synced: see file.h.
bd_status bd_table_writer_close(bd_table_writer *writer, bd_error *err);
void bd_table_writer_free(bd_table_writer *writer);  // safe on NULL

#endif
