#include "packer/input/kinds.h"
#include "packer/input/reader.h"

#include "packer/input/decompressor.h"
#include "packer/input/examine.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/temporary_folder.h"

enum { END_OF_TEXT = 50256, MAX_RECORDS = 128 };

static bd_input_options reading_of(int64_t unit_bytes, const char *delimiter)
{
    return (bd_input_options){.text_field = "text",
                              .delimiter = delimiter,
                              .unit_bytes = unit_bytes,
                              .max_document_bytes = 1000,
                              .raw_id_bytes = 2,
                              .end_of_text = END_OF_TEXT};
}

static bd_input examine(const char *path, const bd_input_options *reading)
{
    bd_input input = {.path = strdup(path)};
    bd_error err = {0};
    input.entry.name = strdup(path);
    if (bd_input_examine(&input, reading, &err) != BD_OK)
        fail_msg("%s", err.message);
    return input;
}

static bd_reader *open_reader(const bd_input *input, const bd_input_options *reading)
{
    bd_reader *reader;
    bd_error err = {0};
    if (bd_reader_open(&reader, input, reading, &err) != BD_OK)
        fail_msg("%s", err.message);
    return reader;
}

typedef struct expected_record {
    int64_t position;
    const char *data;
    size_t size_bytes;
    bool headless;
} expected_record;

// Reads one slice, whose records must be those expected from *next on.
static void check_slice(bd_reader *reader, bd_slice slice, const expected_record *expected,
                        size_t n, size_t *next)
{
    bd_reader_begin(reader, slice);
    for (;;) {
        bd_record record = {0};
        bool found;
        bd_error err = {0};
        if (bd_reader_next(reader, &record, &found, &err) != BD_OK)
            fail_msg("%s", err.message);
        if (!found)
            return;
        assert_true(*next < n);
        const expected_record *e = &expected[(*next)++];
        assert_int_equal(record.position, e->position);
        assert_int_equal(record.size_bytes, e->size_bytes);
        assert_memory_equal(record.data, e->data, e->size_bytes);
        assert_int_equal(record.headless, e->headless);
        assert_in_range(record.position, slice.begin, slice.end);
    }
}

// The slices of the file in their order give the records, and the last of them says so. Of a
// file that is not compressed so do they backwards, each by itself.
static void check_reader(const char *path, const bd_input_options *reading,
                         const expected_record *expected, size_t n)
{
    bd_input input = examine(path, reading);
    bd_reader *reader = open_reader(&input, reading);
    size_t next = 0, begins[MAX_RECORDS + 1] = {0};
    int64_t n_slices = 0;
    for (bool last = false; !last; n_slices++) {
        const bd_slice slice = bd_input_entry_slice(&input.entry, n_slices);
        assert_true(n_slices < MAX_RECORDS);
        begins[n_slices] = next;
        check_slice(reader, slice, expected, n, &next);
        assert_int_equal(bd_reader_is_last(reader, &last, NULL), BD_OK);
    }
    assert_int_equal(next, n);
    if (!bd_input_is_stream(&input)) {
        assert_int_equal(n_slices, bd_input_entry_n_slices(&input.entry));
        for (int64_t k = n_slices - 1; k >= 0; k--) {
            next = begins[k];
            check_slice(reader, bd_input_entry_slice(&input.entry, k), expected, n, &next);
            assert_int_equal(next, k == n_slices - 1 ? n : begins[k + 1]);
        }
    }
    bd_reader_close(reader);
    bd_input_release(&input);
}

#define RECORD(position, text)                  \
    {                                           \
        position, text, sizeof(text) - 1, false \
    }

static void lines_of_json_come_as_they_are(void **state)
{
    (void)state;
    static const char TEXT[] = "{\"text\":\"a\"}\n\n{}\nnot json";
    static const expected_record EXPECTED[] = {RECORD(0, "{\"text\":\"a\"}"), RECORD(14, "{}"),
                                               RECORD(17, "not json")};
    write_text("a.jsonl", TEXT);
    assert_true(write_gzip("b.jsonl", TEXT, strlen(TEXT)));
    for (int64_t unit_bytes = 1; unit_bytes <= 30; unit_bytes++) {
        const bd_input_options reading = reading_of(unit_bytes, NULL);
        check_reader("a.jsonl", &reading, EXPECTED, 3);
        check_reader("b.jsonl", &reading, EXPECTED, 3);
    }
}

