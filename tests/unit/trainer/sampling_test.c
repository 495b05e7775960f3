#include "trainer/sampling.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"

enum { N_DRAWS = 100000, SEED = 2024 };

// The drawing without limits but top_k.
static bd_drawing among(double temperature, int64_t top_k)
{
    return (bd_drawing){.temperature = temperature, .top_k = top_k, .top_p = 1};
}

static uint32_t draw(bd_random *random, const float *logits, int64_t n, double temperature,
                     int64_t top_k, double *scratch)
{
    const bd_drawing drawing = among(temperature, top_k);
    return bd_sample_token(random, logits, n, &drawing, scratch);
}

// Draws N_DRAWS times and asserts that each id of `in` comes as often as exp(logit /
// temperature) says, within 5 standard deviations, and the others never.
static void assert_drawn(const float *logits, const bool *in, int64_t n, bd_drawing drawing)
{
    bd_random random = {SEED};
    double scratch[16], weights[16], sum = 0;
    int64_t counts[16] = {0};
    assert_true(n <= 16);
    for (int64_t i = 0; i < n; i++) {
        weights[i] = in[i] ? exp(logits[i] / drawing.temperature) : 0;
        sum += weights[i];
    }
    for (int draw = 0; draw < N_DRAWS; draw++) {
        const uint32_t id = bd_sample_token(&random, logits, n, &drawing, scratch);
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

static void assert_frequencies(const float *logits, const bool *in, int64_t n,
                               double temperature, int64_t top_k)
{
    assert_drawn(logits, in, n, among(temperature, top_k));
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
            assert_int_equal(draw(&random, LOGITS, N, 0, top_k, scratch), 2);
        assert_true(random.state == SEED);  // nothing was drawn
    }
    const float equal[] = {-INFINITY, -1, -1, -2};
    bd_random random = {SEED};
    assert_int_equal(draw(&random, equal, 4, 0, 0, scratch), 1);
    assert_int_equal(draw(&random, equal, 1, 0, 0, scratch), 0);
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

// Probabilities of 0.5, 0.25, 0.125, 0.0625 and twice 0.03125.
static const float HALVES[] = {-1.0f, -3.0f, 0.0f, -4.0f, -2.0f, -4.0f};
enum { N_HALVES = 6 };

// What is left out must be below the limit, and nothing else.
static void top_p_takes_the_likeliest_that_reach_it(void **state)
{
    (void)state;
    static const struct {
        double top_p;
        bool in[N_HALVES];
    } cases[] = {
        {0.0, {[2] = true}},
        {0.49, {[2] = true}},
        {0.51, {[0] = true, [2] = true}},
        {0.74, {[0] = true, [2] = true}},
        {0.76, {[0] = true, [2] = true, [4] = true}},
        {0.93, {[0] = true, [1] = true, [2] = true, [4] = true}},
        {0.95, {true, true, true, true, true, true}},  // the last two are equal
        {0.9999, {true, true, true, true, true, true}},
        {1.0, {true, true, true, true, true, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_drawn(HALVES, cases[i].in, N_HALVES,
                     (bd_drawing){.temperature = 1 / log(2), .top_p = cases[i].top_p});
}

// Of the two that top-k leaves, the first has 2/3 of the probability.
static void top_p_counts_what_top_k_leaves(void **state)
{
    (void)state;
    static const bool one[] = {[2] = true, [5] = false},
                      two[] = {[0] = true, [2] = true, [5] = 0};
    const double t = 1 / log(2);
    assert_drawn(HALVES, one, N_HALVES,
                 (bd_drawing){.temperature = t, .top_k = 2, .top_p = 0.66});
    assert_drawn(HALVES, two, N_HALVES,
                 (bd_drawing){.temperature = t, .top_k = 2, .top_p = 0.67});
}

static void min_p_is_a_share_of_the_likeliest(void **state)
{
    (void)state;
    static const struct {
        double min_p;
        bool in[N_HALVES];
    } cases[] = {
        {1.0, {[2] = true}},
        {0.51, {[2] = true}},
        {0.49, {[0] = true, [2] = true}},
        {0.24, {[0] = true, [2] = true, [4] = true}},
        {0.06, {true, true, true, true, true, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_drawn(
            HALVES, cases[i].in, N_HALVES,
            (bd_drawing){.temperature = 1 / log(2), .top_p = 1, .min_p = cases[i].min_p});
}

// The temperature changes the probabilities that the limits are about.
static void limits_are_those_of_the_temperature(void **state)
{
    (void)state;
    static const bool one[] = {[2] = true, [5] = false};
    assert_drawn(HALVES, one, N_HALVES,
                 (bd_drawing){.temperature = 0.5 / log(2), .top_p = 0.74});
    assert_drawn(HALVES, one, N_HALVES,
                 (bd_drawing){.temperature = 0.5 / log(2), .top_p = 1, .min_p = 0.26});
}

// Against sorting: the limit of top-k for random logits of every size and sign, with ties.
static void top_k_is_what_sorting_gives(void **state)
{
    (void)state;
    enum { MANY = 500 };
    bd_random random = {3};
    static float logits[MANY];
    static double scratch[MANY];
    for (int i = 0; i < MANY; i++)
        logits[i] = i % 7 == 0
                        ? (i % 2 == 0 ? 0.0f : -0.0f)
                        : (float)(bd_random_normal(&random) * exp2((double)(i % 40) - 20));
    for (int64_t k = 1; k <= MANY; k += 71) {
        bool seen[MANY] = {false};
        const bd_drawing drawing = among(1e9, k);  // all that are in are equally likely
        for (int i = 0; i < 40 * MANY; i++)
            seen[bd_sample_token(&random, logits, MANY, &drawing, scratch)] = true;
        for (int i = 0; i < MANY; i++) {
            int64_t above = 0;
            for (int other = 0; other < MANY; other++)
                above += logits[other] > logits[i];
            assert_int_equal(seen[i], above < k);
        }
    }
}

static void large_logits_do_not_overflow(void **state)
{
    (void)state;
    static const float logits[] = {30000.0f, 30001.0f, -30000.0f};
    const float shifted[] = {0, 1, -60000.0f};
    bd_random left = {SEED}, right = {SEED};
    double scratch[3];
    for (int i = 0; i < 1000; i++)
        assert_int_equal(draw(&left, logits, 3, 1.0, 0, scratch),
                         draw(&right, shifted, 3, 1.0, 0, scratch));
    for (int i = 0; i < 1000; i++)  // so cold that only the largest remains
        assert_int_equal(draw(&left, logits, 3, 1e-300, 0, scratch), 1);
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
            assert_in_range(draw(&random, bad[i], 3, 0.8, top_k, scratch), 0, 2);
}

static void the_same_seed_draws_the_same_ids(void **state)
{
    (void)state;
    bd_random one = {bd_random_mix(5)}, same = {bd_random_mix(5)}, other = {bd_random_mix(6)};
    double scratch[N];
    int n_other = 0;
    for (int i = 0; i < 200; i++) {
        const uint32_t id = draw(&one, LOGITS, N, 1.0, 0, scratch);
        assert_int_equal(draw(&same, LOGITS, N, 1.0, 0, scratch), id);
        n_other += draw(&other, LOGITS, N, 1.0, 0, scratch) != id;
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
        cmocka_unit_test(top_p_takes_the_likeliest_that_reach_it),
        cmocka_unit_test(top_p_counts_what_top_k_leaves),
        cmocka_unit_test(min_p_is_a_share_of_the_likeliest),
        cmocka_unit_test(limits_are_those_of_the_temperature),
        cmocka_unit_test(top_k_is_what_sorting_gives),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(logits_that_are_no_numbers_give_an_id),
        cmocka_unit_test(the_same_seed_draws_the_same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
