#include "packer/pack/pack_plan.h"

#include "common/dataset/manifest.h"
#include "tests/unit/temporary_folder.h"

static bd_input inputs_of_a_job[3];
static bd_inputs inputs;

// A job with a value in every field that the plan records.
static bd_pack_job a_job(void)
{
    static int64_t starts[] = {0, 5};
    inputs_of_a_job[0] = (bd_input){.path = "/somewhere/a.txt",
                                    .entry = {.name = "a.txt",
                                              .source = "web",
                                              .format = "text",
                                              .compression = "none",
                                              .size_bytes = 10,
                                              .weight = 10,
                                              .extent = 10,
                                              .starts = starts,
                                              .n_starts = 2},
                                    .edges = bd_digest_of("a", 1)};
    inputs_of_a_job[1] = (bd_input){.path = "/somewhere/b.jsonl",
                                    .entry = {.name = "b.jsonl",
                                              .source = "web",
                                              .format = "jsonl",
                                              .compression = "gzip",
                                              .size_bytes = INT64_C(1) << 50,
                                              .weight = BD_UNKNOWN,
                                              .extent = BD_UNKNOWN,
                                              .stride = 64},
                                    .edges = bd_digest_of("b", 1)};
    inputs_of_a_job[2] = (bd_input){.path = "-",
                                    .entry = {.name = "-",
                                              .source = "default",
                                              .format = "jsonl",
                                              .compression = "none",
                                              .size_bytes = BD_UNKNOWN,
                                              .weight = BD_UNKNOWN,
                                              .extent = BD_UNKNOWN,
                                              .stride = 64}};
    inputs = (bd_inputs){.items = inputs_of_a_job, .n = 3};
    bd_pack_job job = {
        .config = {.seq_len = 8,
                   .vocab_size = 257,
                   .separator = 256,
                   .bos = BD_NO_BOS,
                   .padding = 256,
                   .batch_rows = 100,
                   .strategy = BD_STRATEGY_BEST_FIT,
                   .long_policy = BD_LONG_SPLIT,
                   .shuffle = BD_NO_SHUFFLE,
                   .tokenizer = "bytes"},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = &inputs,
        .reading = {.text_field = "text",
                    .delimiter = "%",
                    .utf8_policy = BD_UTF8_ERROR,
                    .separator = BD_SEPARATOR_APPEND,
                    .unit_bytes = 64,
                    .max_document_bytes = 1000},
        .limit = BD_NO_LIMIT,
        .folder = "out",
    };
    job.config.fingerprint = job.tokenizer->fingerprint;
    return job;
}

static bd_json *plan_of(const bd_pack_job *job)
{
    return bd_pack_plan_to_json(job, &job->config);
}

static void publish(const bd_pack_job *job)
{
    bd_json *plan = plan_of(job);
    char *text;
    assert_int_equal(bd_pack_plan_print(plan, &text, NULL), BD_OK);
    assert_int_equal(text[strlen(text) - 1], '\n');
    write_text("plan.json", text);
    free(text);
    bd_json_free(plan);
}

// The only part of the published plan, without borrowed pointers.
static bd_pack_plan_part read_part(void)
{
    const bd_dataset_config config = a_job().config;
    bd_pack_plan plan;
    assert_int_equal(bd_pack_plan_read(&plan, ".", &config, 5, NULL), BD_OK);
    assert_int_equal(plan.n_parts, 1);
    bd_pack_plan_part part = plan.parts[0];
    assert_int_equal(part.first_input, 0);
    assert_int_equal(part.n_inputs, 5);
    part.json = NULL;
    part.reading.text_field = NULL;
    part.reading.delimiter = part.reading.delimiter ? "some" : NULL;
    bd_pack_plan_release(&plan);
    bd_pack_plan_release(&plan);
    return part;
}

static void parts_are_read_as_they_were_written(void **state)
{
    (void)state;
    static const int64_t UNITS[] = {1, 64, BD_MAX_UNIT_BYTES};
    static const char *const DELIMITERS[] = {NULL, "%", ""};
    for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++) {
        for (size_t d = 0; d < sizeof DELIMITERS / sizeof *DELIMITERS; d++) {
            bd_pack_job job = a_job();
            job.reading.unit_bytes = UNITS[u];
            job.reading.delimiter = DELIMITERS[d];
            publish(&job);
            const bd_pack_plan_part part = read_part();
            assert_int_equal(part.reading.unit_bytes, UNITS[u]);
            assert_true(!part.reading.delimiter == !DELIMITERS[d]);
            assert_int_equal(part.limit, BD_NO_LIMIT);
            job.limit = INT64_MAX;
            publish(&job);
            assert_int_equal(read_part().limit, INT64_MAX);
        }
    }
}