// The records of CSV in slices of any size, plain and compressed.
static void rows_of_csv_give_their_text(void **state)
{
    (void)state;
    static const char TEXT[] = "\xEF\xBB\xBFid,\"text\",c\r\n1,\"a \"\"b\"\",\r\nc\",\r\n\r\n"
                               "2,5\" d,\"\"\n3,,\n\n4,\"\",x";
    static const expected_record EXPECTED[] = {RECORD(16, "a \"b\",\r\nc"), RECORD(36, "5\" d"),
                                               RECORD(46, ""), RECORD(51, "")};
    static const char TABS[] = "text\tb\na,b\t\n\"\t\"\t\"";
    static const expected_record TABBED[] = {RECORD(7, "a,b"), RECORD(12, "\t")};
    write_text("a.csv", TEXT);
    assert_true(write_gzip("b.csv", TEXT, strlen(TEXT)));
    write_file("c.tsv", TABS, strlen(TABS) - 1);
    for (int64_t unit_bytes = 1; unit_bytes <= 70; unit_bytes++) {
        const bd_input_options reading = reading_of(unit_bytes, NULL);
        check_reader("a.csv", &reading, EXPECTED, 4);
        check_reader("b.csv", &reading, EXPECTED, 4);
        check_reader("c.tsv", &reading, TABBED, 2);
    }
}

// Bad rows say what is wrong with them, and the next row is read.
static void broken_rows_of_csv_are_bad_records(void **state)
{
    (void)state;
    static const struct {
        int64_t position;
        bd_bad_kind bad;
        const char *problem;
    } ROWS[] = {
        {9, BD_BAD_JSON, "more or fewer fields"},
        {11, BD_BAD_NONE, NULL},
        {15, BD_BAD_JSON, "more or fewer fields"},
        {21, BD_BAD_JSON, "after a closing quote"},
        {28, BD_BAD_TOO_LARGE, NULL},
        {43, BD_BAD_NONE, NULL},
        {47, BD_BAD_JSON, "a quote that is never closed"},
    };
    write_text("a.csv", "text,two\n1\n1,2\n1,2,3\n\"1\"1,2\n12345678901,23\n1,2\n1,\"\n1,2\n");
    bd_input_options reading = reading_of(1000, NULL);
    reading.bad_records = BD_BAD_SKIP;
    reading.max_document_bytes = 10;
    bd_input input = examine("a.csv", &reading);
    bd_reader *reader = open_reader(&input, &reading);
    bd_record record;
    bool found;
    bd_reader_begin(reader, (bd_slice){0, INT64_MAX});
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        bd_error err = {0};
        assert_int_equal(bd_reader_next(reader, &record, &found, NULL), BD_OK);
        assert_true(found);
        assert_int_equal(record.position, ROWS[i].position);
        assert_int_equal(record.bad, ROWS[i].bad);
        if (ROWS[i].problem)
            assert_int_equal(bd_reader_fail_bad(&reading, &record, &err), BD_ERR_FORMAT);
        assert_true(!ROWS[i].problem || strstr(err.message, ROWS[i].problem));
    }
    assert_int_equal(bd_reader_next(reader, &record, &found, NULL), BD_OK);
    assert_false(found);
    bd_reader_close(reader);
    bd_input_release(&input);
}

static void header_of_csv_names_the_column_once(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"", "cannot read 'a.csv': its first row must name the columns"},
        {"\ntext\n", "cannot read 'a.csv': its first row must name the columns"},
        {"id,\"b c\"\n1,2\n",
         "cannot read 'a.csv': it has no column 'text' (see --text-field); it has 'id', 'b c'"},
        {"text,id,text",
         "cannot read 'a.csv': it has several columns 'text': rename all but one"},
        {"id,\"text\n1,2\n", "cannot read 'a.csv': a quote that is never closed in its header"},
    };
    const bd_input_options reading = reading_of(1000, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        bd_input input = {.path = strdup("a.csv")};
        bd_error err = {0};
        write_text("a.csv", CASES[i][0]);
        assert_int_equal(bd_input_examine(&input, &reading, &err), BD_ERR_FORMAT);
        assert_string_equal(err.message, CASES[i][1]);
        bd_input_release(&input);
    }
}

