#include "packer/plan.h"

#include "common/manifest.h"
#include "tests/unit/temporary_folder.h"

static bd_input inputs_of_a_job[2];
static bd_inputs inputs;

// A job with something in every field that the plan records.
static bd_pack_job a_job(void)
{
    inputs_of_a_job[0] = (bd_input){.path = "/somewhere/a.txt",
                                    .name = "a.txt",
                                    .format = BD_INPUT_TEXT,
                                    .size_bytes = 10,
                                    .edges = bd_digest_of("a", 1)};
    inputs_of_a_job[1] = (bd_input){.path = "/somewhere/b.jsonl",
                                    .name = "b.jsonl",
                                    .format = BD_INPUT_JSONL,
                                    .size_bytes = INT64_C(1) << 50,
                                    .edges = bd_digest_of("b", 1)};
    inputs = (bd_inputs){.items = inputs_of_a_job, .n = 2};
    bd_pack_job job = {
        .packing = {.seq_len = 8,
                    .vocab_size = 257,
                    .separator = 256,
                    .bos = BD_NO_BOS,
                    .padding = 256,
                    .batch_rows = 100,
                    .strategy = BD_STRATEGY_BEST_FIT,
                    .long_policy = BD_LONG_SPLIT,
                    .tokenizer = "bytes"},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = &inputs,
        .text_field = "text",
        .delimiter = "%",
        .utf8_policy = BD_UTF8_ERROR,
        .unit_bytes = 64,
        .max_document_bytes = 1000,
        .folder = "out",
    };
    job.packing.fingerprint = job.tokenizer->fingerprint;
    return job;
}

static void publish(const bd_pack_job *job)
{
    bd_json *plan = bd_plan_to_json(job);
    char *text;
    assert_int_equal(bd_plan_print(plan, &text, NULL), BD_OK);
    assert_int_equal(text[strlen(text) - 1], '\n');
    write_text("plan.json", text);
    free(text);
    bd_json_free(plan);
}

static void cuts_are_read_as_they_were_written(void **state)
{
    (void)state;
    static const int64_t UNITS[] = {1, 64, INT64_C(1) << 40, INT64_MAX};
    static const char *const DELIMITERS[] = {NULL, "%", ""};
    for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++) {
        for (size_t d = 0; d < sizeof DELIMITERS / sizeof *DELIMITERS; d++) {
            bd_pack_job job = a_job();
            job.unit_bytes = UNITS[u];
            job.delimiter = DELIMITERS[d];
            publish(&job);
            bd_plan_cuts cuts;
            assert_int_equal(bd_plan_read_cuts(&cuts, ".", NULL), BD_OK);
            assert_int_equal(cuts.unit_bytes, UNITS[u]);
            assert_int_equal(cuts.text_is_whole, DELIMITERS[d] == NULL);
        }
    }
}

static void assert_difference(const bd_pack_job *job, const char *expected)
{
    const bd_pack_job other = a_job();
    bd_json *there = bd_plan_to_json(&other);
    bd_json *here = bd_plan_to_json(job);
    char where[256] = "none";
    const bool differ = bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    assert_true(differ == (expected != NULL));
    if (expected)
        assert_string_equal(where, expected);
}

#define WITH(change, expected)             \
    do {                                   \
        bd_pack_job job = a_job();         \
        change;                            \
        assert_difference(&job, expected); \
    } while (0)

static void every_option_that_changes_a_byte_makes_another_plan(void **state)
{
    (void)state;
    WITH(job.packing.seq_len = 9, "packing.seq_len: 9 here, 8 there");
    WITH(job.packing.vocab_size = 300, "packing.vocab_size: 300 here, 257 there");
    WITH(job.packing.separator = 0, "packing.separator: 0 here, 256 there");
    WITH(job.packing.bos = 0, "packing.bos: 0 here, null there");
    WITH(job.packing.padding = 0, "packing.padding: 0 here, 256 there");
    WITH(job.packing.batch_rows = 5, "packing.batch_rows: 5 here, 100 there");
    WITH(job.packing.strategy = BD_STRATEGY_CONCAT,
         "packing.strategy: \"concat\" here, \"best-fit\" there");
    WITH(job.packing.long_policy = BD_LONG_DROP,
         "packing.long: \"drop\" here, \"split\" there");
    WITH(job.text_field = "body", "reading.text_field: \"body\" here, \"text\" there");
    WITH(job.delimiter = NULL, "reading.delimiter: null here, \"%\" there");
    WITH(job.delimiter = "", "reading.delimiter: \"\" here, \"%\" there");
    WITH(job.utf8_policy = BD_UTF8_KEEP,
         "reading.invalid_utf8: \"keep\" here, \"error\" there");
    WITH(job.unit_bytes = 65, "reading.unit_size: 65 here, 64 there");
    WITH(job.max_document_bytes = 1, "reading.max_document_bytes: 1 here, 1000 there");
}

