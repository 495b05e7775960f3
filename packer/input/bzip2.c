// bzip2: streams end to end.
#include <bzlib.h>
#include <stdlib.h>
#include <string.h>

#include "packer/input/decompressor.h"

// "BZh", the size of the blocks, and the mark of the first block or, of nothing at all, of the
// end: text may begin with the letters alone.
static bool is_bzip2(const unsigned char *head, size_t n)
{
    return n >= 10 && memcmp(head, "BZh", 3) == 0 && head[3] >= '1' && head[3] <= '9' &&
           (memcmp(head + 4, "1AY&SY", 6) == 0 ||
            memcmp(head + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

static bd_status open_bzip2(bd_byte_stream *stream, bd_error *err)
{
    stream->decoder = calloc(1, sizeof(bz_stream));
    return stream->decoder
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
}

static void close_bzip2(bd_byte_stream *stream)
{
    if (stream->decoder)
        BZ2_bzDecompressEnd(stream->decoder);  // which does nothing between streams
    free(stream->decoder);
}

static bd_status begin_bzip2(bd_byte_stream *stream, bd_error *err)
{
    bz_stream *bzip2 = stream->decoder;
    BD_TRY(bd_byte_stream_fill(stream, 3, err));
    const size_t n = bd_byte_stream_available(stream);
    if (n == 0)
        return BD_OK;
    if (n < 3 || memcmp(stream->buffer + stream->begin, "BZh", 3) != 0)
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT,
                                   "bytes after a bzip2 stream that are no further stream",
                                   err);
    BZ2_bzDecompressEnd(bzip2);
    *bzip2 = (bz_stream){0};
    if (BZ2_bzDecompressInit(bzip2, 0, 0) != BZ_OK)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    stream->inside = true;
    return BD_OK;
}

static bd_status decode_bzip2(bd_byte_stream *stream, unsigned char *out, size_t n,
                              size_t *n_read, bd_error *err)
{
    bz_stream *bzip2 = stream->decoder;
    BD_TRY(bd_byte_stream_fill(stream, 1, err));
    const unsigned n_in = (unsigned)bd_byte_stream_available(stream);
    bzip2->next_in = (char *)stream->buffer + stream->begin;
    bzip2->avail_in = n_in;
    bzip2->next_out = (char *)out;
    bzip2->avail_out = (unsigned)n;
    const int result = BZ2_bzDecompress(bzip2);
    stream->begin += n_in - bzip2->avail_in;
    *n_read = n - bzip2->avail_out;
    stream->inside = result != BZ_STREAM_END;
    if (result == BZ_MEM_ERROR)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    if (result != BZ_OK && result != BZ_STREAM_END)
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, "the bzip2 data is damaged", err);
    if (stream->inside && n_in == 0 && *n_read == 0)
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, BD_CUT_SHORT, err);
    return BD_OK;
}

static const char *const bzip2_endings[] = {".bz2", NULL};

const bd_decompressor bd_bzip2 = {
    .name = "bzip2",
    .endings = bzip2_endings,
    .recognise = is_bzip2,
    .open = open_bzip2,
    .close = close_bzip2,
    .begin = begin_bzip2,
    .decode = decode_bzip2,
};
