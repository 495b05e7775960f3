// parquet_footer.h - what the footer of a Parquet file says of one column: rows and bytes in
// each row group. Parquet GLib tells it, too, but never frees what it allocates for the answer.
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
    int64_t encoded_bytes;  // of the column in it, before compression
    int64_t stored_bytes;   // as it is in the file
    bool is_encrypted;
} bd_parquet_chunk;

// Whether Arrow may be given the file that lies at `data`. A footer that is encrypted is
// BD_ERR_UNSUPPORTED; one that is damaged, or whose columns lie deeper in each other than 200
// levels, for which Arrow's recursion would take the stack, is BD_ERR_FORMAT.
bd_status bd_parquet_check(const void *data, size_t size_bytes, bd_error *err);

// Reads the footer of the file that lies at `data`. `column` counts leaves, and every row group
// must have `n_columns` of them. *chunks is malloc'd, one for each of the *n_chunks row groups,
// and the caller's to free. A footer that is not one, or numbers that cannot be (negative, more
// bytes than the file has), are BD_ERR_FORMAT; a column that is encrypted is
// BD_ERR_UNSUPPORTED.
bd_status bd_parquet_footer_read(const void *data, size_t size_bytes, int64_t n_columns,
                                 int64_t column, bd_parquet_chunk **chunks, size_t *n_chunks,
                                 bd_error *err);

#endif
