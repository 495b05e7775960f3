#include "packer/input/records.h"

#include <fcntl.h>

#include "packer/input/decompressor.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum {
    CHUNK = 1 << 18,  // bytes that records.c reads at a time
    MANY = 1 << 22,   // more bytes than any record here
    MAX_RECORDS = 2048,
};

static const char PATH[] = "input", GZIP_PATH[] = "input.gz";
static const char MARK[] = "\xEF\xBB\xBF";

// ---- The splitter: obviously right, with the whole file in memory -------------------------

// A record begins at `position` of the file; its `size` bytes begin at `begin`, which differs
// only after a byte order mark.
typedef struct expected {
    size_t n;
    struct {
        size_t position, begin, size;
    } items[MAX_RECORDS];
} expected;

static void expect(expected *e, size_t position, size_t begin, size_t size)
{
    assert_true(e->n < MAX_RECORDS);
    e->items[e->n].position = position;
    e->items[e->n].begin = begin;
    e->items[e->n++].size = size;
}

static size_t line_size(const char *data, size_t n, size_t begin)
{
    size_t end = begin;
    while (end < n && data[end] != '\n')
        end++;
    return end - begin;
}

static void split_lines(const char *data, size_t n, expected *e)
{
    for (size_t begin = 0; begin < n;) {
        const size_t end = begin + line_size(data, n, begin);
        const bool marked =
            begin == 0 && end >= strlen(MARK) && memcmp(data, MARK, strlen(MARK)) == 0;
        const size_t first = marked ? strlen(MARK) : begin;
        bool blank = true;
        for (size_t i = first; i < end; i++)
            blank = blank && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r');
        if (!blank)
            expect(e, begin, first, end - first);
        begin = end + 1;
    }
}

// Adds the text from `begin` to `stop`, without the newline that ends its last line.
static void expect_between(const char *data, size_t begin, size_t stop, expected *e)
{
    const bool newline = stop > begin && data[stop - 1] == '\n';
    expect(e, begin, begin, stop - begin - newline);
}

static void split_delimited(const char *data, size_t n, const char *delimiter, expected *e)
{
    size_t begin = 0;  // after the previous delimiter line, or at the start of the file
    for (size_t line = 0; line < n;) {
        const size_t size = line_size(data, n, line);
        const bool ends =
            size == strlen(delimiter) && memcmp(data + line, delimiter, size) == 0;
        if (ends && line > 0)  // there is no text before the first line
            expect_between(data, begin, line, e);
        line += size + 1;
        if (ends)
            begin = line;
    }
    if (begin < n)  // there is text after the last delimiter line
        expect_between(data, begin, n, e);
}

static expected split(const char *data, size_t n, bd_record_kind kind, const char *delimiter)
{
    expected e = {0};
    if (kind == BD_RECORD_FILE)
        expect(&e, 0, 0, n);
    else if (kind == BD_RECORD_LINE)
        split_lines(data, n, &e);
    else
        split_delimited(data, n, delimiter, &e);
    return e;
}

// ---- The reader, slice by slice -------------------------------------------------------

static bd_input plain_input(size_t n)
{
    return (bd_input){.path = (char *)PATH,
                      .entry = {.size_bytes = (int64_t)n, .extent = (int64_t)n}};
}

// Reads the records that begin before `end`; they must be the next expected ones. The padding
// is read, too: the address sanitizer checks that it is readable.
static void check_records(bd_records *records, const char *data, bd_slice slice,
                          const expected *e, size_t *n_seen)
{
    bd_record record;
    bool found;
    for (;;) {
        assert_int_equal(bd_records_next(records, slice.end, &record, &found, NULL), BD_OK);
        if (!found)
            break;
        assert_true(*n_seen < e->n);
        assert_int_equal(record.position, e->items[*n_seen].position);
        assert_int_equal(record.size_bytes, e->items[*n_seen].size);
        assert_memory_equal(record.data, data + e->items[*n_seen].begin, record.size_bytes);
        assert_false(record.headless);
        assert_in_range(record.position, slice.begin, slice.end);
        assert_true(record.position < slice.end || records->kind == BD_RECORD_FILE);
        static volatile char sink;
        for (int i = 0; i < BD_RECORD_PADDING; i++)
            sink = record.data[record.size_bytes + (size_t)i];
        (void)sink;
        ++*n_seen;
    }
    assert_int_equal(bd_records_next(records, slice.end, &record, &found, NULL), BD_OK);
    assert_false(found);  // further calls return the end again
}

