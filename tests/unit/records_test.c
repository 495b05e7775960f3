#include "packer/records.h"

#include <fcntl.h>

#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum {
    CHUNK = 1 << 18,  // what records.c reads at a time
    MANY = 1 << 22,   // bytes: no record here is as large
    MAX_RECORDS = 2048,
};

static const char PATH[] = "input";

// ---- The splitter: obviously right, all of the file in memory -----------------------------

// A record is `size` bytes from `position` of the file.
typedef struct expected {
    size_t n;
    struct {
        size_t position, size;
    } items[MAX_RECORDS];
} expected;

static void expect(expected *e, size_t position, size_t size)
{
    assert_true(e->n < MAX_RECORDS);
    e->items[e->n].position = position;
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
        const size_t size = line_size(data, n, begin);
        bool blank = true;
        for (size_t i = begin; i < begin + size; i++)
            blank = blank && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r');
        if (!blank)
            expect(e, begin, size);
        begin += size + 1;
    }
}

// What lies from `begin` to `stop`, without the newline that ends its last line.
static void expect_between(const char *data, size_t begin, size_t stop, expected *e)
{
    const bool newline = stop > begin && data[stop - 1] == '\n';
    expect(e, begin, stop - begin - newline);
}

static void split_delimited(const char *data, size_t n, const char *delimiter, expected *e)
{
    size_t begin = 0;  // after the delimiter line before, or at the start of the file
    for (size_t line = 0; line < n;) {
        const size_t size = line_size(data, n, line);
        const bool ends =
            size == strlen(delimiter) && memcmp(data + line, delimiter, size) == 0;
        if (ends && line > 0)  // nothing lies before the first line
            expect_between(data, begin, line, e);
        line += size + 1;
        if (ends)
            begin = line;
    }
    if (begin < n)  // something lies after the last delimiter line
        expect_between(data, begin, n, e);
}

static expected split(const char *data, size_t n, bd_record_kind kind, const char *delimiter)
{
    expected e = {0};
    if (kind == BD_RECORD_FILE)
        expect(&e, 0, n);
    else if (kind == BD_RECORD_LINE)
        split_lines(data, n, &e);
    else
        split_delimited(data, n, delimiter, &e);
    return e;
}

// ---- The reader, slice by slice -------------------------------------------------------

// Reads the records of one slice; they must be the next ones that are expected. The padding is
// read, too: the address sanitizer sees whether it may be.
static void check_slice(const char *data, size_t n, bd_slice slice, bd_record_kind kind,
                        const char *delimiter, const expected *e, size_t *n_seen)
{
    const bd_input input = {.path = (char *)PATH, .size_bytes = (int64_t)n};
    bd_records records;
    bd_record record;
    bool found;
    assert_int_equal(bd_records_open(&records, &input, slice, kind, delimiter, MANY, NULL),
                     BD_OK);
    for (;;) {
        assert_int_equal(bd_records_next(&records, &record, &found, NULL), BD_OK);
        if (!found)
            break;
        assert_true(*n_seen < e->n);
        assert_int_equal(record.position, e->items[*n_seen].position);
        assert_int_equal(record.size_bytes, e->items[*n_seen].size);
        assert_memory_equal(record.data, data + record.position, record.size_bytes);
        assert_in_range(record.position, slice.begin, slice.end);
        assert_true(record.position < slice.end || kind == BD_RECORD_FILE);
        static volatile char sink;
        for (int i = 0; i < BD_RECORD_PADDING; i++)
            sink = record.data[record.size_bytes + (size_t)i];
        (void)sink;
        ++*n_seen;
    }
    assert_int_equal(bd_records_next(&records, &record, &found, NULL), BD_OK);
    assert_false(found);  // the end stays the end
    bd_records_close(&records);
    bd_records_close(&records);
}

// The file at PATH holds `data`. Cut into slices of `unit_bytes`, it has the splitter's
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

