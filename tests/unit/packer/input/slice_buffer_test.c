#include "packer/input/slice_buffer.h"

#include "packer/input/examine.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { UNIT = 100, EVERYTHING = 1 << 30 };

static const char PATH[] = "a.jsonl.gz";

// Lines of very different lengths, some blank, one longer than several units.
static size_t write_lines(char *text, int n_lines)
{
    uint64_t random = 20250611;
    size_t n = 0;
    for (int i = 0; i < n_lines; i++) {
        const int size = i == 7 ? 5 * UNIT : random_between(&random, 0, 60);
        memset(text + n, 'a' + i % 26, (size_t)size);
        n += (size_t)size;
        text[n++] = '\n';
    }
    assert_true(write_gzip(PATH, text, n));
    return n;
}

static bd_input_options reading_of(int64_t max_document_bytes)
{
    return (bd_input_options){
        .text_field = "text", .unit_bytes = UNIT, .max_document_bytes = max_document_bytes};
}

// Of *input only the entry must be released.
static bd_reader *open_reader(bd_input *input, const bd_input_options *reading)
{
    bd_reader *reader = NULL;
    bd_error err = {0};
    *input = (bd_input){.path = (char *)PATH};
    bd_status status = bd_input_examine(input, reading, &err);
    if (status == BD_OK)
        status = bd_reader_open(&reader, input, reading, &err);
    if (status != BD_OK)
        fail_msg("%s", err.message);
    return reader;
}

// Every line that is not empty, in the slice in which it begins, as if the text were cut in
// memory.
static void slices_hold_the_records_that_begin_in_them(void **state)
{
    (void)state;
    char text[8192];
    const size_t n = write_lines(text, 80);
    const bd_input_options reading = reading_of(1000);
    bd_input input;
    bd_reader *reader = open_reader(&input, &reading);
    assert_int_equal(input.entry.extent, BD_UNKNOWN);
    size_t line = 0;  // begin of the next line
    bool last = false;
    int64_t consumed = 0;
    bd_slice_buffer gathered = {0};  // used again for every slice
    for (int64_t slice = 0; !last; slice++) {
        bd_reader_begin(reader, bd_input_entry_slice(&input.entry, slice));
        assert_int_equal(bd_slice_buffer_fill(&gathered, reader, EVERYTHING, NULL), BD_OK);
        size_t n_seen = 0;
        while (line < n && line < (size_t)(slice + 1) * UNIT) {
            const size_t size = strcspn(text + line, "\n");
            if (size > 0) {
                assert_true(n_seen < gathered.n);
                const bd_record *record = &gathered.records[n_seen++];
                assert_int_equal(record->position, line);
                assert_int_equal(record->size_bytes, size);
                assert_memory_equal(record->data, text + line, size);
            }
            line += size + 1;
        }
        assert_int_equal(gathered.n, n_seen);
        for (size_t i = 0; gathered.n > 0 && i < BD_RECORD_PADDING; i++)
            assert_int_equal(gathered.bytes[gathered.n_bytes + i], 0);
        last = gathered.last;
        assert_int_equal(last, (size_t)(slice + 1) * UNIT >= n);
        assert_true(bd_reader_consumed(reader) >= consumed);
        consumed = bd_reader_consumed(reader);
    }
    bd_slice_buffer_release(&gathered);
    bd_slice_buffer_release(&gathered);
    assert_int_equal(line, n);
    assert_int_equal(consumed, input.entry.size_bytes);
    bd_reader_close(reader);
    bd_input_entry_release(&input.entry);
}

