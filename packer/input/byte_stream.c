#include "packer/input/byte_stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "packer/input/decompressor.h"

enum {
    CHUNK_BYTES = 1 << 18,
    STEP_BYTES = 1 << 24,  // decompressed between two looks whether somebody wants to stop
};

#define ADDRESS(name) &bd_##name,
static const bd_decompressor *const decompressors[] = {BD_FOR_EACH_DECOMPRESSOR(ADDRESS) NULL};
#undef ADDRESS

const bd_decompressor *bd_decompressor_of(const void *head, size_t n)
{
    size_t i = 0;
    while (decompressors[i] && !decompressors[i]->recognise(head, n))
        i++;
    return decompressors[i];
}

const char *bd_compression_name(const bd_decompressor *decompressor)
{
    return decompressor ? decompressor->name : "none";
}

size_t bd_uncompressed_length(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; decompressors[i]; i++)
        for (const char *const *ending = decompressors[i]->endings; *ending; ending++)
            if (n > strlen(*ending) && strcasecmp(name + n - strlen(*ending), *ending) == 0)
                return n - strlen(*ending);
    return n;
}

bd_status bd_byte_stream_fail_at(const bd_byte_stream *stream, int64_t position,
                                 bd_status status, const char *reason, bd_error *err)
{
    return bd_fail(err, status, "cannot read %s: near byte %lld: %s", stream->name,
                   (long long)position, reason);
}

bd_status bd_byte_stream_fail(const bd_byte_stream *stream, bd_status status,
                              const char *reason, bd_error *err)
{
    return bd_byte_stream_fail_at(stream, bd_byte_stream_consumed(stream), status, reason, err);
}

// ---- The window over the file ----------------------------------------------------------

// A pipe may be silent for long, and the signal that ends the wait may reach any other thread.
static bd_status wait_for_bytes(const bd_byte_stream *stream, bd_error *err)
{
    enum { PATIENCE_MS = 200 };
    struct pollfd input = {.fd = stream->fd, .events = POLLIN};
    while (stream->fd == STDIN_FILENO && poll(&input, 1, PATIENCE_MS) <= 0)
        BD_TRY(bd_interrupt_check(err));
    return BD_OK;
}

static bd_status read_file_bytes(bd_byte_stream *stream, void *buffer, size_t n, size_t *n_read,
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

bd_status bd_byte_stream_fill(bd_byte_stream *stream, size_t n, bd_error *err)
{
    if (bd_byte_stream_available(stream) >= n)
        return BD_OK;
    memmove(stream->buffer, stream->buffer + stream->begin, bd_byte_stream_available(stream));
    stream->end = bd_byte_stream_available(stream);
    stream->begin = 0;
    while (stream->end < n && !stream->at_end) {
        size_t got;
        BD_TRY(read_file_bytes(stream, stream->buffer + stream->end, CHUNK_BYTES - stream->end,
                               &got, err));
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
        if (bd_byte_stream_available(stream) == 0 && left >= CHUNK_BYTES && !stream->at_end) {
            BD_TRY(read_file_bytes(stream, out + *n_read, left, &got, err));
        } else {
            BD_TRY(bd_byte_stream_fill(stream, 1, err));
            got = bd_byte_stream_available(stream) < left ? bd_byte_stream_available(stream)
                                                          : left;
            memcpy(out + *n_read, stream->buffer + stream->begin, got);
            stream->begin += got;
        }
        if (got == 0)
            break;
        *n_read += got;
    }
    return BD_OK;
}

// ---- The stream ---------------------------------------------------------------------------

static bd_status read_decompressed(bd_byte_stream *stream, unsigned char *out, size_t n,
                                   size_t *n_read, bd_error *err)
{
    const bd_decompressor *decompressor = stream->decompressor;
    while (*n_read < n) {
        const size_t left = n - *n_read;
        size_t got = 0;
        BD_TRY(bd_interrupt_check(err));
        if (!stream->inside)
            BD_TRY(decompressor->begin(stream, err));
        if (!stream->inside)
            break;
        BD_TRY(decompressor->decode(stream, out + *n_read,
                                    left < STEP_BYTES ? left : STEP_BYTES, &got, err));
        *n_read += got;
    }
    return BD_OK;
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
        status = bd_byte_stream_fill(s, BD_MAGIC_BYTES, err);
    if (status != BD_OK)
        goto done;
    s->decompressor = bd_decompressor_of(s->buffer, s->end);
    if (s->decompressor)
        status = s->decompressor->open(s, err);
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
    if (stream->decompressor)
        stream->decompressor->close(stream);
    if (stream->fd >= 0 && !stream->is_standard_input)
        close(stream->fd);
    free(stream->buffer);
    free(stream->name);
    free(stream);
}

const bd_decompressor *bd_byte_stream_compression(const bd_byte_stream *stream)
{
    return stream->decompressor;
}

int64_t bd_byte_stream_consumed(const bd_byte_stream *stream)
{
    return stream->n_taken - (int64_t)bd_byte_stream_available(stream);
}

bd_status bd_byte_stream_read(bd_byte_stream *stream, void *buffer, size_t n, size_t *n_read,
                              bd_error *err)
{
    bd_error *failure = &stream->failure;
    size_t done = 0;
    if (failure->status == BD_OK)
        (stream->decompressor ? read_decompressed : read_plain)(stream, buffer, n, &done,
                                                                failure);
    const bool fine = failure->status == BD_OK;
    *n_read = fine ? done : 0;
    return fine ? BD_OK : bd_fail(err, failure->status, "%s", failure->message);
}

static bd_status count_decompressed(bd_byte_stream *stream, int64_t limit, int64_t *size_bytes,
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
    if (!stream->decompressor) {
        *size_bytes = stream->size_bytes <= limit ? stream->size_bytes : -1;
        told = true;
    } else if (stream->decompressor->measure) {
        status = stream->decompressor->measure(stream, path, limit, size_bytes, &told, err);
    }
    if (status == BD_OK && !told)
        status = count_decompressed(stream, limit, size_bytes, err);
    bd_byte_stream_close(stream);
    return status;
}