// Reads a slice of a plain file without reading anything before it.
static void check_slice(const char *data, size_t n, bd_slice slice, bd_record_kind kind,
                        const char *delimiter, const expected *e, size_t *n_seen)
{
    const bd_input input = plain_input(n);
    bd_records records;
    assert_int_equal(bd_records_open(&records, &input, kind, delimiter, MANY, NULL), BD_OK);
    bd_records_begin(&records, slice);
    check_records(&records, data, slice, e, n_seen);
    assert_int_equal(bd_records_consumed(&records), 0);
    bd_records_close(&records);
    bd_records_close(&records);
}

// The file at PATH contains `data`. Cut into slices of `unit_bytes`, it has the splitter's
// records.
static void check_cuts(const char *data, size_t n, bd_record_kind kind, const char *delimiter,
                       int64_t unit_bytes)
{
    const expected e = split(data, n, kind, delimiter);
    size_t n_seen = 0;
    int64_t begin = 0;
    do {
        const int64_t left = (int64_t)n - begin;
        const bd_slice slice = {begin, begin + (left < unit_bytes ? left : unit_bytes)};
        check_slice(data, n, slice, kind, delimiter, &e, &n_seen);
        begin = slice.end;
    } while (begin < (int64_t)n);
    assert_int_equal(n_seen, e.n);
}

static void check_kinds(const char *data, size_t n, int64_t unit_bytes)
{
    check_cuts(data, n, BD_RECORD_LINE, NULL, unit_bytes);
    check_cuts(data, n, BD_RECORD_DELIMITED, "%", unit_bytes);
}

// ---- The same from beginning to end -----------------------------------------------------

static const bd_input AS_GZIP = {
    .path = (char *)GZIP_PATH, .compression = &bd_gzip, .entry = {.extent = BD_UNKNOWN}};
static const bd_input AS_STDIN = {.path = "-",
                                  .entry = {.size_bytes = BD_UNKNOWN, .extent = BD_UNKNOWN}};

// Standard input becomes the file at PATH.
static void redirect_stdin(void)
{
    const int fd = open(PATH, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    if (fd != STDIN_FILENO)
        close(fd);
}

// The stream `input` contains `data`. Read slice after slice it has the splitter's records, and
// it ends in the same slice as the text.
static void check_stream(const bd_input *input, const char *data, size_t n, bd_record_kind kind,
                         const char *delimiter, int64_t unit_bytes)
{
    const expected e = split(data, n, kind, delimiter);
    bd_records records;
    size_t n_seen = 0;
    bool more = true;
    assert_int_equal(bd_records_open(&records, input, kind, delimiter, MANY, NULL), BD_OK);
    for (int64_t begin = 0; more; begin += unit_bytes) {
        const bd_slice slice = {begin, begin + unit_bytes};
        bd_records_begin(&records, (bd_slice){begin, INT64_MAX});  // it is open already
        check_records(&records, data, slice, &e, &n_seen);
        assert_int_equal(bd_records_reach(&records, slice.end, &more, NULL), BD_OK);
        assert_int_equal(more, slice.end < (int64_t)n);
    }
    assert_int_equal(n_seen, e.n);
    assert_true(bd_records_consumed(&records) > 0 || n == 0);
    bd_records_close(&records);
    bd_records_close(&records);
}

static void check_streams(const char *data, size_t n, int64_t unit_bytes)
{
    const bd_input *const streams[] = {&AS_GZIP, &AS_STDIN};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lseek(STDIN_FILENO, 0, SEEK_SET), 0);
        check_stream(streams[i], data, n, BD_RECORD_LINE, NULL, unit_bytes);
        assert_int_equal(lseek(STDIN_FILENO, 0, SEEK_SET), 0);
        check_stream(streams[i], data, n, BD_RECORD_DELIMITED, "%", unit_bytes);
    }
}

// Writes `data` in all the forms in which it will be read.
static void write_copies(const char *data, size_t n)
{
    write_file(PATH, data, n);
    assert_true(write_gzip(GZIP_PATH, data, n));
    redirect_stdin();
}

