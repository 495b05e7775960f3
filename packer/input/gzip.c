// gzip: members end to end.
#include <stdlib.h>
#include <zlib.h>

#include "packer/input/decompressor.h"

enum { WINDOW_BITS = 15 + 16 };  // 16: gzip's header and trailer, nothing else

static bool is_gzip(const unsigned char *head, size_t n)
{
    return n >= 2 && head[0] == 0x1f && head[1] == 0x8b;
}

static bd_status open_gzip(bd_byte_stream *stream, bd_error *err)
{
    z_stream *gzip = calloc(1, sizeof *gzip);
    if (gzip && inflateInit2(gzip, WINDOW_BITS) == Z_OK) {
        stream->decoder = gzip;
        return BD_OK;
    }
    free(gzip);
    return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
}

static void close_gzip(bd_byte_stream *stream)
{
    if (stream->decoder)
        inflateEnd(stream->decoder);
    free(stream->decoder);
}

static bd_status pass_zeros(bd_byte_stream *stream, bd_error *err)
{
    do {
        while (stream->begin < stream->end && stream->buffer[stream->begin] == 0)
            stream->begin++;
        if (stream->begin < stream->end)
            return bd_byte_stream_fail(stream, BD_ERR_FORMAT,
                                       "bytes after the zeros that follow the last gzip member",
                                       err);
        BD_TRY(bd_byte_stream_fill(stream, 1, err));
    } while (bd_byte_stream_available(stream) > 0);
    return BD_OK;
}

static bd_status begin_member(bd_byte_stream *stream, bd_error *err)
{
    BD_TRY(bd_byte_stream_fill(stream, 2, err));
    const unsigned char *head = stream->buffer + stream->begin;
    if (bd_byte_stream_available(stream) == 0)
        return BD_OK;
    if (head[0] == 0)
        return pass_zeros(stream, err);
    if (!is_gzip(head, bd_byte_stream_available(stream)))
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT,
                                   "bytes after a gzip member that are no further member", err);
    inflateReset(stream->decoder);
    stream->inside = true;
    return BD_OK;
}

static bd_status decode_gzip(bd_byte_stream *stream, unsigned char *out, size_t n,
                             size_t *n_read, bd_error *err)
{
    BD_TRY(bd_byte_stream_fill(stream, 1, err));
    z_stream *gzip = stream->decoder;
    const uInt n_in = (uInt)bd_byte_stream_available(stream);
    gzip->next_in = stream->buffer + stream->begin;
    gzip->avail_in = n_in;
    gzip->next_out = out;
    gzip->avail_out = (uInt)n;
    const int result = inflate(gzip, Z_NO_FLUSH);
    stream->begin += n_in - gzip->avail_in;
    *n_read = n - gzip->avail_out;
    stream->inside = result != Z_STREAM_END;
    if (result == Z_MEM_ERROR)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    if (result == Z_BUF_ERROR)  // it has room and wants bytes, but there are none
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, BD_CUT_SHORT, err);
    if (result != Z_OK && result != Z_STREAM_END)
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT,
                                   gzip->msg ? gzip->msg : "the gzip data is damaged", err);
    return BD_OK;
}

static const char *const gzip_endings[] = {".gz", ".gzip", NULL};

const bd_decompressor bd_gzip = {
    .name = "gzip",
    .endings = gzip_endings,
    .recognise = is_gzip,
    .open = open_gzip,
    .close = close_gzip,
    .begin = begin_member,
    .decode = decode_gzip,
};
