#include "packer/pack.h"

#include "common/shard.h"
#include "packer/units.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

static const char *const OPERANDS[] = {"a.jsonl", "b.txt"};

// Two inputs: a JSONL file that is cut into several units, and a text file with a document
// longer than a row.
static void write_corpus(void)
{
    uint64_t random = 20240611;
    FILE *json = fopen(OPERANDS[0], "w"), *text = fopen(OPERANDS[1], "w");
    assert_true(json && text);
    for (int i = 0; i < 60; i++) {
        const int n = random_between(&random, 0, 30);
        fprintf(json, "{\"id\":%d,\"text\":\"%.*s\"}\n", i, n,
                "the quick brown fox jumps over the lazy dog");
    }
    for (int i = 0; i < 100; i++)
        fprintf(text, "%d\n", i);
    assert_int_equal(fclose(json) | fclose(text), 0);
}

static bd_inputs inputs;

static bd_pack_job job_into(const char *folder)
{
    bd_error err = {0};
    bd_inputs_release(&inputs);
    if (bd_inputs_collect(&inputs, OPERANDS, 2, BD_FORMAT_AUTO, &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_pack_job job = {
        .packing = {.seq_len = 32,
                    .vocab_size = 257,
                    .separator = 256,
                    .bos = BD_NO_BOS,
                    .padding = 256,
                    .batch_rows = 4,
                    .tokenizer = "bytes"},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = &inputs,
        .text_field = "text",
        .unit_bytes = 300,
        .max_document_bytes = 1000,
        .folder = folder,
    };
    job.packing.fingerprint = job.tokenizer->fingerprint;
    return job;
}

static bd_pack_result pack(const bd_pack_job *job, int n_threads)
{
    bd_pack_result result;
    bd_error err = {0};
    if (bd_pack(job, n_threads, false, &result, &err) != BD_OK)
        fail_msg("%s", err.message);
    return result;
}

// Packs the corpus, and returns how many shards there are and were.
static int64_t pack_into(const char *folder, int n_threads, int64_t *n_continued)
{
    const bd_pack_job job = job_into(folder);
    bd_pack_result result = pack(&job, n_threads);
    const int64_t n = (int64_t)result.manifest.n_shards;
    *n_continued = result.already_finished ? -1 : result.n_continued;
    bd_manifest_release(&result.manifest);
    bd_inputs_release(&inputs);
    return n;
}

static void assert_packing_fails(const bd_pack_job *job, bd_status status, const char *message)
{
    bd_pack_result result;
    bd_error err = {0};
    assert_int_equal(bd_pack(job, 2, false, &result, &err), status);
    assert_string_equal(err.message, message);
    assert_null(result.manifest.shards);
    assert_false(exists(in(job->folder, "manifest.json")));
    bd_inputs_release(&inputs);
}

static void assert_same_datasets(const char *left, const char *right)
{
    DIR *entries = opendir(left);
    assert_non_null(entries);
    assert_int_equal(count_entries(left), count_entries(right));
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "pack-log.json") != 0)
            assert_same_files(in(left, entry->d_name), in(right, entry->d_name));
    closedir(entries);
}

static void any_number_of_threads_gives_the_same_bytes(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("one", 1, &n_continued);
    assert_true(n_shards > 5);
    assert_int_equal(n_continued, 0);
    assert_int_equal(count_entries("one"), n_shards + 4);  // plan, tokenizer, manifest, log
    assert_int_equal(pack_into("three", 3, &n_continued), n_shards);
    assert_int_equal(pack_into("many", 64, &n_continued), n_shards);
    assert_same_datasets("one", "three");
    assert_same_datasets("one", "many");
}

