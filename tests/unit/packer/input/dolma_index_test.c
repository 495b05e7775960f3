#include "packer/input/dolma_index.h"

#include <inttypes.h>

#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void assert_ends(int64_t n_tokens, const int64_t *ends, size_t n)
{
    bd_dolma_index index;
    bd_error err = {0};
    if (bd_dolma_index_read(&index, "x.csv.gz", "x.npy", n_tokens, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(index.n_documents, n);
    for (size_t d = 0; d < n; d++)
        assert_int_equal(index.ends[d], ends[d]);
    bd_dolma_index_release(&index);
    assert_null(index.ends);
    bd_dolma_index_release(&index);
}

static void assert_refused(int64_t n_tokens, const char *message)
{
    bd_dolma_index index = {(int64_t *)&index, 1};
    bd_error err = {0};
    assert_int_equal(bd_dolma_index_read(&index, "x.csv.gz", "x.npy", n_tokens, &err),
                     BD_ERR_FORMAT);
    assert_string_equal(err.message, message);
    assert_null(index.ends);
    assert_int_equal(index.n_documents, 0);
}

static void documents_end_where_the_rows_say(void **state)
{
    (void)state;
    static const char ROWS[] = "0,0,a,s,1\r\n0,0,,,\r\n0,3,\"b,\n\"\"7,9\"\"\",s\"t,3\n"
                               "3,3,\"\",\"\",\"\"\n\"3\",\"4\",c,s,5\n4,12,d,\"s\"x,6\n"
                               "12,12,e,s,7\n12,17,f,s,\"8\n\"\r\n17,17,g,s,9\n17,17,h,s,";
    static const int64_t ENDS[] = {0, 0, 3, 3, 4, 12, 12, 17, 17, 17};
    write_text("x.csv.gz", ROWS);
    assert_ends(17, ENDS, COUNT(ENDS));
    assert_ends(18, ENDS, COUNT(ENDS));  // the caller checks the tokens after the last document
    write_text("x.csv.gz", "");
    assert_ends(0, NULL, 0);
    write_text("x.csv.gz", "0,999999999999999999,a,s,1\n");
    assert_ends(INT64_MAX, (int64_t[]){999999999999999999}, 1);
}

// Longer than one read, so that chunks end anywhere in a row.
static void a_long_table_is_read_to_its_end(void **state)
{
    (void)state;
    enum { N = 20000 };
    static int64_t ends[N];
    uint64_t seed = 22;
    print_message("seed %" PRIu64 "\n", seed);
    FILE *table = fopen("x.csv.gz", "wb");
    assert_non_null(table);
    for (int d = 0; d < N; d++) {
        const int64_t begin = d == 0 ? 0 : ends[d - 1];
        ends[d] = begin + random_between(&seed, 0, 3);
        fprintf(table, "%" PRId64 ",\"%" PRId64 "\",\"i\"\",\n\",%.*s,%d\r\n", begin, ends[d],
                random_between(&seed, 0, 8), "a source", d);
    }
    assert_true(ftell(table) > 4 << 16);
    assert_int_equal(fclose(table), 0);
    assert_ends(ends[N - 1], ends, N);
}

// A table that ends exactly at the end of a chunk, or one byte before or after it.
static void a_table_of_whole_chunks_is_read_to_its_end(void **state)
{
    (void)state;
    enum { CHUNK = 1 << 16 };
    static char text[2 * CHUNK + 2];
    for (size_t n = 2 * CHUNK - 1; n <= 2 * CHUNK + 1; n++) {
        memset(text, 'x', sizeof text);
        memcpy(text, "0,5,", 4);
        text[n - 3] = text[n - 2] = ',';
        text[n - 1] = '\n';
        write_file("x.csv.gz", text, n);
        assert_ends(5, (int64_t[]){5}, 1);
    }
}

static void every_lie_of_a_table_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *message;
    } LIES[] = {
        {"start,end,id,src,loc\n0,9,a,b,1\n", "row 1: the start is not a number of tokens"},
        {"0,4,a,b,1\n4,x,a,b,1\n", "row 2: the end is not a number of tokens"},
        {"0,4,a,b,1\n4,-9,a,b,1\n", "row 2: the end is not a number of tokens"},
        {"0,1000000000000000000,a,b,1\n", "row 1: the end is not a number of tokens"},
        {"0,999999999999999999,a,b,1\n",
         "row 1 ends at token 999999999999999999, but 'x.npy' has 9"},
        {"\"0\"\"\",9,a,b,1\n", "row 1: the start is not a number of tokens"},
        {"0,4,a,b,1\n,9,a,b,1\n", "row 2 has no start"},
        {"0,,a,b,1\n", "row 1 has no end"},
        {"0,4,a,b,1\n\n4,9,a,b,1\n", "row 2 has no start"},
        {"0,9,a,b\n", "row 1 has 4 columns, not 5"},
        {"0,9", "row 1 has 2 columns, not 5"},
        {"0,9,a,b,1,c\n", "row 1 has more than 5 columns"},
        {"0,4,a,b,1\n3,9,a,b,1\n", "row 2 begins at token 3, but the one before it ends at 4"},
        {"0,4,a,b,1\n5,9,a,b,1\n", "row 2 begins at token 5: token 4 belongs to no document"},
        {"1,9,a,b,1\n", "row 1 begins at token 1: token 0 belongs to no document"},
        {"0,4,a,b,1\n4,3,a,b,1\n", "row 2 begins at token 4 and ends at 3"},
        {"0,10,a,b,1\n", "row 1 ends at token 10, but 'x.npy' has 9"},
        {"0,4,a,b,1\n4,9,\"a,b,1\n", "row 2 ends inside quotes"},
    };
    for (size_t i = 0; i < COUNT(LIES); i++) {
        char message[256];
        write_text("x.csv.gz", LIES[i].rows);
        snprintf(message, sizeof message, "cannot use 'x.csv.gz': %s", LIES[i].message);
        assert_refused(9, message);
    }
}

