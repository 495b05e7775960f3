#include "packer/input/arrow_columns.h"

#include <inttypes.h>

#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { ALLOWANCE_BYTES = 1 << 28 };

// A file that tests/oracle/column_files.py wrote.
typedef struct listed_case {
    char name[64], field[64];
    bd_columns_format format;
    int id_bytes;
    int64_t n_groups;
    char message[256];  // expected if the case is refused
} listed_case;

static bd_columns_format format_named(const char *word)
{
    if (strcmp(word, "parquet") == 0)
        return BD_COLUMNS_PARQUET;
    return strcmp(word, "file") == 0 ? BD_COLUMNS_ARROW_FILE : BD_COLUMNS_ARROW_STREAM;
}

// Opens the list of files; next_case() reads it to its end.
static FILE *open_list(const char *name)
{
    FILE *list = fopen(in(BINDERY_COLUMN_FILES, name), "r");
    assert_non_null(list);
    return list;
}

static bool next_case(FILE *list, listed_case *c)
{
    char format[16];
    if (fscanf(list, "%63s %15s %63s %d %" SCNd64, c->name, format, c->field, &c->id_bytes,
               &c->n_groups) != 5)
        return false;
    c->format = format_named(format);
    return true;
}

static bool next_refused(FILE *list, listed_case *c)
{
    char format[16];
    if (fscanf(list, "%63s %15s %63s %255[^\n]", c->name, format, c->field, c->message) != 4)
        return false;
    c->format = format_named(format);
    return true;
}

static bd_columns *opened(const listed_case *c)
{
    bd_columns *columns;
    bd_error err = {0};
    bd_columns_open(&columns, in(BINDERY_COLUMN_FILES, c->name), c->format, c->field,
                    ALLOWANCE_BYTES, &err);
    assert_string_equal(err.message, "");
    assert_non_null(columns);
    return columns;
}

// ---- Good files ---------------------------------------------------------------------------

// Compares a group with the rows at *expected and moves that pointer after them.
static void assert_group(const listed_case *c, const bd_column_values *values,
                         const char **expected)
{
    int64_t size_bytes = 0;
    for (int64_t i = 0; i < values->n_rows; i++) {
        const bd_value *row = &values->rows[i];
        int64_t length;
        memcpy(&length, *expected, sizeof length);
        *expected += sizeof length;
        if ((row->data == NULL) != (length < 0))
            fail_msg("%s, row %" PRId64 ": null %d, length %" PRId64, c->name, i,
                     row->data == NULL, length);
        if (!row->data)
            continue;
        if (row->size_bytes != length || memcmp(row->data, *expected, (size_t)length) != 0)
            fail_msg("%s, row %" PRId64 " differs", c->name, i);
        *expected += length;
        size_bytes += length;
    }
    assert_int_equal(values->size_bytes, size_bytes);
}

static void assert_rows(const listed_case *c, bd_columns *columns)
{
    size_t size_bytes;
    char name[80];
    snprintf(name, sizeof name, "%s.rows", c->name);
    char *rows = read_file(in(BINDERY_COLUMN_FILES, name), &size_bytes);
    const char *expected = rows;
    int64_t first_row = 0;
    for (int64_t g = 0; g < bd_columns_n_groups(columns); g++) {
        bd_column_values values;
        bd_error err = {0};
        bd_columns_read(columns, g, &values, &err);
        assert_string_equal(err.message, "");
        assert_int_equal(bd_columns_group(columns, g).first_row, first_row);
        assert_int_equal(bd_columns_group(columns, g).n_rows, values.n_rows);
        assert_group(c, &values, &expected);
        first_row += values.n_rows;
    }
    assert_ptr_equal(expected, rows + size_bytes);
    free(rows);
}

static void every_row_is_as_pyarrow_reads_it(void **state)
{
    (void)state;
    FILE *list = open_list("cases");
    listed_case c;
    int n = 0;
    for (; next_case(list, &c); n++) {
        bd_columns *columns = opened(&c);
        if (bd_columns_id_bytes(columns) != c.id_bytes ||
            bd_columns_n_groups(columns) != c.n_groups)
            fail_msg("%s: ids of %d bytes, %" PRId64 " groups", c.name,
                     bd_columns_id_bytes(columns), bd_columns_n_groups(columns));
        assert_rows(&c, columns);
        assert_rows(&c, columns);  // groups may be read again
        bd_columns_close(columns);
    }
    fclose(list);
    assert_true(n > 100);
    bd_columns_close(NULL);
}