// ---- Promises -------------------------------------------------------------------------

static void example_of_the_header(void **state)
{
    (void)state;
    static const char TEXT[] = "AAA\nBB\n%\nCC\n%\n";
    const expected e = split(TEXT, strlen(TEXT), BD_RECORD_DELIMITED, "%");
    assert_int_equal(e.n, 2);
    assert_int_equal(e.items[0].position, 0);
    assert_int_equal(e.items[0].size, strlen("AAA\nBB"));
    assert_int_equal(e.items[1].position, 9);
    assert_int_equal(e.items[1].size, strlen("CC"));
    write_text(PATH, TEXT);
    for (int64_t unit_bytes = 1; unit_bytes <= 20; unit_bytes++)
        check_kinds(TEXT, strlen(TEXT), unit_bytes);
}

// Every file of up to MAX_SIZE bytes over the alphabet (one less with BINDERY_TEST_BRIEF), cut
// at every unit size that cuts it.
static void any_cuts_give_the_same_records_exhaustively(void **state)
{
    (void)state;
    enum { MAX_SIZE = 6 };
    static const char ALPHABET[] = {'a', '\n', '%', '\r'};
    const size_t longest = getenv("BINDERY_TEST_BRIEF") ? MAX_SIZE - 1 : MAX_SIZE;
    const int fd = open(PATH, O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    for (size_t n = 0; n <= longest; n++) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        for (int number = 0; number < 1 << (2 * n); number++) {
            char data[MAX_SIZE];
            for (size_t i = 0; i < n; i++)
                data[i] = ALPHABET[number >> (2 * i) & 3];
            assert_int_equal(pwrite(fd, data, n, 0), n);
            for (int64_t unit_bytes = 1; unit_bytes <= (int64_t)n + 1; unit_bytes++)
                check_kinds(data, n, unit_bytes);
        }
    }
    close(fd);
}

static void any_cuts_give_the_same_records_of_random_text(void **state)
{
    (void)state;
    enum { N_FILES = 40, MAX_SIZE = 160 };
    static const char ALPHABET[] = "a\n%\r \t\nab%";
    static const char *const DELIMITERS[] = {"%", "", "%%", "a%a"};
    uint64_t random = 20240611;
    print_message("seed %llu\n", (unsigned long long)random);
    for (int file = 0; file < N_FILES; file++) {
        char data[MAX_SIZE];
        const size_t n = (size_t)random_between(&random, 0, MAX_SIZE);
        const int variety = random_between(&random, 2, (int)strlen(ALPHABET) - 1);
        for (size_t i = 0; i < n; i++)
            data[i] = ALPHABET[random_between(&random, 0, variety)];
        write_file(PATH, data, n);
        const char *delimiter = DELIMITERS[file % 4];
        for (int64_t unit_bytes = 1; unit_bytes <= 50; unit_bytes++) {
            check_cuts(data, n, BD_RECORD_LINE, NULL, unit_bytes);
            check_cuts(data, n, BD_RECORD_DELIMITED, delimiter, unit_bytes);
        }
    }
}

// Every text of up to MAX_SIZE bytes over the alphabet, read as streams.
static void streams_give_the_records_of_the_plain_file(void **state)
{
    (void)state;
    enum { MAX_SIZE = 4 };
    static const char ALPHABET[] = {'a', '\n', '%', '\r'};
    for (size_t n = 0; n <= MAX_SIZE; n++) {
        for (int number = 0; number < 1 << (2 * n); number++) {
            char data[MAX_SIZE];
            for (size_t i = 0; i < n; i++)
                data[i] = ALPHABET[number >> (2 * i) & 3];
            write_copies(data, n);
            for (int64_t unit_bytes = 1; unit_bytes <= (int64_t)n + 1; unit_bytes++)
                check_streams(data, n, unit_bytes);
        }
    }
}

