#include "trainer/sampling.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"

enum { N_DRAWS = 100000, SEED = 2024 };

// Draws N_DRAWS times and asserts that each id of `in` comes as often as exp(logit /
// temperature) says, within 5 standard deviations, and the others never.
static void assert_frequencies(const float *logits, const bool *in, int64_t n,
                               double temperature, int64_t top_k)
{
    bd_random random = {SEED};
    double scratch[16], weights[16], sum = 0;
    int64_t counts[16] = {0};
    assert_true(n <= 16);
    for (int64_t i = 0; i < n; i++) {
        weights[i] = in[i] ? exp(logits[i] / temperature) : 0;
        sum += weights[i];
    }
    for (int draw = 0; draw < N_DRAWS; draw++) {
        const uint32_t id = bd_sample_token(&random, logits, n, temperature, top_k, scratch);
        assert_in_range(id, 0, n - 1);
        counts[id]++;
    }
    for (int64_t i = 0; i < n; i++) {
        const double p = weights[i] / sum, sigma = sqrt(N_DRAWS * p * (1 - p));
        if (!(fabs((double)counts[i] - N_DRAWS * p) <= 5 * sigma))
            fail_msg("id %d: %d draws, expected %.0f +- %.0f", (int)i, (int)counts[i],
                     N_DRAWS * p, sigma);
    }
}

static const float LOGITS[] = {0.5f, -1.0f, 2.0f, 0.0f, 1.5f, -3.0f, 2.0f, 1.0f};
static const bool ALL[] = {true, true, true, true, true, true, true, true};
enum { N = 8 };

static void temperature_zero_takes_the_first_of_the_largest(void **state)
{
    (void)state;
    double scratch[N];
    for (int64_t top_k = 0; top_k <= N; top_k++) {
        bd_random random = {SEED};
        for (int i = 0; i < 20; i++)
            assert_int_equal(bd_sample_token(&random, LOGITS, N, 0, top_k, scratch), 2);
        assert_true(random.state == SEED);  // nothing was drawn
    }
    const float equal[] = {-INFINITY, -1, -1, -2};
    bd_random random = {SEED};
    assert_int_equal(bd_sample_token(&random, equal, 4, 0, 0, scratch), 1);
    assert_int_equal(bd_sample_token(&random, equal, 1, 0, 0, scratch), 0);
}

static void ids_come_as_often_as_the_logits_say(void **state)
{
    (void)state;
    assert_frequencies(LOGITS, ALL, N, 1.0, 0);
    assert_frequencies(LOGITS, ALL, N, 0.5, 0);
    assert_frequencies(LOGITS, ALL, N, 3.0, 0);
    assert_frequencies(LOGITS, ALL, N, 1.0, N);
    assert_frequencies(LOGITS, ALL, N, 1.0, N + 1);
}

static void only_the_top_k_are_drawn(void **state)
{
    (void)state;
    static const bool three[] = {false, false, true, false, true, false, true, false};
    static const bool five[] = {true, false, true, false, true, false, true, true};
    assert_frequencies(LOGITS, three, N, 1.0, 3);
    assert_frequencies(LOGITS, five, N, 2.0, 5);
}

static void top_1_takes_the_largest(void **state)
{
    (void)state;
    static const float logits[] = {0.1f, 0.3f, 0.2f};
    static const bool second[] = {false, true, false};
    assert_frequencies(logits, second, 3, 5.0, 1);
}

static void ties_with_the_last_of_the_top_k_are_all_in(void **state)
{
    (void)state;
    static const bool both[] = {false, false, true, false, false, false, true, false};
    assert_frequencies(LOGITS, both, N, 1.0, 1);
    static const float equal[] = {7, 7, 7, 7};
    assert_frequencies(equal, ALL, 4, 1.0, 2);
}

static void large_logits_do_not_overflow(void **state)
{
    (void)state;
    static const float logits[] = {30000.0f, 30001.0f, -30000.0f};
    const float shifted[] = {0, 1, -60000.0f};
    bd_random left = {SEED}, right = {SEED};
    double scratch[3];
    for (int i = 0; i < 1000; i++)
        assert_int_equal(bd_sample_token(&left, logits, 3, 1.0, 0, scratch),
                         bd_sample_token(&right, shifted, 3, 1.0, 0, scratch));
    for (int i = 0; i < 1000; i++)  // so cold that only the largest remains
        assert_int_equal(bd_sample_token(&left, logits, 3, 1e-300, 0, scratch), 1);
}

// A broken model gives some valid id.
static void logits_that_are_no_numbers_give_an_id(void **state)
{
    (void)state;
    static const float bad[][3] = {{NAN, NAN, NAN},
                                   {0, NAN, 1},
                                   {INFINITY, 0, INFINITY},
                                   {-INFINITY, -INFINITY, -INFINITY}};
    double scratch[3];
    bd_random random = {SEED};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int64_t top_k = 0; top_k < 4; top_k++)
            assert_in_range(bd_sample_token(&random, bad[i], 3, 0.8, top_k, scratch), 0, 2);
}

static void the_same_seed_draws_the_same_ids(void **state)
{
    (void)state;
    bd_random one = {bd_random_mix(5)}, same = {bd_random_mix(5)}, other = {bd_random_mix(6)};
    double scratch[N];
    int n_other = 0;
    for (int i = 0; i < 200; i++) {
        const uint32_t id = bd_sample_token(&one, LOGITS, N, 1.0, 0, scratch);
        assert_int_equal(bd_sample_token(&same, LOGITS, N, 1.0, 0, scratch), id);
        n_other += bd_sample_token(&other, LOGITS, N, 1.0, 0, scratch) != id;
    }
    assert_true(n_other > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_first_of_the_largest),
        cmocka_unit_test(ids_come_as_often_as_the_logits_say),
        cmocka_unit_test(only_the_top_k_are_drawn),
        cmocka_unit_test(top_1_takes_the_largest),
        cmocka_unit_test(ties_with_the_last_of_the_top_k_are_all_in),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(logits_that_are_no_numbers_give_an_id),
        cmocka_unit_test(the_same_seed_draws_the_same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
