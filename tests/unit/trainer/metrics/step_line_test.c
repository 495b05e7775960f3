#include "trainer/metrics/step_line.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/data/step_work.h"

static void assert_line(const bd_step_line *line, const char *expected)
{
    char text[BD_STEP_LINE_COLUMNS + 1];
    bd_step_line_print(line, text);
    assert_string_equal(text, expected);
}

static void a_line_has_everything(void **state)
{
    (void)state;
    const bd_step_result result = {.step = 400, .loss = 2.556};
    bd_step_line line = {
        .result = &result,
        .smoothed_loss = 2.5314,
        .n_steps = 800,
        .pace = {.n_steps = 100, .n_used = 212000, .flop = 3.4e11},
        .elapsed_ns = INT64_C(10000000000),
        .peak_flops = 1e11,
    };
    assert_line(&line, "step 400/800  loss 2.5560 (2.531)  21.2 k tok/s  MFU 34%  40 s left");
    line.pace.flop = 3.4e10;
    assert_line(&line, "step 400/800  loss 2.5560 (2.531)  21.2 k tok/s  MFU 3.4%  40 s left");
    line.peak_flops = 0;
    assert_line(&line,
                "step 400/800  loss 2.5560 (2.531)  21.2 k tok/s  3.40 GFLOP/s  40 s left");
    line.smoothed_loss = NAN;
    assert_line(&line, "step 400/800  loss 2.5560  21.2 k tok/s  3.40 GFLOP/s  40 s left");
}

static void a_line_fits_whatever_it_says(void **state)
{
    (void)state;
    const bd_step_result late = {.step = INT64_C(1) << 39, .loss = 12.345678};
    bd_step_line line = {
        .result = &late,
        .smoothed_loss = 12.345678,
        .n_steps = INT64_C(1) << 40,
        .pace = {.n_steps = 1, .n_used = 123456, .flop = 1e15},
        .elapsed_ns = 999999999,
    };
    assert_line(&line, "step 549755813888/1099511627776  loss 12.3457  123 k tok/s  "
                       "104166 d 16 h left");
    const bd_step_result wild = {.step = INT64_MAX, .loss = -1e300};
    line.result = &wild;
    line.elapsed_ns = 0;
    line.pace = (bd_pace){0};
    char text[BD_STEP_LINE_COLUMNS + 1];
    bd_step_line_print(&line, text);
    assert_true(strlen(text) <= BD_STEP_LINE_COLUMNS);
}

// Rows of 33: one of a single token, one that is exactly full, one with padding.
static void work_is_counted_without_padding_and_across_no_boundary(void **state)
{
    (void)state;
    const int32_t offsets[] = {1, 3, 6, 9}, values[] = {99, 0, 1, 0, 31, 33, 0, 2, 5};
    const bd_boundaries boundaries = {3, 33, offsets, values};
    const bd_step_work work = bd_count_work(&boundaries, 0);
    assert_int_equal(work.n_used, 1 + 33 + 5);
    assert_int_equal(work.n_pairs, 1 + (496 + 3) + (3 + 6));
    assert_int_equal(work.n_window_pairs, work.n_pairs);
    // Segments of 1; 31 and 2; 2 and 3 tokens.
    const bd_step_work narrow = bd_count_work(&boundaries, 2);
    assert_int_equal(narrow.n_pairs, work.n_pairs);
    assert_int_equal(narrow.n_window_pairs, 1 + (61 + 3) + (3 + 5));
}

// Compared with a count by hand of every matrix product of GPT-2 124M.
static void flop_are_those_of_the_matrices_and_the_pairs(void **state)
{
    (void)state;
    bd_error err;
    bd_model_config gpt2;
    assert_int_equal(bd_model_config_preset(&gpt2, "gpt2-124m", &err), BD_OK);
    gpt2.n_vocabulary = 50257;
    const double layer = 768.0 * (3 * 768) + 768.0 * 768 + 2 * 768.0 * 3072;
    const double weights = 12 * layer + 768.0 * 50257;
    assert_true(bd_model_flop(&gpt2, &(bd_step_work){.n_used = 1}) == 6 * weights);
    // q k' and p v, 2 FLOP for each channel: forward once, backward twice.
    assert_true(bd_model_flop(&gpt2, &(bd_step_work){.n_pairs = 1}) ==
                12 * (2 * 2 * 768.0) * 3);

    // Grouped heads, a gate, and a window in one of two layers; the head is a matrix, tied or not.
    bd_model_config gemma = {.family = &bd_family_gemma3_text,
                             .n_layers = 2,
                             .n_channels = 24,
                             .n_heads = 4,
                             .n_kv_heads = 2,
                             .head_size = 10,
                             .n_feed_forward = 50,
                             .n_positions = 64,
                             .n_vocabulary = 11,
                             .window = 3};
    bd_layer_set_add(&gemma.windowed, 1);
    const double matrices = 2 * 24.0 * (40 + 2 * 20 + 40 + 3 * 50) + 24.0 * 11;
    const bd_step_work work = {.n_used = 5, .n_pairs = 100, .n_window_pairs = 7};
    assert_true(bd_model_flop(&gemma, &work) == 6 * matrices * 5 + 12 * 40.0 * (100 + 7));
}

static void a_pace_adds_up(void **state)
{
    (void)state;
    const bd_model_config config = {.family = &bd_family_opt,
                                    .n_layers = 1,
                                    .n_channels = 1,
                                    .n_heads = 1,
                                    .n_kv_heads = 1,
                                    .head_size = 1,
                                    .n_vocabulary = 1};
    const bd_step_result result = {.work = {.n_used = 3, .n_pairs = 6}};
    bd_pace pace = {0};
    bd_pace_add(&pace, &result, &config);
    bd_pace_add(&pace, &result, &config);
    assert_int_equal(pace.n_steps, 2);
    assert_int_equal(pace.n_used, 6);
    assert_true(pace.flop == 2 * (6 * 5 * 3 + 12 * 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_everything),
        cmocka_unit_test(a_line_fits_whatever_it_says),
        cmocka_unit_test(work_is_counted_without_padding_and_across_no_boundary),
        cmocka_unit_test(flop_are_those_of_the_matrices_and_the_pairs),
        cmocka_unit_test(a_pace_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
