#include "packer/input/byte_stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"

enum {
    CHUNK_BYTES = 1 << 18,
    STEP_BYTES = 1 << 24,  // decompressed between two looks whether somebody wants to stop
    MAGIC_BYTES = 4,
    GZIP_WINDOW_BITS = 15 + 16,  // 16: gzip's header and trailer, nothing else
    ZSTD_WINDOW_LOG = 31,        // what `zstd --ultra --long=31` needs
    ZSTD_MAX_HEADER_BYTES = 18,
    ZSTD_BLOCK_HEADER_BYTES = 3,
    ZSTD_CHECKSUM_BYTES = 4,
};

const char *const bd_compression_words[] = {"none", "gzip", "zstd", NULL};

struct bd_byte_stream {
    int fd;
    char *name;          // owned; the path in quotes, or "standard input": for messages
    int64_t size_bytes;  // of the file when it was opened; unused for standard input
    bool is_standard_input;
    bd_compression compression;
    unsigned char *buffer;  // [CHUNK_BYTES], owned; bytes [begin, end) are still to be used
    size_t begin, end;
    int64_t n_taken;  // bytes that the file gave so far
    bool at_end;      // and it has no more
    bool inside;      // a member or frame has begun and not ended
    z_stream gzip;
    bool has_gzip;
    ZSTD_DCtx *zstd;   // owned
    size_t n_header;   // bytes of the frame's header that the decoder has yet to be given
    bd_error failure;  // what a read that failed said, and every later one says again
};

// ---- What the bytes are ---------------------------------------------------------------

