#include "common/base/free_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t smaller_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// The number behind `name` in a file of such lines; 0 if there is none.
static uint64_t find_number(const char *path, const char *name)
{
    char line[256];
    uint64_t number = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), "%" SCNu64, &number) == 1)
            break;
    if (file)
        fclose(file);
    return number;
}

// False if the file holds no number, but "max" or nothing.
static bool read_lone_number(const char *path, uint64_t *number)
{
    FILE *file = fopen(path, "re");
    const bool read = file && fscanf(file, "%" SCNu64, number) == 1;
    if (file)
        fclose(file);
    return read;
}

static size_t free_in_system(void)
{
    const uint64_t available_kib = find_number("/proc/meminfo", "MemAvailable:");
    const uint64_t swap_kib = find_number("/proc/meminfo", "SwapFree:");
    return available_kib > 0 ? (size_t)(available_kib + swap_kib) * 1024 : SIZE_MAX;
}

// The bytes that one control group leaves. Cached files count as used, but can be dropped.
static size_t free_in_group(const char *folder, size_t length)
{
    char path[4096];
    uint64_t limit, used;
    const int n = (int)length;
    snprintf(path, sizeof path, "%.*s/memory.max", n, folder);
    if (!read_lone_number(path, &limit))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%.*s/memory.current", n, folder);
    if (!read_lone_number(path, &used))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%.*s/memory.stat", n, folder);
    const uint64_t dropped = find_number(path, "inactive_file ");
    used = used > dropped ? used - dropped : 0;
    return limit > used ? (size_t)(limit - used) : 0;
}

// The least of the process's control group (version 2: the line "0::/its/path") and of all
// groups that it lies in.
static size_t free_in_groups(void)
{
    static const char mounted[] = "/sys/fs/cgroup";
    char line[2048], folder[sizeof mounted + sizeof line];
    size_t least = SIZE_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(folder, sizeof folder, "%s%s", mounted, line + 3);
        for (size_t n = strlen(folder); n >= sizeof mounted - 1; n--)
            if (folder[n] == '\0' || folder[n] == '/')
                least = smaller_size(least, free_in_group(folder, n));
    }
    if (file)
        fclose(file);
    return least;
}

static size_t free_in_address_space(void)
{
    struct rlimit limit;
    uint64_t pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !read_lone_number("/proc/self/statm", &pages))
        return SIZE_MAX;
    const uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? (size_t)(limit.rlim_cur - used) : 0;
}

size_t bd_free_memory(void)
{
    return smaller_size(smaller_size(free_in_system(), free_in_groups()),
                        free_in_address_space());
}