// Records that are longer and shorter than units, chunks and both.
static void streams_of_any_size_give_the_records_of_the_plain_file(void **state)
{
    (void)state;
    enum { ROOM = 5 * CHUNK };
    static const int64_t UNITS[] = {31, 33, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, MANY};
    uint64_t random = 20250117;
    print_message("seed %llu\n", (unsigned long long)random);
    char *data = malloc(ROOM);
    assert_non_null(data);
    for (int file = 0; file < 3; file++) {
        size_t n = 0;
        while (n < 3 * CHUNK) {
            const int longest = random_between(&random, 0, 3) ? 5000 : CHUNK + 500;
            const size_t size = (size_t)random_between(&random, 1, longest);
            memset(data + n, random_between(&random, 'a', 'z'), size);
            n += size;
            n +=
                (size_t)sprintf(data + n, "%s", random_between(&random, 0, 1) ? "\n" : "\n%\n");
        }
        write_copies(data, n);
        for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++) {
            if (UNITS[u] > 1000 || file == 0)
                check_streams(data, n, UNITS[u]);
            check_kinds(data, n, UNITS[u] > 1000 ? UNITS[u] : MANY);
        }
        check_stream(&AS_GZIP, data, n, BD_RECORD_FILE, NULL, MANY);
        redirect_stdin();
        check_stream(&AS_STDIN, data, n, BD_RECORD_FILE, NULL, MANY);
    }
    free(data);
}

static void an_empty_stream_is_an_empty_document_or_no_line(void **state)
{
    (void)state;
    write_copies("", 0);
    check_streams("", 0, 1);
    check_stream(&AS_GZIP, "", 0, BD_RECORD_FILE, NULL, 1);
    check_stream(&AS_STDIN, "", 0, BD_RECORD_FILE, NULL, 1);
    check_cuts("", 0, BD_RECORD_FILE, NULL, 1);
}

static void a_byte_order_mark_is_no_part_of_the_first_line(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "\xEF\xBB\xBFone\ntwo\n",
        "\xEF\xBB\xBF\ntwo",
        "\xEF\xBB\xBF \r\ntwo",
        "\xEF\xBB\xBF",
        "\xEF\xBB\ntwo",
        "\n\xEF\xBB\xBFtwo",
        "a\n\xEF\xBB\xBF\n",
        "\xEF\xBB\xBF\xEF\xBB\xBF\n",
        "\xEF\xBB",
    };
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        const size_t n = strlen(TEXTS[i]);
        write_copies(TEXTS[i], n);
        for (int64_t unit_bytes = 1; unit_bytes <= 12; unit_bytes++) {
            check_cuts(TEXTS[i], n, BD_RECORD_LINE, NULL, unit_bytes);
            check_streams(TEXTS[i], n, unit_bytes);
        }
    }
}

static void a_byte_order_mark_does_not_count_against_the_limit(void **state)
{
    (void)state;
    static const size_t SIZES[] = {1, 10, CHUNK - 4, CHUNK - 3, CHUNK - 2, CHUNK};
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        const size_t n = strlen(MARK) + SIZES[s] + 1;
        char *data = malloc(n);
        assert_non_null(data);
        memcpy(data, MARK, strlen(MARK));
        memset(data + strlen(MARK), 'a', SIZES[s]);
        data[n - 1] = '\n';
        write_file(PATH, data, n);
        for (size_t less = 0; less < 2; less++) {
            const bd_input input = plain_input(n);
            const int64_t limit = (int64_t)(SIZES[s] - less);
            bd_records records;
            bd_record record;
            bool found;
            assert_int_equal(
                bd_records_open(&records, &input, BD_RECORD_LINE, NULL, limit, NULL), BD_OK);
            assert_int_equal(bd_records_next(&records, (int64_t)n, &record, &found, NULL),
                             BD_OK);
            assert_int_equal(record.bad, less ? BD_BAD_TOO_LARGE : BD_BAD_NONE);
            bd_records_close(&records);
        }
        free(data);
    }
}

// Whether a stream has more text after its slices: asked at, before and after the next record.
static void a_stream_tells_whether_it_reaches_a_position(void **state)
{
    (void)state;
    static const char TEXT[] = "long line\nb\n";
    const int64_t n = (int64_t)strlen(TEXT);
    write_copies(TEXT, strlen(TEXT));
    for (int64_t position = 0; position <= n + 1; position++) {
        for (int n_read = 0; n_read <= 3; n_read++) {
            bd_records records;
            bd_record record;
            bool found, reaches;
            assert_int_equal(
                bd_records_open(&records, &AS_GZIP, BD_RECORD_LINE, NULL, MANY, NULL), BD_OK);
            for (int i = 0; i < n_read; i++)
                assert_int_equal(bd_records_next(&records, n, &record, &found, NULL), BD_OK);
            assert_int_equal(bd_records_reach(&records, position, &reaches, NULL), BD_OK);
            assert_int_equal(reaches, position < n);
            assert_int_equal(bd_records_next(&records, n, &record, &found, NULL), BD_OK);
            assert_int_equal(found, n_read < 2);  // asking has lost nothing
            if (found)
                assert_int_equal(record.position, n_read == 0 ? 0 : 10);
            bd_records_close(&records);
        }
    }
}

