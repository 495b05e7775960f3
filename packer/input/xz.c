// xz: streams end to end, perhaps with zeros between and after them.
#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "packer/input/decompressor.h"

// The largest preset of xz, -9, takes 65 MiB; a file may ask for gigabytes.
enum { MAX_MEMORY_MIB = 512 };

static bool is_xz(const unsigned char *head, size_t n)
{
    static const unsigned char magic[] = {0xFD, '7', 'z', 'X', 'Z', 0};
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

static bd_status open_xz(bd_byte_stream *stream, bd_error *err)
{
    stream->decoder = calloc(1, sizeof(lzma_stream));
    return stream->decoder
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
}

static void close_xz(bd_byte_stream *stream)
{
    if (stream->decoder)
        lzma_end(stream->decoder);
    free(stream->decoder);
}

static bd_status begin_xz(bd_byte_stream *stream, bd_error *err)
{
    do {
        while (stream->begin < stream->end && stream->buffer[stream->begin] == 0)
            stream->begin++;
        BD_TRY(bd_byte_stream_fill(stream, BD_MAGIC_BYTES, err));
    } while (stream->begin < stream->end && stream->buffer[stream->begin] == 0);
    const size_t n = bd_byte_stream_available(stream);
    if (n == 0)
        return BD_OK;
    if (!is_xz(stream->buffer + stream->begin, n))
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT,
                                   "bytes after an xz stream that are no further stream", err);
    if (lzma_stream_decoder(stream->decoder, (uint64_t)MAX_MEMORY_MIB << 20, 0) != LZMA_OK)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    stream->inside = true;
    return BD_OK;
}

static bd_status decode_xz(bd_byte_stream *stream, unsigned char *out, size_t n, size_t *n_read,
                           bd_error *err)
{
    lzma_stream *xz = stream->decoder;
    BD_TRY(bd_byte_stream_fill(stream, 1, err));
    const size_t n_in = bd_byte_stream_available(stream);
    xz->next_in = stream->buffer + stream->begin;
    xz->avail_in = n_in;
    xz->next_out = out;
    xz->avail_out = n;
    const lzma_ret result = lzma_code(xz, n_in > 0 ? LZMA_RUN : LZMA_FINISH);
    stream->begin += n_in - xz->avail_in;
    *n_read = n - xz->avail_out;
    stream->inside = result != LZMA_STREAM_END;
    switch (result) {
    case LZMA_OK:
    case LZMA_STREAM_END:
        return BD_OK;
    case LZMA_MEM_ERROR:
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    case LZMA_MEMLIMIT_ERROR:
        return bd_byte_stream_fail(stream, BD_ERR_UNSUPPORTED,
                                   "xz data that needs more than 512 MiB of memory; decompress "
                                   "it first: unxz FILE",
                                   err);
    case LZMA_OPTIONS_ERROR:
        return bd_byte_stream_fail(stream, BD_ERR_UNSUPPORTED,
                                   "xz data with a filter that is not known; decompress it "
                                   "first: unxz FILE",
                                   err);
    case LZMA_BUF_ERROR:
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, BD_CUT_SHORT, err);
    default:
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, "the xz data is damaged", err);
    }
}

static const char *const xz_endings[] = {".xz", NULL};

const bd_decompressor bd_xz = {
    .name = "xz",
    .endings = xz_endings,
    .recognise = is_xz,
    .open = open_xz,
    .close = close_xz,
    .begin = begin_xz,
    .decode = decode_xz,
};
