#include "common/folder.h"

#include <sys/wait.h>

#include "common/file.h"
#include "tests/unit/temporary_folder.h"

static void a_folder_is_made_once(void **state)
{
    (void)state;
    bd_error err = {0};
    assert_int_equal(bd_folder_make("out", &err), BD_OK);
    write_text("out/a", "kept");
    assert_int_equal(bd_folder_make("out", &err), BD_OK);
    assert_file_holds("out/a", "kept");
    assert_int_equal(bd_folder_make("absent/out", &err), BD_ERR_IO);
    assert_string_equal(err.message,
                        "cannot create the folder 'absent/out': No such file or directory");
}

// The status with which another process can lock the folder, or not.
static int lock_elsewhere(const char *folder)
{
    const pid_t child = fork();
    if (child == 0) {
        int lock;
        bd_error err = {0};
        const bd_status status = bd_folder_lock(&lock, folder, "using", &err);
        const bool right =
            status == BD_OK
                ? lock >= 0
                : lock == -1 && strcmp(err.message, "another process is using 'out'") == 0;
        _exit(right ? (int)status : 100);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    return WEXITSTATUS(result);
}

static void a_lock_keeps_other_processes_out_until_it_is_closed(void **state)
{
    (void)state;
    int lock;
    add_folder("out");
    assert_int_equal(bd_folder_lock(&lock, "out", "using", NULL), BD_OK);
    assert_int_equal(lock_elsewhere("out"), BD_ERR_IO);
    assert_int_equal(close(lock), 0);
    assert_int_equal(lock_elsewhere("out"), BD_OK);
    assert_int_equal(bd_folder_lock(&lock, "out", "using", NULL), BD_OK);  // it ended
    assert_int_equal(close(lock), 0);
    assert_int_equal(count_entries("out"), 0);
}

static void what_is_no_folder_is_not_locked(void **state)
{
    (void)state;
    int lock = 5;
    bd_error err = {0};
    assert_int_equal(bd_folder_lock(&lock, "out", "using", &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot open the folder 'out': No such file or directory");
    assert_int_equal(lock, -1);
    write_text("out", "a file");
    assert_int_equal(bd_folder_lock(&lock, "out", "using", &err), BD_ERR_IO);
    assert_int_equal(lock, -1);
}

static bd_status count_visit(void *context, const char *folder, const char *name, bd_error *err)
{
    int *counts = context;
    assert_string_equal(folder, "out");
    if (strcmp(name, "stop") == 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "stopped");
    counts[name[0] - 'a']++;
    return BD_OK;
}

static void every_entry_is_visited_once(void **state)
{
    (void)state;
    int counts[3] = {0};
    bd_error err = {0};
    add_folder("out");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_OK);
    write_text("out/a", "");
    write_text("out/b", "");
    add_folder("out/c");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(counts[i], 1);
    write_text("out/stop", "");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "stopped");
    assert_int_equal(bd_folder_visit("absent", count_visit, counts, &err), BD_ERR_IO);
    assert_string_equal(err.message,
                        "cannot read the folder 'absent': No such file or directory");
}

static void only_pending_files_are_removed(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_pending pending;
    add_folder("out");
    assert_int_equal(bd_pending_begin(&pending, "out", "a.json", &err), BD_OK);
    write_text("out/.b.arrow.01ab23cd.part", "half");
    write_text("out/a.json", "kept");
    write_text("out/.hidden", "kept");
    write_text("out/c.part", "kept");
    assert_int_equal(bd_folder_remove_pending("out", &err), BD_OK);
    assert_int_equal(count_entries("out"), 3);
    assert_true(exists("out/a.json") && exists("out/.hidden") && exists("out/c.part"));
    bd_pending_discard(&pending);
}

static void removing_what_is_not_there_is_fine(void **state)
{
    (void)state;
    bd_error err = {0};
    add_folder("out");
    add_folder("out/folder");
    write_text("out/a", "");
    assert_int_equal(bd_folder_remove("out", "a", &err), BD_OK);
    assert_false(exists("out/a"));
    assert_int_equal(bd_folder_remove("out", "a", &err), BD_OK);
    assert_int_equal(bd_folder_remove("out", "folder", &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "cannot remove 'out/folder': "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(a_folder_is_made_once),
        test_inside_folder(a_lock_keeps_other_processes_out_until_it_is_closed),
        test_inside_folder(what_is_no_folder_is_not_locked),
        test_inside_folder(every_entry_is_visited_once),
        test_inside_folder(only_pending_files_are_removed),
        test_inside_folder(removing_what_is_not_there_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