static void a_finished_dataset_is_left_alone(void **state)
{
    (void)state;
    int64_t n_continued;
    struct stat before, after;
    write_corpus();
    const int64_t n_shards = pack_into("out", 2, &n_continued);
    assert_int_equal(stat("out/pack-log.json", &before), 0);
    assert_int_equal(pack_into("out", 2, &n_continued), n_shards);
    assert_int_equal(n_continued, -1);
    assert_int_equal(stat("out/pack-log.json", &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void a_continued_run_gives_the_same_bytes(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("whole", 1, &n_continued);
    pack_into("cut", 1, &n_continued);
    assert_int_equal(unlink("cut/manifest.json"), 0);
    assert_int_equal(unlink("cut/00000-00002.arrow"), 0);
    assert_int_equal(pack_into("cut", 3, &n_continued), n_shards);
    assert_int_equal(n_continued, n_shards - 1);
    assert_same_datasets("whole", "cut");
}

// Whatever happened to the files of an unfinished run, what it left is never believed blindly.
static void damage_to_an_unfinished_run_is_repaired(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("whole", 1, &n_continued);
    pack_into("hurt", 1, &n_continued);
    assert_int_equal(unlink("hurt/manifest.json"), 0);

    size_t n;
    char *shard = read_file("hurt/00000-00000.arrow", &n);
    write_file("hurt/00000-00003.arrow", shard, n);       // the shard of another unit
    write_file("hurt/00000-00004.arrow", shard, n - 30);  // cut short
    for (size_t i = 0; i + 3 < n; i++)
        if (memcmp(shard + i, "q\0u\0", 4) == 0)
            shard[i] ^= 1;  // a token of a row, nothing that Arrow looks at
    write_file("hurt/00000-00000.arrow", shard, n);
    write_file("hurt/00000-00001.arrow", "", 0);
    write_text("hurt/tokenizer.json", "{}");
    free(shard);

    char *plan = read_file("hurt/plan.json", &n), *indented;
    assert_true(asprintf(&indented, "%s \n", plan) > 0);  // the same plan, other bytes
    write_text("hurt/plan.json", indented);
    free(plan);
    free(indented);

    assert_int_equal(pack_into("hurt", 2, &n_continued), n_shards);
    assert_int_equal(n_continued, n_shards - 4);
    assert_same_datasets("whole", "hurt");
}

static void a_failed_unit_leaves_the_others_and_no_manifest(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("whole", 1, &n_continued);

    size_t n;
    char *corpus = read_file("a.jsonl", &n), *bad = strdup(corpus);
    strstr(bad + n / 2, "\"text\"")[1] = 'T';
    write_file("a.jsonl", bad, n);
    bd_pack_job job = job_into("out");
    bd_pack_result result;
    bd_error err = {0};
    assert_int_equal(bd_pack(&job, 1, false, &result, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no field 'text'"));
    assert_non_null(strstr(err.message, "'a.jsonl', line "));
    assert_false(exists("out/manifest.json"));
    assert_true(exists("out/00000-00000.arrow"));

    write_file("a.jsonl", corpus, n);  // the edges tell that it is another file now
    job = job_into("out");
    assert_int_equal(bd_pack(&job, 1, false, &result, &err), BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "edges"));
    assert_int_equal(bd_pack(&job, 1, true, &result, NULL), BD_OK);
    assert_int_equal(result.n_continued, 0);
    assert_int_equal(result.manifest.n_shards, n_shards);
    bd_manifest_release(&result.manifest);
    bd_inputs_release(&inputs);
    assert_same_datasets("whole", "out");
    free(corpus);
    free(bad);
}

static void bad_records_are_named_by_line_or_byte(void **state)
{
    (void)state;
    write_text("b.txt", "fine");
    write_text("a.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"\\q\"}\n");
    bd_pack_job job = job_into("out");
    assert_packing_fails(&job, BD_ERR_FORMAT,
                         "'a.jsonl', line 3 (byte 14): not valid JSON: Problem while parsing a "
                         "string");
    write_text("a.jsonl", "{\"text\":\"\\ud800\"}");
    job = job_into("out1");
    assert_packing_fails(&job, BD_ERR_FORMAT,
                         "'a.jsonl', line 1 (byte 0): an escape of half a character (JSON is "
                         "UTF-8 by definition; --invalid-utf8 replace takes it)");
    write_text("a.jsonl", "");
    write_text("b.txt", "a\n%\nb\xff\n%\n");
    job = job_into("out2");
    job.delimiter = "%";
    assert_packing_fails(
        &job, BD_ERR_FORMAT,
        "'b.txt', document at byte 4: not UTF-8 at byte 5 (--invalid-utf8 keep "
        "or replace takes it)");
    write_text("b.txt", "%\nb234567890\n%\n");
    job = job_into("out3");
    job.delimiter = "%";
    job.max_document_bytes = 9;
    assert_packing_fails(
        &job, BD_ERR_FORMAT,
        "'b.txt', document at byte 2: a record larger than --max-document-bytes 9");
    job = job_into("out4");
    job.delimiter = "%";
    job.packing.seq_len = 10;
    job.packing.long_policy = BD_LONG_ERROR;
    assert_packing_fails(
        &job, BD_ERR_FORMAT,
        "'b.txt', document at byte 2: a document of 11 tokens is longer than a "
        "row of 10 (--long error)");
    job = job_into("out5");
    job.delimiter = "%";
    job.packing.seq_len = 11;  // just long enough
    job.packing.long_policy = BD_LONG_ERROR;
    bd_pack_result result = pack(&job, 1);
    bd_manifest_release(&result.manifest);
    bd_inputs_release(&inputs);
}

static void text_that_is_not_utf8_is_kept_or_replaced(void **state)
{
    (void)state;
    static const bd_utf8_policy POLICIES[] = {BD_UTF8_KEEP, BD_UTF8_REPLACE};
    write_text("a.jsonl", "");
    write_text("b.txt", "a\xff");
    for (int i = 0; i < 2; i++) {
        bd_pack_job job = job_into(i ? "replaced" : "kept");
        job.utf8_policy = POLICIES[i];
        bd_pack_result result = pack(&job, 1);
        assert_int_equal(result.manifest.totals.invalid_utf8_documents, 1);
        assert_int_equal(result.manifest.totals.text, i ? 4 : 2);
        bd_manifest_release(&result.manifest);
        bd_inputs_release(&inputs);
    }
    write_text("a.jsonl", "{\"text\":\"\xff\\ud800\"}\n");
    bd_pack_job job = job_into("json");
    job.utf8_policy = BD_UTF8_REPLACE;
    bd_pack_result result = pack(&job, 1);
    assert_int_equal(result.manifest.totals.invalid_utf8_documents, 2);
    assert_int_equal(result.manifest.totals.text, 3 + 3 + 4);
    bd_manifest_release(&result.manifest);
    bd_inputs_release(&inputs);
}

static void nothing_to_pack_is_an_error(void **state)
{
    (void)state;
    write_text("a.jsonl", "\n\n");
    write_text("b.txt", "0123456789");
    bd_pack_job job = job_into("out");
    job.packing.seq_len = 8;
    job.packing.long_policy = BD_LONG_DROP;
    assert_packing_fails(&job, BD_ERR_FORMAT,
                         "nothing to pack: the inputs hold no document that fits a row");
}

static void too_many_units_leave_nothing_behind(void **state)
{
    (void)state;
    write_corpus();
    assert_int_equal(truncate("a.jsonl", BD_MAX_UNITS + 1), 0);
    bd_pack_job job = job_into("out");
    job.unit_bytes = 1;
    assert_packing_fails(&job, BD_ERR_UNSUPPORTED,
                         "the inputs make more than 524288 units: give a larger --unit-size");
    assert_int_equal(count_entries("out"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(any_number_of_threads_gives_the_same_bytes),
        test_inside_folder(a_finished_dataset_is_left_alone),
        test_inside_folder(a_continued_run_gives_the_same_bytes),
        test_inside_folder(damage_to_an_unfinished_run_is_repaired),
        test_inside_folder(a_failed_unit_leaves_the_others_and_no_manifest),
        test_inside_folder(bad_records_are_named_by_line_or_byte),
        test_inside_folder(text_that_is_not_utf8_is_kept_or_replaced),
        test_inside_folder(nothing_to_pack_is_an_error),
        test_inside_folder(too_many_units_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
