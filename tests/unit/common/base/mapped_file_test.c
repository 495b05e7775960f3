#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/temporary_folder.h"

enum { FILE_BYTES = 3 * 4096 + 100 };

static void write_pages(const char *path)
{
    static char data[FILE_BYTES];
    for (int i = 0; i < FILE_BYTES; i++)
        data[i] = (char)(i % 251);
    write_file(path, data, sizeof data);
}

static void mapping_holds_the_bytes_of_the_file(void **state)
{
    const char *path = in(*state, "file");
    bd_mapped_file file;
    write_pages(path);
    assert_int_equal(bd_mapped_file_open(&file, path, NULL), BD_OK);
    assert_int_equal(file.size_bytes, FILE_BYTES);
    size_t n;
    char *text = read_file(path, &n);
    assert_memory_equal(file.data, text, n);
    assert_int_equal((uintptr_t)file.data % 4096, 0);
    free(text);
    bd_mapped_file_close(&file);
    assert_null(file.data);
    assert_int_equal(file.size_bytes, 0);
    bd_mapped_file_close(&file);
    bd_mapped_file_close(&(bd_mapped_file){0});
}

static int n_resident_pages(const bd_mapped_file *file)
{
    char line[256], range[64];
    int n_kilobytes = -1;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    snprintf(range, sizeof range, "%lx-", (unsigned long)(uintptr_t)file->data);
    for (bool here = false; n_kilobytes < 0 && fgets(line, sizeof line, maps);) {
        here |= strncmp(line, range, strlen(range)) == 0;
        if (here && sscanf(line, "Rss: %d kB", &n_kilobytes) != 1)
            n_kilobytes = -1;
    }
    fclose(maps);
    return n_kilobytes / 4;
}

// Any part may be named: its whole pages are no longer resident, and can still be read.
static void forgotten_pages_can_be_read_again(void **state)
{
    const char *path = in(*state, "file");
    bd_mapped_file file;
    size_t n;
    write_pages(path);
    char *text = read_file(path, &n);
    assert_int_equal(bd_mapped_file_open(&file, path, NULL), BD_OK);
    const char *data = file.data;
    assert_memory_equal(data, text, n);
    assert_int_equal(n_resident_pages(&file), 4);
    bd_mapped_file_forget(&file, data + 1, 4096);         // no whole page
    bd_mapped_file_forget(&file, text, n);                // not in the file
    bd_mapped_file_forget(&file, data - 4096, 2 * 4096);  // nor this
    bd_mapped_file_forget(&file, data, 0);
    assert_int_equal(n_resident_pages(&file), 4);
    bd_mapped_file_forget(&file, data + 1, 3 * 4096);
    assert_int_equal(n_resident_pages(&file), 2);
    bd_mapped_file_forget(&file, data, FILE_BYTES);
    assert_in_range(n_resident_pages(&file), 0, 1);
    assert_memory_equal(data, text, n);
    bd_mapped_file_close(&file);
    bd_mapped_file_forget(&file, NULL, 0);
    free(text);
}

static void empty_file_is_mapped_to_nothing(void **state)
{
    const char *path = in(*state, "file");
    bd_mapped_file file;
    write_file(path, "", 0);
    assert_int_equal(bd_mapped_file_open(&file, path, NULL), BD_OK);
    assert_null(file.data);
    assert_int_equal(file.size_bytes, 0);
    bd_mapped_file_close(&file);
}

static void refuses_to_map(const char *path, const char *how, const char *why)
{
    char expected[5000];
    bd_mapped_file file;
    bd_error err;
    snprintf(expected, sizeof expected, "cannot %s '%s': %s", how, path, why);
    assert_int_equal(bd_mapped_file_open(&file, path, &err), BD_ERR_IO);
    assert_string_equal(err.message, expected);
    assert_null(file.data);
}

