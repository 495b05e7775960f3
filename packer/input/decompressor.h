// decompressor.h - what a compression has to be able to do. A new one is one file, one line of
// BD_FOR_EACH_DECOMPRESSOR and, if it needs a library, that library's line in CMake.
//
// A compressed file is a sequence of parts: gzip's members, zstd's frames, bzip2's streams.
// byte_stream.c begins a part, decodes it step by step until it has ended, and goes on with the
// next until there is none.
#ifndef BINDERY_PACKER_INPUT_DECOMPRESSOR_H
#define BINDERY_PACKER_INPUT_DECOMPRESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/byte_stream.h"

struct bd_decompressor {
    const char *name;                                        // in plans and manifests
    const char *const *endings;                              // of file names, ended by NULL
    bool (*recognise)(const unsigned char *head, size_t n);  // BD_MAGIC_BYTES are enough

    // Makes stream->decoder; what was made is released by close(), also after a failure.
    bd_status (*open)(bd_byte_stream *stream, bd_error *err);
    void (*close)(bd_byte_stream *stream);

    // Sets stream->inside and begins the next part, unless the file is at its end.
    bd_status (*begin)(bd_byte_stream *stream, bd_error *err);

    // Decodes up to `n` > 0 bytes of the part, *n_read being how many came out, and clears
    // stream->inside at the part's end.
    bd_status (*decode)(bd_byte_stream *stream, unsigned char *out, size_t n, size_t *n_read,
                        bd_error *err);

    // How many bytes the whole file has when decompressed, -1 if more than `limit`, told
    // without decompressing it. *told is false if the file does not say. NULL: it never does.
    bd_status (*measure)(const bd_byte_stream *stream, const char *path, int64_t limit,
                         int64_t *size_bytes, bool *told, bd_error *err);
};

#define BD_FOR_EACH_DECOMPRESSOR(X) \
    X(gzip)                         \
    X(zstd)                         \
    X(bzip2)                        \
    X(xz)

#define BD_DECLARE_DECOMPRESSOR(name) extern const bd_decompressor bd_##name;
BD_FOR_EACH_DECOMPRESSOR(BD_DECLARE_DECOMPRESSOR)
#undef BD_DECLARE_DECOMPRESSOR

// ---- For the decompressors alone -------------------------------------------------------------

struct bd_byte_stream {
    int fd;
    char *name;          // owned; the path in quotes, or "standard input": for messages
    int64_t size_bytes;  // of the file when it was opened; unused for standard input
    bool is_standard_input;
    const bd_decompressor *decompressor;  // NULL: the file is read as it is
    void *decoder;                        // owned by the decompressor
    unsigned char *buffer;                // owned; bytes [begin, end) are still to be used
    size_t begin, end;
    int64_t n_taken;   // bytes that the file gave so far
    bool at_end;       // and it has no more
    bool inside;       // a part has begun and not ended
    bd_error failure;  // what a read that failed said, and every later one says again
};

// Makes at least `n` bytes available in the buffer; fewer only at the end of the file.
bd_status bd_byte_stream_fill(bd_byte_stream *stream, size_t n, bd_error *err);

static inline size_t bd_byte_stream_available(const bd_byte_stream *stream)
{
    return stream->end - stream->begin;
}

// "cannot read 'a.gz': near byte 12: <reason>", at the stream's place or another.
bd_status bd_byte_stream_fail(const bd_byte_stream *stream, bd_status status,
                              const char *reason, bd_error *err);
bd_status bd_byte_stream_fail_at(const bd_byte_stream *stream, int64_t position,
                                 bd_status status, const char *reason, bd_error *err);

#define BD_CUT_SHORT "the file is cut short"

#endif