// Only files of plain ids need it; a plan without it means the width of the vocabulary.
static void the_width_of_raw_ids_is_in_the_plan(void **state)
{
    (void)state;
    char where[256];
    bd_pack_job job = a_job();
    job.reading.raw_id_bytes = 4;
    publish(&job);
    assert_false(read_part().has_id_bytes);
    assert_int_equal(read_part().reading.raw_id_bytes, 2);
    bd_json *without = plan_of(&job);
    inputs_of_a_job[0].entry.format = "tokens";
    publish(&job);
    assert_true(read_part().has_id_bytes);
    assert_int_equal(read_part().reading.raw_id_bytes, 4);
    inputs_of_a_job[0].entry.format = "tokens";  // read_part() has initialised it
    bd_json *four = plan_of(&job);
    job.reading.raw_id_bytes = 2;
    bd_json *two = plan_of(&job);
    assert_int_equal(bd_pack_plan_compare(two, four, where, sizeof where), BD_PLANS_DIFFER);
    assert_string_equal(where, "reading.id_bytes: 2 here, 4 there");
    assert_int_equal(bd_pack_plan_compare(without, four, where, sizeof where), BD_PLANS_DIFFER);
    assert_non_null(strstr(where, "].format: "));  // and does not state the width
    bd_json_free(without);
    bd_json_free(four);
    bd_json_free(two);
}

static void assert_difference(const bd_pack_job *job, const char *expected)
{
    const bd_pack_job other = a_job();
    bd_json *there = plan_of(&other);
    bd_json *here = plan_of(job);
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
    WITH(job.config.seq_len = 9, "packing.seq_len: 9 here, 8 there");
    WITH(job.config.vocab_size = 300, "packing.vocab_size: 300 here, 257 there");
    WITH(job.config.separator = 0, "packing.separator: 0 here, 256 there");
    WITH(job.config.bos = 0, "packing.bos: 0 here, null there");
    WITH(job.config.padding = 0, "packing.padding: 0 here, 256 there");
    WITH(job.config.batch_rows = 5, "packing.batch_rows: 5 here, 100 there");
    WITH(job.config.strategy = BD_STRATEGY_CONCAT,
         "packing.strategy: \"concat\" here, \"best-fit\" there");
    WITH(job.config.long_policy = BD_LONG_DROP, "packing.long: \"drop\" here, \"split\" there");
    WITH(job.config.max_documents = 5, "packing.max_documents: 5 here, null there");
    WITH(job.config.min_tokens = 5, "packing.min_tokens: 5 here, 0 there");
    WITH(job.config.shuffle = 0, "packing.shuffle: 0 here, null there");
    WITH(job.config.holdout = 5, "packing.holdout: 5 here, 0 there");
    WITH(job.config.part = BD_PART_TRAINING, "packing.part: \"training\" here, \"all\" there");
    WITH(job.config.codec = BD_SHARD_ZSTD, "packing.codec: \"zstd\" here, \"none\" there");
    WITH(strcpy(job.config.tokenizer, "ids"),
         "packing.tokenizer.name: \"ids\" here, \"bytes\" there");
    WITH(job.reading.separator = BD_SEPARATOR_PRESENT,
         "reading.separator: \"present\" here, \"append\" there");
    WITH(job.limit = 7, "reading.limit: 7 here, null there");
    WITH(job.reading.text_field = "body", "reading.text_field: \"body\" here, \"text\" there");
    WITH(job.reading.delimiter = NULL, "reading.delimiter: null here, \"%\" there");
    WITH(job.reading.delimiter = "", "reading.delimiter: \"\" here, \"%\" there");
    WITH(job.reading.utf8_policy = BD_UTF8_KEEP,
         "reading.invalid_utf8: \"keep\" here, \"error\" there");
    WITH(job.reading.special_tokens = BD_SPECIAL_ERROR,
         "reading.special_tokens: \"error\" here, \"text\" there");
    WITH(job.reading.unit_bytes = 65, "reading.unit_size: 65 here, 64 there");
    WITH(job.reading.max_document_bytes = 1, "reading.max_document_bytes: 1 here, 1000 there");
}