static void only_a_regular_file_is_mapped(void **state)
{
    const char *fifo = in(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    alarm(20);  // waiting for somebody to write into the FIFO would be a failure, too
    refuses_to_map(*state, "read", "it is a folder");
    refuses_to_map("/dev/null", "read", "not a regular file");
    refuses_to_map(fifo, "read", "not a regular file");
    refuses_to_map(in(*state, "missing"), "open", "No such file or directory");
    alarm(0);
}

// ---- Files that shrink under us, each in a process of its own ---------------------

// Runs `act` in a child that handles SIGBUS. Returns its wait status and what it said on
// stderr.
static int in_child(void (*act)(const char *folder), const char *folder, char *said,
                    size_t said_size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        bd_mapped_file_handle_sigbus();
        act(folder);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got;
         n < said_size - 1 && (got = read(ends[0], said + n, said_size - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static volatile char touched;

static void touch(const void *data, size_t at)
{
    touched = ((const volatile char *)data)[at];
}

static bd_mapped_file map(const char *folder, const char *name)
{
    char path[4096];  // freed when this returns: the handler needs a copy of its own
    bd_mapped_file file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bd_mapped_file_open(&file, path, NULL) != BD_OK)
        _exit(9);
    memset(path, 'x', sizeof path);
    return file;
}

static bd_mapped_file map_pages(const char *folder, const char *name)
{
    write_pages(in(folder, name));
    return map(folder, name);
}

static void cut(const char *folder, const char *name, off_t size_bytes)
{
    if (truncate(in(folder, name), size_bytes) != 0)
        _exit(9);
}

static void touch_first_byte_of_an_emptied_file(const char *folder)
{
    const bd_mapped_file file = map_pages(folder, "file");
    cut(folder, "file", 0);
    touch(file.data, 0);
}

static void touch_last_byte_of_a_cut_file_among_others(const char *folder)
{
    map_pages(folder, "before");
    const bd_mapped_file file = map_pages(folder, "file");
    map_pages(folder, "after");
    cut(folder, "file", 4096);
    touch(file.data, 0);  // still mapped
    touch(file.data, FILE_BYTES - 1);
}

static void touch_an_emptied_file_after_many_were_closed(const char *folder)
{
    write_pages(in(folder, "other"));
    for (int i = 0; i < 10000; i++) {
        bd_mapped_file other = map(folder, "other");
        bd_mapped_file_close(&other);
    }
    touch_first_byte_of_an_emptied_file(folder);
}

static void file_that_shrank_ends_the_program_with_its_name(void **state)
{
    static void (*const acts[])(const char *) = {
        touch_first_byte_of_an_emptied_file,
        touch_last_byte_of_a_cut_file_among_others,
        touch_an_emptied_file_after_many_were_closed,
    };
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        char said[8000], expected[5000];
        const int status = in_child(acts[i], *state, said, sizeof said);
        snprintf(expected, sizeof expected,
                 "bindery: '%s/file' became shorter while it was being read\n",
                 (const char *)*state);
        assert_string_equal(said, expected);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 2);
    }
}

// Mapped both before and after ours: one of them lies above it.
static void touch_a_file_that_is_not_ours(const char *folder, bool before)
{
    write_pages(in(folder, "file"));
    const int fd = open(in(folder, "file"), O_RDONLY);
    const void *first = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    map_pages(folder, "ours");
    const void *last = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    cut(folder, "file", 0);
    touch(before ? first : last, 0);
}

static void touch_a_file_mapped_before_ours(const char *folder)
{
    touch_a_file_that_is_not_ours(folder, true);
}

static void touch_a_file_mapped_after_ours(const char *folder)
{
    touch_a_file_that_is_not_ours(folder, false);
}

static void touch_a_mapping_that_was_forgotten(const char *folder)
{
    bd_mapped_file file = map_pages(folder, "ours");
    const size_t length = file.size_bytes;
    const void *place = file.data;
    bd_mapped_file_close(&file);
    write_pages(in(folder, "file"));
    const int fd = open(in(folder, "file"), O_RDONLY);
    void *data = mmap((void *)place, length, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    cut(folder, "file", 0);
    touch(data, 0);
}

static void send_the_signal(const char *folder)
{
    map_pages(folder, "ours");
    raise(SIGBUS);
}

static void any_other_bus_error_keeps_its_default_action(void **state)
{
    static void (*const acts[])(const char *) = {
        touch_a_file_mapped_before_ours,
        touch_a_file_mapped_after_ours,
        touch_a_mapping_that_was_forgotten,
        send_the_signal,
    };
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        char said[8000];
        const int status = in_child(acts[i], *state, said, sizeof said);
        assert_string_equal(said, "");
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGBUS);
    }
}

static void more_files_than_are_known_by_name_are_still_mapped(void **state)
{
    enum { KNOWN = 4096 };
    static bd_mapped_file files[KNOWN + 2];
    const char *path = in(*state, "file");
    write_pages(path);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KNOWN + 2; i++) {
            assert_int_equal(bd_mapped_file_open(&files[i], path, NULL), BD_OK);
            assert_int_equal(files[i].slot < 0, i >= KNOWN);
        }
        for (int i = 0; i < KNOWN + 2; i++)
            bd_mapped_file_close(&files[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(forgotten_pages_can_be_read_again),
        test_in_folder(mapping_holds_the_bytes_of_the_file),
        test_in_folder(empty_file_is_mapped_to_nothing),
        test_in_folder(only_a_regular_file_is_mapped),
        test_in_folder(file_that_shrank_ends_the_program_with_its_name),
        test_in_folder(any_other_bus_error_keeps_its_default_action),
        test_in_folder(more_files_than_are_known_by_name_are_still_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
