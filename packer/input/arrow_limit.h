// arrow_limit.h - Arrow's and Parquet's readers, held to a number of bytes.
//
// A few kilobytes of Parquet can stand for gigabytes: a dictionary of one long value, runs of
// equal ids, compression. Arrow GLib's own readers allocate whatever a file asks for; these ask
// the limit first, and beyond it they fail as they do when memory runs out.
//
// For common/arrow_*.c alone, as arrow_glib.h is.
#ifndef BINDERY_PACKER_INPUT_ARROW_LIMIT_H
#define BINDERY_PACKER_INPUT_ARROW_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/dataset/arrow_glib.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bd_arrow_limit bd_arrow_limit;

// Allows nothing to begin with. NULL: no memory. It must outlive every reader that was given
// it, and every array that came from one.
bd_arrow_limit *bd_arrow_limit_new(void);
void bd_arrow_limit_free(bd_arrow_limit *limit);  // safe on NULL

// From now on readers may hold `max_bytes` together; what they hold already counts.
void bd_arrow_limit_set(bd_arrow_limit *limit, int64_t max_bytes);
// Whether more was asked for since the last bd_arrow_limit_set().
bool bd_arrow_limit_was_hit(const bd_arrow_limit *limit);

// NULL with an error. The caller owns the reader; `stream` must outlive it.
GParquetArrowFileReader *bd_limited_parquet_reader(GArrowSeekableInputStream *stream,
                                                   bd_arrow_limit *limit, GError **gerror);
// The same for an Arrow file. Its batches have one column alone, unless it is -1.
GArrowRecordBatchFileReader *bd_limited_file_reader(GArrowSeekableInputStream *stream,
                                                    int column, bd_arrow_limit *limit,
                                                    GError **gerror);
// Makes whatever is read with `options` count.
void bd_read_options_limit(GArrowReadOptions *options, bd_arrow_limit *limit);

#ifdef __cplusplus
}
#endif

#endif