// The inputs are shared, so each change is made after the job that it is compared with.
static void every_change_of_an_input_makes_another_plan(void **state)
{
    (void)state;
    enum { N_CHANGES = 12 };
    static const char *const NAMED[N_CHANGES] = {
        "'z.txt'].name: ",        "'z.txt'].source: ",  "'z.txt'].format: ",
        "'z.txt'].compression: ", "'z.txt'].bytes: ",   "'z.txt'].weight: ",
        "'z.txt'].extent: ",      "'z.txt'].starts",    "'b.jsonl'].stride: ",
        "'b.jsonl'].extent: ",    "'b.jsonl'].edges: ", "inputs"};
    bd_json *plans[N_CHANGES + 1];
    const bd_pack_job job = a_job();
    for (int i = 0; i <= N_CHANGES; i++) {
        bd_input *a = &inputs_of_a_job[0], *b = &inputs_of_a_job[1];
        switch (i) {
        case 1:
            a->entry.name = "z.txt";
            break;
        case 2:
            a->entry.source = "books";
            break;
        case 3:
            a->entry.format = "jsonl";
            break;
        case 4:
            a->entry.compression = "zstd";
            break;
        case 5:
            a->entry.size_bytes++;
            break;
        case 6:
            a->entry.weight = BD_UNKNOWN;
            break;
        case 7:
            a->entry.extent++;
            break;
        case 8:
            a->entry.n_starts--;
            break;
        case 9:
            b->entry.stride++;
            break;
        case 10:
            b->entry.extent = 7;
            break;
        case 11:
            b->edges.hex[0] ^= 1;
            break;
        case 12:
            inputs.n--;
            break;
        }
        plans[i] = plan_of(&job);
    }
    for (int i = 0; i < N_CHANGES; i++) {
        char where[256];
        assert_true(bd_json_difference(plans[i + 1], plans[i], where, sizeof where));
        if (!strstr(where, NAMED[i]))
            fail_msg("'%s' does not name '%s'", where, NAMED[i]);
    }
    for (int i = 0; i <= N_CHANGES; i++)
        bd_json_free(plans[i]);
}

// Nothing is known about standard input, not even whether it is the same.
static void standard_input_has_no_edges(void **state)
{
    (void)state;
    const bd_pack_job job = a_job();
    bd_json *plan = plan_of(&job);
    const bd_json *list;
    const char *edges;
    assert_int_equal(bd_json_get_array(plan, "inputs", &list, NULL), BD_OK);
    assert_int_equal(bd_json_length(list), 3);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(bd_json_get_string(bd_json_at(list, i), "edges", &edges, NULL), BD_OK);
        assert_string_equal(edges, inputs_of_a_job[i].edges.hex);
    }
    assert_true(bd_json_is_null(bd_json_at(list, 2), "edges"));
    assert_true(bd_json_is_null(bd_json_at(list, 2), "bytes"));
    bd_json_free(plan);
}

static void a_dataset_of_another_part_has_its_own_plan(void **state)
{
    (void)state;
    const bd_pack_job job = a_job();
    const bd_dataset_config held_out = bd_holdout_config(&job);
    bd_json *here = plan_of(&job), *there = bd_pack_plan_to_json(&job, &held_out);
    char where[256];
    assert_true(bd_json_difference(here, there, where, sizeof where));
    assert_string_equal(where, "packing.part: \"all\" here, \"held-out\" there");
    bd_json_free(here);
    bd_json_free(there);
}

static void an_entry_of_the_first_format_is_told_how_it_was_cut(void **state)
{
    (void)state;
    const bd_pack_plan_part whole = {.reading = {.unit_bytes = 64}},
                            cut = {.reading = {.unit_bytes = 65, .delimiter = "%"}};
    bd_input_entry text = {.format = "text"}, json = {.format = "jsonl"}, told = {.stride = 7};
    assert_int_equal(bd_pack_plan_complete_entry(&whole, &text, NULL), BD_OK);
    assert_int_equal(text.n_starts, 1);
    assert_int_equal(text.starts[0], 0);
    assert_int_equal(text.stride, 0);
    assert_int_equal(bd_pack_plan_complete_entry(&cut, &text, NULL),
                     BD_OK);  // it is stated already
    assert_int_equal(text.stride, 0);
    free(text.starts);
    text = (bd_input_entry){.format = "text"};
    assert_int_equal(bd_pack_plan_complete_entry(&cut, &text, NULL), BD_OK);
    assert_int_equal(text.stride, 65);
    assert_int_equal(bd_pack_plan_complete_entry(&whole, &json, NULL), BD_OK);
    assert_int_equal(json.stride, 64);
    assert_int_equal(bd_pack_plan_complete_entry(&whole, &told, NULL), BD_OK);
    assert_int_equal(told.stride, 7);
}

