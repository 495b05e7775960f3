// arrow_io.h - row batches into and out of Arrow IPC files.
//
// schemas/shard-v1.md describes the columns. Their meaning is checked by shard.h and row.h;
// checked here is only what Arrow must guarantee before a pointer may be followed.
#ifndef BINDERY_COMMON_DATASET_ARROW_IO_H
#define BINDERY_COMMON_DATASET_ARROW_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/row.h"

typedef struct bd_arrow_writer bd_arrow_writer;

// Opens `path` for writing (it is replaced). `metadata` becomes the value of the schema's
// key "bindery". With `compressed` every buffer is compressed by zstd on its own, at the one
// level that Arrow has; the bytes are the same from run to run with either. Free with
// bd_arrow_writer_free(); without close the file is unreadable.
bd_status bd_arrow_writer_open(bd_arrow_writer **writer, const char *path,
                               const bd_dataset_config *config, const char *metadata,
                               bool compressed, bd_error *err);
// The same, but writes into memory, of which `expected_bytes` are allocated at first.
bd_status bd_arrow_writer_open_memory(bd_arrow_writer **writer, size_t expected_bytes,
                                      const bd_dataset_config *config, const char *metadata,
                                      bool compressed, bd_error *err);
// Whether a writer into memory that is closed has written exactly these bytes.
bool bd_arrow_writer_equals(const bd_arrow_writer *writer, const void *data, size_t size_bytes);
// Appends one record batch; `batch` is only read during the call.
bd_status bd_arrow_writer_write(bd_arrow_writer *writer, const bd_row_batch *batch,
                                bd_error *err);
// Writes the footer and closes the file. Not synced: see file.h.
bd_status bd_arrow_writer_close(bd_arrow_writer *writer, bd_error *err);
void bd_arrow_writer_free(bd_arrow_writer *writer);  // safe on NULL

typedef struct bd_arrow_reader bd_arrow_reader;

// Reads the schema of an IPC file that lies in memory. `data` is borrowed until
// bd_arrow_reader_free(); the batches of an uncompressed file will point into it.
bd_status bd_arrow_reader_open(bd_arrow_reader **reader, const void *data, size_t size_bytes,
                               bd_error *err);
// The value of "bindery", NULL if there is none. Borrowed from the reader.
const char *bd_arrow_reader_metadata(const bd_arrow_reader *reader);
// Checks the schema against `config`. Afterwards the batches may be loaded.
bd_status bd_arrow_reader_check_schema(bd_arrow_reader *reader, const bd_dataset_config *config,
                                       bd_error *err);
int64_t bd_arrow_reader_n_batches(const bd_arrow_reader *reader);  // 0 before that
// Checks the batch's structure: types, no nulls, lengths, offsets in order and inside their
// values. Afterwards it may be read, from any number of threads. A compressed batch is
// decompressed into memory that the reader owns. Loading one that is loaded does nothing.
bd_status bd_arrow_reader_load(bd_arrow_reader *reader, int64_t index,
                               const bd_dataset_config *config, bd_error *err);
// Frees what loading took. Does nothing if it is not loaded.
void bd_arrow_reader_drop(bd_arrow_reader *reader, int64_t index);
// The rows of a batch that is loaded, and whether its buffers were compressed in the file.
const bd_row_batch *bd_arrow_reader_batch(const bd_arrow_reader *reader, int64_t index);
bool bd_arrow_reader_is_compressed(const bd_arrow_reader *reader, int64_t index);
void bd_arrow_reader_free(bd_arrow_reader *reader);  // safe on NULL

#endif