static void damage_of_a_stream_is_named(void **state)
{
    (void)state;
    size_t n;
    bd_records records;
    bd_record record;
    bool found;
    bd_error err = {0};
    write_copies("one\ntwo\n", 8);
    char *data = read_file(GZIP_PATH, &n);
    write_file(GZIP_PATH, data, n - 1);
    free(data);
    assert_int_equal(bd_records_open(&records, &AS_GZIP, BD_RECORD_LINE, NULL, MANY, NULL),
                     BD_OK);
    assert_int_equal(bd_records_next(&records, MANY, &record, &found, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, GZIP_PATH));
    bd_records_close(&records);
}

// The window over the file ends in, before and after every short pattern.
static void the_end_of_a_chunk_changes_nothing(void **state)
{
    (void)state;
    enum { MAX_PATTERN = 3 };
    static const char ALPHABET[] = {'a', '\n', '%', '\r'};
    char *data = malloc(CHUNK + 16);
    assert_non_null(data);
    for (size_t before = CHUNK - MAX_PATTERN - 1; before <= CHUNK; before++) {
        for (int number = 0; number < 1 << (2 * MAX_PATTERN); number++) {
            memset(data, 'x', before);
            data[100] = '\n';
            for (size_t i = 0; i < MAX_PATTERN; i++)
                data[before + i] = ALPHABET[number >> (2 * i) & 3];
            memcpy(data + before + MAX_PATTERN, "\n%\nb", 4);
            const size_t n = before + MAX_PATTERN + 4;
            write_file(PATH, data, n);
            check_kinds(data, n, MANY);
        }
    }
    free(data);
}

static void records_longer_than_a_chunk_are_whole(void **state)
{
    (void)state;
    static const size_t SIZES[] = {CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5};
    const size_t room = 2 * (3 * CHUNK + 64);
    char *data = malloc(room);
    assert_non_null(data);
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        size_t n = 0;
        for (int copy = 0; copy < 2; copy++) {
            for (size_t i = 0; i < SIZES[s]; i++)
                data[n++] = (char)('a' + (i * 7 + i / 1000) % 26);
            n += (size_t)snprintf(data + n, room - n, "\n%%\nshort\n%%\n");
        }
        write_file(PATH, data, n);
        static const int64_t UNITS[] = {1000, CHUNK - 3, CHUNK, CHUNK + 1, 8 * CHUNK};
        for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++)
            check_kinds(data, n, UNITS[u]);
        check_cuts(data, n, BD_RECORD_FILE, NULL, INT64_MAX);
    }
    free(data);
}

static void the_last_record_needs_no_newline(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"a", "a\nb", "a\n%\nb", "a\n%", "%", "\n", ""};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        write_text(PATH, TEXTS[i]);
        for (int64_t unit_bytes = 1; unit_bytes <= 6; unit_bytes++)
            check_kinds(TEXTS[i], strlen(TEXTS[i]), unit_bytes);
    }
}

static void assert_delimited(const char *text, const char *const *records)
{
    const bd_input input = plain_input(strlen(text));
    const int64_t end = input.entry.extent;
    bd_records reader;
    bd_record record;
    bool found;
    write_text(PATH, text);
    assert_int_equal(bd_records_open(&reader, &input, BD_RECORD_DELIMITED, "%%", MANY, NULL),
                     BD_OK);
    for (; *records; records++) {
        assert_int_equal(bd_records_next(&reader, end, &record, &found, NULL), BD_OK);
        assert_true(found);
        assert_int_equal(record.size_bytes, strlen(*records));
        assert_memory_equal(record.data, *records, record.size_bytes);
    }
    assert_int_equal(bd_records_next(&reader, end, &record, &found, NULL), BD_OK);
    assert_false(found);
    bd_records_close(&reader);
}

