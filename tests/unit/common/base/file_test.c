#include "common/base/file.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/temporary_folder.h"

// The source itself instead of the library, so that the random names can be chosen here.
static const uint32_t *drawn;  // the next random numbers; NULL: real ones
static int n_drawn;            // how many are drawn before drawing fails

static ssize_t scripted_getrandom(void *buffer, size_t size_bytes, unsigned flags)
{
    if (!drawn)
        return getrandom(buffer, size_bytes, flags);
    if (n_drawn-- == 0)
        return -1;
    memcpy(buffer, drawn++, size_bytes);
    return (ssize_t)size_bytes;
}

#define getrandom scripted_getrandom
#include "common/base/file.c"  // NOLINT(bugprone-suspicious-include)
#undef getrandom

// ---- Names ------------------------------------------------------------------------

static void join_puts_exactly_one_slash(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"a/b", "c.d", "a/b/c.d"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = bd_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

static void last_name_is_empty_for_what_names_nothing(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a", "a"},      {"a/", "a"},    {"a//b", "b"}, {"/a/b///", "b"}, {"/a", "a"},
        {".a", ".a"},    {"...", "..."}, {"a.", "a."},  {"..a", "..a"},   {"/", ""},
        {"//", ""},      {"", ""},       {".", ""},     {"..", ""},       {"./", ""},
        {"a/.", ""},     {"a/..", ""},   {"a/../", ""}, {"../a", "a"},    {"a b/c d", "c d"},
        {"./..a", "..a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *name = bd_path_last_name(cases[i][0]);
        assert_string_equal(name, cases[i][1]);
        free(name);
    }
}

static void pending_names_are_told_from_others(void **state)
{
    (void)state;
    static const char *const others[] = {
        ".film.mkv.part", "",       ".",      "..",        ".part",  "a", "a.part", ".a",
        ".a.part.x",      ".apart", "..part", "a..b.part", ".a.PART"};
    char final[14];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(bd_pending_final_name(others[i], final, sizeof final));
    assert_true(bd_pending_final_name(".manifest.json.0123abcd.part", final, sizeof final));
    assert_string_equal(final, "manifest.json");
    assert_false(bd_pending_final_name(".manifests.json.0123abcd.part", final, sizeof final));
}

static bool is_manifest(const char *name)
{
    return strcmp(name, "manifest.json") == 0;
}

static void pending_names_are_told_from_those_of_other_files(void **state)
{
    (void)state;
    assert_true(bd_is_pending_of(".manifest.json.0123abcd.part", is_manifest));
    assert_false(bd_is_pending_of(".film.mkv.0123abcd.part", is_manifest));
    assert_false(bd_is_pending_of("..manifest.json.0123abcd.part", is_manifest));
    assert_false(bd_is_pending_of("manifest.json", is_manifest));
}

// ---- Reading ----------------------------------------------------------------------

static void whole_file_is_read_up_to_the_limit(void **state)
{
    const char *path = in(*state, "file");
    write_file(path, "one\0two", 7);
    char *text;
    size_t n;
    assert_int_equal(bd_file_read(path, 7, &text, &n, NULL), BD_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "one\0two\0", 8);  // including the NUL after it
    free(text);

    bd_error err;
    char expected[5000];
    snprintf(expected, sizeof expected, "cannot read '%s': 7 bytes, more than the 6 allowed",
             path);
    assert_int_equal(bd_file_read(path, 6, &text, &n, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, expected);
}

static void empty_file_is_an_empty_text(void **state)
{
    const char *path = in(*state, "file");
    write_file(path, "", 0);
    char *text;
    size_t n;
    assert_int_equal(bd_file_read(path, 0, &text, &n, NULL), BD_OK);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    free(text);
}

static void refuses_to_read(const char *path, const char *how, const char *why)
{
    char *text, expected[5000];
    size_t n;
    bd_error err;
    snprintf(expected, sizeof expected, "cannot %s '%s': %s", how, path, why);
    assert_int_equal(bd_file_read(path, 100, &text, &n, &err), BD_ERR_IO);
    assert_string_equal(err.message, expected);
}

static void only_a_regular_file_is_read(void **state)
{
    const char *fifo = in(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    alarm(20);  // waiting for somebody to write into the FIFO would be a failure, too
    refuses_to_read(*state, "read", "it is a folder");
    refuses_to_read("/dev/null", "read", "not a regular file");
    refuses_to_read(fifo, "read", "not a regular file");
    refuses_to_read(in(*state, "missing"), "open", "No such file or directory");
    alarm(0);
}

static void part_of_a_file_is_read_exactly(void **state)
{
    const char *path = in(*state, "file");
    write_file(path, "0123456789", 10);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char buffer[11] = "..........";
    assert_int_equal(bd_file_read_at(fileno(file), path, buffer, 4, 3, NULL), BD_OK);
    assert_string_equal(buffer, "3456......");
    assert_int_equal(bd_file_read_at(fileno(file), path, buffer, 0, 99, NULL), BD_OK);
    assert_int_equal(bd_file_read_at(fileno(file), path, buffer, 10, 0, NULL), BD_OK);
    assert_string_equal(buffer, "0123456789");

    bd_error err;
    char expected[5000];
    snprintf(expected, sizeof expected, "cannot read '%s': it became shorter while being read",
             path);
    assert_int_equal(bd_file_read_at(fileno(file), path, buffer, 5, 6, &err), BD_ERR_IO);
    assert_string_equal(err.message, expected);
    assert_int_equal(bd_file_read_at(-1, path, buffer, 1, 0, &err), BD_ERR_IO);
    snprintf(expected, sizeof expected, "cannot read '%s': Bad file descriptor", path);
    assert_string_equal(err.message, expected);
    fclose(file);
}

// ---- Publishing -------------------------------------------------------------------

static void published_file_holds_the_bytes_and_nothing_else_is_left(void **state)
{
    static char large[300000];
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i % 251);
    assert_int_equal(bd_file_publish(*state, "name", large, sizeof large, NULL), BD_OK);
    assert_int_equal(bd_file_publish(*state, "empty", "", 0, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 2);
    size_t n;
    char *text = read_file(in(*state, "name"), &n);
    assert_int_equal(n, sizeof large);
    assert_memory_equal(text, large, n);
    free(text);
    assert_file_holds(in(*state, "empty"), "");
}

static void publishing_replaces_what_is_there(void **state)
{
    write_file(in(*state, "name"), "old and longer", 14);
    assert_int_equal(bd_file_publish(*state, "name", "new", 3, NULL), BD_OK);
    assert_file_holds(in(*state, "name"), "new");
    assert_int_equal(count_entries(*state), 1);
}

static void pending_file_is_not_seen_under_its_final_name(void **state)
{
    const char *final = in(*state, "name");
    bd_pending pending;
    assert_int_equal(bd_pending_begin(&pending, *state, "name", NULL), BD_OK);
    assert_string_equal(pending.final, final);
    assert_int_equal(bd_pending_write(&pending, "first, longer", 13, NULL), BD_OK);
    assert_int_equal(bd_pending_write(&pending, "second", 6, NULL), BD_OK);
    assert_int_not_equal(access(final, F_OK), 0);
    assert_file_holds(pending.temporary, "second");
    char published[5];
    assert_true(bd_pending_final_name(bd_path_tail(pending.temporary), published, 5));
    assert_string_equal(published, "name");
    assert_memory_equal(pending.temporary, *state, strlen(*state));  // also of files beside it
    assert_int_equal(bd_pending_publish(&pending, NULL), BD_OK);
    assert_null(pending.temporary);
    assert_file_holds(final, "second");
    assert_int_equal(count_entries(*state), 1);
}

static void discarding_removes_the_temporary_file(void **state)
{
    bd_pending pending;
    assert_int_equal(bd_pending_begin(&pending, *state, "name", NULL), BD_OK);
    assert_int_equal(count_entries(*state), 1);
    bd_pending_discard(&pending);
    assert_int_equal(count_entries(*state), 0);
    bd_pending_discard(&pending);
    bd_pending_discard(&(bd_pending){0});
}

static void two_writers_of_one_name_do_not_meet(void **state)
{
    bd_pending first, second;
    assert_int_equal(bd_pending_begin(&first, *state, "name", NULL), BD_OK);
    assert_int_equal(bd_pending_begin(&second, *state, "name", NULL), BD_OK);
    assert_string_not_equal(first.temporary, second.temporary);
    assert_int_equal(bd_pending_write(&first, "first", 5, NULL), BD_OK);
    assert_int_equal(bd_pending_write(&second, "second", 6, NULL), BD_OK);
    assert_int_equal(bd_pending_publish(&second, NULL), BD_OK);
    assert_int_equal(bd_pending_publish(&first, NULL), BD_OK);
    assert_file_holds(in(*state, "name"), "first");
    assert_int_equal(count_entries(*state), 1);
}

static void name_in_use_is_not_taken(void **state)
{
    static const uint32_t numbers[] = {7, 7, 7, 8};
    const char *used = in(*state, ".name.00000007.part");
    bd_pending pending;
    write_file(used, "in use", 6);
    drawn = numbers;
    n_drawn = 4;
    assert_int_equal(bd_pending_begin(&pending, *state, "name", NULL), BD_OK);
    assert_string_equal(pending.temporary, in(*state, ".name.00000008.part"));
    assert_file_holds(used, "in use");
    bd_pending_discard(&pending);

    drawn = numbers;
    n_drawn = 2;  // and no more
    assert_int_equal(bd_pending_begin(&pending, *state, "name", NULL), BD_ERR_IO);
    drawn = NULL;
    assert_null(pending.temporary);
    assert_int_equal(count_entries(*state), 1);
}

static void mode_is_what_the_umask_says(void **state)
{
    static const mode_t masks[] = {0, 022, 027, 077};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const mode_t before = umask(masks[i]);
        const bd_status status = bd_file_publish(*state, "name", "x", 1, NULL);
        umask(before);
        assert_int_equal(status, BD_OK);
        struct stat info;
        assert_int_equal(stat(in(*state, "name"), &info), 0);
        assert_int_equal(info.st_mode & 07777, 0666 & ~masks[i]);
    }
}

// ---- Publishing what must be new ---------------------------------------------------

static void new_file_is_published_whole_and_alone(void **state)
{
    static char large[300000];
    bool there = true;
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i % 251);
    assert_int_equal(bd_file_publish_new(*state, "name", large, sizeof large, &there, NULL),
                     BD_OK);
    assert_false(there);
    there = true;
    assert_int_equal(bd_file_publish_new(*state, "empty", "", 0, &there, NULL), BD_OK);
    assert_false(there);
    assert_int_equal(count_entries(*state), 2);
    size_t n;
    char *text = read_file(in(*state, "name"), &n);
    assert_int_equal(n, sizeof large);
    assert_memory_equal(text, large, n);
    free(text);
    assert_file_holds(in(*state, "empty"), "");
    struct stat info;
    assert_int_equal(stat(in(*state, "name"), &info), 0);
    assert_int_equal(info.st_nlink, 1);
}

static void an_existing_file_is_reported_and_not_replaced(void **state)
{
    bool there = false;
    write_file(in(*state, "name"), "old", 3);
    assert_int_equal(bd_file_publish_new(*state, "name", "newer", 5, &there, NULL), BD_OK);
    assert_true(there);
    assert_file_holds(in(*state, "name"), "old");
    there = false;
    assert_int_equal(symlink("nowhere", in(*state, "link")), 0);  // a name that is taken, too
    assert_int_equal(bd_file_publish_new(*state, "link", "newer", 5, &there, NULL), BD_OK);
    assert_true(there);
    assert_int_equal(count_entries(*state), 2);
}

enum { N_PUBLISHERS = 6 };

// Publishes a text that names this process as soon as `start` has been read to its end.
_Noreturn static void publish_at_once(const char *folder, int start, int number)
{
    char text[40], wait;
    bool there = false;
    while (read(start, &wait, 1) > 0)
        ;
    snprintf(text, sizeof text, "published by %d", number);
    const bd_status status =
        bd_file_publish_new(folder, "name", text, strlen(text), &there, NULL);
    _exit(status != BD_OK ? 2 : there ? 1 : 0);
}

static void one_of_several_processes_publishes(void **state)
{
    for (int round = 0; round < 10; round++) {
        int start[2], n_published = 0;
        pid_t ids[N_PUBLISHERS];
        char expected[40] = "";
        assert_int_equal(pipe(start), 0);
        for (int i = 0; i < N_PUBLISHERS; i++) {
            ids[i] = fork();
            assert_true(ids[i] >= 0);
            if (ids[i] == 0) {
                close(start[1]);
                publish_at_once(*state, start[0], i);
            }
        }
        close(start[0]);
        close(start[1]);
        for (int i = 0; i < N_PUBLISHERS; i++) {
            int result;
            assert_int_equal(waitpid(ids[i], &result, 0), ids[i]);
            assert_true(WIFEXITED(result) && WEXITSTATUS(result) < 2);
            if (WEXITSTATUS(result) == 1)
                continue;
            n_published++;
            snprintf(expected, sizeof expected, "published by %d", i);
        }
        assert_int_equal(n_published, 1);
        assert_file_holds(in(*state, "name"), expected);
        assert_int_equal(count_entries(*state), 1);
        assert_int_equal(unlink(in(*state, "name")), 0);
    }
}

// ---- Publishing that fails --------------------------------------------------------

static void assert_names(const bd_error *err, const char *what, const char *path,
                         const char *why)
{
    char expected[5000];
    snprintf(expected, sizeof expected, "cannot %s '%s': %s", what, path, why);
    assert_string_equal(err->message, expected);
}

// Root may write everywhere because of a capability, which it gives up for a moment. Becoming
// another user instead is impossible in a container with only one.
static void folder_without_write_permission_stays_as_it_was(void **state)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct before[_LINUX_CAPABILITY_U32S_3],
        less[_LINUX_CAPABILITY_U32S_3];
    assert_int_equal(syscall(SYS_capget, &header, before), 0);
    memcpy(less, before, sizeof less);
    less[CAP_TO_INDEX(CAP_DAC_OVERRIDE)].effective &= ~CAP_TO_MASK(CAP_DAC_OVERRIDE);
    bd_error err;
    assert_int_equal(chmod(*state, 0555), 0);
    assert_int_equal(syscall(SYS_capset, &header, less), 0);
    const bd_status status = bd_file_publish(*state, "name", "x", 1, &err);
    assert_int_equal(syscall(SYS_capset, &header, before), 0);
    assert_int_equal(chmod(*state, 0755), 0);
    assert_int_equal(status, BD_ERR_IO);
    assert_names(&err, "create", in(*state, "name"), "Permission denied");
    assert_int_equal(count_entries(*state), 0);
}

