// scratch.h - a folder of its own for each test, and files in it. Include cmocka.h before it.
//
//   const struct CMUnitTest tests[] = {IN_SCRATCH(a_promise), ...};
//
// The test runs inside the folder, so paths in it are short and relative.
#ifndef BINDERY_TESTS_SCRATCH_H
#define BINDERY_TESTS_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

static inline int enter_scratch(void **state)
{
    const char *parent = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/bindery-test.XXXXXX", parent && *parent ? parent : "/tmp") < 0)
        return -1;
    *state = path;
    return mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *info, int kind,
                             struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline int leave_scratch(void **state)
{
    int failed = chdir("/");
    failed |= nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return failed;
}

static inline void write_bytes(const char *path, const void *data, size_t size_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

// The whole file, malloc'd, with a NUL after it.
static inline char *read_bytes(const char *path, size_t *size_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long n = ftell(file);
    assert_true(n >= 0);
    rewind(file);
    char *data = malloc((size_t)n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)n, file), n);
    fclose(file);
    data[n] = '\0';
    *size_bytes = (size_t)n;
    return data;
}

static inline void assert_same_files(const char *left, const char *right)
{
    size_t n_left, n_right;
    char *a = read_bytes(left, &n_left), *b = read_bytes(right, &n_right);
    const bool same = n_left == n_right && memcmp(a, b, n_left) == 0;
    free(a);
    free(b);
    if (!same)
        fail_msg("'%s' and '%s' differ", left, right);
}

static inline void make_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

#endif