static void delimiters_at_the_ends_and_beside_each_other(void **state)
{
    (void)state;
    assert_delimited("", (const char *[]){NULL});
    assert_delimited("%%\n", (const char *[]){NULL});
    assert_delimited("%%", (const char *[]){NULL});
    assert_delimited("%%\na\n", (const char *[]){"a", NULL});
    assert_delimited("a\n%%\n", (const char *[]){"a", NULL});
    assert_delimited("%%\na\n%%", (const char *[]){"a", NULL});
    assert_delimited("a\n%%\n%%\nb\n", (const char *[]){"a", "", "b", NULL});
    assert_delimited("%%\n%%\nb", (const char *[]){"", "b", NULL});
    assert_delimited("a\n%%\n\n%%\nb", (const char *[]){"a", "", "b", NULL});
    assert_delimited("a\n%%\n\n\n%%\nb", (const char *[]){"a", "\n", "b", NULL});
    assert_delimited("\na\n\n", (const char *[]){"\na\n", NULL});
    // A line must equal the delimiter, not begin or end with it.
    assert_delimited("a\n%%%\n%\n%% \n%%\r\nb",
                     (const char *[]){"a\n%%%\n%\n%% \n%%\r\nb", NULL});
}

// Tells whether the record of `n` letters that comes first in a text, after `before`, is too
// large for a limit of `max_bytes`. Its position must be right in both cases, and `after` must
// give the records of `others`, in bounded memory.
static bool is_too_large(bool compressed, bd_record_kind kind, const char *before, size_t n,
                         const char *after, const char *others, int64_t max_bytes)
{
    const size_t size = strlen(before) + n + strlen(after);
    char *data = malloc(size + 1);
    assert_non_null(data);
    strcpy(data, before);
    memset(data + strlen(before), 'a', n);
    strcpy(data + strlen(before) + n, after);
    if (compressed)
        assert_true(write_gzip(GZIP_PATH, data, size));
    else
        write_file(PATH, data, size);
    free(data);

    const bd_input plain = plain_input(size);
    bd_records records;
    bd_record record = {.position = -1};
    bool found, reaches;
    assert_int_equal(
        bd_records_open(&records, compressed ? &AS_GZIP : &plain, kind, "%", max_bytes, NULL),
        BD_OK);
    assert_int_equal(bd_records_next(&records, (int64_t)size, &record, &found, NULL), BD_OK);
    assert_true(found);
    assert_int_equal(record.position, strlen(before));
    const bool too_large = record.bad == BD_BAD_TOO_LARGE;
    assert_int_equal(record.size_bytes, too_large ? 0 : n);
    assert_true(!too_large || compressed || kind != BD_RECORD_FILE || !records.buffer);
    for (; *others; others++) {
        assert_int_equal(bd_records_next(&records, INT64_MAX, &record, &found, NULL), BD_OK);
        assert_true(found && record.bad == BD_BAD_NONE && record.size_bytes == 1);
        assert_int_equal(*record.data, *others);
    }
    assert_int_equal(bd_records_next(&records, INT64_MAX, &record, &found, NULL), BD_OK);
    assert_false(found);
    assert_int_equal(bd_records_reach(&records, (int64_t)size, &reaches, NULL), BD_OK);
    assert_false(reaches);
    // Memory is bounded by the limit, not by the record.
    assert_true((int64_t)records.capacity <= 2 * max_bytes + 2 * CHUNK);
    bd_records_close(&records);
    return too_large;
}

