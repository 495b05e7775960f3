#include "packer/pack/pack.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "common/dataset/shard.h"
#include "common/dataset/units.h"
#include "tests/unit/packer/gzip_file.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { UNIT = 300 };

static const char *OPERANDS[2] = {"a.jsonl", "b.txt"};

// Two inputs: a JSONL file that is cut into several units, and a text file with a document
// longer than a row.
static void write_corpus(void)
{
    uint64_t random = 20240611;
    FILE *json = fopen("a.jsonl", "w"), *text = fopen("b.txt", "w");
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

static bd_input_options reading_of(const char *delimiter)
{
    return (bd_input_options){.text_field = "text",
                              .delimiter = delimiter,
                              .unit_bytes = UNIT,
                              .max_document_bytes = 1000};
}

static bd_pack_job job_reading(const char *folder, bd_input_options reading)
{
    bd_error err = {0};
    bd_threads *threads;
    bd_inputs_release(&inputs);
    assert_int_equal(bd_threads_new(&threads, 1, NULL), BD_OK);
    for (int i = 0; i < 2; i++)
        if (bd_inputs_add(&inputs, OPERANDS[i],
                          &(bd_collect_options){.source = BD_DEFAULT_SOURCE}, &err) != BD_OK)
            fail_msg("%s", err.message);
    if (bd_inputs_examine(&inputs, &reading, threads, &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_threads_free(threads);
    bd_pack_job job = {
        .config = {.seq_len = 32,
                   .vocab_size = 257,
                   .separator = 256,
                   .bos = BD_NO_BOS,
                   .padding = 256,
                   .batch_rows = 4,
                   .shuffle = BD_NO_SHUFFLE,
                   .tokenizer = "bytes"},
        .tokenizer = bd_tokenizer_bytes(),
        .inputs = &inputs,
        .reading = reading,
        .limit = BD_NO_LIMIT,
        .folder = folder,
    };
    job.config.fingerprint = job.tokenizer->fingerprint;
    return job;
}

static bd_pack_job job_into(const char *folder)
{
    return job_reading(folder, reading_of(NULL));
}

static bd_pack_settings alone(int n_threads)
{
    return (bd_pack_settings){.mode = BD_PACK_ALONE, .n_ranks = 1, .n_threads = n_threads};
}

static bd_pack_result pack(const bd_pack_job *job, int n_threads)
{
    bd_pack_result result;
    bd_error err = {0};
    const bd_pack_settings settings = alone(n_threads);
    if (bd_pack(job, &settings, &result, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_true(result.finished);
    return result;
}

static bd_status try_pack(const bd_pack_job *job, int n_threads, bd_error *err)
{
    bd_pack_result result;
    const bd_pack_settings settings = alone(n_threads);
    const bd_status status = bd_pack(job, &settings, &result, err);
    if (status != BD_OK) {
        assert_null(result.manifest.shards);
        assert_false(result.finished);
    }
    bd_pack_result_release(&result);
    return status;
}

// Packs the job, and returns how many shards there are now and were before.
static int64_t pack_job(const bd_pack_job *job, int n_threads, int64_t *n_continued)
{
    bd_pack_result result = pack(job, n_threads);
    const int64_t n = (int64_t)result.manifest.n_shards;
    *n_continued = result.already_finished ? -1 : result.n_continued;
    if (!result.already_finished)
        assert_int_equal(result.n_packed + result.n_continued, n);
    bd_pack_result_release(&result);
    bd_inputs_release(&inputs);
    return n;
}

static int64_t pack_into(const char *folder, int n_threads, int64_t *n_continued)
{
    const bd_pack_job job = job_into(folder);
    return pack_job(&job, n_threads, n_continued);
}

static void assert_packing_fails(const bd_pack_job *job, bd_status status, const char *message)
{
    bd_error err = {0};
    assert_int_equal(try_pack(job, 2, &err), status);
    assert_string_equal(err.message, message);
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
    // plan, tokenizer and its configuration, card, manifest, log, lock
    assert_int_equal(count_entries("one"), n_shards + 7);
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

// Whatever happened to the files of an unfinished run, they are checked before they are used.
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
            shard[i] ^= 1;  // a token of a row, which Arrow does not check
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
    assert_int_equal(try_pack(&job, 1, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no field 'text'"));
    assert_non_null(strstr(err.message, "'a.jsonl', line "));
    assert_false(exists("out/manifest.json"));
    assert_true(exists("out/00000-00000.arrow"));

    write_file("a.jsonl", corpus, n);  // the edges tell that it is another file now
    job = job_into("out");
    assert_int_equal(try_pack(&job, 1, &err), BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "edges"));
    bd_pack_settings settings = alone(1);
    settings.overwrite = true;
    assert_int_equal(bd_pack(&job, &settings, &result, NULL), BD_OK);
    assert_int_equal(result.n_continued, 0);
    assert_int_equal(result.manifest.n_shards, n_shards);
    bd_pack_result_release(&result);
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
    job = job_reading("out2", reading_of("%"));
    assert_packing_fails(&job, BD_ERR_FORMAT,
                         "'b.txt', document at byte 4: not UTF-8 at byte 1 of the document "
                         "(--invalid-utf8 keep or replace takes it)");
    write_text("b.txt", "%\nb234567890\n%\n");
    job = job_reading("out3", reading_of("%"));
    job.reading.max_document_bytes = 9;
    assert_packing_fails(
        &job, BD_ERR_FORMAT,
        "'b.txt', document at byte 2: a record larger than --max-document-bytes 9");
    job = job_reading("out4", reading_of("%"));
    job.config.seq_len = 10;
    job.config.long_policy = BD_LONG_ERROR;
    assert_packing_fails(
        &job, BD_ERR_FORMAT,
        "'b.txt', document at byte 2: a document of 11 tokens is longer than a "
        "row of 10 (--long error)");
    job = job_reading("out5", reading_of("%"));
    job.config.seq_len = 11;  // just long enough
    job.config.long_policy = BD_LONG_ERROR;
    bd_pack_result result = pack(&job, 1);
    bd_pack_result_release(&result);
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
        job.reading.utf8_policy = POLICIES[i];
        bd_pack_result result = pack(&job, 1);
        assert_int_equal(result.manifest.totals.invalid_utf8_documents, 1);
        assert_int_equal(result.manifest.totals.text, i ? 4 : 2);
        bd_pack_result_release(&result);
        bd_inputs_release(&inputs);
    }
    write_text("a.jsonl", "{\"text\":\"\xff\\ud800\"}\n");
    bd_pack_job job = job_into("json");
    job.reading.utf8_policy = BD_UTF8_REPLACE;
    bd_pack_result result = pack(&job, 1);
    assert_int_equal(result.manifest.totals.invalid_utf8_documents, 2);
    assert_int_equal(result.manifest.totals.text, 3 + 3 + 4);
    bd_pack_result_release(&result);
    bd_inputs_release(&inputs);
}

static void nothing_to_pack_is_an_error(void **state)
{
    (void)state;
    write_text("a.jsonl", "\n\n");
    write_text("b.txt", "0123456789");
    bd_pack_job job = job_into("out");
    job.config.seq_len = 8;
    job.config.long_policy = BD_LONG_DROP;
    assert_packing_fails(&job, BD_ERR_FORMAT,
                         "nothing to pack: the inputs hold no document that fits a row");
}

static void too_many_units_leave_nothing_behind(void **state)
{
    (void)state;
    write_corpus();
    assert_int_equal(truncate("a.jsonl", BD_MAX_UNITS + 1), 0);
    bd_input_options reading = reading_of(NULL);
    reading.unit_bytes = 1;
    bd_pack_job job = job_reading("out", reading);
    assert_packing_fails(&job, BD_ERR_UNSUPPORTED,
                         "the inputs make more than 524288 units: give a larger --unit-size");
    assert_false(exists("out"));
    assert_int_equal(truncate("a.jsonl", 4097), 0);
    job = job_reading("out", reading);
    assert_packing_fails(
        &job, BD_ERR_UNSUPPORTED,
        "the inputs make more than 4096 units of less than 1 MiB: give a larger "
        "--unit-size");
    assert_false(exists("out"));
}

// Two bad records in different units: whichever thread meets which, the first is reported.
static void the_first_failure_is_reported_whatever_the_timing(void **state)
{
    (void)state;
    size_t n;
    write_corpus();
    char *corpus = read_file("a.jsonl", &n), *expected = NULL;
    for (int k = 1; k <= 3; k++)
        strstr(corpus + n * (size_t)k / 4, "\"text\"")[1] = 'T';
    write_file("a.jsonl", corpus, n);
    free(corpus);
    for (int round = 0; round < 12; round++) {
        char folder[16];
        bd_error err = {0};
        snprintf(folder, sizeof folder, "out%d", round);
        const bd_pack_job job = job_into(folder);
        assert_int_equal(try_pack(&job, round == 0 ? 1 : 8, &err), BD_ERR_FORMAT);
        if (round == 0)
            expected = strdup(err.message);
        assert_string_equal(err.message, expected);
        bd_inputs_release(&inputs);
    }
    free(expected);
}

// ---- Streams ------------------------------------------------------------------------------

// The corpus with its first input plain, compressed, or from standard input.
static void write_stream(const char *operand)
{
    size_t n;
    write_corpus();
    char *text = read_file("a.jsonl", &n);
    if (strcmp(operand, "-") == 0) {
        const int fd = open("a.jsonl", O_RDONLY);
        assert_true(fd >= 0);
        assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
        close(fd);
    } else if (strcmp(operand, "a.jsonl") != 0) {
        assert_true(write_gzip(operand, text, n));
    }
    free(text);
    OPERANDS[0] = operand;
}

#define test_of_stream(test) \
    cmocka_unit_test_setup_teardown(test, enter_folder, use_plain_operands)

static int use_plain_operands(void **state)
{
    OPERANDS[0] = "a.jsonl";
    return leave_folder(state);
}

static void assert_same_shards(const char *left, const char *right, int64_t n_shards)
{
    for (int64_t k = 0; k < n_shards - 1; k++) {
        const bd_unit unit = {.slice = k};
        const bd_shard_name name = bd_unit_shard_name(&unit);
        assert_same_files(in(left, name.text), in(right, name.text));
    }
    assert_same_files(in(left, "00001-00000.arrow"), in(right, "00001-00000.arrow"));
}

static void a_stream_gives_the_shards_of_the_plain_file(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("plain", 1, &n_continued);
    for (int n_threads = 1; n_threads <= 8; n_threads *= 8) {
        write_stream("a.jsonl.gz");
        const char *zipped = n_threads == 1 ? "zipped1" : "zipped8";
        assert_int_equal(pack_into(zipped, n_threads, &n_continued), n_shards);
        assert_same_shards("plain", zipped, n_shards);
        write_stream("-");
        const char *piped = n_threads == 1 ? "piped1" : "piped8";
        assert_int_equal(pack_into(piped, n_threads, &n_continued), n_shards);
        assert_same_shards("plain", piped, n_shards);
    }
    assert_same_datasets("zipped1", "zipped8");
    assert_same_datasets("piped1", "piped8");
}

static void a_continued_stream_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const STREAMS[] = {"a.jsonl.gz", "-"};
    static const char *const MISSING[] = {"00000-00000.arrow", "00000-00003.arrow",
                                          "00000-00006.arrow"};
    for (int s = 0; s < 2; s++) {
        int64_t n_continued;
        const char *whole = s ? "whole1" : "whole0", *cut = s ? "cut1" : "cut0";
        write_stream(STREAMS[s]);
        const int64_t n_shards = pack_into(whole, 1, &n_continued);
        write_stream(STREAMS[s]);
        pack_into(cut, 1, &n_continued);
        for (size_t m = 0; m < sizeof MISSING / sizeof *MISSING; m++) {
            assert_int_equal(unlink(in(cut, "manifest.json")), 0);
            assert_int_equal(unlink(in(cut, MISSING[m])), 0);
            write_stream(STREAMS[s]);
            assert_int_equal(pack_into(cut, 3, &n_continued), n_shards);
            assert_int_equal(n_continued, n_shards - 1);
            assert_same_datasets(whole, cut);
        }
        assert_int_equal(unlink(in(cut, "manifest.json")), 0);  // nothing else is missing
        write_stream(STREAMS[s]);
        assert_int_equal(pack_into(cut, 3, &n_continued), n_shards);
        assert_int_equal(n_continued, n_shards);
        assert_same_datasets(whole, cut);
    }
}

// Standard input has changed: a record differs, one is added, or it ends earlier. Its edges
// cannot show that.
static void a_stream_that_changed_cannot_be_continued(void **state)
{
    (void)state;
    for (int change = 0; change < 3; change++) {
        size_t n;
        int64_t n_continued;
        char folder[16];
        snprintf(folder, sizeof folder, "out%d", change);
        write_stream("-");
        pack_into(folder, 2, &n_continued);
        assert_int_equal(unlink(in(folder, "manifest.json")), 0);
        char *text = read_file("a.jsonl", &n);
        if (change == 0)
            *strstr(text + n / 2, "quick") = 'Q';
        write_file("a.jsonl", text, change == 2 ? n / 2 : n);
        if (change == 1) {
            FILE *file = fopen("a.jsonl", "a");
            assert_non_null(file);
            for (int i = 0; i < 20; i++)
                fputs("{\"text\":\"one more\"}\n", file);
            fclose(file);
        }
        free(text);
        assert_int_equal(lseek(STDIN_FILENO, 0, SEEK_SET), 0);
        const bd_pack_job job = job_into(folder);
        bd_error err = {0};
        assert_int_equal(try_pack(&job, 2, &err), BD_ERR_ARGUMENT);
        assert_non_null(strstr(err.message,
                               "'-' is not what the finished part of the dataset was made "
                               "from: slice "));
        assert_non_null(strstr(err.message, "(--overwrite packs it anew)"));
        assert_false(exists(in(folder, "manifest.json")));
        bd_inputs_release(&inputs);
    }
}

// Ten lines fill a unit, so that the first slice has the same records whether more follow or
// not.
static void redirect_lines(int n)
{
    FILE *file = fopen("lines", "w");
    assert_non_null(file);
    for (int i = 0; i < n; i++)
        fprintf(file, "{\"text\":\"%018d\"}\n", i);
    assert_int_equal(ftell(file), n * UNIT / 10);
    fclose(file);
    const int fd = open("lines", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    close(fd);
}

static void a_stream_that_ends_elsewhere_cannot_be_continued(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        int64_t n_continued;
        const char *folder = longer ? "longer" : "shorter";
        write_stream("-");  // for the second input
        redirect_lines(longer ? 10 : 20);
        pack_into(folder, 1, &n_continued);
        assert_int_equal(unlink(in(folder, "manifest.json")), 0);
        redirect_lines(longer ? 20 : 10);
        const bd_pack_job job = job_into(folder);
        bd_error err = {0};
        assert_int_equal(try_pack(&job, 1, &err), BD_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "slice 0 differs"));
        bd_inputs_release(&inputs);
    }
}

static void damage_in_a_stream_is_an_error_that_names_it(void **state)
{
    (void)state;
    size_t n;
    write_stream("a.jsonl.gz");
    const bd_pack_job job = job_into("out");
    bd_error err = {0};
    char *data = read_file("a.jsonl.gz", &n);
    data[n - 5] ^= 1;  // its checksum, which is at the very end
    write_file("a.jsonl.gz", data, n);
    free(data);
    assert_int_equal(try_pack(&job, 3, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "a.jsonl.gz"));
    assert_false(exists("out/manifest.json"));
    bd_inputs_release(&inputs);
}

// ---- Limits -------------------------------------------------------------------------------

// Counts the documents of the corpus that a dataset was made from.
static int64_t pack_limited(const char *folder, int64_t limit, int n_threads)
{
    bd_pack_job job = job_into(folder);
    job.limit = limit;
    bd_pack_result result = pack(&job, n_threads);
    const int64_t n = result.manifest.totals.documents;
    bd_pack_result_release(&result);
    bd_inputs_release(&inputs);
    return n;
}

static void a_limit_takes_the_first_documents(void **state)
{
    (void)state;
    static const char *const STREAMS[] = {"a.jsonl", "a.jsonl.gz", "-"};
    static const int64_t LIMITS[] = {1, 7, 59, 60, 61, 100};
    for (size_t l = 0; l < sizeof LIMITS / sizeof *LIMITS; l++) {
        char folders[3][32];
        for (int s = 0; s < 3; s++) {
            snprintf(folders[s], sizeof folders[s], "out%d-%d", (int)l, s);
            write_stream(STREAMS[s]);
            assert_int_equal(pack_limited(folders[s], LIMITS[l], 4),
                             LIMITS[l] < 61 ? LIMITS[l] : 61);
            // The text that comes last is beyond the limit of 60.
            assert_int_equal(exists(in(folders[s], "00001-00000.arrow")), LIMITS[l] > 60);
            assert_int_equal(exists(in(folders[s], "00000-00006.arrow")), LIMITS[l] > 7);
        }
        assert_same_files(in(folders[1], "00000-00000.arrow"),
                          in(folders[2], "00000-00000.arrow"));
    }
}

static void a_limited_run_is_continued_to_the_same_bytes(void **state)
{
    (void)state;
    static const char *const STREAMS[] = {"a.jsonl", "a.jsonl.gz"};
    for (int s = 0; s < 2; s++) {
        const char *whole = s ? "whole1" : "whole0", *cut = s ? "cut1" : "cut0";
        write_stream(STREAMS[s]);
        pack_limited(whole, 33, 1);
        pack_limited(cut, 33, 1);
        assert_int_equal(unlink(in(cut, "manifest.json")), 0);
        assert_int_equal(unlink(in(cut, "00000-00001.arrow")), 0);
        pack_limited(cut, 33, 2);
        assert_same_datasets(whole, cut);
    }
}

// ---- A holdout ----------------------------------------------------------------------------

static bd_pack_job holdout_job(const char *folder, const char *holdout_folder)
{
    bd_pack_job job = job_into(folder);
    job.config.holdout = BD_MILLION / 3;
    job.config.part = BD_PART_TRAINING;
    job.holdout_folder = holdout_folder;
    return job;
}

static void a_holdout_parts_the_corpus(void **state)
{
    (void)state;
    int64_t n_continued;
    bd_manifest training, held_out, whole;
    write_corpus();
    pack_into("whole", 1, &n_continued);
    for (int n_threads = 1; n_threads <= 8; n_threads *= 8) {
        const bd_pack_job job = n_threads == 1 ? holdout_job("one", "one/holdout")
                                               : holdout_job("many", "many/holdout");
        pack_job(&job, n_threads, &n_continued);
    }
    assert_same_datasets("one/holdout", "many/holdout");
    assert_same_files("one/manifest.json", "many/manifest.json");
    assert_int_equal(bd_manifest_read(&training, "one", NULL), BD_OK);
    assert_int_equal(bd_manifest_read(&held_out, "one/holdout", NULL), BD_OK);
    assert_int_equal(bd_manifest_read(&whole, "whole", NULL), BD_OK);
    assert_int_equal(held_out.config.part, BD_PART_HELD_OUT);
    assert_in_range(held_out.totals.documents, 1, 60);
    assert_int_equal(training.totals.documents + held_out.totals.documents,
                     whole.totals.documents);
    assert_int_equal(training.totals.held_out_documents, held_out.totals.documents);
    assert_int_equal(training.totals.text, whole.totals.text);
    assert_int_equal(held_out.totals.held_out_documents, 0);
    bd_manifest_release(&training);
    bd_manifest_release(&held_out);
    bd_manifest_release(&whole);
}

static void a_unit_is_finished_when_both_its_shards_are(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    bd_pack_job job = holdout_job("whole", "whole/holdout");
    const int64_t n_shards = pack_job(&job, 1, &n_continued);
    job = holdout_job("cut", "cut/holdout");
    pack_job(&job, 1, &n_continued);
    assert_int_equal(unlink("cut/manifest.json"), 0);
    assert_int_equal(unlink("cut/holdout/manifest.json"), 0);
    assert_int_equal(unlink("cut/holdout/00000-00001.arrow"), 0);
    assert_int_equal(unlink("cut/00000-00002.arrow"), 0);
    write_text("cut/holdout/.00000-00002.arrow.1a2b3c4d.part", "half a shard");
    job = holdout_job("cut", "cut/holdout");
    assert_int_equal(pack_job(&job, 2, &n_continued), n_shards);
    assert_int_equal(n_continued, n_shards - 2);
    assert_same_datasets("whole/holdout", "cut/holdout");
    assert_same_files("whole/manifest.json", "cut/manifest.json");
}

// ---- Several processes --------------------------------------------------------------------

#ifndef __SANITIZE_THREAD__  // it does not follow forks
static void pack_in_process(const bd_pack_job *job, int rank, int n_ranks)
{
    const bd_pack_settings settings = {
        .mode = BD_PACK_SHARED, .rank = rank, .n_ranks = n_ranks, .n_threads = 1 + rank % 2};
    bd_pack_result result;
    bd_error err = {0};
    const bd_status status = bd_pack(job, &settings, &result, &err);
    if (status != BD_OK)
        fprintf(stderr, "%s\n", err.message);
    _exit(status == BD_OK ? result.finished : 2);
}

static void processes_that_share_the_work_give_the_same_bytes(void **state)
{
    (void)state;
    enum { N_RANKS = 4, N_ROUNDS = 6 };
    static const char *const STREAMS[] = {"a.jsonl", "a.jsonl.gz"};
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t n_continued;
        pid_t children[N_RANKS];
        int n_finished = 0;
        write_stream(STREAMS[round % 2]);
        if (round < 2)
            pack_into(round ? "alone1" : "alone0", 1, &n_continued);
        const bd_pack_job job = job_into("shared");
        for (int rank = 0; rank < N_RANKS; rank++) {
            children[rank] = fork();
            assert_true(children[rank] >= 0);
            if (children[rank] == 0)
                pack_in_process(&job, rank, N_RANKS);
        }
        for (int rank = 0; rank < N_RANKS; rank++) {
            int status;
            assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
            n_finished += WEXITSTATUS(status) == 1;
        }
        assert_true(n_finished >= 1);
        bd_inputs_release(&inputs);
        assert_same_datasets(round % 2 ? "alone1" : "alone0", "shared");
        char kept[16];
        snprintf(kept, sizeof kept, "kept%d", round);
        assert_int_equal(rename("shared", kept), 0);
    }
}
#endif

static void whoever_shares_with_nobody_does_all_of_it(void **state)
{
    (void)state;
    int64_t n_continued;
    write_corpus();
    const int64_t n_shards = pack_into("alone", 1, &n_continued);
    for (int64_t rank = 0; rank < 3; rank++) {
        char folder[16];
        snprintf(folder, sizeof folder, "shared%d", (int)rank);
        const bd_pack_job job = job_into(folder);
        const bd_pack_settings settings = {
            .mode = BD_PACK_SHARED, .rank = rank, .n_ranks = 3, .n_threads = 2};
        bd_pack_result result;
        assert_int_equal(bd_pack(&job, &settings, &result, NULL), BD_OK);
        assert_true(result.finished);
        assert_int_equal(result.n_packed, n_shards);
        bd_pack_result_release(&result);
        bd_inputs_release(&inputs);
        assert_same_datasets("alone", folder);
    }
}

static bd_status finish(const char *folder, bd_pack_result *result, bd_error *err)
{
    const bd_pack_job job = job_into(folder);
    const bd_pack_settings settings = {.mode = BD_PACK_FINISH, .n_ranks = 1, .n_threads = 2};
    const bd_status status = bd_pack(&job, &settings, result, err);
    bd_inputs_release(&inputs);
    return status;
}

static void finishing_publishes_what_is_there_or_names_what_is_missing(void **state)
{
    (void)state;
    static const char *const STREAMS[] = {"a.jsonl", "a.jsonl.gz"};
    for (int s = 0; s < 2; s++) {
        int64_t n_continued;
        size_t n;
        bd_pack_result result;
        bd_error err = {0};
        char message[200];
        const char *whole = s ? "whole1" : "whole0", *out = s ? "out1" : "out0";
        write_stream(STREAMS[s]);
        pack_into(whole, 1, &n_continued);
        pack_into(out, 1, &n_continued);
        assert_int_equal(unlink(in(out, "manifest.json")), 0);
        char *shard = read_file(in(out, "00000-00002.arrow"), &n);
        assert_int_equal(unlink(in(out, "00000-00002.arrow")), 0);
        assert_int_equal(finish(out, &result, &err), BD_ERR_ARGUMENT);
        snprintf(message, sizeof message, "'%s' is not finished: 00000-00002.arrow is missing",
                 out);
        assert_string_equal(err.message, message);
        assert_int_equal(result.n_missing, 1);
        assert_int_equal(result.missing[0].unit.input, 0);
        assert_int_equal(result.missing[0].unit.slice, 2);
        assert_int_equal(result.missing[0].is_stream, s);
        bd_pack_result_release(&result);
        bd_pack_result_release(&result);
        assert_false(exists(in(out, "manifest.json")));
        write_file(in(out, "00000-00002.arrow"), shard, n);
        free(shard);
        assert_int_equal(finish(out, &result, NULL), BD_OK);
        assert_true(result.finished);
        assert_int_equal(result.n_packed, 0);
        bd_pack_result_release(&result);
        assert_same_datasets(whole, out);
    }
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
        test_inside_folder(the_first_failure_is_reported_whatever_the_timing),
        test_of_stream(a_stream_gives_the_shards_of_the_plain_file),
        test_of_stream(a_continued_stream_gives_the_same_bytes),
        test_of_stream(a_stream_that_changed_cannot_be_continued),
        test_of_stream(a_stream_that_ends_elsewhere_cannot_be_continued),
        test_of_stream(damage_in_a_stream_is_an_error_that_names_it),
        test_of_stream(a_limit_takes_the_first_documents),
        test_of_stream(a_limited_run_is_continued_to_the_same_bytes),
        test_inside_folder(a_holdout_parts_the_corpus),
        test_inside_folder(a_unit_is_finished_when_both_its_shards_are),
#ifndef __SANITIZE_THREAD__
        test_of_stream(processes_that_share_the_work_give_the_same_bytes),
#endif
        test_inside_folder(whoever_shares_with_nobody_does_all_of_it),
        test_of_stream(finishing_publishes_what_is_there_or_names_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
