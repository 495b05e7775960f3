#include "common/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"

// Cuts the last name off `path`, in place.
static void cut_last_name(char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    path[n] = '\0';
}

// Removes the innermost `n` folders of `path`, as far as they are empty; changes `path`.
static void remove_made(char *path, int n)
{
    for (int i = 0; i < n && rmdir(path) == 0; i++)
        cut_last_name(path);
}

bd_status bd_folder_make(const char *folder, int *n_made, bd_error *err)
{
    char *path = strdup(folder);
    bd_status status = path ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    *n_made = 0;
    for (char *end = path; status == BD_OK && *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        const char next = *end;
        *end = '\0';
        struct stat info;
        if (stat(path, &info) != 0) {
            if (mkdir(path, 0777) == 0)
                ++*n_made;
            else if (errno != EEXIST)  // EEXIST: another process was quicker
                status = bd_fail_errno(err, "cannot create the folder '%s'", path);
        }
        if (status == BD_OK)
            *end = next;
    }
    if (status != BD_OK && path) {
        cut_last_name(path);
        remove_made(path, *n_made);
        *n_made = 0;
    }
    free(path);
    return status;
}

// Locks or unlocks one byte of the lock file; *locked is false if another process holds it.
// These are open file description locks: they belong to `fd` and stay when this process closes
// another descriptor of the same file.
static bd_status lock_byte(int fd, short type, int64_t byte, bool *locked, bd_error *err)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    *locked = fcntl(fd, F_OFD_SETLK, &range) == 0;
    if (*locked || errno == EAGAIN || errno == EACCES)
        return BD_OK;
    return bd_fail_errno(err, "cannot lock '" BD_LOCK_NAME "'");
}

// A process that wants to share waits for one that holds the folder alone: as a rule that is
// the last of those that shared, and it is about to finish what all of them did.
static bd_status wait_to_share(int fd, bool *locked, bd_error *err)
{
    struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (!(*locked = fcntl(fd, F_OFD_SETLKW, &range) == 0) && errno == EINTR)
        BD_TRY(bd_interrupt_check(err));
    return *locked ? BD_OK : bd_fail_errno(err, "cannot lock '" BD_LOCK_NAME "'");
}

bd_status bd_folder_lock(int *lock, const char *folder, bd_lock_mode mode, const char *doing,
                         bd_error *err)
{
    bool locked = false;
    *lock = -1;
    char *path = bd_path_join(folder, BD_LOCK_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    int fd;
    int64_t size_bytes;
    bd_status status = bd_file_open_as(path, O_RDWR | O_CREAT, &fd, &size_bytes, err);
    if (status == BD_OK) {
        status = mode == BD_LOCK_SHARED ? wait_to_share(fd, &locked, err)
                                        : lock_byte(fd, F_WRLCK, 0, &locked, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "'%s'", folder);
    }
    if (status == BD_OK && !locked)
        status = bd_fail(err, BD_ERR_IO, "another process is %s '%s'", doing, folder);
    // A lock on a file that was removed meanwhile excludes nobody.
    struct stat info;
    if (status == BD_OK && (fstat(fd, &info) != 0 || info.st_nlink == 0))
        status = bd_fail(err, BD_ERR_IO, "another process has removed '%s'", folder);
    if (status == BD_OK)
        *lock = fd;
    else if (fd >= 0)
        close(fd);
    free(path);
    return status;
}

bd_status bd_folder_lock_alone(int lock, bool *alone, bd_error *err)
{
    // Two processes that asked while both share would both be refused, so the share is given up
    // first.
    BD_TRY(lock_byte(lock, F_UNLCK, 0, alone, err));
    return lock_byte(lock, F_WRLCK, 0, alone, err);
}

bd_status bd_folder_claim(int lock, int64_t n, bool *claimed, bd_error *err)
{
    return lock_byte(lock, F_WRLCK, n + 1, claimed, err);
}

static bd_status expect_lock_file(void *context, const char *folder, const char *name,
                                  bd_error *err)
{
    (void)context;
    return strcmp(name, BD_LOCK_NAME) == 0 ? BD_OK
                                           : bd_fail(err, BD_ERR_IO, "'%s' is in use", folder);
}

void bd_folder_withdraw(const char *folder, int n_made, int lock)
{
    bool alone = false;
    char *path = n_made > 0 ? strdup(folder) : NULL;
    if (path) {
        // What another process has put there stays, and so does the lock that goes with it: a
        // third one may have opened it and be about to take it.
        if (lock >= 0 && bd_folder_lock_alone(lock, &alone, NULL) == BD_OK && alone &&
            bd_folder_visit(folder, expect_lock_file, NULL, NULL) == BD_OK)
            bd_folder_remove(folder, BD_LOCK_NAME, NULL);
        remove_made(path, n_made);
    }
    free(path);
    if (lock >= 0)
        close(lock);
}

bd_status bd_folder_visit(const char *folder, bd_folder_visitor visit, void *context,
                          bd_error *err)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return bd_fail_errno(err, "cannot read the folder '%s'", folder);
    bd_status status = BD_OK;
    while (status == BD_OK) {
        errno = 0;
        const struct dirent *entry = readdir(entries);
        if (!entry && errno != 0)
            status = bd_fail_errno(err, "cannot read the folder '%s'", folder);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(context, folder, entry->d_name, err);
    }
    closedir(entries);
    return status;
}

bool bd_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

// Both are real paths, or NULL; frees them.
static bool lies_in(char *inner, char *outer)
{
    const size_t n = outer ? strlen(outer) : 0;
    const bool lies = inner && outer && strncmp(inner, outer, n) == 0 &&
                      (inner[n] == '\0' || inner[n] == '/' || outer[n - 1] == '/');
    free(inner);
    free(outer);
    return lies;
}

bool bd_lies_in_folder(const char *path, const char *folder)
{
    return lies_in(realpath(path, NULL), realpath(folder, NULL));
}

// The real path of `path`, or of the nearest folder above it that exists; NULL when out of
// memory.
static char *real_path_of_existing(const char *path)
{
    char *rest = strdup(path), *real = rest ? realpath(rest, NULL) : NULL;
    while (rest && !real) {
        char *slash = strrchr(rest, '/');
        if (!slash || slash == rest) {
            real = realpath(slash ? "/" : ".", NULL);
            break;
        }
        *slash = '\0';
        real = realpath(rest, NULL);
    }
    free(rest);
    return real;
}

bool bd_would_lie_in_folder(const char *path, const char *folder)
{
    return lies_in(real_path_of_existing(path), realpath(folder, NULL));
}

bool bd_folder_holds(const char *folder, const char *name)
{
    char *path = bd_path_join(folder, name);
    const bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

bd_status bd_folder_remove(const char *folder, const char *name, bd_error *err)
{
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (unlink(path) != 0 && errno != ENOENT)
        status = bd_fail_errno(err, "cannot remove '%s'", path);
    free(path);
    return status;
}

static bd_status remove_if_pending(void *context, const char *folder, const char *name,
                                   bd_error *err)
{
    const bd_name_test *is_ours = context;
    return bd_is_pending_of(name, *is_ours) ? bd_folder_remove(folder, name, err) : BD_OK;
}

bd_status bd_folder_remove_pending(const char *folder, bd_name_test is_ours, bd_error *err)
{
    return bd_folder_visit(folder, remove_if_pending, &is_ours, err);
}
