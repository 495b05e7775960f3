// The records of a file are the same however it is cut into slices: those that a plain loop
// over the whole file finds. A compressed copy, read slice after slice, has the same records.
//
//   byte 0      kind of record
// byte 1      bytes of a slice, unless that makes too many slices
// byte 2      square root of the largest allowed record; 0: any size
//   byte 3      length of the delimiter, whose bytes follow
// the rest    the file; a byte 01 and the next byte stand for about a chunk of filler
#include <string.h>

#include "packer/input/decompressor.h"
#include "packer/input/records.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/packer/gzip_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHUNK_BYTES = 1 << 18, MAX_FILLINGS = 3, MAX_SLICES = 40, MAX_RECORDS = 1 << 16 };

typedef struct settings {
    bd_record_kind kind;
    char delimiter[8];
    int64_t slice_bytes, max_bytes;
    char *text;  // owned
    size_t n;
} settings;

static void take_text(settings *s, const uint8_t *data, size_t size)
{
    int n_fillings = 0;
    s->text = malloc(size + MAX_FILLINGS * (CHUNK_BYTES + 256) + 1);
    REQUIRE(s->text);
    for (size_t i = 0; i < size; i++) {
        if (data[i] == 1 && i + 1 < size && n_fillings < MAX_FILLINGS) {
            const size_t filling = CHUNK_BYTES - 128 + data[++i];
            memset(s->text + s->n, 'x', filling);
            s->n += filling;
            n_fillings++;
        } else {
            s->text[s->n++] = (char)data[i];
        }
    }
}

static settings take_settings(const uint8_t *data, size_t size)
{
    settings s = {.kind = (bd_record_kind)(data[0] % 3), .slice_bytes = 1 + data[1]};
    s.max_bytes = data[2] ? (int64_t)data[2] * data[2] : INT64_MAX / 2;
    const size_t n_delimiter = data[3] % 6;
    data += 4;
    size -= 4;
    for (size_t i = 0; i < n_delimiter && size > 0; i++, data++, size--)
        s.delimiter[i] = *data == 0 || *data == '\n' ? '%' : (char)*data;
    take_text(&s, data, size);
    const int max_slices = s.n < CHUNK_BYTES / 2 ? MAX_SLICES : 1 + (int)s.slice_bytes % 5;
    const int64_t smallest = (int64_t)s.n / max_slices + 1;
    if (s.slice_bytes < smallest)
        s.slice_bytes = smallest;
    if (s.kind == BD_RECORD_FILE)  // such a file is never sliced
        s.slice_bytes = (int64_t)s.n + 1;
    return s;
}

// ---- The plain loop ------------------------------------------------------------------------

typedef struct expected {
    size_t n;
    struct span {
        size_t position, begin, size_bytes;  // it begins later if there is a byte order mark
    } spans[MAX_RECORDS];
} expected;

static void expect_from(expected *e, size_t position, size_t begin, size_t end)
{
    REQUIRE(e->n < MAX_RECORDS);
    e->spans[e->n++] = (struct span){position, begin, end - begin};
}

static void expect(expected *e, size_t begin, size_t end)
{
    expect_from(e, begin, begin, end);
}