// The inputs are shared, so each change is made after the job that it is compared with.
static void every_change_of_an_input_makes_another_plan(void **state)
{
    (void)state;
    bd_json *before[6];
    const bd_pack_job job = a_job();
    before[0] = bd_plan_to_json(&job);
    inputs_of_a_job[0].name = "z.txt";
    before[1] = bd_plan_to_json(&job);
    inputs_of_a_job[0].format = BD_INPUT_JSONL;
    before[2] = bd_plan_to_json(&job);
    inputs_of_a_job[1].size_bytes++;
    before[3] = bd_plan_to_json(&job);
    inputs_of_a_job[1].edges.hex[0] ^= 1;
    before[4] = bd_plan_to_json(&job);
    inputs.n = 1;
    before[5] = bd_plan_to_json(&job);
    static const char *const NAMED[] = {"name", "format", "bytes", "edges", "inputs"};
    for (int i = 0; i < 5; i++) {
        char where[256];
        assert_true(bd_json_difference(before[i + 1], before[i], where, sizeof where));
        assert_non_null(strstr(where, NAMED[i]));
    }
    for (int i = 0; i < 6; i++)
        bd_json_free(before[i]);
}

static void where_things_lie_is_no_part_of_the_plan(void **state)
{
    (void)state;
    WITH(job.folder = "elsewhere", NULL);
    const bd_pack_job job = a_job();
    bd_json *here = bd_plan_to_json(&job);
    inputs_of_a_job[0].path = "/another/place/a.txt";
    bd_json *there = bd_plan_to_json(&job);
    char where[256];
    assert_false(bd_json_difference(here, there, where, sizeof where));
    bd_json_free(here);
    bd_json_free(there);
}

static void a_plan_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bd_status status;
        const char *message;
    } CASES[] = {
        {"{", BD_ERR_FORMAT, "'./plan.json' is not valid JSON: "},
        {"{}", BD_ERR_FORMAT, "cannot use './plan.json': 'format' is not a string"},
        {"{\"format\":\"2.0\"}", BD_ERR_UNSUPPORTED, "cannot use './plan.json': format '2.0'"},
        {"{\"format\":\"1.0\"}", BD_ERR_FORMAT,
         "cannot use './plan.json': 'reading' is not an object"},
        {"{\"format\":\"1.7\",\"reading\":{\"unit_size\":0}}", BD_ERR_FORMAT,
         "cannot use './plan.json': 'unit_size': not an integer from 1"},
        {"{\"format\":\"1.0\",\"reading\":{\"unit_size\":\"64\"}}", BD_ERR_FORMAT,
         "cannot use './plan.json': 'unit_size': not an integer from 1"},
    };
    bd_plan_cuts cuts;
    bd_error err = {0};
    assert_int_equal(bd_plan_read_cuts(&cuts, ".", &err), BD_ERR_IO);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        write_text("plan.json", CASES[i].text);
        assert_int_equal(bd_plan_read_cuts(&cuts, ".", &err), CASES[i].status);
        assert_int_equal(strncmp(err.message, CASES[i].message, strlen(CASES[i].message)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(cuts_are_read_as_they_were_written),
        cmocka_unit_test(every_option_that_changes_a_byte_makes_another_plan),
        cmocka_unit_test(every_change_of_an_input_makes_another_plan),
        cmocka_unit_test(where_things_lie_is_no_part_of_the_plan),
        test_inside_folder(a_plan_that_cannot_be_used_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