static void elements_of_json_come_as_they_are(void **state)
{
    (void)state;
    static const char TEXT[] =
        "\xEF\xBB\xBF [{\"text\":\"]\\\"}\"} ,\r\n\"a, \\\\\",\n12\n,null,[{}]]\n ";
    static const expected_record EXPECTED[] = {RECORD(5, "{\"text\":\"]\\\"}\"}"),
                                               RECORD(24, "\"a, \\\\\""), RECORD(33, "12"),
                                               RECORD(37, "null"), RECORD(42, "[{}]")};
    write_text("a.json", TEXT);
    assert_true(write_gzip("b.json", TEXT, strlen(TEXT)));
    write_text("empty.json", " [ ] ");
    for (int64_t unit_bytes = 1; unit_bytes <= 60; unit_bytes++) {
        const bd_input_options reading = reading_of(unit_bytes, NULL);
        check_reader("a.json", &reading, EXPECTED, 5);
        check_reader("b.json", &reading, EXPECTED, 5);
        check_reader("empty.json", &reading, NULL, 0);
    }
}

// The text around the elements must be valid; deep nesting and huge elements take no memory.
static void broken_array_is_refused(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"", "line 1 (byte 0): not a JSON array; see --format"},
        {"{}", "line 1 (byte 0): not a JSON array; see --format"},
        {"[1", "line 1 (byte 2): the file ends before its array does"},
        {"[1,\n", "line 2 (byte 4): the file ends before its array does"},
        {"[1,]", "line 1 (byte 3): no element before this ',' or ']' of the array"},
        {"[,1]", "line 1 (byte 1): no element before this ',' or ']' of the array"},
        {"[1 2]", "line 1 (byte 3): neither ',' nor ']' after an element of the array"},
        {"[\"a\\\"]", "line 1 (byte 6): the file ends inside an element of its array"},
        {"[[[[", "line 1 (byte 4): the file ends inside an element of its array"},
        {"[1] [2]", "line 1 (byte 4): something after the array's end"},
    };
    bd_input_options reading = reading_of(1000, NULL);
    reading.format = &bd_json_kind;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        write_text("a", CASES[i][0]);
        bd_input input = examine("a", &reading);
        bd_reader *reader = open_reader(&input, &reading);
        bd_record record;
        bd_status status = BD_OK;
        bd_error err = {0};
        char message[100];
        bd_reader_begin(reader, (bd_slice){0, INT64_MAX});
        for (bool found = true; status == BD_OK && found;)
            status = bd_reader_next(reader, &record, &found, &err);
        snprintf(message, sizeof message, "'a', %s", CASES[i][1]);
        assert_int_equal(status, BD_ERR_FORMAT);
        assert_string_equal(err.message, message);
        bd_reader_close(reader);
        bd_input_release(&input);
    }

    enum { DEPTH = 1 << 20 };
    char *deep = malloc(2 * DEPTH + 1);
    assert_non_null(deep);
    memset(deep, '[', DEPTH);
    memset(deep + DEPTH, ']', DEPTH);
    deep[2 * DEPTH] = '\0';
    write_text("a", deep);
    free(deep);
    reading.bad_records = BD_BAD_SKIP;
    bd_input input = examine("a", &reading);
    bd_reader *reader = open_reader(&input, &reading);
    bd_record record;
    bool found;
    bd_reader_begin(reader, (bd_slice){0, INT64_MAX});
    assert_int_equal(bd_reader_next(reader, &record, &found, NULL), BD_OK);
    assert_true(found && record.bad == BD_BAD_TOO_LARGE && record.position == 1);
    assert_int_equal(bd_reader_next(reader, &record, &found, NULL), BD_OK);
    assert_false(found);
    bd_reader_close(reader);
    bd_input_release(&input);
}

static void text_is_one_document_or_delimited(void **state)
{
    (void)state;
    static const char TEXT[] = "one\n%\ntwo\n";
    static const expected_record WHOLE[] = {RECORD(0, "one\n%\ntwo\n")},
                                 DELIMITED[] = {RECORD(0, "one"), RECORD(6, "two")};
    write_text("a.txt", TEXT);
    assert_true(write_gzip("b.txt", TEXT, strlen(TEXT)));
    for (int64_t unit_bytes = 1; unit_bytes <= 12; unit_bytes++) {
        const bd_input_options whole = reading_of(unit_bytes, NULL);
        const bd_input_options delimited = reading_of(unit_bytes, "%");
        check_reader("a.txt", &whole, WHOLE, 1);
        check_reader("b.txt", &whole, WHOLE, 1);
        check_reader("a.txt", &delimited, DELIMITED, 2);
        check_reader("b.txt", &delimited, DELIMITED, 2);
    }
}

