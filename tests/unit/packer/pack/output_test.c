#include "packer/pack/output.h"

#include <sys/wait.h>

#include "packer/pack/pack_plan.h"
#include "tests/unit/temporary_folder.h"

static const char FOLDER[] = "out";

// A plan with the fields that this module reads: an input of three slices and one that is read
// from beginning to end.
static bd_json *plan_of(int64_t unit_bytes)
{
    static bd_input_entry entries[] = {
        {.name = "a",
         .source = "s",
         .format = "jsonl",
         .compression = "none",
         .size_bytes = 10,
         .weight = 10,
         .extent = 10,
         .stride = 4},
        {.name = "b",
         .source = "s",
         .format = "jsonl",
         .compression = "gzip",
         .size_bytes = 5,
         .weight = BD_UNKNOWN,
         .extent = BD_UNKNOWN,
         .stride = 4},
    };
    bd_json *reading = bd_json_object(), *plan = bd_json_object(), *inputs = bd_json_array();
    for (size_t i = 0; i < 2; i++) {
        bd_json *input = bd_json_object();
        bd_input_entry_to_json(&entries[i], input);
        bd_json_append(inputs, input);
    }
    bd_json_set(plan, "inputs", inputs);
    bd_json_set_integer(reading, "unit_size", unit_bytes);
    bd_json_set_null(reading, "delimiter");
    bd_json_set_string(plan, "format", BD_FORMAT_VERSION);
    bd_json_set(plan, "reading", reading);
    return plan;
}

static void write_plan(const char *folder, bd_json *plan)
{
    char *text;
    assert_int_equal(bd_pack_plan_print(plan, &text, NULL), BD_OK);
    write_text(in(folder, "plan.json"), text);
    free(text);
    bd_json_free(plan);
}

static void publish_plan(int64_t unit_bytes)
{
    write_plan(FOLDER, plan_of(unit_bytes));
}

static void publish_plan_of_part(const char *folder, const char *part)
{
    bd_json *plan = plan_of(64), *config = bd_json_object();
    bd_json_set_string(config, "part", part);
    bd_json_set(plan, "packing", config);
    write_plan(folder, plan);
}