static void groups_may_be_read_in_any_order(void **state)
{
    (void)state;
    const listed_case cases[] = {
        {"text-groups-7.parquet", "text", BD_COLUMNS_PARQUET, 0, 37, ""},
        {"text-sliced.file", "text", BD_COLUMNS_ARROW_FILE, 0, 12, ""},
        {"text-sliced.stream", "text", BD_COLUMNS_ARROW_STREAM, 0, 12, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_columns *forward = opened(&cases[i]), *backward = opened(&cases[i]);
        assert_int_equal(bd_columns_n_groups(backward), cases[i].n_groups);
        for (int64_t g = cases[i].n_groups - 1; g >= 0; g--) {
            bd_column_values here, there;
            assert_int_equal(bd_columns_read(backward, g, &here, NULL), BD_OK);
            assert_int_equal(bd_columns_read(forward, g, &there, NULL), BD_OK);
            assert_int_equal(here.n_rows, there.n_rows);
            assert_int_equal(here.size_bytes, there.size_bytes);
        }
        bd_columns_close(backward);
        assert_rows(&cases[i], forward);
        bd_columns_close(forward);
    }
}

// The weight of a group decides where the corpus is cut.
static void weight_of_a_row_group_is_what_the_footer_says(void **state)
{
    (void)state;
    FILE *list = open_list("cases");
    listed_case c;
    int n = 0;
    while (next_case(list, &c)) {
        if (c.format != BD_COLUMNS_PARQUET)
            continue;
        size_t size_bytes;
        char name[80];
        snprintf(name, sizeof name, "%s.weights", c.name);
        char *weights = read_file(in(BINDERY_COLUMN_FILES, name), &size_bytes);
        bd_columns *columns = opened(&c);
        assert_int_equal(size_bytes, c.n_groups * (int64_t)sizeof(int64_t));
        for (int64_t g = 0; g < c.n_groups; g++, n++) {
            int64_t expected;
            memcpy(&expected, weights + g * (int64_t)sizeof expected, sizeof expected);
            assert_int_equal(bd_columns_group(columns, g).weight_bytes, expected);
        }
        bd_columns_close(columns);
        free(weights);
    }
    fclose(list);
    assert_true(n > 300);
}

// The uncompressed size counts, so that compression does not change it.
static void weight_of_a_record_batch_is_the_bytes_of_its_values(void **state)
{
    (void)state;
    FILE *list = open_list("cases");
    listed_case c;
    int n = 0;
    while (next_case(list, &c)) {
        if (c.format == BD_COLUMNS_PARQUET || strstr(c.name, "dictionary"))
            continue;
        bd_columns *columns = opened(&c);
        for (int64_t g = 0; g < c.n_groups; g++, n++) {
            bd_column_values values;
            assert_int_equal(bd_columns_read(columns, g, &values, NULL), BD_OK);
            const int64_t weight_bytes = bd_columns_group(columns, g).weight_bytes;
            if (strstr(c.name, "struct") || strstr(c.name, "fixed"))  // nulls that have bytes
                assert_true(weight_bytes >= values.size_bytes);
            else
                assert_int_equal(weight_bytes, values.size_bytes);
        }
        bd_columns_close(columns);
    }
    fclose(list);
    assert_true(n > 80);
}

// ---- Bad files ----------------------------------------------------------------------------

static bd_status open_and_read(const char *path, const listed_case *c, bd_error *err)
{
    bd_columns *columns;
    BD_TRY(bd_columns_open(&columns, path, c->format, c->field, ALLOWANCE_BYTES, err));
    bd_status status = BD_OK;
    for (int64_t g = 0; status == BD_OK && g < bd_columns_n_groups(columns); g++) {
        bd_column_values values;
        uint64_t sum = 0;
        status = bd_columns_read(columns, g, &values, err);
        for (int64_t i = 0; status == BD_OK && i < values.n_rows; i++) {
            const bd_value *row = &values.rows[i];
            assert_true(row->size_bytes >= 0 && (row->data || row->size_bytes == 0));
            for (int64_t b = 0; b < row->size_bytes; b++)
                sum += (unsigned char)row->data[b];  // the sanitizer notices reads outside
        }
        assert_true(sum < UINT64_MAX);
    }
    bd_columns_close(columns);
    return status;
}

static void unusable_columns_are_refused_with_the_reason(void **state)
{
    (void)state;
    FILE *list = open_list("refused");
    listed_case c;
    int n = 0;
    for (; next_refused(list, &c); n++) {
        bd_error err = {0};
        const char *path = in(BINDERY_COLUMN_FILES, c.name);
        const bd_status status = open_and_read(path, &c, &err);
        assert_true(status == BD_ERR_FORMAT || status == BD_ERR_UNSUPPORTED);
        assert_int_equal(err.status, status);
        char quoted[5000];
        snprintf(quoted, sizeof quoted, "'%s'", path);
        assert_non_null(strstr(err.message, quoted));
        const size_t length = strlen(err.message), expected = strlen(c.message);
        assert_true(length > expected);
        assert_string_equal(err.message + length - expected, c.message);
    }
    fclose(list);
    assert_true(n > 10);
}

static void one_format_is_not_taken_for_another(void **state)
{
    (void)state;
    FILE *list = open_list("cases");
    listed_case c;
    while (next_case(list, &c)) {
        const bd_columns_format right = c.format;
        for (int format = BD_COLUMNS_PARQUET; format <= BD_COLUMNS_ARROW_STREAM; format++) {
            bd_error err = {0};
            c.format = (bd_columns_format)format;
            if (c.format != right)
                assert_int_equal(open_and_read(in(BINDERY_COLUMN_FILES, c.name), &c, &err),
                                 BD_ERR_FORMAT);
        }
    }
    fclose(list);
}

static void absent_file_is_named(void **state)
{
    bd_columns *columns;
    bd_error err = {0};
    const char *path = in(*state, "absent");
    assert_int_equal(
        bd_columns_open(&columns, path, BD_COLUMNS_PARQUET, "text", ALLOWANCE_BYTES, &err),
        BD_ERR_IO);
    assert_null(columns);
    assert_non_null(strstr(err.message, path));
}

// ---- Damage -------------------------------------------------------------------------------

static void damage(char *data, size_t size_bytes, uint64_t *random)
{
    static const unsigned char words[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    const size_t at = next_random(random) % size_bytes;
    switch (next_random(random) % 3) {
    case 0:
        data[at] ^= (char)(1 << next_random(random) % 8);
        break;
    case 1:
        data[at] = (char)next_random(random);
        break;
    default:
        for (size_t i = at; i < size_bytes && i < at + 4; i++)
            data[i] = (char)words[next_random(random) % sizeof words];
    }
}

static void damaged_file_gives_an_error_or_values_and_never_a_crash(void **state)
{
    enum { N_DAMAGES = 300 };
    uint64_t random = 20240611;
    printf("seed %" PRIu64 "\n", random);
    static const listed_case cases[] = {
        {"struct-ids.parquet", "a.b", BD_COLUMNS_PARQUET, 4, 1, ""},
        {"dictionary-overflow.parquet", "text", BD_COLUMNS_PARQUET, 0, 3, ""},
        {"text-pages.parquet", "text", BD_COLUMNS_PARQUET, 0, 1, ""},
        {"text-delta.parquet", "text", BD_COLUMNS_PARQUET, 0, 1, ""},
        {"text-snappy.parquet", "text", BD_COLUMNS_PARQUET, 0, 1, ""},
        {"whole-fixed-list.parquet", "tokens", BD_COLUMNS_PARQUET, 2, 1, ""},
        {"struct-ids.file", "a.b", BD_COLUMNS_ARROW_FILE, 4, 1, ""},
        {"dictionary-null.file", "text", BD_COLUMNS_ARROW_FILE, 0, 1, ""},
        {"text-zstd.file", "text", BD_COLUMNS_ARROW_FILE, 0, 1, ""},
        {"fixed-list.file", "tokens", BD_COLUMNS_ARROW_FILE, 4, 1, ""},
        {"string.stream", "text", BD_COLUMNS_ARROW_STREAM, 0, 1, ""},
        {"ids-sliced.stream", "text", BD_COLUMNS_ARROW_STREAM, 4, 1, ""},
        {"struct-lz4.stream", "a.b", BD_COLUMNS_ARROW_STREAM, 4, 1, ""},
    };
    int n_refused = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size_bytes;
        char *data = read_file(in(BINDERY_COLUMN_FILES, cases[i].name), &size_bytes);
        char *copy = malloc(size_bytes);
        assert_non_null(copy);
        for (int n = 0; n < N_DAMAGES; n++) {
            bd_error err = {0};
            memcpy(copy, data, size_bytes);
            damage(copy, size_bytes, &random);
            write_file(in(*state, "damaged"), copy, size_bytes);
            const bd_status status = open_and_read(in(*state, "damaged"), &cases[i], &err);
            if (status != BD_OK && status != BD_ERR_FORMAT && status != BD_ERR_UNSUPPORTED)
                fail_msg("%s, damage %d: %s", cases[i].name, n, err.message);
            n_refused += status != BD_OK;
        }
        free(copy);
        free(data);
    }
    assert_true(n_refused > N_DAMAGES);
}

static void file_cut_short_is_refused(void **state)
{
    static const listed_case cases[] = {
        {"text-groups-7.parquet", "text", BD_COLUMNS_PARQUET, 0, 37, ""},
        {"text-sliced.file", "text", BD_COLUMNS_ARROW_FILE, 0, 12, ""},
        {"text-sliced.stream", "text", BD_COLUMNS_ARROW_STREAM, 0, 12, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size_bytes;
        char *data = read_file(in(BINDERY_COLUMN_FILES, cases[i].name), &size_bytes);
        for (size_t n = 0; n < size_bytes; n += 61) {
            bd_error err = {0};
            write_file(in(*state, "cut"), data, n);
            const bd_status status = open_and_read(in(*state, "cut"), &cases[i], &err);
            assert_int_equal(status, BD_ERR_FORMAT);
        }
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_as_pyarrow_reads_it),
        cmocka_unit_test(groups_may_be_read_in_any_order),
        cmocka_unit_test(weight_of_a_row_group_is_what_the_footer_says),
        cmocka_unit_test(weight_of_a_record_batch_is_the_bytes_of_its_values),
        cmocka_unit_test(unusable_columns_are_refused_with_the_reason),
        cmocka_unit_test(one_format_is_not_taken_for_another),
        test_in_folder(absent_file_is_named),
        test_in_folder(damaged_file_gives_an_error_or_values_and_never_a_crash),
        test_in_folder(file_cut_short_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
