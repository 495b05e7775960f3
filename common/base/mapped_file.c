#include "common/base/mapped_file.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"

enum { MAX_KNOWN = 4096 };

// The signal handler reads this, so its storage is fixed, and `begin` is set last and cleared
// first.
static struct known {
    _Atomic uintptr_t begin;  // 0: free
    uintptr_t end;
    char *path;  // owned
} known[MAX_KNOWN];

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static int remember_mapping(const void *data, size_t size_bytes, const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -1;
    pthread_mutex_lock(&known_lock);
    int slot = 0;
    while (slot < MAX_KNOWN && atomic_load(&known[slot].begin) != 0)
        slot++;
    if (slot < MAX_KNOWN) {
        known[slot].end = (uintptr_t)data + size_bytes;
        known[slot].path = copy;
        atomic_store(&known[slot].begin, (uintptr_t)data);
    }
    pthread_mutex_unlock(&known_lock);
    if (slot == MAX_KNOWN) {
        free(copy);
        return -1;
    }
    return slot;
}

static void forget_mapping(int slot)
{
    if (slot < 0)
        return;
    pthread_mutex_lock(&known_lock);
    char *path = known[slot].path;
    atomic_store(&known[slot].begin, 0);
    pthread_mutex_unlock(&known_lock);
    free(path);
}

bd_status bd_mapped_file_open(bd_mapped_file *file, const char *path, bd_error *err)
{
    *file = (bd_mapped_file){.slot = -1};
    int fd;
    int64_t size_bytes;
    BD_TRY(bd_file_open(path, &fd, &size_bytes, err));
    bd_status status = BD_OK;
    if (size_bytes == 0)
        goto done;  // mmap() refuses a length of 0
    void *data = mmap(NULL, (size_t)size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        status = bd_fail_errno(err, "cannot map '%s'", path);
        goto done;
    }
    file->data = data;
    file->size_bytes = (size_t)size_bytes;
    file->slot = remember_mapping(data, file->size_bytes, path);
done:
    close(fd);
    return status;
}

void bd_mapped_file_forget(const bd_mapped_file *file, const void *data, size_t size_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)file->data, last = first + file->size_bytes;
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;  // whole pages alone
    const uintptr_t end = ((uintptr_t)data + size_bytes) / page * page;
    if (file->data && first <= (uintptr_t)data && end <= last && begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);  // only advice: it may fail
}

void bd_mapped_file_close(bd_mapped_file *file)
{
    if (!file->data)
        return;
    forget_mapping(file->slot);
    munmap((void *)file->data, file->size_bytes);
    *file = (bd_mapped_file){.slot = -1};
}

static void say_safely(const char *text)
{
    // In a signal handler there is nobody left to tell if this fails.
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (int slot = 0; slot < MAX_KNOWN; slot++) {
        const uintptr_t begin = atomic_load(&known[slot].begin);
        if (begin != 0 && begin <= at && at < known[slot].end) {
            say_safely("bindery: '");
            say_safely(known[slot].path);
            say_safely("' became shorter while it was being read\n");
            _exit(2);
        }
    }
    signal(number, SIG_DFL);
    raise(number);  // held back until this returns, then ends the program
}

void bd_mapped_file_handle_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
