// memory_file.h - gives a fuzzer's bytes a file name without writing to a disk.
#ifndef BINDERY_TESTS_FUZZ_MEMORY_FILE_H
#define BINDERY_TESTS_FUZZ_MEMORY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// Checks a property, also if assert() is compiled away.
#define REQUIRE(condition)                                                                 \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

// The one file, made at the first call. Its name is always the same.
static inline int memory_file(void)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", 0);
    REQUIRE(fd >= 0);
    return fd;
}

static inline const char *memory_file_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory_file());
    return path;
}

// Sets the content of the file to `data`.
static inline void memory_file_set(const void *data, size_t size_bytes)
{
    REQUIRE(ftruncate(memory_file(), 0) == 0);
    REQUIRE(pwrite(memory_file(), data, size_bytes, 0) == (ssize_t)size_bytes);
}

// Makes an empty folder under $TMPDIR; the script that runs the fuzzer (`run`) removes it.
static inline const char *new_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path;
    REQUIRE(asprintf(&path, "%s/bindery-fuzz-XXXXXX", base && *base ? base : "/tmp") > 0);
    REQUIRE(mkdtemp(path) != NULL);
    return path;
}

// Makes a folder in which `name` is the memory file.
static inline const char *folder_with(const char *name)
{
    const char *folder = new_folder();
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    REQUIRE(symlink(memory_file_path(), path) == 0);
    return folder;
}

#endif
