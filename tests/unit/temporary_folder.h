// temporary_folder.h - a new folder for each test, and simple ways to look into it.
//
//   const struct CMUnitTest tests[] = {test_in_folder(test), …};    *state is the path
//
// test_inside_folder(test) also makes it the working directory, so that paths in it are short.
#ifndef BINDERY_TESTS_UNIT_TEMPORARY_FOLDER_H
#define BINDERY_TESTS_UNIT_TEMPORARY_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define test_in_folder(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
#define test_inside_folder(test) \
    cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

static inline int make_folder(void **state)
{
    const char *base = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/bindery-test-XXXXXX", base && *base ? base : "/tmp") < 0)
        return -1;
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

static inline int remove_visited(const char *path, const struct stat *info, int type,
                                 struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int remove_folder(void **state)
{
    const int failed = nftw(*state, remove_visited, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return failed;
}

static inline int enter_folder(void **state)
{
    return make_folder(state) == 0 && chdir(*state) == 0 ? 0 : -1;
}

static inline int leave_folder(void **state)
{
    return chdir("/") == 0 ? remove_folder(state) : -1;
}

// Returns "<folder>/<name>", valid until the fourth call after this one.
static inline const char *in(const char *folder, const char *name)
{
    static _Thread_local char paths[4][4096];
    static _Thread_local int next;
    char *path = paths[next++ % 4];
    const size_t n_folder = strlen(folder), n_name = strlen(name);
    assert_true(n_folder + n_name + 2 <= sizeof paths[0]);
    memmove(path, folder, n_folder);
    path[n_folder] = '/';
    memcpy(path + n_folder + 1, name, n_name + 1);
    return path;
}

static inline void write_file(const char *path, const void *data, size_t size_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static inline void add_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

// Malloc'd, with a NUL at the end.
static inline char *read_file(const char *path, size_t *size_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size_bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size_bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size_bytes, file), *size_bytes);
    data[*size_bytes] = '\0';
    fclose(file);
    return data;
}

static inline void assert_file_holds(const char *path, const char *expected)
{
    size_t n;
    char *text = read_file(path, &n);
    assert_string_equal(text, expected);
    free(text);
}

static inline void assert_same_files(const char *left, const char *right)
{
    size_t n_left, n_right;
    char *a = read_file(left, &n_left), *b = read_file(right, &n_right);
    const bool same = n_left == n_right && memcmp(a, b, n_left) == 0;
    free(a);
    free(b);
    if (!same)
        fail_msg("'%s' and '%s' differ", left, right);
}

static inline int count_entries(const char *folder)
{
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    int n = -2;  // "." and ".."
    while (readdir(entries))
        n++;
    closedir(entries);
    return n;
}

#endif
