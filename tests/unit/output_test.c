#include "packer/output.h"

#include <sys/wait.h>

#include "packer/plan.h"
#include "tests/unit/temporary_folder.h"

static const char FOLDER[] = "out";

// A plan as far as this module looks into it.
static bd_json *plan_of(int64_t unit_bytes)
{
    bd_json *reading = bd_json_object(), *plan = bd_json_object();
    bd_json_set_integer(reading, "unit_size", unit_bytes);
    bd_json_set_null(reading, "delimiter");
    bd_json_set_string(plan, "format", BD_FORMAT_VERSION);
    bd_json_set(plan, "reading", reading);
    return plan;
}

static void publish_plan(int64_t unit_bytes)
{
    bd_json *plan = plan_of(unit_bytes);
    char *text;
    assert_int_equal(bd_plan_print(plan, &text, NULL), BD_OK);
    write_text(in(FOLDER, "plan.json"), text);
    free(text);
    bd_json_free(plan);
}

static bd_status try_open(int64_t unit_bytes, bool overwrite, bd_output_state *found,
                          bd_error *err)
{
    bd_json *plan = plan_of(unit_bytes);
    bd_output output;
    const bd_status status = bd_output_open(&output, FOLDER, plan, overwrite, err);
    bd_json_free(plan);
    if (status == BD_OK) {
        assert_true(output.lock >= 0);
        *found = output.state;
    }
    bd_output_close(&output);
    assert_int_equal(output.lock, -1);
    bd_output_close(&output);
    return status;
}

static void assert_state(int64_t unit_bytes, bool overwrite, bd_output_state expected)
{
    bd_output_state found;
    bd_error err = {0};
    if (try_open(unit_bytes, overwrite, &found, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(found, expected);
}

static void assert_refused(int64_t unit_bytes, bool overwrite, bd_status status,
                           const char *message)
{
    bd_output_state found;
    bd_error err = {0};
    assert_int_equal(try_open(unit_bytes, overwrite, &found, &err), status);
    assert_string_equal(err.message, message);
}

static void an_absent_or_empty_folder_is_new(void **state)
{
    (void)state;
    assert_state(64, false, BD_OUTPUT_NEW);  // makes it
    assert_true(exists(FOLDER));
    assert_state(64, false, BD_OUTPUT_NEW);
    assert_state(64, true, BD_OUTPUT_NEW);
    assert_int_equal(count_entries(FOLDER), 0);
}

static void a_folder_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    bd_json *plan = plan_of(64);
    bd_output output;
    bd_error err = {0};
    assert_int_equal(bd_output_open(&output, "no/where", plan, false, &err), BD_ERR_IO);
    assert_string_equal(err.message,
                        "cannot create the folder 'no/where': No such file or directory");
    write_text("file", "");
    assert_int_equal(bd_output_open(&output, "file", plan, true, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot open the folder 'file': Not a directory");
    assert_int_equal(output.lock, -1);
    bd_json_free(plan);
}

static void the_same_plan_is_continued_or_finished(void **state)
{
    (void)state;
    add_folder(FOLDER);
    publish_plan(64);
    write_text(in(FOLDER, "00000-00000.arrow"), "a shard");
    write_text(in(FOLDER, "tokenizer.json"), "{}");
    assert_state(64, false, BD_OUTPUT_UNFINISHED);
    write_text(in(FOLDER, "manifest.json"), "{}");
    write_text(in(FOLDER, "pack-log.json"), "{}");
    assert_state(64, false, BD_OUTPUT_FINISHED);
    assert_int_equal(count_entries(FOLDER), 5);
    assert_file_holds(in(FOLDER, "00000-00000.arrow"), "a shard");
}

static void another_plan_is_refused_and_the_difference_named(void **state)
{
    (void)state;
    add_folder(FOLDER);
    publish_plan(64);
    write_text(in(FOLDER, "00000-00000.arrow"), "a shard");
    assert_refused(
        65, false, BD_ERR_ARGUMENT,
        "'out' holds a dataset of another plan: reading.unit_size: 65 here, 64 there "
        "(--overwrite replaces it)");
    assert_int_equal(count_entries(FOLDER), 2);
}

static void overwriting_removes_the_dataset_and_nothing_else(void **state)
{
    (void)state;
    static const char *const OURS[] = {
        "00000-00000.arrow", "00012-00003.arrow", "123456-1234567.arrow",    "manifest.json",
        "tokenizer.json",    "pack-log.json",     ".plan.json.1a2b3c4d.part"};
    for (int64_t unit_bytes = 64; unit_bytes <= 65; unit_bytes++) {  // the same plan, another
        for (int finished = 0; finished < 2; finished++) {
            if (!exists(FOLDER))
                add_folder(FOLDER);
            publish_plan(64);
            for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
                if (finished || strcmp(OURS[i], "manifest.json") != 0)
                    write_text(in(FOLDER, OURS[i]), "old");
            assert_state(unit_bytes, true, BD_OUTPUT_NEW);
            assert_int_equal(count_entries(FOLDER), 0);
        }
    }
}

static void foreign_files_are_refused_and_untouched(void **state)
{
    (void)state;
    static const char *const FOREIGN[] = {
        "notes.txt",          ".hidden",     "manifest.json.bak", "0-00000.arrow",
        "00000-0.arrow",      "00000.arrow", "00000-.arrow",      "00000-00000.arrow.zst",
        "x00000-00000.arrow", "data.part"};
    add_folder(FOLDER);
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++) {
        for (int with_plan = 0; with_plan < 2; with_plan++) {
            if (with_plan)
                publish_plan(64);
            write_text(in(FOLDER, FOREIGN[i]), "mine");
            write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "pending");
            char message[200];
            snprintf(message, sizeof message,
                     "cannot pack into 'out': it holds something else ('%s')", FOREIGN[i]);
            assert_refused(64, false, BD_ERR_ARGUMENT, message);
            assert_refused(64, true, BD_ERR_ARGUMENT, message);
            assert_file_holds(in(FOLDER, FOREIGN[i]), "mine");
            assert_file_holds(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "pending");
            assert_int_equal(exists(in(FOLDER, "plan.json")), with_plan);
        }
        assert_int_equal(unlink(in(FOLDER, FOREIGN[i])), 0);
        assert_int_equal(unlink(in(FOLDER, "plan.json")), 0);
    }
}

static void our_names_without_our_plan_are_foreign(void **state)
{
    (void)state;
    add_folder(FOLDER);
    write_text(in(FOLDER, "tokenizer.json"), "another program's");
    assert_refused(64, true, BD_ERR_ARGUMENT,
                   "cannot pack into 'out': it holds 'tokenizer.json' but no plan.json");
    static const char *const PLANS[] = {"",
                                        "not JSON",
                                        "{}",
                                        "[1]",
                                        "{\"format\":\"1.0\"}",
                                        "{\"format\":\"2.0\",\"reading\":{\"unit_size\":64}}"};
    for (size_t i = 0; i < sizeof PLANS / sizeof *PLANS; i++) {
        write_text(in(FOLDER, "plan.json"), PLANS[i]);
        assert_refused(64, false, BD_ERR_ARGUMENT,
                       "cannot pack into 'out': its plan.json is not one of ours");
        assert_refused(64, true, BD_ERR_ARGUMENT,
                       "cannot pack into 'out': its plan.json is not one of ours");
        assert_file_holds(in(FOLDER, "plan.json"), PLANS[i]);
        assert_file_holds(in(FOLDER, "tokenizer.json"), "another program's");
    }
}

static void temporary_files_of_an_earlier_run_are_removed(void **state)
{
    (void)state;
    for (int with_plan = 0; with_plan < 2; with_plan++) {
        if (!exists(FOLDER))
            add_folder(FOLDER);
        if (with_plan)
            publish_plan(64);
        write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "half a shard");
        write_text(in(FOLDER, ".plan.json.00000000.part"), "{");
        assert_state(64, false, with_plan ? BD_OUTPUT_UNFINISHED : BD_OUTPUT_NEW);
        assert_int_equal(count_entries(FOLDER), with_plan);
    }
}

