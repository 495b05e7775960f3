#include "packer/pack/space.h"

#include <sys/statvfs.h>

#include "tests/unit/temporary_folder.h"

static bd_input items[3];
static bd_inputs inputs;

// A job of inputs that have only a weight; `tokenizer` has one token per byte.
static bd_pack_job job_of(size_t n)
{
    inputs = (bd_inputs){.items = items, .n = n};
    return (bd_pack_job){.config = {.vocab_size = 257},
                         .tokenizer = bd_tokenizer_bytes(),
                         .inputs = &inputs,
                         .folder = "out"};
}

static bd_input weighing(int64_t size_bytes, int64_t weight, int id_bytes)
{
    return (bd_input){.entry = {.size_bytes = size_bytes, .weight = weight},
                      .id_bytes = id_bytes};
}

// Within the few percent that are estimated for separators and boundaries.
static void assert_needed(const bd_pack_job *job, int64_t expected)
{
    const int64_t needed = bd_space_needed(job);
    assert_in_range(needed, expected, expected + expected / 20);
}

static void text_needs_an_id_for_every_token(void **state)
{
    (void)state;
    items[0] = weighing(100000, 100000, 0);
    bd_pack_job job = job_of(1);
    assert_needed(&job, 2 * 100000);
    job.config.vocab_size = 65536;
    assert_needed(&job, 2 * 100000);
    job.config.vocab_size = 65537;
    assert_needed(&job, 4 * 100000);
    bd_tokenizer frugal = *bd_tokenizer_bytes();
    frugal.tokens_per_byte = 0.25;
    job.tokenizer = &frugal;
    assert_needed(&job, 100000);
}

static void tokens_are_counted_by_their_width(void **state)
{
    (void)state;
    items[0] = weighing(800000, 800000, 8);
    const bd_pack_job job = job_of(1);
    assert_needed(&job, 2 * 100000);
}

// The weight is that of the data that is read: a column of a table, not its file.
static void a_weight_counts_before_a_size(void **state)
{
    (void)state;
    items[0] = weighing(1000, 100000, 0);
    const bd_pack_job job = job_of(1);
    assert_needed(&job, 2 * 100000);
}

static void compressed_inputs_and_standard_input_are_guessed(void **state)
{
    (void)state;
    items[0] = weighing(1000, BD_UNKNOWN, 0);
    items[1] = weighing(BD_UNKNOWN, BD_UNKNOWN, 0);
    items[2] = weighing(500, 500, 0);
    bd_pack_job job = job_of(3);
    assert_needed(&job, 2 * (4 * 1000 + 500));
    job = job_of(0);
    assert_int_equal(bd_space_needed(&job), 0);
}

static void compression_saves_space_but_not_all(void **state)
{
    (void)state;
    items[0] = weighing(100000, 100000, 0);
    bd_pack_job job = job_of(1);
    const int64_t plain = bd_space_needed(&job);
    job.config.codec = BD_SHARD_ZSTD;
    assert_in_range(bd_space_needed(&job), plain / 4, plain * 9 / 10);
}

static void there_is_room_for_a_little(void **state)
{
    static const char *const FOLDERS[] = {"out", "no/such/folder/yet", "./out/",
                                          "/nowhere/out"};
    (void)state;
    items[0] = weighing(1000, 1000, 0);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        bd_pack_job job = job_of(1);
        job.folder = FOLDERS[i];
        assert_int_equal(bd_space_check(&job, NULL), BD_OK);
    }
    add_folder("out");
    const bd_pack_job job = job_of(1);
    assert_int_equal(bd_space_check(&job, NULL), BD_OK);
}

// A run that continues or overwrites already has part of its space.
static void existing_files_count_as_free_space(void **state)
{
    (void)state;
    enum { TIB_BITS = 40 };
    struct statvfs info;
    assert_int_equal(statvfs(".", &info), 0);
    const int64_t there = (int64_t)(info.f_bavail * info.f_frsize);
    const int64_t needed = there + (INT64_C(1) << TIB_BITS);
    items[0] = weighing(needed / 2, needed / 2, 0);
    const bd_pack_job job = job_of(1);
    add_folder("out");
    write_text("out/00000-00000.arrow", "");
    assert_int_equal(bd_space_check(&job, NULL), BD_ERR_IO);
    // A sparse file takes no space; two percent are for the estimate.
    assert_int_equal(truncate("out/00000-00000.arrow", (INT64_C(2) << TIB_BITS) + there / 50),
                     0);
    assert_int_equal(bd_space_check(&job, NULL), BD_OK);
}

static void there_is_no_room_for_an_exabyte(void **state)
{
    (void)state;
    static const int64_t WEIGHTS[] = {INT64_C(1) << 60, INT64_MAX};
    for (size_t w = 0; w < 2; w++) {
        for (size_t n = 1; n <= 3; n++) {
            bd_error err = {0};
            const bd_pack_job job = job_of(n);
            for (size_t i = 0; i < n; i++)
                items[i] = weighing(WEIGHTS[w], WEIGHTS[w], 0);
            assert_true(bd_space_needed(&job) > INT64_C(1) << 60);
            assert_int_equal(bd_space_check(&job, &err), BD_ERR_IO);
            assert_non_null(strstr(err.message, "'out'"));
            assert_non_null(strstr(err.message, "EiB"));
            assert_non_null(strstr(err.message, "--no-space-check"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_needs_an_id_for_every_token),
        cmocka_unit_test(tokens_are_counted_by_their_width),
        cmocka_unit_test(a_weight_counts_before_a_size),
        cmocka_unit_test(compressed_inputs_and_standard_input_are_guessed),
        cmocka_unit_test(compression_saves_space_but_not_all),
        test_inside_folder(there_is_room_for_a_little),
        test_inside_folder(existing_files_count_as_free_space),
        test_inside_folder(there_is_no_room_for_an_exabyte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
