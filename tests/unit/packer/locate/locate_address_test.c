#include "packer/locate/locate_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQ_LEN = 33 };

// Shards 00000-00000 of 5 rows, 00000-00001 of none, 00007-00000 of 1.
static bd_shard_entry shards[] = {
    {.unit = {.input = 0, .slice = 0, .n_inputs = 1}, .figures = {.rows = 5}},
    {.unit = {.input = 0, .slice = 1, .n_inputs = 1}, .figures = {.rows = 0}},
    {.unit = {.input = 7, .slice = 0, .n_inputs = 3}, .figures = {.rows = 1}},
};
static const bd_manifest manifest = {
    .config = {.seq_len = SEQ_LEN}, .shards = shards, .n_shards = 3, .totals = {.rows = 6}};

static void check_is(const char *text, size_t shard, int64_t row, int64_t token)
{
    bd_token_address address;
    bd_error err;
    assert_int_equal(bd_token_address_parse(&address, text, &manifest, &err), BD_OK);
    assert_int_equal(address.shard, shard);
    assert_int_equal(address.row, row);
    assert_int_equal(address.token, token);
}

static void check_refused(const char *text, const char *mention)
{
    bd_token_address address;
    bd_error err;
    assert_int_equal(bd_token_address_parse(&address, text, &manifest, &err), BD_ERR_ARGUMENT);
    if (!strstr(err.message, mention))
        fail_msg("'%s': %s", text, err.message);
    assert_int_equal(bd_token_address_parse(&address, text, &manifest, NULL), BD_ERR_ARGUMENT);
}

static void a_token_is_named_by_shard_row_and_token(void **state)
{
    (void)state;
    check_is("0:0:0", 0, 0, 0);
    check_is("0:4:32", 0, 4, 32);
    check_is("2:0:31", 2, 0, 31);
    check_is("00007-00000.arrow:0:1", 2, 0, 1);
    check_is("00007-00000:0:1", 2, 0, 1);
    check_is("000:01:002", 0, 1, 2);
}

static void a_row_of_the_dataset_is_found_past_empty_shards(void **state)
{
    (void)state;
    check_is("0:0", 0, 0, 0);
    check_is("4:32", 0, 4, 32);
    check_is("5:32", 2, 0, 32);
    for (int64_t row = 0; row < manifest.totals.rows; row++) {
        bd_token_address address;
        char text[32];
        snprintf(text, sizeof text, "%d:1", (int)row);
        assert_int_equal(bd_token_address_parse(&address, text, &manifest, NULL), BD_OK);
        assert_int_equal(bd_token_address_row(&address, &manifest), row);
    }
}

static void absent_shards_rows_and_tokens_are_refused_by_name(void **state)
{
    (void)state;
    check_refused("3:0:0", "no shard '3': the dataset has shards 0 to 2");
    check_refused("00007-00001.arrow:0:0", "00000-00000.arrow to 00007-00000.arrow");
    check_refused("7-0.arrow:0:0", "no shard '7-0.arrow'");
    check_refused("0:5:0", "no row '5': 00000-00000.arrow has rows 0 to 4");
    check_refused("1:0:0", "00000-00001.arrow has no rows");
    check_refused("6:0", "no row '6': the dataset has rows 0 to 5");
    check_refused("0:0:33", "no token '33': a row has tokens 0 to 32");
    check_refused("0:33", "no token '33'");
}

static void an_invalid_address_is_refused(void **state)
{
    (void)state;
    check_refused("", "is not SHARD:ROW:TOKEN or ROW:TOKEN");
    check_refused("7", "is not SHARD:ROW:TOKEN or ROW:TOKEN");
    check_refused("0:0:0:0", "is not SHARD:ROW:TOKEN or ROW:TOKEN");
    check_refused("0:0:0:", "is not SHARD:ROW:TOKEN or ROW:TOKEN");
    check_refused(":", "no row ''");
    check_refused("::", "no shard ''");
    check_refused("-1:0", "no row '-1'");
    check_refused("0:-1", "no token '-1'");
    check_refused("0:1 ", "no token '1 '");
    check_refused("0:0x1", "no token '0x1'");
}

// 2^63, 2^64 and more: none of them may wrap around to a valid number.
static void no_number_overflows(void **state)
{
    static const char *const large[] = {
        "9223372036854775807", "9223372036854775808", "18446744073709551616",
        "340282366920938463463374607431", "10000000000000000000x"};
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s:0:0", large[i]);
        check_refused(text, "no shard");
        snprintf(text, sizeof text, "0:%s:0", large[i]);
        check_refused(text, "no row");
        snprintf(text, sizeof text, "%s:0", large[i]);
        check_refused(text, "no row");
        snprintf(text, sizeof text, "0:%s", large[i]);
        check_refused(text, "no token");
    }
}

static void a_text_of_any_length_is_refused(void **state)
{
    (void)state;
    enum { N = 70000 };
    char *text = calloc(N + 8, 1);
    memset(text, '0', N);
    check_refused(text, "is not SHARD:ROW:TOKEN");
    memcpy(text + N, ":0", 2);
    check_refused(text, "is not SHARD:ROW:TOKEN");
    free(text);
}

static void addresses_come_in_the_order_of_the_dataset(void **state)
{
    static const bd_token_address ordered[] = {{0, 0, 0}, {0, 0, 5}, {0, 1, 2}, {2, 0, 0}};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            const int order = bd_token_address_compare(&ordered[i], &ordered[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_named_by_shard_row_and_token),
        cmocka_unit_test(a_row_of_the_dataset_is_found_past_empty_shards),
        cmocka_unit_test(absent_shards_rows_and_tokens_are_refused_by_name),
        cmocka_unit_test(an_invalid_address_is_refused),
        cmocka_unit_test(no_number_overflows),
        cmocka_unit_test(a_text_of_any_length_is_refused),
        cmocka_unit_test(addresses_come_in_the_order_of_the_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