static void save_empty_documents(int64_t n)
{
    FILE *table = fopen("x.csv.gz", "wb");
    assert_non_null(table);
    for (int64_t d = 0; d < n; d++)
        fputs("0,0,,,\n", table);
    assert_int_equal(fclose(table), 0);
}

static void more_empty_documents_than_anybody_has_are_refused(void **state)
{
    (void)state;
    bd_dolma_index index;
    bd_error err;
    save_empty_documents(BD_DOLMA_MAX_SURPLUS + 3);
    assert_refused(0, "cannot use 'x.csv.gz': it has more than 1048576 rows, too many for the "
                      "0 tokens of 'x.npy'");
    assert_refused(2, "cannot use 'x.csv.gz': it has more than 1048578 rows, too many for the "
                      "2 tokens of 'x.npy'");
    assert_int_equal(bd_dolma_index_read(&index, "x.csv.gz", "x.npy", 3, &err), BD_OK);
    assert_int_equal(index.n_documents, BD_DOLMA_MAX_SURPLUS + 3);
    bd_dolma_index_release(&index);
}

static void a_table_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    bd_dolma_index index = {(int64_t *)&index, 1};
    bd_error err = {0};
    assert_int_equal(bd_dolma_index_read(&index, "x.csv.gz", "x.npy", 9, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot open 'x.csv.gz': No such file or directory");
    assert_null(index.ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(documents_end_where_the_rows_say),
        test_inside_folder(a_long_table_is_read_to_its_end),
        test_inside_folder(a_table_of_whole_chunks_is_read_to_its_end),
        test_inside_folder(every_lie_of_a_table_is_named),
        test_inside_folder(more_empty_documents_than_anybody_has_are_refused),
        test_inside_folder(a_table_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