static void an_empty_file_is_an_empty_document_of_text_and_no_line(void **state)
{
    (void)state;
    static const expected_record EMPTY[] = {RECORD(0, "")};
    write_text("a.txt", "");
    write_text("a.jsonl", "");
    assert_true(write_gzip("b.txt", "", 0));
    const bd_input_options reading = reading_of(10, NULL);
    check_reader("a.txt", &reading, EMPTY, 1);
    check_reader("b.txt", &reading, EMPTY, 1);
    check_reader("a.jsonl", &reading, NULL, 0);
}

// Ids have the file's width, without the end-of-text tokens of llm.c.
static void tokens_come_as_ids(void **state)
{
    (void)state;
    const uint16_t ids[] = {7, END_OF_TEXT, 1, 2, END_OF_TEXT, END_OF_TEXT, 3};
    const int32_t header[256] = {20240520, 1, 7};
    const char *data = (const char *)ids;
    const expected_record llm_c[] = {{0, data, 2, true},
                                     {1, data + 4, 4, false},
                                     {4, data + 10, 0, false},
                                     {5, data + 12, 2, false}};
    FILE *file = fopen("a.bin", "wb");
    assert_non_null(file);
    fwrite(header, sizeof header, 1, file);
    fwrite(ids, sizeof ids, 1, file);
    assert_int_equal(fclose(file), 0);
    const uint64_t ends[] = {1, 1, 7};
    const expected_record raw[] = {
        {0, data, 2, false}, {1, data + 2, 0, false}, {2, data + 2, 12, false}};
    write_file("a.ds", ids, sizeof ids);
    write_file("a.ds.index", ends, sizeof ends);
    for (int64_t unit_bytes = 1; unit_bytes <= 20; unit_bytes++) {
        const bd_input_options reading = reading_of(unit_bytes, NULL);
        check_reader("a.bin", &reading, llm_c, 4);
        check_reader("a.ds", &reading, raw, 3);
    }
}

static void a_document_of_tokens_has_a_largest_size_too(void **state)
{
    (void)state;
    const uint16_t ids[] = {1, 2, 3, 4, 5};
    const uint64_t ends[] = {2, 5};
    write_file("a.ds", ids, sizeof ids);
    write_file("a.ds.index", ends, sizeof ends);
    bd_input_options reading = reading_of(100, NULL);
    for (reading.max_document_bytes = 4; reading.max_document_bytes <= 6;
         reading.max_document_bytes++) {
        bd_input input = examine("a.ds", &reading);
        bd_reader *reader = open_reader(&input, &reading);
        bd_record record;
        bool found;
        bd_error err = {0};
        bd_reader_begin(reader, (bd_slice){0, 2});
        assert_int_equal(bd_reader_next(reader, &record, &found, NULL), BD_OK);
        const bd_status status = bd_reader_next(reader, &record, &found, &err);
        assert_int_equal(status, reading.max_document_bytes < 6 ? BD_ERR_FORMAT : BD_OK);
        assert_int_equal(record.position, 1);
        if (status != BD_OK)
            assert_non_null(strstr(err.message, "a record larger than --max-document-bytes"));
        bd_reader_close(reader);
        bd_input_release(&input);
    }
}

// ---- Messages about bad records -----------------------------------------------------------

