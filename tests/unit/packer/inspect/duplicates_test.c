#include "packer/inspect/duplicates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Documents 0 … 6: a b a c b a c' where c' has c's hash and another length.
static void repeats_are_counted_with_the_first_of_each(void **state)
{
    (void)state;
    bd_pair pairs[] = {
        bd_duplicates_pair(9, 10, 0), bd_duplicates_pair(5, 3, 1), bd_duplicates_pair(9, 10, 2),
        bd_duplicates_pair(7, 1, 3),  bd_duplicates_pair(5, 3, 4), bd_duplicates_pair(9, 10, 5),
        bd_duplicates_pair(7, 2, 6),
    };
    bd_duplicates d;
    bd_duplicates_find(&d, pairs, 7);
    assert_true(d.exact);
    assert_int_equal(d.documents, 7);
    assert_int_equal(d.distinct, 4);
    assert_int_equal(d.tokens, 10 + 3 + 10 + 1 + 3 + 10 + 2);
    assert_int_equal(d.repeated_tokens, 10 + 10 + 3);
    assert_int_equal(d.n_most, 2);
    assert_int_equal(d.most[0].number, 0);
    assert_int_equal(d.most[0].count, 3);
    assert_int_equal(d.most[0].n_tokens, 10);
    assert_int_equal(d.most[1].number, 1);
    assert_int_equal(d.most[1].count, 2);
}

// More repeated documents than are kept, all twice except one: the earliest are kept.
static void the_earliest_of_equals_are_kept(void **state)
{
    (void)state;
    enum { N = 2 * BD_MOST_REPEATED + 3 };
    bd_pair pairs[2 * N + 1];
    for (int i = 0; i < N; i++) {
        pairs[2 * i] = bd_duplicates_pair((uint64_t)(N - i) << 40, 5, i);
        pairs[2 * i + 1] = bd_duplicates_pair((uint64_t)(N - i) << 40, 5, N + i);
    }
    pairs[2 * N] = bd_duplicates_pair((uint64_t)1 << 40, 5, 2 * N);  // the last one again
    bd_duplicates d;
    bd_duplicates_find(&d, pairs, 2 * N + 1);
    assert_int_equal(d.n_most, BD_MOST_REPEATED);
    assert_int_equal(d.most[0].number, N - 1);
    assert_int_equal(d.most[0].count, 3);
    for (int i = 1; i < BD_MOST_REPEATED; i++)
        assert_int_equal(d.most[i].number, i - 1);
}

static void no_documents_are_no_duplicates(void **state)
{
    (void)state;
    bd_duplicates d;
    bd_duplicates_find(&d, NULL, 0);
    assert_int_equal(d.distinct, 0);
    assert_int_equal(d.n_most, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_counted_with_the_first_of_each),
        cmocka_unit_test(the_earliest_of_equals_are_kept),
        cmocka_unit_test(no_documents_are_no_duplicates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
