// parquet_footer.h - reads from the footer of a Parquet file how many rows and bytes a column
// has in each row group. Parquet GLib can do this, too, but never frees what it allocates for it.
//
//   … | FileMetaData in Thrift's compact protocol | its length, uint32 | "PAR1"
#ifndef BINDERY_PACKER_INPUT_PARQUET_FOOTER_H
#define BINDERY_PACKER_INPUT_PARQUET_FOOTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_parquet_chunk {
    int64_t n_rows;         // of the row group
    int64_t encoded_bytes;  // of the column in this row group, before compression
    int64_t stored_bytes;   // its size in the file
    bool is_encrypted;
} bd_parquet_chunk;

// Checks that Arrow can safely read the file at `data`. An encrypted footer is
// BD_ERR_UNSUPPORTED. A damaged footer is BD_ERR_FORMAT, and so are columns that are nested deeper
// than 200 levels, because Arrow's recursion would overflow the stack.
bd_status bd_parquet_check(const void *data, size_t size_bytes, bd_error *err);

// Reads the footer of the file at `data`. Only the leaves of nested columns count: every row group
// must have `n_columns` of them, and `column` is the index of one. *chunks has one entry for each
// of the *n_chunks row groups, and the caller frees it. A damaged footer and impossible numbers
// (negative, or more bytes than the file has) are BD_ERR_FORMAT; an encrypted column is
// BD_ERR_UNSUPPORTED.
bd_status bd_parquet_footer_read(const void *data, size_t size_bytes, int64_t n_columns,
                                 int64_t column, bd_parquet_chunk **chunks, size_t *n_chunks,
                                 bd_error *err);

#endif