// Every file of up to `max_size` bytes over the alphabet, cut at every unit size that cuts it.
static void any_cuts_give_the_same_records_exhaustively(void **state)
{
    (void)state;
    enum { MAX_SIZE = 6 };
    static const char ALPHABET[] = {'a', '\n', '%', '\r'};
    const int fd = open(PATH, O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    for (size_t n = 0; n <= MAX_SIZE; n++) {
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
    const bd_input input = {.path = (char *)PATH, .size_bytes = (int64_t)strlen(text)};
    bd_records reader;
    bd_record record;
    bool found;
    write_text(PATH, text);
    const bd_slice all = {0, input.size_bytes};
    assert_int_equal(
        bd_records_open(&reader, &input, all, BD_RECORD_DELIMITED, "%%", MANY, NULL), BD_OK);
    for (; *records; records++) {
        assert_int_equal(bd_records_next(&reader, &record, &found, NULL), BD_OK);
        assert_true(found);
        assert_int_equal(record.size_bytes, strlen(*records));
        assert_memory_equal(record.data, *records, record.size_bytes);
    }
    assert_int_equal(bd_records_next(&reader, &record, &found, NULL), BD_OK);
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

// Reads the first record of a file that holds `before`, `n` letters and `after`, with a limit
// of `max_bytes`; the record must begin at the letters, also if it is too large.
static bd_status read_first(bd_record_kind kind, const char *before, size_t n,
                            const char *after, int64_t max_bytes, bd_error *err)
{
    const size_t size = strlen(before) + n + strlen(after);
    char *data = malloc(size + 1);
    assert_non_null(data);
    strcpy(data, before);
    memset(data + strlen(before), 'a', n);
    strcpy(data + strlen(before) + n, after);
    write_file(PATH, data, size);
    free(data);

    const bd_input input = {.path = (char *)PATH, .size_bytes = (int64_t)size};
    const bd_slice slice = {0, (int64_t)size};
    bd_records records;
    bd_record record = {.position = -1};
    bool found;
    assert_int_equal(bd_records_open(&records, &input, slice, kind, "%", max_bytes, NULL),
                     BD_OK);
    const bd_status status = bd_records_next(&records, &record, &found, err);
    assert_int_equal(record.position, strlen(before));
    if (status == BD_OK) {
        assert_true(found);
        assert_int_equal(record.size_bytes, n);
    } else {  // memory is bounded by the limit, not by the record
        assert_true(kind != BD_RECORD_FILE || !records.buffer);
        assert_true((int64_t)records.capacity <= 2 * max_bytes + 2 * CHUNK);
    }
    bd_records_close(&records);
    return status;
}

static void a_record_of_max_bytes_is_taken_and_a_larger_one_is_not(void **state)
{
    (void)state;
    static const int64_t LIMITS[] = {2, 10, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK};
    static const struct {
        bd_record_kind kind;
        const char *before, *after;
    } CASES[] = {
        {BD_RECORD_FILE, "", ""},
        {BD_RECORD_LINE, "", ""},
        {BD_RECORD_LINE, "", "\n"},
        {BD_RECORD_LINE, "\n \n", "\nb\n"},
        {BD_RECORD_DELIMITED, "", ""},
        {BD_RECORD_DELIMITED, "", "\n"},
        {BD_RECORD_DELIMITED, "", "\n%"},
        {BD_RECORD_DELIMITED, "%\n", "\n%\n"},
        {BD_RECORD_DELIMITED, "%\n", "\n%\nb\n%\n"},
    };
    for (size_t l = 0; l < sizeof LIMITS / sizeof *LIMITS; l++) {
        for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
            static const size_t EXCESSES[] = {1, 2, 5, 8 * CHUNK};
            const char *before = CASES[c].before, *after = CASES[c].after;
            const bd_record_kind kind = CASES[c].kind;
            const size_t limit = (size_t)LIMITS[l];
            bd_error err = {0};
            assert_int_equal(read_first(kind, before, limit, after, LIMITS[l], &err), BD_OK);
            for (size_t e = 0; e < 4; e++) {
                err = (bd_error){0};
                assert_int_equal(
                    read_first(kind, before, limit + EXCESSES[e], after, LIMITS[l], &err),
                    BD_ERR_FORMAT);
                assert_non_null(
                    strstr(err.message, "a record larger than --max-document-bytes"));
            }
        }
    }
}

// A slice without a record of its own must not read to the end of the file to see that.
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
        const bd_input input = {.path = (char *)PATH, .size_bytes = N_CHUNKS * CHUNK};
        const bd_slice slice = {CHUNK / 2, CHUNK / 2 + 50};
        bd_records records;
        bd_record record;
        bool found;
        const bd_record_kind kind = lines ? BD_RECORD_DELIMITED : BD_RECORD_LINE;
        assert_int_equal(bd_records_open(&records, &input, slice, kind, "%", MANY, NULL),
                         BD_OK);
        assert_int_equal(bd_records_next(&records, &record, &found, NULL), BD_OK);
        assert_false(found);
        assert_true(records.buffer_position + (int64_t)records.n_buffered <= 2 * CHUNK);
        bd_records_close(&records);
    }
    free(data);
}