static void folder_that_is_gone_is_an_error(void **state)
{
    bd_error err;
    const char *folder = in(*state, "folder"), *final = in(*state, "folder/name");
    bd_pending pending = {.final = (char *)"something"};
    assert_int_equal(bd_pending_begin(&pending, folder, "name", &err), BD_ERR_IO);
    assert_names(&err, "create", final, "No such file or directory");
    assert_null(pending.temporary);
    assert_null(pending.final);
    assert_null(pending.folder);
    bool there;
    assert_int_equal(bd_file_publish_new(folder, "name", "x", 1, &there, &err), BD_ERR_IO);
    assert_names(&err, "create", final, "No such file or directory");

    for (int step = 0; step < 2; step++) {  // removed before writing, before publishing
        assert_int_equal(mkdir(folder, 0777), 0);
        assert_int_equal(bd_pending_begin(&pending, folder, "name", &err), BD_OK);
        assert_int_equal(unlink(pending.temporary), 0);
        assert_int_equal(rmdir(folder), 0);
        if (step == 0) {
            assert_int_equal(bd_pending_write(&pending, "x", 1, &err), BD_ERR_IO);
            assert_names(&err, "write", final, "No such file or directory");
            bd_pending_discard(&pending);
        } else {
            assert_int_equal(bd_pending_publish(&pending, &err), BD_ERR_IO);
            assert_names(&err, "sync", final, "No such file or directory");
        }
        assert_null(pending.temporary);
    }
}

