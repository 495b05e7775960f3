// failing_calls.c - a library for LD_PRELOAD that makes a chosen system call fail.
//
//   FAULT_CALL    open (for writing), write, fsync, fsync-folder (of folders alone), rename,
//                 link, unlink, truncate, mkdir or close
//   FAULT_NUMBER  which call of that kind fails, from 1; 0 for all
//   FAULT_ERROR   ENOSPC: that call and all later ones, as on a disk that is full
//                 EIO, EINVAL, EROFS: that call alone
//                 short: that call writes half of what it was given, and succeeds
//                 kill: the program is killed before that call
//   FAULT_FOLDER  absolute path: only calls on this folder and what is below it count
//   FAULT_REPORT  a file outside it that gets "COUNTED FAILED\n" when the program exits
//
// The functions call the kernel directly, so that they need nothing of the libc that they
// replace. A large-file name (open64) is the same function on 64-bit systems.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    const char *call, *folder, *report;
    long number;
    int error;  // 0: a short write
    bool lasting, kills;
} fault;

static atomic_long n_counted, n_failed;

// ---- Which call --------------------------------------------------------------------------

__attribute__((constructor)) static void read_environment(void)
{
    const char *number = getenv("FAULT_NUMBER"), *error = getenv("FAULT_ERROR");
    fault.call = getenv("FAULT_CALL");
    fault.folder = getenv("FAULT_FOLDER");
    fault.report = getenv("FAULT_REPORT");
    if (!fault.call || !fault.folder || !fault.report || !number || !error)
        abort();  // with half a description no fault would occur, and every test would pass
    fault.number = atol(number);
    fault.kills = strcmp(error, "kill") == 0;
    fault.lasting = strcmp(error, "ENOSPC") == 0 || fault.number == 0;
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EINVAL", EINVAL}, {"EROFS", EROFS}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(error, errors[i].name) == 0)
            fault.error = errors[i].number;
}

__attribute__((destructor)) static void write_report(void)
{
    char text[64];
    const int n = snprintf(text, sizeof text, "%ld %ld\n", n_counted, n_failed);
    const long fd =
        syscall(SYS_openat, AT_FDCWD, fault.report, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || syscall(SYS_write, fd, text, n) != n)
        abort();
    syscall(SYS_close, fd);
}

static bool is_inside(const char *path)
{
    const size_t n = strlen(fault.folder);
    return strncmp(path, fault.folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_fd_inside(int fd)
{
    char name[32], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return is_inside(path);
}

// A name below an opened folder is inside if the folder is.
static bool is_path_inside(int folder, const char *path)
{
    return path[0] == '/' || folder == AT_FDCWD ? is_inside(path) : is_fd_inside(folder);
}

// Counts a call of the program and decides whether it fails. Sets errno if so.
static bool fails(const char *call, bool inside)
{
    if (!inside || strcmp(call, fault.call) != 0)
        return false;
    const long number = ++n_counted;
    if (number < fault.number || (number > fault.number && !fault.lasting))
        return false;
    n_failed++;
    if (fault.kills)
        raise(SIGKILL);
    errno = fault.error;
    return true;
}

// ---- The calls ---------------------------------------------------------------------------
// Own declarations, where the headers have a macro or another name for the function.

#define SAME_AS(name) __attribute__((alias(#name)))

int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    const mode_t mode = has_mode ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (writes && fails("open", is_path_inside(folder, path)))
        return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) SAME_AS(openat);

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    const mode_t mode = has_mode ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) SAME_AS(open);

int mkdirat(int folder, const char *path, mode_t mode)
{
    if (fails("mkdir", is_path_inside(folder, path)))
        return -1;
    return (int)syscall(SYS_mkdirat, folder, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

// How many of `size_bytes` are written: all, half, or none with errno set.
static ssize_t allowed(int fd, size_t size_bytes)
{
    if (!fails("write", is_fd_inside(fd)))
        return (ssize_t)size_bytes;
    return fault.error == 0 ? (ssize_t)(size_bytes + 1) / 2 : -1;
}

ssize_t write(int fd, const void *data, size_t size_bytes)
{
    const ssize_t n = allowed(fd, size_bytes);
    return n < 0 ? -1 : syscall(SYS_write, fd, data, (size_t)n);
}

ssize_t pwrite(int fd, const void *data, size_t size_bytes, off_t offset)
{
    const ssize_t n = allowed(fd, size_bytes);
    return n < 0 ? -1 : syscall(SYS_pwrite64, fd, data, (size_t)n, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size_bytes, off_t offset) SAME_AS(pwrite);

// Vectors: a short write writes only the first part.
ssize_t writev(int fd, const struct iovec *parts, int n_parts)
{
    if (n_parts == 0)
        return 0;
    if (!fails("write", is_fd_inside(fd)))
        return syscall(SYS_writev, fd, parts, n_parts);
    return fault.error == 0 ? syscall(SYS_writev, fd, parts, 1) : -1;
}

static bool is_folder(int fd)
{
    const long folder = syscall(SYS_openat, fd, ".", O_RDONLY | O_DIRECTORY);
    if (folder >= 0)
        syscall(SYS_close, folder);
    return folder >= 0;
}

int fsync(int fd)
{
    if (is_folder(fd) && fails("fsync-folder", is_fd_inside(fd)))
        return -1;
    return fails("fsync", is_fd_inside(fd)) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fails("fsync", is_fd_inside(fd)) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t size_bytes)
{
    return fails("truncate", is_fd_inside(fd)) ? -1
                                               : (int)syscall(SYS_ftruncate, fd, size_bytes);
}
int ftruncate64(int fd, off_t size_bytes) SAME_AS(ftruncate);

int renameat2(int from_folder, const char *from, int to_folder, const char *to,
              unsigned int flags)
{
    if (fails("rename", is_path_inside(to_folder, to)))
        return -1;
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat2(from_folder, from, to_folder, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    if (fails("link", is_path_inside(to_folder, to)))
        return -1;
    return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    if (fails("unlink", is_path_inside(folder, path)))
        return -1;
    return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

// Written data may be lost at close(); the descriptor is free in any case.
int close(int fd)
{
    const int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
    const bool written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
    const bool failed = written && fails("close", is_fd_inside(fd));
    const int error = errno;
    const int result = (int)syscall(SYS_close, fd);
    if (!failed)
        return result;
    errno = error;
    return -1;
}
