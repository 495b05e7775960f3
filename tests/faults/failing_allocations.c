// failing_allocations.c - a library for LD_PRELOAD that makes one allocation fail.
//
// FAULT_NUMBER  which allocation of the program and its libraries, from 1
//   FAULT_REPORT  a file that gets their number when the program exits
//
// It replaces only the libc's allocator: memory that a library maps by itself does not count.

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t size_bytes);
void *__libc_calloc(size_t n, size_t size_bytes);
void *__libc_realloc(void *memory, size_t size_bytes);
void *__libc_memalign(size_t alignment, size_t size_bytes);
void *memalign(size_t alignment, size_t size_bytes);

static atomic_long n_counted;
static long failing;  // 0 until the environment is read

__attribute__((constructor)) static void read_environment(void)
{
    const char *number = getenv("FAULT_NUMBER");
    if (!number || !getenv("FAULT_REPORT"))
        abort();  // no fault would occur, and every test would pass
    n_counted = 0;
    failing = atol(number);
}

__attribute__((destructor)) static void write_report(void)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld\n", n_counted);
    const int fd = open(getenv("FAULT_REPORT"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        abort();
    close(fd);
}

static int fails(void)
{
    if (failing == 0 || ++n_counted != failing)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size_bytes)
{
    return fails() ? NULL : __libc_malloc(size_bytes);
}

void *calloc(size_t n, size_t size_bytes)
{
    return fails() ? NULL : __libc_calloc(n, size_bytes);
}

void *realloc(void *memory, size_t size_bytes)
{
    return fails() ? NULL : __libc_realloc(memory, size_bytes);
}

void *memalign(size_t alignment, size_t size_bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, size_bytes);
}

void *aligned_alloc(size_t alignment, size_t size_bytes)
{
    return memalign(alignment, size_bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t size_bytes)
{
    *memory = memalign(alignment, size_bytes);
    return *memory ? 0 : ENOMEM;
}