static void a_record_of_max_bytes_is_taken_and_a_larger_one_is_passed_over(void **state)
{
    (void)state;
    static const int64_t LIMITS[] = {2, 10, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK};
    static const struct {
        bd_record_kind kind;
        const char *before, *after, *others;
    } CASES[] = {
        {BD_RECORD_FILE, "", "", ""},
        {BD_RECORD_LINE, "", "", ""},
        {BD_RECORD_LINE, "", "\n", ""},
        {BD_RECORD_LINE, "\n \n", "\nb\n", "b"},
        {BD_RECORD_LINE, "", "\n\nb\n\nc", "bc"},
        {BD_RECORD_DELIMITED, "", "", ""},
        {BD_RECORD_DELIMITED, "", "\n", ""},
        {BD_RECORD_DELIMITED, "", "\n%", ""},
        {BD_RECORD_DELIMITED, "%\n", "\n%\n", ""},
        {BD_RECORD_DELIMITED, "%\n", "\n%\nb\n%\n", "b"},
        {BD_RECORD_DELIMITED, "", "\n%\nb\n%\nc", "bc"},
    };
    for (size_t l = 0; l < sizeof LIMITS / sizeof *LIMITS; l++) {
        for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
            static const size_t EXCESSES[] = {1, 2, 5, 8 * CHUNK};
            const char *before = CASES[c].before, *after = CASES[c].after;
            const char *others = CASES[c].others;
            const bd_record_kind kind = CASES[c].kind;
            const size_t limit = (size_t)LIMITS[l];
            for (int compressed = 0; compressed < 2; compressed++) {
                assert_false(
                    is_too_large(compressed, kind, before, limit, after, others, LIMITS[l]));
                for (size_t e = 0; e < 4; e++)
                    assert_true(is_too_large(compressed, kind, before, limit + EXCESSES[e],
                                             after, others, LIMITS[l]));
            }
        }
    }
}

// A slice without a record of its own must not read to the end of the file to find that out.
static void looking_for_a_record_ends_with_the_slice(void **state)
{
    (void)state;
    enum { N_CHUNKS = 8 };
    char *data = malloc(N_CHUNKS * CHUNK);
    assert_non_null(data);
    for (int lines = 0; lines < 2; lines++) {
        memset(data, 'a', N_CHUNKS * CHUNK);
        for (size_t i = 100; lines && i < N_CHUNKS * CHUNK; i += 100)
            data[i] = '\n';
        write_file(PATH, data, N_CHUNKS * CHUNK);
        const bd_input input = plain_input(N_CHUNKS * CHUNK);
        bd_records records;
        bd_record record;
        bool found;
        const bd_record_kind kind = lines ? BD_RECORD_DELIMITED : BD_RECORD_LINE;
        assert_int_equal(bd_records_open(&records, &input, kind, "%", MANY, NULL), BD_OK);
        bd_records_begin(&records, (bd_slice){CHUNK / 2, INT64_MAX});
        assert_int_equal(bd_records_next(&records, CHUNK / 2 + 50, &record, &found, NULL),
                         BD_OK);
        assert_false(found);
        assert_true(records.buffer_position + (int64_t)records.n_buffered <= 2 * CHUNK);
        bd_records_close(&records);
    }
    free(data);
}

// A damaged dataset may name any slice.
static void after_the_end_of_a_file_are_no_records(void **state)
{
    (void)state;
    static const bd_record_kind KINDS[] = {BD_RECORD_FILE, BD_RECORD_LINE, BD_RECORD_DELIMITED};
    static const char *const TEXTS[] = {"", "a", "a\n", "a\n%\n", "a\n%\nbc"};
    static const int64_t BEGINS[] = {0, 1, 2, 31, 2 * CHUNK, INT64_MAX - 1};
    for (size_t t = 0; t < sizeof TEXTS / sizeof *TEXTS; t++)
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
            const size_t n = strlen(TEXTS[t]);
            const bd_input input = plain_input(n);
            bd_records records;
            write_text(PATH, TEXTS[t]);
            assert_int_equal(bd_records_open(&records, &input, KINDS[k], "%", MANY, NULL),
                             BD_OK);
            for (size_t b = 0; b < sizeof BEGINS / sizeof *BEGINS; b++) {
                bd_record record;
                bool found, reaches;
                const int64_t begin = BEGINS[b] < CHUNK ? (int64_t)n + BEGINS[b] : BEGINS[b];
                if (begin == 0)
                    continue;
                bd_records_begin(&records, (bd_slice){begin, INT64_MAX});
                assert_int_equal(bd_records_next(&records, INT64_MAX, &record, &found, NULL),
                                 BD_OK);
                assert_false(found);
                assert_int_equal(bd_records_reach(&records, begin, &reaches, NULL), BD_OK);
                assert_false(reaches);
            }
            bd_records_close(&records);
        }
}