static uint32_t little_endian(const unsigned char *bytes, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static bool is_gzip(const unsigned char *head, size_t n)
{
    return n >= 2 && head[0] == 0x1f && head[1] == 0x8b;
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

bd_compression bd_compression_of(const void *head, size_t n)
{
    return is_gzip(head, n) ? BD_GZIP : is_zstd(head, n) ? BD_ZSTD : BD_PLAIN;
}

static bd_status fail_at(const bd_byte_stream *stream, int64_t position, bd_status status,
                         const char *reason, bd_error *err)
{
    return bd_fail(err, status, "cannot read %s: near byte %lld: %s", stream->name,
                   (long long)position, reason);
}

static bd_status fail_here(const bd_byte_stream *stream, bd_status status, const char *reason,
                           bd_error *err)
{
    return fail_at(stream, bd_byte_stream_consumed(stream), status, reason, err);
}

static const char cut_short[] = "the file is cut short";

// ---- The window over the file ----------------------------------------------------------

static size_t n_available(const bd_byte_stream *stream)
{
    return stream->end - stream->begin;
}

// A pipe may be silent for long, and the signal that ends the wait may reach any other thread.
static bd_status wait_for_bytes(const bd_byte_stream *stream, bd_error *err)
{
    enum { PATIENCE_MS = 200 };
    struct pollfd input = {.fd = stream->fd, .events = POLLIN};
    while (stream->fd == STDIN_FILENO && poll(&input, 1, PATIENCE_MS) <= 0)
        BD_TRY(bd_interrupt_check(err));
    return BD_OK;
}

static bd_status take(bd_byte_stream *stream, void *buffer, size_t n, size_t *n_read,
                      bd_error *err)
{
    ssize_t got;
    BD_TRY(bd_interrupt_check(err));
    BD_TRY(wait_for_bytes(stream, err));
    do
        got = read(stream->fd, buffer, n);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return bd_fail_errno(err, "cannot read %s", stream->name);
    stream->at_end = got == 0;
    stream->n_taken += got;
    *n_read = (size_t)got;
    return BD_OK;
}

// Makes at least `n` bytes available; fewer only at the end of the file.
static bd_status fill(bd_byte_stream *stream, size_t n, bd_error *err)
{
    if (n_available(stream) >= n)
        return BD_OK;
    memmove(stream->buffer, stream->buffer + stream->begin, n_available(stream));
    stream->end = n_available(stream);
    stream->begin = 0;
    while (stream->end < n && !stream->at_end) {
        size_t got;
        BD_TRY(
            take(stream, stream->buffer + stream->end, CHUNK_BYTES - stream->end, &got, err));
        stream->end += got;
    }
    return BD_OK;
}

static bd_status read_plain(bd_byte_stream *stream, unsigned char *out, size_t n,
                            size_t *n_read, bd_error *err)
{
    while (*n_read < n) {
        const size_t left = n - *n_read;
        size_t got;
        if (n_available(stream) == 0 && left >= CHUNK_BYTES && !stream->at_end) {
            BD_TRY(take(stream, out + *n_read, left, &got, err));
        } else {
            BD_TRY(fill(stream, 1, err));
            got = n_available(stream) < left ? n_available(stream) : left;
            memcpy(out + *n_read, stream->buffer + stream->begin, got);
            stream->begin += got;
        }
        if (got == 0)
            break;
        *n_read += got;
    }
    return BD_OK;
}

// ---- gzip: members end to end -----------------------------------------------------------

static bd_status pass_zeros(bd_byte_stream *stream, bd_error *err)
{
    do {
        while (stream->begin < stream->end && stream->buffer[stream->begin] == 0)
            stream->begin++;
        if (stream->begin < stream->end)
            return fail_here(stream, BD_ERR_FORMAT,
                             "bytes after the zeros that follow the last gzip member", err);
        BD_TRY(fill(stream, 1, err));
    } while (n_available(stream) > 0);
    return BD_OK;
}

// Begins the next member unless there is none.
static bd_status begin_member(bd_byte_stream *stream, bd_error *err)
{
    BD_TRY(fill(stream, 2, err));
    const unsigned char *head = stream->buffer + stream->begin;
    if (n_available(stream) == 0)
        return BD_OK;
    if (head[0] == 0)
        return pass_zeros(stream, err);
    if (!is_gzip(head, n_available(stream)))
        return fail_here(stream, BD_ERR_FORMAT,
                         "bytes after a gzip member that are no further member", err);
    inflateReset(&stream->gzip);
    stream->inside = true;
    return BD_OK;
}

static bd_status inflate_some(bd_byte_stream *stream, unsigned char *out, size_t n,
                              size_t *n_read, bd_error *err)
{
    BD_TRY(fill(stream, 1, err));
    z_stream *gzip = &stream->gzip;
    const size_t left = n - *n_read;
    const uInt n_in = (uInt)n_available(stream);
    const uInt n_out = left < STEP_BYTES ? (uInt)left : STEP_BYTES;
    gzip->next_in = stream->buffer + stream->begin;
    gzip->avail_in = n_in;
    gzip->next_out = out + *n_read;
    gzip->avail_out = n_out;
    const int result = inflate(gzip, Z_NO_FLUSH);
    stream->begin += n_in - gzip->avail_in;
    *n_read += n_out - gzip->avail_out;
    stream->inside = result != Z_STREAM_END;
    if (result == Z_MEM_ERROR)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
    if (result == Z_BUF_ERROR)  // it has room and wants bytes, but there are none
        return fail_here(stream, BD_ERR_FORMAT, cut_short, err);
    if (result != Z_OK && result != Z_STREAM_END)
        return fail_here(stream, BD_ERR_FORMAT,
                         gzip->msg ? gzip->msg : "the gzip data is damaged", err);
    return BD_OK;
}

static bd_status read_gzip(bd_byte_stream *stream, unsigned char *out, size_t n, size_t *n_read,
                           bd_error *err)
{
    while (*n_read < n) {
        BD_TRY(bd_interrupt_check(err));
        if (!stream->inside)
            BD_TRY(begin_member(stream, err));
        if (!stream->inside)
            break;
        BD_TRY(inflate_some(stream, out, n, n_read, err));
    }
    return BD_OK;
}

// ---- zstd: frames end to end ------------------------------------------------------------
//
//   frame      magic, descriptor, [window], [dictionary], [content size], blocks, [checksum]
//   skippable  magic, size, that many bytes
//   block      3 bytes: bit 0 last, bits 1-2 kind, bits 3-23 size; then its content

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
    const uint64_t most = (uint64_t)1 << ZSTD_WINDOW_LOG;
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
    *reason = cut_short;
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

// What the first bytes of a frame say; `n` is less than ZSTD_MAX_HEADER_BYTES only at the end
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
    *reason = cut_short;
    if (n < start->n_header)
        return BD_ERR_FORMAT;
    if (!start->skippable)
        return parse_descriptor(head, n, start, reason);
    start->n_skipped = little_endian(head + MAGIC_BYTES, 4);
    return BD_OK;
}

// Begins the next frame unless there is none.
static bd_status begin_frame(bd_byte_stream *stream, bd_error *err)
{
    frame_start start;
    const char *reason;
    BD_TRY(fill(stream, ZSTD_MAX_HEADER_BYTES, err));
    if (n_available(stream) == 0)
        return BD_OK;
    const bd_status status =
        parse_frame_start(stream->buffer + stream->begin, n_available(stream), &start, &reason);
    if (status != BD_OK)
        return fail_here(stream, status, reason, err);
    // Given a frame whole, libzstd decodes it in one go if the caller's buffer is large enough,
    // and is then less strict with blocks that are too large. Given the header alone first, it
    // takes one path only, and whether a file is sound does not depend on who reads it.
    stream->n_header = start.n_header;
    stream->inside = true;
    return BD_OK;
}

static bd_status decode_some(bd_byte_stream *stream, unsigned char *out, size_t n,
                             size_t *n_read, bd_error *err)
{
    BD_TRY(fill(stream, 1, err));
    const size_t n_in = stream->n_header > 0 ? stream->n_header : n_available(stream);
    ZSTD_inBuffer in = {stream->buffer + stream->begin, n_in, 0};
    const size_t n_out = n - *n_read < STEP_BYTES ? n - *n_read : STEP_BYTES;
    ZSTD_outBuffer decoded = {out, *n_read + n_out, *n_read};
    const size_t result = ZSTD_decompressStream(stream->zstd, &decoded, &in);
    const bool moved = in.pos > 0 || decoded.pos > *n_read;
    stream->begin += in.pos;
    stream->n_header -= stream->n_header > 0 ? in.pos : 0;
    *n_read = decoded.pos;
    stream->inside = result != 0;
    if (ZSTD_isError(result) && ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the window of %s", stream->name);
    if (ZSTD_isError(result))
        return fail_here(stream, BD_ERR_FORMAT, ZSTD_getErrorName(result), err);
    if (stream->inside && !moved)
        return fail_here(stream, BD_ERR_FORMAT, cut_short, err);
    return BD_OK;
}

static bd_status read_zstd(bd_byte_stream *stream, unsigned char *out, size_t n, size_t *n_read,
                           bd_error *err)
{
    while (*n_read < n) {
        BD_TRY(bd_interrupt_check(err));
        if (!stream->inside)
            BD_TRY(begin_frame(stream, err));
        if (!stream->inside)
            break;
        BD_TRY(decode_some(stream, out, n, n_read, err));
    }
    return BD_OK;
}

// ---- The stream ---------------------------------------------------------------------------

static bd_status open_decoder(bd_byte_stream *stream, bd_error *err)
{
    bool fine = true;
    if (stream->compression == BD_GZIP) {
        stream->has_gzip = fine = inflateInit2(&stream->gzip, GZIP_WINDOW_BITS) == Z_OK;
    } else if (stream->compression == BD_ZSTD) {
        stream->zstd = ZSTD_createDCtx();
        fine = stream->zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                   stream->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG));
    }
    return fine ? BD_OK
                : bd_fail(err, BD_ERR_MEMORY, "no memory to decompress %s", stream->name);
}