static bd_status try_open(int64_t unit_bytes, bool overwrite, bd_output_state *found,
                          bd_error *err)
{
    bd_json *plan = plan_of(unit_bytes);
    bd_output output;
    const bd_status status =
        bd_output_open(&output, FOLDER, plan, BD_LOCK_EXCLUSIVE, overwrite, err);
    bd_json_free(plan);
    if (status == BD_OK) {
        assert_true(output.lock >= 0 || output.state == BD_OUTPUT_FINISHED);
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

// The folder contains the lock, the plan of `unit_bytes`, and nothing else.
static void assert_begun(int64_t unit_bytes)
{
    bd_json *plan;
    bd_input_entry *entries;
    size_t n_entries;
    int64_t found_bytes;
    assert_int_equal(count_entries(FOLDER), 2);
    assert_true(exists(in(FOLDER, BD_LOCK_NAME)));
    assert_int_equal(bd_pack_plan_load(FOLDER, &plan, NULL), BD_OK);
    assert_int_equal(bd_pack_plan_entries(plan, &entries, &n_entries, &found_bytes, NULL),
                     BD_OK);
    assert_int_equal(found_bytes, unit_bytes);
    for (size_t i = 0; i < n_entries; i++)
        bd_input_entry_release(&entries[i]);
    free(entries);
    bd_json_free(plan);
}

static void an_absent_or_empty_folder_is_new(void **state)
{
    (void)state;
    assert_state(64, false, BD_OUTPUT_NEW);  // makes the folder and writes the plan
    assert_begun(64);
    assert_state(64, false, BD_OUTPUT_UNFINISHED);
    assert_begun(64);
    assert_state(65, true, BD_OUTPUT_NEW);
    assert_begun(65);
    assert_int_equal(unlink(in(FOLDER, "plan.json")), 0);
    assert_state(66, false, BD_OUTPUT_NEW);
    assert_begun(66);
}

static void a_folder_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    bd_json *plan = plan_of(64);
    bd_output output;
    bd_error err = {0};
    write_text("file", "");
    assert_int_equal(bd_output_open(&output, "file/in", plan, BD_LOCK_SHARED, false, &err),
                     BD_ERR_IO);
    assert_string_equal(err.message, "cannot create the folder 'file/in': Not a directory");
    assert_int_equal(bd_output_open(&output, "file", plan, BD_LOCK_EXCLUSIVE, true, &err),
                     BD_ERR_IO);
    assert_string_equal(err.message, "cannot read the folder 'file': Not a directory");
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
    assert_int_equal(count_entries(FOLDER), 6);
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
    assert_int_equal(count_entries(FOLDER), 3);
    assert_file_holds(in(FOLDER, "00000-00000.arrow"), "a shard");
}

static void overwriting_removes_the_dataset_and_nothing_else(void **state)
{
    (void)state;
    static const char *const OURS[] = {"00000-00000.arrow",        "00000-00002.arrow",
                                       "00001-1234567.arrow",      "manifest.json",
                                       "tokenizer.json",           "pack-log.json",
                                       ".plan.json.1a2b3c4d.part", "tokenizer_config.json"};
    for (int64_t unit_bytes = 64; unit_bytes <= 65; unit_bytes++) {  // the same plan, another
        for (int finished = 0; finished < 2; finished++) {
            if (!exists(FOLDER))
                add_folder(FOLDER);
            publish_plan(64);
            for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
                if (finished || strcmp(OURS[i], "manifest.json") != 0)
                    write_text(in(FOLDER, OURS[i]), "old");
            assert_state(unit_bytes, true, BD_OUTPUT_NEW);
            assert_begun(unit_bytes);
        }
    }
}

// A dataset with a held-out one, as packing leaves it.
static void publish_with_holdout(void)
{
    static const char *const NAMES[] = {"00000-00000.arrow", "manifest.json", "tokenizer.json",
                                        "plan.json", ".plan.json.1a2b3c4d.part"};
    char holdout[64];
    snprintf(holdout, sizeof holdout, "%s/%s", FOLDER, BD_HOLDOUT_NAME);
    if (!exists(FOLDER))
        add_folder(FOLDER);
    if (!exists(holdout))
        add_folder(holdout);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        write_text(in(FOLDER, NAMES[i]), "old");
        write_text(in(holdout, NAMES[i]), "old");
    }
    publish_plan(64);
    publish_plan_of_part(holdout, "held-out");
}

static void overwriting_removes_the_held_out_dataset_too(void **state)
{
    (void)state;
    publish_with_holdout();
    assert_state(64, false, BD_OUTPUT_FINISHED);
    assert_true(exists("out/holdout/manifest.json"));
    assert_state(65, true, BD_OUTPUT_NEW);
    assert_begun(65);
    publish_with_holdout();
    write_text("out/holdout/.lock", "");  // as after an attempt to pack into it
    assert_state(65, true, BD_OUTPUT_NEW);
    assert_begun(65);
}

// A card without our seal belongs to the user, in any place and whatever happens around it.
static void a_card_of_the_user_stays(void **state)
{
    (void)state;
    add_folder(FOLDER);
    write_text("out/README.md", "mine");
    assert_state(64, false, BD_OUTPUT_NEW);
    assert_state(64, false, BD_OUTPUT_UNFINISHED);
    publish_with_holdout();
    write_text("out/holdout/README.md", "mine, too");
    assert_state(64, false, BD_OUTPUT_FINISHED);
    for (int64_t unit_bytes = 64; unit_bytes <= 65; unit_bytes++) {
        assert_state(unit_bytes, true, BD_OUTPUT_NEW);
        assert_int_equal(count_entries(FOLDER), 4);  // with plan, lock and holdout
        assert_int_equal(count_entries("out/holdout"), 1);
        assert_file_holds("out/README.md", "mine");
        assert_file_holds("out/holdout/README.md", "mine, too");
    }
}

static void a_foreign_file_in_the_holdout_is_refused_and_all_is_untouched(void **state)
{
    (void)state;
    publish_with_holdout();
    const int n = count_entries(FOLDER), n_held_out = count_entries("out/holdout");
    write_text("out/holdout/notes.txt", "mine");
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        assert_refused(64, overwrite, BD_ERR_ARGUMENT,
                       "cannot pack into 'out/holdout': it holds something else ('notes.txt')");
        assert_int_equal(count_entries(FOLDER), n);
        assert_int_equal(count_entries("out/holdout"), n_held_out + 1);
        assert_file_holds("out/manifest.json", "old");
    }
}

