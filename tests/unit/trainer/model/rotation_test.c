// The angles by which queries and keys are turned: against formulas in long double, and against
// values that transformers 5.22 computed. Forms in config.json, and what is refused.
#include "trainer/model/rotation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const long double pi = 3.141592653589793238462643383279502884L;

static const bd_rotation plain = {.theta = 1e4};
static const bd_rotation linear = {.theta = 1e4, .scaling = BD_SCALING_LINEAR, .factor = 4};
static const bd_rotation llama31 = {.theta = 5e5,
                                    .scaling = BD_SCALING_LLAMA3,
                                    .factor = 8,
                                    .original_positions = 8192,
                                    .low_frequency_factor = 1,
                                    .high_frequency_factor = 4};
static const bd_rotation llama32 = {.theta = 5e5,
                                    .scaling = BD_SCALING_LLAMA3,
                                    .factor = 32,
                                    .original_positions = 8192,
                                    .low_frequency_factor = 1,
                                    .high_frequency_factor = 4};
static const bd_rotation qwen_yarn = {.theta = 1e6,
                                      .scaling = BD_SCALING_YARN,
                                      .factor = 4,
                                      .original_positions = 32768,
                                      .beta_fast = 32,
                                      .beta_slow = 1,
                                      .truncates = true};
static const bd_rotation odd_yarn = {.theta = 1e4,
                                     .scaling = BD_SCALING_YARN,
                                     .factor = 16,
                                     .original_positions = 1024,
                                     .beta_fast = 16,
                                     .beta_slow = 2,
                                     .attention_factor = 1.3652534311391742};
// So few positions that the whole range lies before the first pair.
static const bd_rotation short_yarn = {.theta = 1e4,
                                       .scaling = BD_SCALING_YARN,
                                       .factor = 16,
                                       .original_positions = 2,
                                       .beta_fast = 32,
                                       .beta_slow = 1,
                                       .truncates = true};
static const bd_rotation *const rotations[] = {&plain,     &linear,   &llama31,   &llama32,
                                               &qwen_yarn, &odd_yarn, &short_yarn};
enum { N_ROTATIONS = sizeof rotations / sizeof rotations[0] };

// ---- Frequencies ----------------------------------------------------------------------------