bd_status bd_byte_stream_open(bd_byte_stream **stream, const char *path, bd_error *err)
{
    bd_status status = BD_OK;
    *stream = NULL;
    bd_byte_stream *s = calloc(1, sizeof *s);
    if (!s)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
    s->fd = -1;
    s->is_standard_input = strcmp(path, "-") == 0;
    s->buffer = malloc(CHUNK_BYTES);
    if (s->is_standard_input)
        s->name = strdup("standard input");
    else if (asprintf(&s->name, "'%s'", path) < 0)
        s->name = NULL;
    if (!s->buffer || !s->name) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    if (s->is_standard_input)
        s->fd = STDIN_FILENO;
    else
        status = bd_file_open(path, &s->fd, &s->size_bytes, err);
    if (status == BD_OK)
        status = fill(s, MAGIC_BYTES, err);
    if (status != BD_OK)
        goto done;
    s->compression = bd_compression_of(s->buffer, s->end);
    status = open_decoder(s, err);
    if (status != BD_OK)
        goto done;
    *stream = s;
    s = NULL;
done:
    bd_byte_stream_close(s);
    return status;
}

void bd_byte_stream_close(bd_byte_stream *stream)
{
    if (!stream)
        return;
    if (stream->has_gzip)
        inflateEnd(&stream->gzip);
    ZSTD_freeDCtx(stream->zstd);
    if (stream->fd >= 0 && !stream->is_standard_input)
        close(stream->fd);
    free(stream->buffer);
    free(stream->name);
    free(stream);
}

bd_compression bd_byte_stream_compression(const bd_byte_stream *stream)
{
    return stream->compression;
}

int64_t bd_byte_stream_consumed(const bd_byte_stream *stream)
{
    return stream->n_taken - (int64_t)n_available(stream);
}