static void assert_blame(const bd_input *input, int64_t position, const char *expected)
{
    bd_error err = {0};
    const bd_record record = {.position = position};
    bd_fail(&err, BD_ERR_FORMAT, "bad");
    assert_int_equal(bd_reader_blame(input, &record, BD_ERR_FORMAT, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, expected);
    assert_int_equal(bd_reader_blame(input, &record, BD_ERR_FORMAT, NULL), BD_ERR_FORMAT);
}

static void a_record_is_named_in_the_words_of_its_format(void **state)
{
    (void)state;
    write_text("a", "1\n2\n\n4\n");
    assert_true(write_gzip("b", "1\n2\n\n4\n", 7));
    const bd_input json = {.path = "a", .kind = &bd_jsonl_kind},
                   zipped = {.path = "b", .kind = &bd_jsonl_kind, .compression = &bd_gzip},
                   input = {.path = "-", .kind = &bd_jsonl_kind},
                   gone = {.path = "gone", .kind = &bd_jsonl_kind},
                   text = {.path = "a", .kind = &bd_text_kind};
    assert_blame(&json, 0, "'a', line 1 (byte 0): bad");
    assert_blame(&json, 5, "'a', line 4 (byte 5): bad");
    assert_blame(&zipped, 5, "'b', line 4 (byte 5): bad");
    assert_blame(&input, 5, "'-', document at byte 5: bad");  // it cannot be read again
    assert_blame(&gone, 5, "'gone', document at byte 5: bad");
    assert_blame(&text, 5, "'a', document at byte 5: bad");
    static const bd_input_kind *const TABLES[] = {&bd_parquet_kind, &bd_arrow_kind,
                                                  &bd_arrow_stream_kind};
    for (int i = 0; i < 3; i++) {
        const bd_input table = {.path = "t", .kind = TABLES[i]};
        assert_blame(&table, 7, "'t', row 7: bad");
    }
}

static void assert_changed(const bd_input *input, const bd_input_options *reading)
{
    bd_reader *reader;
    bd_error err = {0};
    char message[100];
    assert_int_equal(bd_reader_open(&reader, input, reading, &err), BD_ERR_IO);
    assert_null(reader);
    snprintf(message, sizeof message, "cannot read '%s': it changed while it was being packed",
             input->path);
    assert_string_equal(err.message, message);
}

// The plan is only valid for the file that was examined.
static void a_file_that_changed_its_size_is_refused(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"a.txt", "b.txt", "a.ds"};
    const uint16_t ids[] = {1, 2, 3};
    const bd_input_options reading = reading_of(100, NULL);
    write_text("a.txt", "abcd");
    assert_true(write_gzip("b.txt", "abcd", 4));
    write_file("a.ds", ids, sizeof ids);
    write_file("a.ds.index", (const uint64_t[]){1, 3}, 16);
    for (int i = 0; i < 3; i++) {
        bd_input input = examine(NAMES[i], &reading);
        if (i == 0) {
            write_text("a.txt", "abc");
            assert_changed(&input, &reading);
            write_text("a.txt", "abcde");
        } else if (i == 1) {
            assert_true(write_gzip("b.txt", "quite another text", 18));
        } else {
            write_file("a.ds.index", (const uint64_t[]){1, 2, 3}, 24);  // one document more
        }
        assert_changed(&input, &reading);
        bd_input_release(&input);
    }
}

static void a_file_that_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    const bd_input_options reading = reading_of(10, NULL);
    static const bd_input_kind *const FORMATS[] = {&bd_text_kind, &bd_parquet_kind,
                                                   &bd_llm_c_kind};
    for (int i = 0; i < 3; i++) {
        const bd_input input = {.path = "nowhere", .kind = FORMATS[i]};
        bd_reader *reader;
        bd_error err = {0};
        assert_int_not_equal(bd_reader_open(&reader, &input, &reading, &err), BD_OK);
        assert_null(reader);
        assert_non_null(strstr(err.message, "'nowhere'"));
    }
    bd_reader_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(lines_of_json_come_as_they_are),
        test_inside_folder(rows_of_csv_give_their_text),
        test_inside_folder(broken_rows_of_csv_are_bad_records),
        test_inside_folder(header_of_csv_names_the_column_once),
        test_inside_folder(elements_of_json_come_as_they_are),
        test_inside_folder(broken_array_is_refused),
        test_inside_folder(text_is_one_document_or_delimited),
        test_inside_folder(an_empty_file_is_an_empty_document_of_text_and_no_line),
        test_inside_folder(tokens_come_as_ids),
        test_inside_folder(a_document_of_tokens_has_a_largest_size_too),
        test_inside_folder(a_record_is_named_in_the_words_of_its_format),
        test_inside_folder(a_file_that_changed_its_size_is_refused),
        test_inside_folder(a_file_that_cannot_be_opened_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
