#include "packer/tokenize/tokenize.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "packer/input/byte_stream.h"
#include "packer/input/json_text.h"
#include "packer/input/records.h"

enum {
    CHUNK_BYTES = 1 << 20,
    MAX_ID_DIGITS = 10,
};

BD_ENUM_NAMES(bd_id_format, BD_ID_FORMATS);

// ---- From text to ids ------------------------------------------------------------------------

// The state of one file that is being tokenised.
typedef struct tokenizing {
    const bd_tokenize_job *job;
    bd_encoder *encoder;
    bd_tokenize_counts *counts;
    bd_json_text *json;  // owned; NULL if the text is plain
    const char *path;
    int64_t line;  // counted from 1; the one that is being tokenised
    char *text;    // owned; read but not tokenised yet
    size_t n_text, text_capacity;
    uint32_t *ids;  // owned
    size_t ids_capacity;
    char *written;  // owned; what goes to the output at once
    size_t written_capacity;
} tokenizing;

static char *put_number(char *to, uint32_t number)
{
    char digits[MAX_ID_DIGITS];
    int n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

static size_t format_ids(const tokenizing *t, size_t n)
{
    char *to = t->written;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = t->ids[i];
        const uint16_t narrow = (uint16_t)id;
        switch (t->job->format) {
        case BD_IDS_AS_TEXT:
            to = put_number(to, id);
            *to++ = i + 1 < n ? ' ' : '\n';
            break;
        case BD_IDS_U16:
            memcpy(to, &narrow, sizeof narrow);
            to += sizeof narrow;
            break;
        case BD_IDS_U32:
            memcpy(to, &id, sizeof id);
            to += sizeof id;
            break;
        }
    }
    if (t->job->format == BD_IDS_AS_TEXT && n == 0)
        *to++ = '\n';
    return (size_t)(to - t->written);
}

// In pieces, so that the text of the ids takes no more memory than the ids.
static bd_status write_ids(tokenizing *t, size_t n_ids, bd_error *err)
{
    enum { PIECE = 1 << 16, MOST_BYTES = PIECE * (MAX_ID_DIGITS + 1) + 1 };
    uint32_t *const all = t->ids;
    BD_TRY(bd_array_reserve((void **)&t->written, &t->written_capacity, MOST_BYTES, 1, err));
    size_t at = 0;
    do {
        const size_t n = n_ids - at < PIECE ? n_ids - at : PIECE;
        t->ids = all + at;
        size_t n_bytes = format_ids(t, n);
        at += n;
        if (at < n_ids && t->job->format == BD_IDS_AS_TEXT)
            t->written[n_bytes - 1] = ' ';  // the document goes on
        fwrite(t->written, 1, n_bytes, t->job->out);
    } while (at < n_ids);
    t->ids = all;
    return BD_OK;
}

static bd_status tokenize_document(tokenizing *t, const char *text, size_t size_bytes,
                                   bd_error *err)
{
    const bd_tokenizer *tokenizer = t->job->tokenizer;
    const size_t max_ids = tokenizer->kind->max_ids(tokenizer, size_bytes);
    size_t n;
    BD_TRY(
        bd_array_reserve((void **)&t->ids, &t->ids_capacity, max_ids + 1, sizeof *t->ids, err));
    const bd_status status = bd_encode(t->encoder, text, size_bytes, t->ids, &n, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'%s'", t->path);
    t->counts->documents++;
    t->counts->tokens += (int64_t)n;
    t->counts->bytes += (int64_t)size_bytes;
    return t->job->out ? write_ids(t, n, err) : BD_OK;
}

static bd_status fail_too_large(const tokenizing *t, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT,
                   "'%s': %s is larger than %" PRId64 " bytes (see --max-document-bytes)",
                   t->path, t->job->lines ? "a line" : "the document",
                   t->job->max_document_bytes);
}

// A line of JSON becomes the text that it holds.
static bd_status tokenize_line(tokenizing *t, const char *line, size_t size_bytes,
                               bd_error *err)
{
    t->line++;
    if (size_bytes > (size_t)t->job->max_document_bytes)
        return fail_too_large(t, err);
    if (!t->json)
        return tokenize_document(t, line, size_bytes, err);
    if (size_bytes == 0)
        return BD_OK;
    bd_json_problem problem;
    const bd_status status =
        bd_json_text_extract(t->json, line, size_bytes, &line, &size_bytes, &problem, err);
    return status == BD_OK
               ? tokenize_document(t, line, size_bytes, err)
               : bd_error_prefix(err, status, "'%s', line %" PRId64, t->path, t->line);
}

// Tokenises the lines that are complete and keeps the rest. The first n_old bytes are known to have
// no newline.
static bd_status take_lines(tokenizing *t, size_t n_old, bd_error *err)
{
    size_t begin = 0;
    const char *newline = memchr(t->text + n_old, '\n', t->n_text - n_old);
    while (newline && !(t->job->out && ferror(t->job->out))) {
        const size_t end = (size_t)(newline - t->text);
        BD_TRY(tokenize_line(t, t->text + begin, end - begin, err));
        begin = end + 1;
        newline = memchr(t->text + begin, '\n', t->n_text - begin);
    }
    memmove(t->text, t->text + begin, t->n_text - begin);
    t->n_text -= begin;
    return BD_OK;
}