// A file with the name of the held-out dataset's folder belongs to somebody else.
static void a_holdout_that_is_no_folder_is_foreign(void **state)
{
    (void)state;
    add_folder("elsewhere");
    write_text("elsewhere/plan.json", "mine");
    for (int link = 0; link < 2; link++) {
        if (!exists(FOLDER))
            add_folder(FOLDER);
        publish_plan(64);
        if (link)
            assert_int_equal(symlink("../elsewhere", "out/holdout"), 0);
        else
            write_text("out/holdout", "mine");
        for (int overwrite = 0; overwrite < 2; overwrite++)
            assert_refused(64, overwrite, BD_ERR_ARGUMENT,
                           "cannot pack into 'out': it holds something else ('holdout')");
        assert_file_holds("elsewhere/plan.json", "mine");
        assert_int_equal(unlink("out/holdout"), 0);
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
            assert_int_equal(count_entries(FOLDER), 2 + with_plan);  // not even a lock
        }
        assert_int_equal(unlink(in(FOLDER, FOREIGN[i])), 0);
        assert_int_equal(unlink(in(FOLDER, "plan.json")), 0);
    }
}

// Names of the right form that no run into the folder can have made.
static void shards_of_no_plan_are_refused_and_untouched(void **state)
{
    (void)state;
    static const char *const FOREIGN[] = {"00000-00003.arrow", "00002-00000.arrow",
                                          "90000-00000.arrow", ".notes.txt.1a2b3c4d.part"};
    for (int held_out = 0; held_out < 2; held_out++) {
        const char *folder = held_out ? "out/holdout" : FOLDER;
        publish_with_holdout();
        for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++) {
            char message[200];
            snprintf(message, sizeof message,
                     "cannot pack into '%s': it holds something else ('%s')", folder,
                     FOREIGN[i]);
            write_text(in(folder, FOREIGN[i]), "mine");
            assert_refused(64, false, BD_ERR_ARGUMENT, message);
            assert_refused(64, true, BD_ERR_ARGUMENT, message);
            assert_file_holds(in(folder, FOREIGN[i]), "mine");
            assert_file_holds("out/manifest.json", "old");
            assert_file_holds("out/holdout/00000-00000.arrow", "old");
            assert_int_equal(unlink(in(folder, FOREIGN[i])), 0);
        }
    }
}

static void a_dataset_of_its_own_in_the_place_of_the_holdout_is_foreign(void **state)
{
    (void)state;
    publish_with_holdout();
    publish_plan_of_part("out/holdout", "all");
    assert_refused(64, true, BD_ERR_ARGUMENT,
                   "'out/holdout' is a dataset of its own, not what was held out of the one "
                   "around it");
    assert_file_holds("out/holdout/00000-00000.arrow", "old");
    assert_file_holds("out/manifest.json", "old");
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
        assert_begun(64);
    }
    write_text(in(FOLDER, "manifest.json"), "{}");  // a finished dataset is not touched
    write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "half a shard");
    assert_state(64, false, BD_OUTPUT_FINISHED);
    assert_int_equal(count_entries(FOLDER), 4);
}

// ---- Several processes --------------------------------------------------------------------

// Opens the folder in another process, reports it, and keeps it open until told to end.
static pid_t hold_in_another_process(bd_lock_mode mode, int *end)
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
        byte = bd_output_open(&output, FOLDER, plan_of(64), mode, false, NULL) == BD_OK;
        (void)!write(ready[1], &byte, 1);
        (void)!read(ending[0], &byte, 1);  // waits until the other end is closed
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
    static const bd_lock_mode MODES[] = {BD_LOCK_EXCLUSIVE, BD_LOCK_SHARED};
    for (int i = 0; i < 2; i++) {
        int end;
        const pid_t child = hold_in_another_process(MODES[i], &end);
        write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "theirs");
        assert_refused(64, false, BD_ERR_IO, "another process is packing into 'out'");
        assert_refused(64, true, BD_ERR_IO, "another process is packing into 'out'");
        assert_int_equal(count_entries(FOLDER), 3);
        close(end);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_state(64, false, BD_OUTPUT_UNFINISHED);  // the lock ends with its process
    }
}