// Opens the folder in another process, says so, and keeps it until told to end.
static pid_t hold_in_another_process(int *end)
{
    int ready[2], ending[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(ending), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bd_output output;
        close(ending[1]);
        const bool held = bd_output_open(&output, FOLDER, plan_of(64), false, NULL) == BD_OK;
        byte = held;
        (void)!write(ready[1], &byte, 1);
        (void)!read(ending[0], &byte, 1);  // until the other end is closed
        _exit(0);
    }
    close(ready[1]);
    close(ending[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    close(ready[0]);
    *end = ending[1];
    return child;
}

static void a_folder_in_use_by_another_process_is_refused(void **state)
{
    (void)state;
    int end;
    const pid_t child = hold_in_another_process(&end);
    publish_plan(64);
    write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "theirs");
    assert_refused(64, false, BD_ERR_IO, "another process is packing into 'out'");
    assert_refused(64, true, BD_ERR_IO, "another process is packing into 'out'");
    assert_int_equal(count_entries(FOLDER), 2);
    close(end);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_state(64, false, BD_OUTPUT_UNFINISHED);  // the lock ends with its process
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(an_absent_or_empty_folder_is_new),
        test_inside_folder(a_folder_that_cannot_be_made_is_an_error),
        test_inside_folder(the_same_plan_is_continued_or_finished),
        test_inside_folder(another_plan_is_refused_and_the_difference_named),
        test_inside_folder(overwriting_removes_the_dataset_and_nothing_else),
        test_inside_folder(foreign_files_are_refused_and_untouched),
        test_inside_folder(our_names_without_our_plan_are_foreign),
        test_inside_folder(temporary_files_of_an_earlier_run_are_removed),
        test_inside_folder(a_folder_in_use_by_another_process_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