static long double clamp(long double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

// Each scaling is a mean of the plain frequency and the slow one; `slowed` is the slow one's share.
static long double expected_frequency(const bd_rotation *r, int64_t head_size, int64_t i)
{
    const long double exponent = (long double)(2 * i) / (long double)head_size;
    const long double frequency = expl(-exponent * logl((long double)r->theta));
    const long double turns = (long double)r->original_positions * frequency / (2 * pi);
    long double slowed = 0;
    if (r->scaling == BD_SCALING_LINEAR)
        slowed = 1;
    if (r->scaling == BD_SCALING_LLAMA3)
        slowed = clamp(
            ((long double)r->high_frequency_factor - turns) /
            ((long double)r->high_frequency_factor - (long double)r->low_frequency_factor));
    if (r->scaling == BD_SCALING_YARN) {
        // theta^(-2x/d) C / 2 pi = n, solved for x.
        const long double c = (long double)r->original_positions / (2 * pi);
        const long double per_pair = 2 * logl((long double)r->theta) / (long double)head_size;
        long double first = logl(c / (long double)r->beta_fast) / per_pair;
        long double last = logl(c / (long double)r->beta_slow) / per_pair;
        if (r->truncates) {
            first = floorl(first);
            last = ceill(last);
        }
        first = fmaxl(first, 0);
        last = fminl(last, (long double)(head_size - 1));
        slowed = clamp(((long double)i - first) / (first == last ? 0.001L : last - first));
    }
    return frequency * (1 - slowed) +
           frequency / (r->scaling ? (long double)r->factor : 1) * slowed;
}

static void frequencies_follow_the_formulas(void **state)
{
    (void)state;
    static const int64_t head_sizes[] = {2, 6, 22, 64, 128, 256};
    for (int k = 0; k < N_ROTATIONS; k++)
        for (size_t s = 0; s < sizeof head_sizes / sizeof head_sizes[0]; s++)
            for (int64_t i = 0; i < head_sizes[s] / 2; i++) {
                const long double expected = expected_frequency(rotations[k], head_sizes[s], i);
                const double found = bd_rotation_frequency(rotations[k], head_sizes[s], i);
                // pow() of an exponent of up to 20 in base e, and a few operations more.
                if (!(fabsl((long double)found - expected) <= 1e-14L * expected))
                    fail_msg("rotation %d, heads of %lld: pair %lld turns %.17g, not %.17Lg", k,
                             (long long)head_sizes[s], (long long)i, found, expected);
            }
}

static void frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct {
        const bd_rotation *rotation;
        int64_t head_size;
        struct {
            int64_t pair;
            double frequency;
        } known[8];
    } cases[] = {
        {&llama31,
         128,
         {{0, 1.0},
          {1, 8.146172166e-01},
          {16, 3.760603070e-02},
          {29, 2.166570630e-03},
          {32, 5.248460220e-04},
          {36, 7.784655463e-05},
          {48, 6.647869668e-06},
          {63, 3.068925878e-07}}},
        {&llama32,
         64,
         {{0, 1.0},
          {1, 6.636012793e-01},
          {8, 3.760603070e-02},
          {13, 4.839421250e-03},
          {16, 4.295567051e-04},
          {20, 8.570255886e-06},
          {24, 1.661967417e-06},
          {31, 9.418306490e-08}}},
        {&linear,
         128,
         {{0, 0.25},
          {1, 2.164910883e-01},
          {16, 2.500000037e-02},
          {29, 3.849816276e-03},
          {32, 2.499999944e-03},
          {36, 1.405853312e-03},
          {48, 2.500000119e-04},
          {63, 2.886954826e-05}}},
        {&qwen_yarn,
         128,
         {{0, 1.0},
          {1, 8.058422208e-01},
          {16, 3.162277862e-02},
          {29, 1.405112445e-03},
          {32, 6.029411452e-04},
          {36, 1.798411540e-04},
          {48, 7.905693565e-06},
          {63, 3.102344408e-07}}},
        {&odd_yarn,
         64,
         {{0, 1.0},
          {1, 7.498942018e-01},
          {8, 1.000000015e-01},
          {13, 8.524872363e-03},
          {16, 6.249999860e-04},
          {20, 1.976423664e-04},
          {24, 6.250000297e-05},
          {31, 8.334509403e-06}}},
        {&short_yarn,
         8,
         {{0, 1.0}, {1, 6.250000093e-03}, {2, 6.249999860e-04}, {3, 6.250000297e-05}}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int k = 0; k < 8 && cases[c].known[k].frequency > 0; k++) {
            const double known = cases[c].known[k].frequency;
            const double found = bd_rotation_frequency(cases[c].rotation, cases[c].head_size,
                                                       cases[c].known[k].pair);
            // Theirs are in float, from an exponent in float: some units of the last place.
            if (!(fabs(found - known) <= 16 * 0x1p-24 * known))
                fail_msg("case %zu, pair %lld: %.9e, not %.9e", c,
                         (long long)cases[c].known[k].pair, found, known);
        }
}

// At any position the fixed point gives the angle: only the frequency's own rounding grows.
static void turns_are_exact_at_far_positions(void **state)
{
    (void)state;
    static const uint64_t positions[] = {1, 2, 3, 1000, 131071, (1 << 24) - 1};
    enum { SIZE = 128 };
    for (int k = 0; k < N_ROTATIONS; k++) {
        uint64_t turns[SIZE / 2 + 1];
        turns[SIZE / 2] = 77;
        bd_rotation_turns(rotations[k], SIZE, turns);
        assert_true(turns[SIZE / 2] == 77);
        for (int64_t i = 0; i < SIZE / 2; i++)
            for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++) {
                const long double angle =
                    2 * pi * (long double)(positions[p] * turns[i]) * 0x1p-64L;
                const long double expected =
                    (long double)positions[p] * expected_frequency(rotations[k], SIZE, i);
                const long double bound =
                    1e-14L * expected + (long double)positions[p] * 0x1p-60L;
                if (!(fabsl(sinl(angle) - sinl(expected)) <= bound &&
                      fabsl(cosl(angle) - cosl(expected)) <= bound))
                    fail_msg("rotation %d, pair %lld, position %llu: %.17Lg instead of %.17Lg",
                             k, (long long)i, (unsigned long long)positions[p], sinl(angle),
                             sinl(expected));
            }
    }
}

static void only_yarn_lets_queries_and_keys_grow(void **state)
{
    (void)state;
    assert_true(bd_rotation_scale(&plain) == 1);
    assert_true(bd_rotation_scale(&linear) == 1);
    assert_true(bd_rotation_scale(&llama31) == 1);
    assert_true(fabs(bd_rotation_scale(&qwen_yarn) - 1.138629436111989) < 1e-15);
    assert_true(bd_rotation_scale(&odd_yarn) == odd_yarn.attention_factor);
    assert_true(fabs(bd_rotation_scale(&short_yarn) - 1.2772588722239782) < 1e-15);
}