static bd_status tokenize_stream(tokenizing *t, bd_byte_stream *stream, bd_error *err)
{
    size_t n_read;
    do {
        const size_t n_old = t->n_text;
        BD_TRY(bd_array_reserve((void **)&t->text, &t->text_capacity,
                                n_old + CHUNK_BYTES + BD_RECORD_PADDING, 1, err));
        BD_TRY(bd_byte_stream_read(stream, t->text + n_old, CHUNK_BYTES, &n_read, err));
        t->n_text += n_read;
        if (t->job->lines)
            BD_TRY(take_lines(t, n_old, err));
        if (t->n_text > (size_t)t->job->max_document_bytes)
            return fail_too_large(t, err);
        if (t->job->out && ferror(t->job->out))
            return BD_OK;
    } while (n_read == CHUNK_BYTES);
    if (!t->job->lines)
        return tokenize_document(t, t->text, t->n_text, err);
    return t->n_text > 0 ? tokenize_line(t, t->text, t->n_text, err) : BD_OK;
}

bd_status bd_tokenize_text(const bd_tokenize_job *job, bd_encoder *encoder, const char *path,
                           bd_tokenize_counts *counts, bd_error *err)
{
    tokenizing t = {.job = job, .encoder = encoder, .counts = counts, .path = path};
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, path, err));
    if (job->text_field)
        t.json = bd_json_text_new(job->text_field);
    const bd_status status = t.json || !job->text_field
                                 ? tokenize_stream(&t, stream, err)
                                 : bd_fail(err, BD_ERR_MEMORY, "no memory for a JSON parser");
    bd_byte_stream_close(stream);
    bd_json_text_free(t.json);
    free(t.text);
    free(t.ids);
    free(t.written);
    return status;
}

// ---- From ids to text ------------------------------------------------------------------------

typedef struct decoding {
    const bd_tokenize_job *job;
    const char *path;
    int64_t position;  // of the chunk in the stream
    uint64_t number;   // whose digits are being read; 0 between numbers
    bool in_number;
    unsigned char raw[4];  // bytes of an id that a chunk's end has cut
    size_t n_raw;
    bool in_line;  // something of a line was read
} decoding;

static bd_status put_token(const decoding *d, uint64_t id, int64_t at, bd_error *err)
{
    const bd_tokenizer *tokenizer = d->job->tokenizer;
    size_t n = 0;
    if (id >= (uint64_t)tokenizer->vocab_size)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': before byte %" PRId64 ": %" PRIu64
                       " is not an id of the tokenizer, which has %" PRId64,
                       d->path, at, id, tokenizer->vocab_size);
    const char *bytes = tokenizer->kind->token_bytes(tokenizer, (uint32_t)id, &n);
    if (bytes)
        fwrite(bytes, 1, n, d->job->out);
    return BD_OK;
}

static bd_status end_number(decoding *d, int64_t at, bd_error *err)
{
    const uint64_t number = d->number;
    if (!d->in_number)
        return BD_OK;
    d->in_number = false;
    d->number = 0;
    return put_token(d, number, at, err);
}

static bd_status decode_text(decoding *d, const char *chunk, size_t n, bd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char c = chunk[i];
        const int64_t at = d->position + (int64_t)i;
        if (c >= '0' && c <= '9') {
            // A number that is too large for any id does not grow further.
            if (d->number <= UINT32_MAX)
                d->number = 10 * d->number + (uint64_t)(c - '0');
            d->in_number = d->in_line = true;
            continue;
        }
        BD_TRY(end_number(d, at, err));
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return bd_fail(err, BD_ERR_FORMAT,
                           "'%s': byte %" PRId64 " is neither a digit nor white space", d->path,
                           at);
        if (c == '\n' && d->job->lines)
            putc('\n', d->job->out);
        d->in_line = c != '\n';
    }
    return BD_OK;
}

static bd_status decode_raw(decoding *d, const char *chunk, size_t n, bd_error *err)
{
    const size_t id_bytes = d->job->format == BD_IDS_U16 ? 2 : 4;
    for (size_t i = 0; i < n; i++) {
        d->raw[d->n_raw++] = (unsigned char)chunk[i];
        if (d->n_raw < id_bytes)
            continue;
        uint64_t id = 0;
        for (size_t k = id_bytes; k-- > 0;)
            id = id << 8 | d->raw[k];
        d->n_raw = 0;
        BD_TRY(put_token(d, id, d->position + (int64_t)i + 1, err));
    }
    return BD_OK;
}

static bd_status decode_chunks(decoding *d, bd_byte_stream *stream, char *chunk, bd_error *err)
{
    const bool is_text = d->job->format == BD_IDS_AS_TEXT;
    size_t n;
    do {
        BD_TRY(bd_byte_stream_read(stream, chunk, CHUNK_BYTES, &n, err));
        BD_TRY(is_text ? decode_text(d, chunk, n, err) : decode_raw(d, chunk, n, err));
        d->position += (int64_t)n;
        if (ferror(d->job->out))
            return BD_OK;
    } while (n == CHUNK_BYTES);
    if (d->n_raw > 0)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' ends within an id", d->path);
    BD_TRY(end_number(d, d->position, err));
    if (d->in_line && d->job->lines)
        putc('\n', d->job->out);
    return BD_OK;
}

bd_status bd_tokenize_decode(const bd_tokenize_job *job, const char *path, bd_error *err)
{
    decoding d = {.job = job, .path = path};
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, path, err));
    char *chunk = malloc(CHUNK_BYTES);
    const bd_status status = chunk ? decode_chunks(&d, stream, chunk, err)
                                   : bd_fail(err, BD_ERR_MEMORY, "no memory to decode");
    free(chunk);
    bd_byte_stream_close(stream);
    return status;
}