bd_status bd_byte_stream_read(bd_byte_stream *stream, void *buffer, size_t n, size_t *n_read,
                              bd_error *err)
{
    bd_error *failure = &stream->failure;
    size_t done = 0;
    if (failure->status == BD_OK) {
        switch (stream->compression) {
        case BD_PLAIN:
            read_plain(stream, buffer, n, &done, failure);
            break;
        case BD_GZIP:
            read_gzip(stream, buffer, n, &done, failure);
            break;
        case BD_ZSTD:
            read_zstd(stream, buffer, n, &done, failure);
            break;
        }
    }
    const bool fine = failure->status == BD_OK;
    *n_read = fine ? done : 0;
    return fine ? BD_OK : bd_fail(err, failure->status, "%s", failure->message);
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
static bd_status look(skimmer *s, size_t n, const unsigned char **bytes, size_t *n_bytes,
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

static bd_status skip(skimmer *s, int64_t n, bd_error *err)
{
    if (n > s->stream->size_bytes - s->position)
        return fail_at(s->stream, s->stream->size_bytes, BD_ERR_FORMAT, cut_short, err);
    s->position += n;
    return BD_OK;
}

static bd_status skip_blocks(skimmer *s, bd_error *err)
{
    enum { KIND_RLE = 1, KIND_RESERVED = 3 };
    for (bool last = false; !last;) {
        const unsigned char *bytes;
        size_t n;
        BD_TRY(look(s, ZSTD_BLOCK_HEADER_BYTES, &bytes, &n, err));
        const uint32_t header = little_endian(bytes, n);
        const uint32_t kind = (header >> 1) & 3, size = header >> 3;
        last = header & 1;
        BD_TRY(skip(s, ZSTD_BLOCK_HEADER_BYTES, err));
        if (kind == KIND_RESERVED)
            return fail_at(s->stream, s->position, BD_ERR_FORMAT,
                           "a zstd block of a kind that does not exist", err);
        BD_TRY(skip(s, kind == KIND_RLE ? 1 : size, err));
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
        BD_TRY(look(&s, ZSTD_MAX_HEADER_BYTES, &head, &n, err));
        const bd_status status = parse_frame_start(head, n, &start, &reason);
        if (status != BD_OK)
            return fail_at(stream, s.position, status, reason, err);
        if (start.n_content == ZSTD_CONTENTSIZE_UNKNOWN) {
            *told = false;
            return BD_OK;
        }
        if (start.n_content > (uint64_t)(limit - *size_bytes)) {
            *size_bytes = -1;
            return BD_OK;
        }
        *size_bytes += (int64_t)start.n_content;
        BD_TRY(skip(&s, (int64_t)start.n_header + start.n_skipped, err));
        if (!start.skippable)
            BD_TRY(skip_blocks(&s, err));
        BD_TRY(skip(&s, start.has_checksum ? ZSTD_CHECKSUM_BYTES : 0, err));
    }
    return BD_OK;
}

static bd_status count_bytes(bd_byte_stream *stream, int64_t limit, int64_t *size_bytes,
                             bd_error *err)
{
    bd_status status = BD_OK;
    int64_t total = 0;
    size_t wanted, got;
    unsigned char *scratch = malloc(CHUNK_BYTES);
    if (!scratch)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to measure %s", stream->name);
    do {
        wanted = limit - total < CHUNK_BYTES ? (size_t)(limit - total) + 1 : CHUNK_BYTES;
        status = bd_byte_stream_read(stream, scratch, wanted, &got, err);
        total += (int64_t)got;
    } while (status == BD_OK && got == wanted && total <= limit);
    *size_bytes = total <= limit ? total : -1;
    free(scratch);
    return status;
}

bd_status bd_byte_stream_measure(const char *path, int64_t limit, int64_t *size_bytes,
                                 bd_error *err)
{
    assert(limit >= 0);
    if (strcmp(path, "-") == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot measure standard input");
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, path, err));
    bd_status status = BD_OK;
    bool told = false;
    if (stream->compression == BD_PLAIN) {
        *size_bytes = stream->size_bytes <= limit ? stream->size_bytes : -1;
        told = true;
    } else if (stream->compression == BD_ZSTD) {
        status = skim_frames(stream, path, limit, size_bytes, &told, err);
    }
    if (status == BD_OK && !told)
        status = count_bytes(stream, limit, size_bytes, err);
    bd_byte_stream_close(stream);
    return status;
}