// ---- config.json ----------------------------------------------------------------------------

static bd_status parse(const char *text, bd_rotation *rotation, bd_error *err)
{
    bd_json *json;
    if (bd_json_parse(text, strlen(text), &json, err) != BD_OK)
        fail_msg("%s: %s", text, err->message);
    *rotation = (bd_rotation){.theta = 1e4};
    const bd_status status = bd_rotation_read_scaling(rotation, json, 2048, err);
    bd_json_free(json);
    return status;
}

static void assert_same_rotation(const bd_rotation *a, const bd_rotation *b)
{
    assert_true(a->theta == b->theta);
    assert_int_equal(a->scaling, b->scaling);
    assert_true(bd_rotation_scale(a) == bd_rotation_scale(b));
    for (int64_t i = 0; i < 64; i++)
        assert_true(bd_rotation_frequency(a, 128, i) == bd_rotation_frequency(b, 128, i));
}

static void all_forms_are_read(void **state)
{
    (void)state;
    static const bd_rotation of_2048 = {.theta = 1e4,
                                        .scaling = BD_SCALING_LLAMA3,
                                        .factor = 8,
                                        .original_positions = 2048,
                                        .low_frequency_factor = 1,
                                        .high_frequency_factor = 4};
    static const bd_rotation other_theta = {.theta = 5e5};
    static const struct {
        const char *text;
        const bd_rotation *expected;
    } cases[] = {
        {"{}", &plain},
        {"{\"rope_type\": \"default\"}", &plain},
        {"{\"type\": \"default\", \"rope_type\": null}", &plain},
        {"{\"rope_type\": \"default\", \"rope_theta\": 500000}", &other_theta},
        {"{\"partial_rotary_factor\": 1}", &plain},
        {"{\"partial_rotary_factor\": 1.0, \"rope_theta\": 5e5}", &other_theta},
        {"{\"rope_type\": \"linear\", \"factor\": 4, \"partial_rotary_factor\": 1.0}", &linear},
        {"{\"rope_type\": \"linear\", \"factor\": 4.0}", &linear},
        {"{\"type\": \"linear\", \"factor\": 4}", &linear},
        {"{\"rope_type\": \"linear\", \"type\": \"yarn\", \"factor\": 4}", &linear},
        {"{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
         "\"rope_theta\": 500000.0}",
         &llama31},
        {"{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4}",
         &of_2048},
        {"{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768, "
         "\"rope_theta\": 1000000}",
         &qwen_yarn},
        {"{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768, "
         "\"rope_theta\": 1000000, \"beta_fast\": null, \"truncate\": true, \"mscale\": 1}",
         &qwen_yarn},
        {"{\"rope_type\": \"yarn\", \"factor\": 16, \"original_max_position_embeddings\": "
         "1024, "
         "\"beta_fast\": 16, \"beta_slow\": 2, \"truncate\": false, "
         "\"attention_factor\": 1.3652534311391742}",
         &odd_yarn},
        {"{\"rope_type\": \"yarn\", \"factor\": 16, \"original_max_position_embeddings\": 2}",
         &short_yarn},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        bd_rotation rotation;
        if (parse(cases[i].text, &rotation, &err) != BD_OK)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_same_rotation(&rotation, cases[i].expected);
    }
}

// "mscale" and "mscale_all_dim" are another way to say the factor.
static void mscale_is_read_as_transformers_read_it(void **state)
{
    (void)state;
    bd_error err;
    bd_rotation rotation;
    assert_int_equal(
        parse("{\"rope_type\": \"yarn\", \"factor\": 16, \"mscale\": 2.0, "
              "\"mscale_all_dim\": 0.5, \"original_max_position_embeddings\": 1024}",
              &rotation, &err),
        BD_OK);
    assert_true(fabs(bd_rotation_scale(&rotation) - 1.3652534311391742) < 1e-15);
    assert_int_equal(parse("{\"rope_type\": \"yarn\", \"factor\": 16, \"mscale\": 2.0, "
                           "\"mscale_all_dim\": 0.5, \"attention_factor\": 1.25}",
                           &rotation, &err),
                     BD_OK);
    assert_true(bd_rotation_scale(&rotation) == 1.25);
}