static void where_things_lie_is_no_part_of_the_plan(void **state)
{
    (void)state;
    WITH(job.folder = "elsewhere", NULL);
    WITH(job.holdout_folder = "elsewhere/holdout", NULL);
    const bd_pack_job job = a_job();
    bd_json *here = plan_of(&job);
    inputs_of_a_job[0].path = "/another/place/a.txt";
    bd_json *there = plan_of(&job);
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
        {"{\"format\":\"3.0\"}", BD_ERR_UNSUPPORTED, "cannot use './plan.json': format '3.0'"},
        {"{\"format\":\"1.0\"}", BD_ERR_FORMAT,
         "cannot use './plan.json': 'reading' is not an object"},
    };
    const bd_dataset_config config = a_job().config;
    bd_pack_plan plan;
    bd_error err = {0};
    assert_int_equal(bd_pack_plan_read(&plan, ".", &config, 1, &err), BD_ERR_IO);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        write_text("plan.json", CASES[i].text);
        assert_int_equal(bd_pack_plan_read(&plan, ".", &config, 1, &err), CASES[i].status);
        assert_null(plan.json);
        assert_int_equal(strncmp(err.message, CASES[i].message, strlen(CASES[i].message)), 0);
        bd_json *json;
        assert_int_equal(bd_pack_plan_load(".", &json, &err), CASES[i].status);
        assert_null(json);
    }
}

#define READING(unit_size)                                                 \
    "{\"text_field\":\"text\",\"delimiter\":null,\"unit_size\":" unit_size \
    ",\"invalid_utf8\":\"error\",\"max_document_bytes\":9}"
#define JOINED(entries) \
    "{\"format\":\"1.2\",\"reading\":" READING("9") ",\"joined\":" entries "}"
#define PART(n, unit_size) "{\"inputs\":" n ",\"reading\":" READING(unit_size) "}"

static void each_input_of_a_joined_plan_belongs_to_one_part(void **state)
{
    (void)state;
    static const size_t PARTS[] = {0, 0, 1, 2, 2, 2};
    const bd_dataset_config config = a_job().config;
    bd_pack_plan plan;
    write_text("plan.json",
               JOINED("[" PART("2", "64") "," PART("1", "65") "," PART("3", "66") "]"));
    assert_int_equal(bd_pack_plan_read(&plan, ".", &config, 6, NULL), BD_OK);
    assert_int_equal(plan.n_parts, 3);
    for (size_t i = 0; i < 6; i++) {
        const bd_pack_plan_part *part = &plan.parts[bd_pack_plan_find_part(&plan, i)];
        assert_int_equal(bd_pack_plan_find_part(&plan, i), PARTS[i]);
        assert_int_equal(part->reading.unit_bytes, 64 + PARTS[i]);
        assert_true(part->first_input <= i && i < part->first_input + part->n_inputs);
    }
    bd_pack_plan_release(&plan);
}

static void parts_that_are_not_those_of_the_inputs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } CASES[] = {

        {JOINED("[]"), "'joined' has 0 entries for 3 inputs"},
        {JOINED("[{},{},{},{}]"), "'joined' has 4 entries for 3 inputs"},
        {JOINED("[" PART("2", "64") "]"), "'joined' tells of 2 inputs, and there are 3"},
        {JOINED("[" PART("2", "64") "," PART("2", "64") "]"),
         "'joined[1]': 'inputs': not an integer from 1 to 1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const bd_dataset_config config = a_job().config;
        bd_pack_plan plan;
        bd_error err = {0};
        write_text("plan.json", CASES[i].text);
        assert_int_equal(bd_pack_plan_read(&plan, ".", &config, 3, &err), BD_ERR_FORMAT);
        if (!strstr(err.message, CASES[i].message))
            fail_msg("'%s' is not in '%s'", CASES[i].message, err.message);
        assert_null(plan.json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(parts_are_read_as_they_were_written),
        test_inside_folder(the_width_of_raw_ids_is_in_the_plan),
        cmocka_unit_test(every_option_that_changes_a_byte_makes_another_plan),
        cmocka_unit_test(every_change_of_an_input_makes_another_plan),
        cmocka_unit_test(standard_input_has_no_edges),
        cmocka_unit_test(a_dataset_of_another_part_has_its_own_plan),
        cmocka_unit_test(an_entry_of_the_first_format_is_told_how_it_was_cut),
        cmocka_unit_test(where_things_lie_is_no_part_of_the_plan),
        test_inside_folder(a_plan_that_cannot_be_used_is_named),
        test_inside_folder(each_input_of_a_joined_plan_belongs_to_one_part),
        test_inside_folder(parts_that_are_not_those_of_the_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