static void a_limit_ends_the_input(void **state)
{
    (void)state;
    static const char TEXT[] = "a\nb\nc\n";
    for (int64_t limit = 1; limit <= 5; limit++) {
        assert_true(write_gzip(PATH, TEXT, strlen(TEXT)));
        const bd_input_options reading = reading_of(1000);
        bd_input input;
        bd_slice_buffer gathered = {0};
        bd_reader *reader = open_reader(&input, &reading);
        bd_reader_begin(reader, (bd_slice){0, 4});  // "a" and "b" begin there
        assert_int_equal(bd_slice_buffer_fill(&gathered, reader, limit, NULL), BD_OK);
        assert_int_equal(gathered.n, limit < 2 ? limit : 2);
        assert_int_equal(gathered.last, limit <= 2);
        bd_slice_buffer_release(&gathered);
        bd_reader_close(reader);
        bd_input_entry_release(&input.entry);
    }
}

// Digests over each record's bytes and their number as 8 bytes, and over each begin as 8 bytes,
// computed a second time here.
static void the_digests_are_over_bytes_sizes_and_positions(void **state)
{
    (void)state;
    static const char EXPECTED[] = "one\3\0\0\0\0\0\0\0three\5\0\0\0\0\0\0\0";
    static const char PLACES[] = "\0\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0";
    const bd_input_options reading = reading_of(1000);
    bd_input input;
    bd_slice_buffer gathered = {0};
    bd_record_digests digests;
    assert_true(write_gzip(PATH, "one\n\nthree\n", 11));
    bd_reader *reader = open_reader(&input, &reading);
    bd_reader_begin(reader, (bd_slice){0, UNIT});
    assert_int_equal(bd_slice_buffer_fill(&gathered, reader, EVERYTHING, NULL), BD_OK);
    assert_int_equal(bd_slice_buffer_digests(&gathered, 2, &digests, NULL), BD_OK);
    assert_string_equal(digests.records.hex, bd_digest_of(EXPECTED, sizeof EXPECTED - 1).hex);
    assert_string_equal(digests.positions.hex, bd_digest_of(PLACES, sizeof PLACES - 1).hex);
    assert_int_equal(bd_slice_buffer_digests(&gathered, 1, &digests, NULL), BD_OK);
    assert_string_equal(digests.records.hex, bd_digest_of(EXPECTED, 11).hex);
    assert_string_equal(digests.positions.hex, bd_digest_of(PLACES, 8).hex);
    bd_slice_buffer_release(&gathered);

    bd_reader_begin(reader, (bd_slice){UNIT, 2 * UNIT});  // nothing is left
    assert_int_equal(bd_slice_buffer_fill(&gathered, reader, EVERYTHING, NULL), BD_OK);
    assert_int_equal(gathered.n, 0);
    assert_true(gathered.last);
    assert_int_equal(bd_slice_buffer_digests(&gathered, 0, &digests, NULL), BD_OK);
    assert_string_equal(digests.records.hex, bd_digest_of("", 0).hex);
    assert_string_equal(digests.positions.hex, bd_digest_of("", 0).hex);
    bd_slice_buffer_release(&gathered);
    bd_reader_close(reader);
    bd_input_entry_release(&input.entry);
}

static void a_bad_record_is_named_by_its_line(void **state)
{
    (void)state;
    const bd_input_options reading = reading_of(4);
    bd_input input;
    bd_slice_buffer gathered = {0};
    bd_error err = {0};
    assert_true(write_gzip(PATH, "good\n\nworse\n", 12));
    bd_reader *reader = open_reader(&input, &reading);
    bd_reader_begin(reader, (bd_slice){0, UNIT});
    assert_int_equal(bd_slice_buffer_fill(&gathered, reader, EVERYTHING, &err), BD_ERR_FORMAT);
    assert_string_equal(
        err.message,
        "'a.jsonl.gz', line 3 (byte 6): a record larger than --max-document-bytes 4");
    bd_slice_buffer_release(&gathered);
    bd_slice_buffer_release(&gathered);
    bd_reader_close(reader);
    bd_input_entry_release(&input.entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(slices_hold_the_records_that_begin_in_them),
        test_inside_folder(a_limit_ends_the_input),
        test_inside_folder(the_digests_are_over_bytes_sizes_and_positions),
        test_inside_folder(a_bad_record_is_named_by_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