static void a_written_scaling_is_read_again(void **state)
{
    (void)state;
    for (int k = 0; k < N_ROTATIONS; k++) {
        bd_error err = {0};
        bd_json *json = bd_rotation_scaling_json(rotations[k]);
        assert_int_equal(json == NULL, rotations[k]->scaling == BD_SCALING_NONE);
        if (!json)
            continue;
        bd_rotation again = {.theta = rotations[k]->theta};
        if (bd_rotation_read_scaling(&again, json, 7, &err) != BD_OK)
            fail_msg("%s", err.message);
        assert_same_rotation(&again, rotations[k]);
        bd_json_free(json);
    }
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bd_status status;
        const char *mentions;
    } cases[] = {
        {"{\"rope_type\": \"dynamic\", \"factor\": 2}", BD_ERR_UNSUPPORTED, "'dynamic'"},
        {"{\"type\": \"longrope\"}", BD_ERR_UNSUPPORTED,
         "'type' of the rotation is 'longrope'"},
        {"{\"rope_type\": \"\"}", BD_ERR_UNSUPPORTED, "rope_type"},
        {"{\"rope_type\": 3}", BD_ERR_FORMAT, "rope_type"},
        {"{\"mrope_section\": [1, 2]}", BD_ERR_UNSUPPORTED, "'mrope_section'"},
        {"{\"rope_type\": \"default\", \"factor\": 2}", BD_ERR_UNSUPPORTED, "'factor'"},
        {"{\"rope_type\": \"linear\", \"factor\": 2, \"low_freq_factor\": 1}",
         BD_ERR_UNSUPPORTED, "'low_freq_factor', which is not known for 'linear'"},
        {"{\"rope_type\": \"linear\", \"factor\": 2, \"truncate\": true}", BD_ERR_UNSUPPORTED,
         "'truncate'"},
        {"{\"rope_type\": \"linear\"}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_type\": \"linear\", \"factor\": null}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_type\": \"linear\", \"factor\": 0.5}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_type\": \"linear\", \"factor\": -1}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_type\": \"linear\", \"factor\": 1e300}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_type\": \"linear\", \"factor\": \"2\"}", BD_ERR_FORMAT, "factor"},
        {"{\"rope_theta\": 0.5}", BD_ERR_FORMAT, "rope_theta"},
        {"{\"rope_theta\": \"big\"}", BD_ERR_FORMAT, "rope_theta"},
        {"{\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4}", BD_ERR_FORMAT,
         "low_freq_factor"},
        {"{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 4}",
         BD_ERR_FORMAT, "'high_freq_factor' must be larger"},
        {"{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 0}",
         BD_ERR_FORMAT, "original_max_position_embeddings"},
        {"{\"rope_type\": \"yarn\", \"factor\": 2, \"beta_fast\": -3}", BD_ERR_FORMAT,
         "beta_fast"},
        {"{\"rope_type\": \"yarn\", \"factor\": 2, \"attention_factor\": -1}", BD_ERR_FORMAT,
         "attention_factor"},
        {"{\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": 1}", BD_ERR_FORMAT,
         "truncate"},
        {"{\"rope_type\": \"yarn\", \"factor\": 2, \"mscale\": true}", BD_ERR_FORMAT, "mscale"},
        {"{\"rope_type\": \"yarn\", \"factor\": 2, \"partial_rotary_factor\": 0.5}",
         BD_ERR_UNSUPPORTED, "'partial_rotary_factor'"},
        {"{\"partial_rotary_factor\": 0.99999}", BD_ERR_UNSUPPORTED,
         "'partial_rotary_factor' of the rotation is not 1"},
        {"{\"partial_rotary_factor\": 2}", BD_ERR_UNSUPPORTED,
         "'partial_rotary_factor' of the rotation is not 1"},
        {"{\"partial_rotary_factor\": \"1.0\"}", BD_ERR_FORMAT, "partial_rotary_factor"},
        {"{\"partial_rotary_factor\": true}", BD_ERR_FORMAT, "partial_rotary_factor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        bd_rotation rotation;
        const bd_status status = parse(cases[i].text, &rotation, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].mentions))
            fail_msg("%s: status %d, %s", cases[i].text, (int)status, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_formulas),
        cmocka_unit_test(frequencies_are_those_of_transformers),
        cmocka_unit_test(turns_are_exact_at_far_positions),
        cmocka_unit_test(only_yarn_lets_queries_and_keys_grow),
        cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(mscale_is_read_as_transformers_read_it),
        cmocka_unit_test(a_written_scaling_is_read_again),
        cmocka_unit_test(what_is_not_known_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
