// zstd: frames end to end.
//
//   frame      magic, descriptor, [window], [dictionary], [content size], blocks, [checksum]
//   skippable  magic, size, that many bytes
//   block      3 bytes: bit 0 last, bits 1-2 kind, bits 3-23 size; then its content
#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "packer/input/decompressor.h"

enum {
    MAGIC_BYTES = 4,
    MAX_WINDOW_LOG = 31,  // what `zstd --ultra --long=31` needs
    MAX_HEADER_BYTES = 18,
    BLOCK_HEADER_BYTES = 3,
    CHECKSUM_BYTES = 4,
};

typedef struct zstd_decoder {
    ZSTD_DCtx *context;  // owned
    size_t n_header;     // bytes of the frame's header that the context has yet to be given
} zstd_decoder;

static uint32_t little_endian(const unsigned char *bytes, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static bool is_skippable(const unsigned char *head, size_t n)
{
    return n >= MAGIC_BYTES && (little_endian(head, MAGIC_BYTES) & ZSTD_MAGIC_SKIPPABLE_MASK) ==
                                   ZSTD_MAGIC_SKIPPABLE_START;
}

static bool is_zstd(const unsigned char *head, size_t n)
{
    return is_skippable(head, n) ||
           (n >= MAGIC_BYTES && little_endian(head, MAGIC_BYTES) == ZSTD_MAGICNUMBER);
}

static bd_status open_zstd(bd_byte_stream *stream, bd_error *err)
{
    zstd_decoder *zstd = stream->decoder = calloc(1, sizeof *zstd);
    if (zstd)
        zstd->context = ZSTD_createDCtx();
    return zstd && zstd->context &&
                   !ZSTD_isError(ZSTD_DCtx_setParameter(zstd->context, ZSTD_d_windowLogMax,
                                                        MAX_WINDOW_LOG))
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
}

static void close_zstd(bd_byte_stream *stream)
{
    zstd_decoder *zstd = stream->decoder;
    if (zstd)
        ZSTD_freeDCtx(zstd->context);
    free(zstd);
}

typedef struct frame_start {
    size_t n_header;
    bool skippable;
    uint32_t n_skipped;  // bytes after the header of a skippable frame
    bool has_checksum;
    unsigned long long n_content;  // or ZSTD_CONTENTSIZE_UNKNOWN
} frame_start;

static bool window_too_large(const frame_start *start, bool single_segment,
                             unsigned char window)
{
    const uint64_t most = (uint64_t)1 << MAX_WINDOW_LOG;
    const uint64_t power = (uint64_t)1 << (10 + (window >> 3));
    if (single_segment)  // then the content is its own window
        return start->n_content > most && start->n_content != ZSTD_CONTENTSIZE_ERROR;
    return power + power / 8 * (window & 7) > most;
}

// The part of parse_frame_start() after the mark of a frame that has content.
static bd_status parse_descriptor(const unsigned char *head, size_t n, frame_start *start,
                                  const char **reason)
{
    static const unsigned char dictionary_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
    const unsigned char descriptor = head[MAGIC_BYTES];
    const bool single_segment = descriptor & 0x20;
    const size_t n_window = !single_segment;
    const size_t n_dictionary = dictionary_bytes[descriptor & 3];
    size_t n_size = size_bytes[descriptor >> 6];
    if (n_size == 0)
        n_size = single_segment;
    start->has_checksum = descriptor & 4;
    start->n_header = MAGIC_BYTES + 1 + n_window + n_dictionary + n_size;
    *reason = BD_CUT_SHORT;
    if (n < start->n_header)
        return BD_ERR_FORMAT;
    start->n_content = ZSTD_getFrameContentSize(head, n);
    *reason = "a zstd frame that needs a window of more than 2 GiB";
    if (window_too_large(start, single_segment, head[MAGIC_BYTES + 1]))
        return BD_ERR_UNSUPPORTED;
    *reason = "a zstd frame that needs a dictionary";
    if (little_endian(head + MAGIC_BYTES + 1 + n_window, n_dictionary) != 0)
        return BD_ERR_UNSUPPORTED;
    *reason = "the header of a zstd frame is damaged";
    return start->n_content == ZSTD_CONTENTSIZE_ERROR ? BD_ERR_FORMAT : BD_OK;
}

// Parses the first bytes of a frame; `n` is less than MAX_HEADER_BYTES only at the end
// of the file. What is refused here, with *reason, the decoder would refuse as well, but for
// the frames of zstd's first versions, which only some builds of it know.
static bd_status parse_frame_start(const unsigned char *head, size_t n, frame_start *start,
                                   const char **reason)
{
    *start = (frame_start){.skippable = is_skippable(head, n)};
    *reason = "bytes after a zstd frame that are no further frame";
    if (!is_zstd(head, n))
        return BD_ERR_FORMAT;
    start->n_header = start->skippable ? MAGIC_BYTES + 4 : MAGIC_BYTES + 1;
    *reason = BD_CUT_SHORT;
    if (n < start->n_header)
        return BD_ERR_FORMAT;
    if (!start->skippable)
        return parse_descriptor(head, n, start, reason);
    start->n_skipped = little_endian(head + MAGIC_BYTES, 4);
    return BD_OK;
}

static bd_status begin_frame(bd_byte_stream *stream, bd_error *err)
{
    frame_start start;
    const char *reason;
    BD_TRY(bd_byte_stream_fill(stream, MAX_HEADER_BYTES, err));
    if (bd_byte_stream_available(stream) == 0)
        return BD_OK;
    const bd_status status = parse_frame_start(
        stream->buffer + stream->begin, bd_byte_stream_available(stream), &start, &reason);
    if (status != BD_OK)
        return bd_byte_stream_fail(stream, status, reason, err);
    // Given a frame whole, libzstd decodes it in one go if the caller's buffer is large enough,
    // and is then less strict with blocks that are too large. Given the header alone first, it
    // takes one path only, and whether a file is sound does not depend on who reads it.
    ((zstd_decoder *)stream->decoder)->n_header = start.n_header;
    stream->inside = true;
    return BD_OK;
}

static bd_status decode_zstd(bd_byte_stream *stream, unsigned char *out, size_t n,
                             size_t *n_read, bd_error *err)
{
    BD_TRY(bd_byte_stream_fill(stream, 1, err));
    zstd_decoder *zstd = stream->decoder;
    const size_t n_in = zstd->n_header > 0 ? zstd->n_header : bd_byte_stream_available(stream);
    ZSTD_inBuffer in = {stream->buffer + stream->begin, n_in, 0};
    ZSTD_outBuffer decoded = {out, n, 0};
    const size_t result = ZSTD_decompressStream(zstd->context, &decoded, &in);
    const bool moved = in.pos > 0 || decoded.pos > 0;
    stream->begin += in.pos;
    zstd->n_header -= zstd->n_header > 0 ? in.pos : 0;
    *n_read = decoded.pos;
    stream->inside = result != 0;
    if (ZSTD_isError(result) && ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the window of %s", stream->name);
    if (ZSTD_isError(result))
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, ZSTD_getErrorName(result), err);
    if (stream->inside && !moved)
        return bd_byte_stream_fail(stream, BD_ERR_FORMAT, BD_CUT_SHORT, err);
    return BD_OK;
}

// ---- Measuring ------------------------------------------------------------------------------

// A place in the file, and the bytes around it that were looked at last. Read past the
// stream's own place, which stays at the front.
typedef struct skimmer {
    const bd_byte_stream *stream;
    const char *path;
    int64_t position;            // at most the file's size
    unsigned char window[4096];  // few, since most are skipped; many, should blocks be tiny
    int64_t window_begin;
    size_t n_window;
} skimmer;

// Up to `n` bytes from the place on, fewer only at the end of the file.
static bd_status skim_window(skimmer *s, size_t n, const unsigned char **bytes, size_t *n_bytes,
                             bd_error *err)
{
    const int64_t left = s->stream->size_bytes - s->position;
    if (left < (int64_t)n)
        n = (size_t)left;
    if (s->position + (int64_t)n > s->window_begin + (int64_t)s->n_window) {
        s->n_window = left < (int64_t)sizeof s->window ? (size_t)left : sizeof s->window;
        s->window_begin = s->position;
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(
            bd_file_read_at(s->stream->fd, s->path, s->window, s->n_window, s->position, err));
    }
    *bytes = s->window + (s->position - s->window_begin);
    *n_bytes = n;
    return BD_OK;
}

static bd_status skim_over(skimmer *s, int64_t n, bd_error *err)
{
    if (n > s->stream->size_bytes - s->position)
        return bd_byte_stream_fail_at(s->stream, s->stream->size_bytes, BD_ERR_FORMAT,
                                      BD_CUT_SHORT, err);
    s->position += n;
    return BD_OK;
}

static bd_status skim_blocks(skimmer *s, bd_error *err)
{
    enum { KIND_RLE = 1, KIND_RESERVED = 3 };
    for (bool last = false; !last;) {
        const unsigned char *bytes;
        size_t n;
        BD_TRY(skim_window(s, BLOCK_HEADER_BYTES, &bytes, &n, err));
        const uint32_t header = little_endian(bytes, n);
        const uint32_t kind = (header >> 1) & 3, size = header >> 3;
        last = header & 1;
        BD_TRY(skim_over(s, BLOCK_HEADER_BYTES, err));
        if (kind == KIND_RESERVED)
            return bd_byte_stream_fail_at(s->stream, s->position, BD_ERR_FORMAT,
                                          "a zstd block of a kind that does not exist", err);
        BD_TRY(skim_over(s, kind == KIND_RLE ? 1 : size, err));
    }
    return BD_OK;
}

// Adds up what the frames say of themselves. *told is false if one of them does not.
static bd_status skim_frames(const bd_byte_stream *stream, const char *path, int64_t limit,
                             int64_t *size_bytes, bool *told, bd_error *err)
{
    skimmer s = {.stream = stream, .path = path};
    *size_bytes = 0;
    *told = true;
    while (s.position < stream->size_bytes) {
        const unsigned char *head;
        size_t n;
        frame_start start;
        const char *reason;
        BD_TRY(skim_window(&s, MAX_HEADER_BYTES, &head, &n, err));
        const bd_status status = parse_frame_start(head, n, &start, &reason);
        if (status != BD_OK)
            return bd_byte_stream_fail_at(stream, s.position, status, reason, err);
        if (start.n_content == ZSTD_CONTENTSIZE_UNKNOWN) {
            *told = false;
            return BD_OK;
        }
        if (start.n_content > (uint64_t)(limit - *size_bytes)) {
            *size_bytes = -1;
            return BD_OK;
        }
        *size_bytes += (int64_t)start.n_content;
        BD_TRY(skim_over(&s, (int64_t)start.n_header + start.n_skipped, err));
        if (!start.skippable)
            BD_TRY(skim_blocks(&s, err));
        BD_TRY(skim_over(&s, start.has_checksum ? CHECKSUM_BYTES : 0, err));
    }
    return BD_OK;
}

static const char *const zstd_endings[] = {".zst", ".zstd", NULL};

const bd_decompressor bd_zstd = {
    .name = "zstd",
    .endings = zstd_endings,
    .recognise = is_zstd,
    .open = open_zstd,
    .close = close_zstd,
    .begin = begin_frame,
    .decode = decode_zstd,
    .measure = skim_frames,
};