static void assert_cannot_open(const bd_input *input, const char *message)
{
    bd_records records;
    bd_error err = {0};
    const bd_slice all = {0, input->size_bytes};
    assert_int_equal(bd_records_open(&records, input, all, BD_RECORD_LINE, NULL, MANY, &err),
                     BD_ERR_IO);
    assert_string_equal(err.message, message);
    bd_records_close(&records);
}

static void a_file_that_changed_its_size_is_refused(void **state)
{
    (void)state;
    bd_input input = {.path = (char *)PATH, .size_bytes = 4};
    assert_cannot_open(&input, "cannot open 'input': No such file or directory");
    write_text(PATH, "abc");
    assert_cannot_open(&input, "cannot read 'input': it changed while it was being packed");
    write_text(PATH, "abcde");
    assert_cannot_open(&input, "cannot read 'input': it changed while it was being packed");

    bd_records records;
    bd_record record;
    bool found;
    bd_error err = {0};
    input.size_bytes = 5;
    assert_int_equal(
        bd_records_open(&records, &input, (bd_slice){0, 5}, BD_RECORD_FILE, NULL, MANY, NULL),
        BD_OK);
    assert_int_equal(truncate(PATH, 2), 0);  // between opening and reading
    assert_int_equal(bd_records_next(&records, &record, &found, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot read 'input': it became shorter while being read");
    bd_records_close(&records);
}

static void lines_are_numbered_from_one(void **state)
{
    (void)state;
    write_text(PATH, "a\nbc\n\nd");
    static const int64_t LINES[] = {1, 1, 2, 2, 2, 3, 4, 4};
    for (int64_t position = 0; position < 8; position++)
        assert_int_equal(bd_line_number(PATH, position), LINES[position]);
    assert_int_equal(bd_line_number(PATH, 100), 0);
    assert_int_equal(bd_line_number("nowhere", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(example_of_the_header),
        test_inside_folder(any_cuts_give_the_same_records_exhaustively),
        test_inside_folder(any_cuts_give_the_same_records_of_random_text),
        test_inside_folder(the_end_of_a_chunk_changes_nothing),
        test_inside_folder(records_longer_than_a_chunk_are_whole),
        test_inside_folder(the_last_record_needs_no_newline),
        test_inside_folder(delimiters_at_the_ends_and_beside_each_other),
        test_inside_folder(a_record_of_max_bytes_is_taken_and_a_larger_one_is_not),
        test_inside_folder(looking_for_a_record_ends_with_the_slice),
        test_inside_folder(a_file_that_changed_its_size_is_refused),
        test_inside_folder(lines_are_numbered_from_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