static void processes_that_share_leave_each_other_alone(void **state)
{
    (void)state;
    int end;
    const pid_t child = hold_in_another_process(BD_LOCK_SHARED, &end);
    write_text(in(FOLDER, ".00000-00000.arrow.1a2b3c4d.part"), "theirs");
    bd_json *plan = plan_of(64), *other = plan_of(65);
    bd_output output;
    bd_error err = {0};
    assert_int_equal(bd_output_open(&output, FOLDER, plan, BD_LOCK_SHARED, false, &err), BD_OK);
    assert_int_equal(output.state, BD_OUTPUT_UNFINISHED);
    assert_int_equal(count_entries(FOLDER), 3);  // pending files may belong to other processes
    write_text(in(FOLDER, "manifest.json"), "{}");
    bd_output_refresh(&output, FOLDER);
    assert_int_equal(output.state, BD_OUTPUT_FINISHED);
    bd_output_close(&output);
    assert_int_equal(bd_output_open(&output, FOLDER, other, BD_LOCK_SHARED, false, &err),
                     BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "reading.unit_size: 65 here, 64 there"));
    close(end);
    assert_int_equal(waitpid(child, NULL, 0), child);
    bd_json_free(plan);
    bd_json_free(other);
}

enum { N_PROCESSES = 6 };

// Opens the folder as soon as `start` ends, and exits with 0 if it can be shared, with 1 if its
// plan differs, with 2 otherwise.
static pid_t open_at_once(int64_t unit_bytes, const int *start)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    bd_output output;
    bd_error err = {0};
    char byte;
    bd_json *plan = plan_of(unit_bytes);
    close(start[1]);
    (void)!read(start[0], &byte, 1);
    const bd_status status = bd_output_open(&output, FOLDER, plan, BD_LOCK_SHARED, false, &err);
    if (status == BD_OK)
        write_text(in(FOLDER, "00000-00000.arrow"), "a shard");
    else if (status != BD_ERR_ARGUMENT || !strstr(err.message, "another plan"))
        fprintf(stderr, "%s\n", err.message);
    _exit(status == BD_OK ? 0 : strstr(err.message, "another plan") ? 1 : 2);
}

// Starts the processes together, process i with a plan of 64 + i % n_plans, and counts those
// that could open the folder.
static int race(int n_plans)
{
    pid_t children[N_PROCESSES];
    int start[2], n_opened = 0;
    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < N_PROCESSES; i++)
        children[i] = open_at_once(64 + i % n_plans, start);
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < N_PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        n_opened += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(count_entries(FOLDER), 3);  // lock, plan, shard: nothing is left pending
    assert_int_equal(unlink(in(FOLDER, "00000-00000.arrow")), 0);
    assert_int_equal(unlink(in(FOLDER, "plan.json")), 0);
    return n_opened;
}

static void processes_that_begin_together_share_the_same_plan(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++)
        assert_int_equal(race(1), N_PROCESSES);
}

static void one_of_several_different_plans_wins(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++)
        assert_int_equal(race(2), N_PROCESSES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(an_absent_or_empty_folder_is_new),
        test_inside_folder(a_folder_that_cannot_be_made_is_an_error),
        test_inside_folder(the_same_plan_is_continued_or_finished),
        test_inside_folder(another_plan_is_refused_and_the_difference_named),
        test_inside_folder(overwriting_removes_the_dataset_and_nothing_else),
        test_inside_folder(overwriting_removes_the_held_out_dataset_too),
        test_inside_folder(a_card_of_the_user_stays),
        test_inside_folder(a_foreign_file_in_the_holdout_is_refused_and_all_is_untouched),
        test_inside_folder(a_holdout_that_is_no_folder_is_foreign),
        test_inside_folder(foreign_files_are_refused_and_untouched),
        test_inside_folder(shards_of_no_plan_are_refused_and_untouched),
        test_inside_folder(a_dataset_of_its_own_in_the_place_of_the_holdout_is_foreign),
        test_inside_folder(our_names_without_our_plan_are_foreign),
        test_inside_folder(temporary_files_of_an_earlier_run_are_removed),
        test_inside_folder(a_folder_in_use_by_another_process_is_refused),
        test_inside_folder(processes_that_share_leave_each_other_alone),
        test_inside_folder(processes_that_begin_together_share_the_same_plan),
        test_inside_folder(one_of_several_different_plans_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