static void disk_that_takes_no_more_leaves_the_old_file(void **state)
{
    static char large[100000];
    const char *path = in(*state, "name");
    write_file(path, "old", 3);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bd_error err;
    const bd_status old_name = bd_file_publish(*state, "name", large, sizeof large, &err);
    const bd_status new_name = bd_file_publish(*state, "new", large, sizeof large, NULL);
    bool there = true;
    const bd_status only_new =
        bd_file_publish_new(*state, "new", large, sizeof large, &there, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(old_name, BD_ERR_IO);
    assert_int_equal(new_name, BD_ERR_IO);
    assert_int_equal(only_new, BD_ERR_IO);
    assert_false(there);
    assert_names(&err, "write", path, "File too large");
    assert_file_holds(path, "old");
    assert_int_equal(count_entries(*state), 1);
}

static void name_that_is_a_folder_is_left_alone(void **state)
{
    const char *path = in(*state, "name");
    assert_int_equal(mkdir(path, 0777), 0);
    bd_error err;
    assert_int_equal(bd_file_publish(*state, "name", "x", 1, &err), BD_ERR_IO);
    assert_names(&err, "publish", path, "Is a directory");
    assert_int_equal(count_entries(*state), 1);
    assert_int_equal(count_entries(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(join_puts_exactly_one_slash),
        cmocka_unit_test(last_name_is_empty_for_what_names_nothing),
        cmocka_unit_test(pending_names_are_told_from_others),
        cmocka_unit_test(pending_names_are_told_from_those_of_other_files),
        test_in_folder(whole_file_is_read_up_to_the_limit),
        test_in_folder(empty_file_is_an_empty_text),
        test_in_folder(only_a_regular_file_is_read),
        test_in_folder(part_of_a_file_is_read_exactly),
        test_in_folder(published_file_holds_the_bytes_and_nothing_else_is_left),
        test_in_folder(publishing_replaces_what_is_there),
        test_in_folder(pending_file_is_not_seen_under_its_final_name),
        test_in_folder(discarding_removes_the_temporary_file),
        test_in_folder(two_writers_of_one_name_do_not_meet),
        test_in_folder(name_in_use_is_not_taken),
        test_in_folder(mode_is_what_the_umask_says),
        test_in_folder(new_file_is_published_whole_and_alone),
        test_in_folder(an_existing_file_is_reported_and_not_replaced),
        test_in_folder(one_of_several_processes_publishes),
        test_in_folder(folder_without_write_permission_stays_as_it_was),
        test_in_folder(folder_that_is_gone_is_an_error),
        test_in_folder(disk_that_takes_no_more_leaves_the_old_file),
        test_in_folder(name_that_is_a_folder_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