static bool is_blank_line(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

// A line that is too large is a record even if it is blank.
static void expect_line(expected *e, const settings *s, size_t line, size_t end)
{
    const bool marked = line == 0 && end >= 3 && memcmp(s->text, "\xEF\xBB\xBF", 3) == 0;
    const size_t begin = marked ? 3 : line;
    if (end - begin > (size_t)s->max_bytes || !is_blank_line(s->text + begin, end - begin))
        expect_from(e, line, begin, end);
}

// The text before the first delimiter line, and that after the last, is a document unless it is
// empty.
static void expect_all(expected *e, const settings *s)
{
    const char *text = s->text;
    const size_t n = s->n, n_delimiter = strlen(s->delimiter);
    e->n = 0;
    if (s->kind == BD_RECORD_FILE) {
        expect(e, 0, n);
        return;
    }
    size_t record = 0;
    for (size_t line = 0, end; line < n; line = end + 1) {
        const char *newline = memchr(text + line, '\n', n - line);
        end = newline ? (size_t)(newline - text) : n;
        if (s->kind == BD_RECORD_LINE) {
            expect_line(e, s, line, end);
        } else if (end - line == n_delimiter &&
                   memcmp(text + line, s->delimiter, n_delimiter) == 0) {
            if (line > 0)
                expect(e, record, line > record ? line - 1 : line);
            record = end + 1;
        }
    }
    if (s->kind == BD_RECORD_DELIMITED && record < n)
        expect(e, record, text[n - 1] == '\n' ? n - 1 : n);
}

// ---- Slice by slice ------------------------------------------------------------------------

static bd_records open_records(const settings *s, const bd_input *input)
{
    bd_records records;
    REQUIRE(bd_records_open(&records, input, s->kind,
                            s->kind == BD_RECORD_DELIMITED ? s->delimiter : NULL, s->max_bytes,
                            NULL) == BD_OK);
    return records;
}

static void check_record(const settings *s, const bd_record *record, const struct span *span)
{
    const bool too_large = span->size_bytes > (size_t)s->max_bytes;
    REQUIRE(record->position == (int64_t)span->position);
    REQUIRE(record->bad == (too_large ? BD_BAD_TOO_LARGE : BD_BAD_NONE));
    REQUIRE(record->size_bytes == (too_large ? 0 : span->size_bytes));
    if (too_large)
        return;
    REQUIRE(span->size_bytes == 0 ||
            memcmp(record->data, s->text + span->begin, span->size_bytes) == 0);
    for (int i = 0; i < BD_RECORD_PADDING; i++)  // must be readable
        (void)((const volatile char *)record->data)[record->size_bytes + (size_t)i];
}

// Returns the first record from `next` on that does not begin in the slice. (A file that is one
// record may be empty.)
static size_t first_after(const settings *s, const expected *e, size_t next, bd_slice slice)
{
    while (next < e->n && (int64_t)e->spans[next].position < slice.end)
        next++;
    return s->kind == BD_RECORD_FILE ? 1 : next;
}

// Reads one slice of the plain file, whose records must be those of `e` from `next` on. Returns
// the record after them.
static size_t check_slice(const settings *s, const bd_input *input, bd_slice slice,
                          const expected *e, size_t next)
{
    const size_t last = first_after(s, e, next, slice);
    bd_records records = open_records(s, input);
    bd_records_begin(&records, slice);
    for (bool found = true; found;) {
        bd_record record = {0};
        REQUIRE(bd_records_next(&records, slice.end, &record, &found, NULL) == BD_OK);
        REQUIRE(found == (next < last));
        if (found)
            check_record(s, &record, &e->spans[next++]);
    }
    bd_records_close(&records);
    return last;
}

static void check_plain(const settings *s, const expected *e)
{
    const int64_t n = (int64_t)s->n;
    const bd_input input = {.path = (char *)memory_file_path(),
                            .entry = {.size_bytes = n, .extent = n}};
    size_t next = 0;
    memory_file_set(s->text, s->n);
    for (int64_t begin = 0; begin == 0 || begin < n; begin += s->slice_bytes) {
        const int64_t end = begin + s->slice_bytes;
        next = check_slice(s, &input, (bd_slice){begin, end < n ? end : n}, e, next);
    }
    REQUIRE(next == e->n);
}

// ---- From beginning to end -----------------------------------------------------------------

static void check_stream(const settings *s, const expected *e)
{
    REQUIRE(write_gzip(memory_file_path(), s->text, s->n));
    const bd_input input = {.path = (char *)memory_file_path(),
                            .compression = &bd_gzip,
                            .entry = {.extent = BD_UNKNOWN}};
    bd_records records = open_records(s, &input);
    size_t next = 0;
    bool more = true;
    for (int64_t begin = 0; more; begin += s->slice_bytes) {
        const bd_slice slice = {begin, begin + s->slice_bytes};
        const size_t last = first_after(s, e, next, slice);
        for (bool found = true; found;) {
            bd_record record = {0};
            REQUIRE(bd_records_next(&records, slice.end, &record, &found, NULL) == BD_OK);
            REQUIRE(found == (next < last));
            if (found)
                check_record(s, &record, &e->spans[next++]);
        }
        REQUIRE(bd_records_reach(&records, slice.end, &more, NULL) == BD_OK);
        REQUIRE(more == (slice.end < (int64_t)s->n));
    }
    REQUIRE(next == e->n);
    bd_records_close(&records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static expected e;
    if (size < 4)
        return 0;
    settings s = take_settings(data, size);
    expect_all(&e, &s);
    check_plain(&s, &e);
    check_stream(&s, &e);
    free(s.text);
    return 0;
}