static void a_slice_may_end_after_its_file(void **state)
{
    (void)state;
    static const bd_record_kind KINDS[] = {BD_RECORD_LINE, BD_RECORD_DELIMITED};
    for (int k = 0; k < 2; k++) {
        const bd_input input = plain_input(9);
        bd_records records;
        bd_record record;
        bool found;
        write_text(PATH, "ab\n%\ncdef");
        assert_int_equal(bd_records_open(&records, &input, KINDS[k], "%", MANY, NULL), BD_OK);
        bd_records_begin(&records, (bd_slice){4, INT64_MAX});
        assert_int_equal(bd_records_next(&records, INT64_MAX, &record, &found, NULL), BD_OK);
        assert_true(found);
        assert_int_equal(record.position, 5);
        bd_records_begin(&records, (bd_slice){7, INT64_MAX});
        assert_int_equal(bd_records_next(&records, INT64_MAX, &record, &found, NULL), BD_OK);
        assert_false(found);
        bd_records_close(&records);
    }
}

static void a_file_that_became_shorter_is_refused(void **state)
{
    (void)state;
    static const bd_record_kind KINDS[] = {BD_RECORD_FILE, BD_RECORD_LINE, BD_RECORD_DELIMITED};
    const bd_input input = plain_input(5);
    bd_records records;
    bd_error err = {0};
    assert_int_equal(bd_records_open(&records, &input, BD_RECORD_LINE, NULL, MANY, &err),
                     BD_ERR_IO);
    assert_string_equal(err.message, "cannot open 'input': No such file or directory");
    bd_records_close(&records);
    for (int k = 0; k < 3; k++) {
        bd_record record;
        bool found;
        write_text(PATH, "abcde");
        assert_int_equal(bd_records_open(&records, &input, KINDS[k], "%", MANY, NULL), BD_OK);
        assert_int_equal(truncate(PATH, 2), 0);  // between opening and reading
        assert_int_equal(bd_records_next(&records, 5, &record, &found, &err), BD_ERR_IO);
        assert_string_equal(err.message,
                            "cannot read 'input': it became shorter while being read");
        bd_records_close(&records);
    }
}

static void lines_are_numbered_from_one(void **state)
{
    (void)state;
    static const int64_t LINES[] = {1, 1, 2, 2, 2, 3, 4, 4};
    const bd_input plain = plain_input(7), nowhere = {.path = "nowhere"};
    const bd_input *const readable[] = {&plain, &AS_GZIP};
    write_copies("a\nbc\n\nd", 7);
    for (int i = 0; i < 2; i++) {
        for (int64_t position = 0; position < 8; position++)
            assert_int_equal(bd_line_number(readable[i], position), LINES[position]);
        assert_int_equal(bd_line_number(readable[i], 100), 0);
    }
    assert_int_equal(bd_line_number(&nowhere, 0), 0);
    assert_int_equal(bd_line_number(&AS_STDIN, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(example_of_the_header),
        test_inside_folder(any_cuts_give_the_same_records_exhaustively),
        test_inside_folder(any_cuts_give_the_same_records_of_random_text),
        test_inside_folder(streams_give_the_records_of_the_plain_file),
        test_inside_folder(streams_of_any_size_give_the_records_of_the_plain_file),
        test_inside_folder(an_empty_stream_is_an_empty_document_or_no_line),
        test_inside_folder(a_byte_order_mark_is_no_part_of_the_first_line),
        test_inside_folder(a_byte_order_mark_does_not_count_against_the_limit),
        test_inside_folder(a_stream_tells_whether_it_reaches_a_position),
        test_inside_folder(damage_of_a_stream_is_named),
        test_inside_folder(the_end_of_a_chunk_changes_nothing),
        test_inside_folder(records_longer_than_a_chunk_are_whole),
        test_inside_folder(the_last_record_needs_no_newline),
        test_inside_folder(delimiters_at_the_ends_and_beside_each_other),
        test_inside_folder(a_record_of_max_bytes_is_taken_and_a_larger_one_is_passed_over),
        test_inside_folder(looking_for_a_record_ends_with_the_slice),
        test_inside_folder(after_the_end_of_a_file_are_no_records),
        test_inside_folder(a_slice_may_end_after_its_file),
        test_inside_folder(a_file_that_became_shorter_is_refused),
        test_inside_folder(lines_are_numbered_from_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
