// byte_stream.h - the bytes of a file or of standard input, decompressed, from front to back.
//
// Compression is told by content, never by name: gzip (1f 8b, members end to end) and zstd
// (28 b5 2f fd, frames end to end, skippable frames before, among and after them, windows up
// to 2 GiB). Anything else is read as it is, and so is a file that is shorter than these marks.
#ifndef BINDERY_PACKER_INPUT_BYTE_STREAM_H
#define BINDERY_PACKER_INPUT_BYTE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// A compression (decompressor.h); NULL is none.
typedef struct bd_decompressor bd_decompressor;

// How the first `n` bytes of a file say that it is compressed. BD_MAGIC_BYTES are enough.
const bd_decompressor *bd_decompressor_of(const void *head, size_t n);
enum { BD_MAGIC_BYTES = 10 };

// Its name in plans and manifests: "none", "gzip", …
const char *bd_compression_name(const bd_decompressor *decompressor);

// The length of a file's name without an ending that tells of compression.
size_t bd_uncompressed_length(const char *name);

typedef struct bd_byte_stream bd_byte_stream;

// Opens the regular file at `path`, or standard input, of any kind, for "-". Free with
// bd_byte_stream_close(). On failure *stream is NULL.
bd_status bd_byte_stream_open(bd_byte_stream **stream, const char *path, bd_error *err);

// The compression that its first bytes tell; NULL: none.
const bd_decompressor *bd_byte_stream_compression(const bd_byte_stream *stream);

// Reads up to `n` bytes into `buffer`; *n_read is less than `n` only at the end of the stream,
// and only then is the whole file known to be sound: a reader goes on until it is.
// A file that is cut short, damaged (checksums are checked), or followed by bytes that are no
// further frame is BD_ERR_FORMAT; a frame that needs a dictionary or a larger window is
// BD_ERR_UNSUPPORTED. The message names the path and the byte of the file (not of the stream)
// near which it happened, and every later read fails with it, too. Zeros after the last gzip
// member are accepted, as gzip itself does. How `n` is chosen changes nothing.
bd_status bd_byte_stream_read(bd_byte_stream *stream, void *buffer, size_t n, size_t *n_read,
                              bd_error *err);

// Bytes of the file (compressed, if it is) that were taken in so far: for progress.
int64_t bd_byte_stream_consumed(const bd_byte_stream *stream);

void bd_byte_stream_close(bd_byte_stream *stream);  // safe on NULL; standard input stays open

// How many bytes the file at `path` has when decompressed, or -1 if those are more than
// `limit`, which is not negative. A zstd file whose every frame tells its size (decompressing
// checks it later) is only skimmed; otherwise at most `limit` + 1 bytes are decompressed.
// Damage that is met is BD_ERR_FORMAT; a file that can be read can be measured. Standard input,
// which could not be read afterwards, is BD_ERR_ARGUMENT.
bd_status bd_byte_stream_measure(const char *path, int64_t limit, int64_t *size_bytes,
                                 bd_error *err);

#endif
