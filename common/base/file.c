#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char part_suffix[] = ".part";

char *bd_path_join(const char *dir, const char *name)
{
    const size_t n = strlen(dir);
    const char *slash = n > 0 && dir[n - 1] == '/' ? "" : "/";
    char *path;
    return asprintf(&path, "%s%s%s", dir, slash, name) < 0 ? NULL : path;
}

char *bd_path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

char *bd_path_last_name(const char *path)
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    const size_t n = end - begin;
    if ((n == 1 && path[begin] == '.') || (n == 2 && memcmp(path + begin, "..", 2) == 0))
        return strdup("");
    return strndup(path + begin, n);
}

const char *bd_path_tail(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bd_status bd_file_read_at(int fd, const char *path, void *buffer, size_t size_bytes,
                          int64_t offset, bd_error *err)
{
    size_t done = 0;
    while (done < size_bytes) {
        const ssize_t n = pread(fd, (char *)buffer + done, size_bytes - done,
                                (off_t)(offset + (int64_t)done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return bd_fail_errno(err, "cannot read '%s'", path);
        if (n == 0)
            return bd_fail(err, BD_ERR_IO,
                           "cannot read '%s': it became shorter while being read", path);
        done += (size_t)n;
    }
    return BD_OK;
}

bd_status bd_file_open_as(const char *path, int flags, int *fd, int64_t *size_bytes,
                          bd_error *err)
{
    struct stat info;
    // Without O_NONBLOCK open() waits at a FIFO until somebody opens its other end.
    *fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0)
        return bd_fail_errno(err, "cannot open '%s'", path);
    bd_status status = BD_OK;
    if (fstat(*fd, &info) != 0)
        status = bd_fail_errno(err, "cannot open '%s'", path);
    else if (!S_ISREG(info.st_mode))
        status = bd_fail(err, BD_ERR_IO, "cannot %s '%s': %s",
                         (flags & O_ACCMODE) == O_RDONLY ? "read" : "write", path,
                         S_ISDIR(info.st_mode) ? "it is a folder" : "not a regular file");
    if (status == BD_OK) {
        *size_bytes = info.st_size;
        return BD_OK;
    }
    close(*fd);
    *fd = -1;
    return status;
}

bd_status bd_file_open(const char *path, int *fd, int64_t *size_bytes, bd_error *err)
{
    return bd_file_open_as(path, O_RDONLY, fd, size_bytes, err);
}

static bd_file_mark mark_from(const struct stat *info)
{
    return (bd_file_mark){
        .size_bytes = info->st_size,
        .modified_ns = info->st_mtim.tv_sec * INT64_C(1000000000) + info->st_mtim.tv_nsec,
        .inode = (int64_t)info->st_ino,
    };
}

bd_status bd_file_mark_of(const char *path, bd_file_mark *mark, bd_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot examine '%s'", path);
    *mark = mark_from(&info);
    return BD_OK;
}

bd_status bd_file_mark_of_open(int fd, const char *path, bd_file_mark *mark, bd_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return bd_fail_errno(err, "cannot examine '%s'", path);
    *mark = mark_from(&info);
    return BD_OK;
}

bool bd_file_mark_equal(const bd_file_mark *a, const bd_file_mark *b)
{
    return a->size_bytes == b->size_bytes && a->modified_ns == b->modified_ns &&
           a->inode == b->inode;
}

bd_status bd_file_read(const char *path, size_t max_bytes, char **text, size_t *size_bytes,
                       bd_error *err)
{
    bd_status status = BD_OK;
    char *buffer = NULL;
    int fd;
    int64_t file_bytes;
    BD_TRY(bd_file_open(path, &fd, &file_bytes, err));
    if ((uint64_t)file_bytes > max_bytes) {
        status = bd_fail(err, BD_ERR_FORMAT,
                         "cannot read '%s': %lld bytes, more than the %zu allowed", path,
                         (long long)file_bytes, max_bytes);
        goto done;
    }
    const size_t n = (size_t)file_bytes;
    buffer = malloc(n + 1);
    if (!buffer) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    status = bd_file_read_at(fd, path, buffer, n, 0, err);
    if (status != BD_OK)
        goto done;
    buffer[n] = '\0';
    *text = buffer;
    *size_bytes = n;
    buffer = NULL;
done:
    free(buffer);
    close(fd);
    return status;
}

// Creates a new file of a name that nobody else uses; *temporary is its malloc'd name.
// mkstemp() will not do: it makes private files, and reading the umask to undo that is not
// thread-safe.
static int create_unique(const char *folder, const char *name, char **temporary)
{
    for (;;) {
        uint32_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -1;
        if (asprintf(temporary, "%s/.%s.%08x%s", folder, name, random, part_suffix) < 0) {
            *temporary = NULL;
            return -1;
        }
        const int fd = open(*temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
        free(*temporary);
        *temporary = NULL;
    }
}

bd_status bd_pending_begin(bd_pending *pending, const char *folder, const char *name,
                           bd_error *err)
{
    *pending = (bd_pending){.final = bd_path_join(folder, name), .folder = strdup(folder)};
    bd_status status = BD_OK;
    char *temporary = NULL;
    if (!pending->final || !pending->folder) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", name);
        goto done;
    }
    const int fd = create_unique(folder, name, &temporary);
    if (fd < 0) {
        status = bd_fail_errno(err, "cannot create '%s'", pending->final);
        goto done;
    }
    close(fd);
    pending->temporary = temporary;
    temporary = NULL;
done:
    free(temporary);
    if (status != BD_OK)
        bd_pending_discard(pending);
    return status;
}

bd_status bd_pending_write(const bd_pending *pending, const void *data, size_t size_bytes,
                           bd_error *err)
{
    const int fd = open(pending->temporary, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0)
        return bd_fail_errno(err, "cannot write '%s'", pending->final);
    size_t done = 0;
    while (done < size_bytes) {
        const ssize_t n = write(fd, (const char *)data + done, size_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            const bd_status status = bd_fail_errno(err, "cannot write '%s'", pending->final);
            close(fd);
            return status;
        }
        done += (size_t)n;
    }
    if (close(fd) != 0)
        return bd_fail_errno(err, "cannot write '%s'", pending->final);
    return BD_OK;
}

bd_status bd_pending_sync(const bd_pending *pending, bd_error *err)
{
    // The file is opened again by its name, because its writer has closed it.
    const int fd = open(pending->temporary, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return bd_fail_errno(err, "cannot sync '%s'", pending->final);
    bd_status status = BD_OK;
    if (fsync(fd) != 0)
        status = bd_fail_errno(err, "cannot sync '%s'", pending->final);
    close(fd);
    return status;
}

static bd_status sync_folder(const char *folder, bd_error *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return bd_fail_errno(err, "cannot sync '%s'", folder);
    bd_status status = BD_OK;
    // Some network file systems and those in user space have no fsync() for folders, and report
    // that by one of several numbers.
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF &&
        errno != ENOSYS)
        status = bd_fail_errno(err, "cannot sync '%s'", folder);
    close(fd);
    return status;
}

bd_status bd_file_check_replaceable(const char *path, bd_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
        return BD_OK;
    return bd_fail(err, BD_ERR_IO, "cannot replace '%s': not a regular file", path);
}

bd_status bd_pending_publish(bd_pending *pending, bd_error *err)
{
    bd_status status = bd_file_check_replaceable(pending->final, err);
    if (status == BD_OK)
        status = bd_pending_sync(pending, err);
    if (status == BD_OK && rename(pending->temporary, pending->final) != 0)
        status = bd_fail_errno(err, "cannot publish '%s'", pending->final);
    if (status != BD_OK) {
        bd_pending_discard(pending);
        return status;
    }
    status = sync_folder(pending->folder, err);
    free(pending->temporary);
    pending->temporary = NULL;  // it has its final name now: nothing to remove
    bd_pending_discard(pending);
    return status;
}

void bd_pending_discard(bd_pending *pending)
{
    if (pending->temporary)
        unlink(pending->temporary);
    free(pending->temporary);
    free(pending->final);
    free(pending->folder);
    *pending = (bd_pending){0};
}

bd_status bd_file_publish(const char *folder, const char *name, const void *data,
                          size_t size_bytes, bd_error *err)
{
    bd_pending pending;
    BD_TRY(bd_pending_begin(&pending, folder, name, err));
    const bd_status status = bd_pending_write(&pending, data, size_bytes, err);
    if (status != BD_OK) {
        bd_pending_discard(&pending);
        return status;
    }
    return bd_pending_publish(&pending, err);
}

bd_status bd_file_publish_new(const char *folder, const char *name, const void *data,
                              size_t size_bytes, bool *there, bd_error *err)
{
    bd_pending pending;
    BD_TRY(bd_pending_begin(&pending, folder, name, err));
    bd_status status = bd_pending_write(&pending, data, size_bytes, err);
    if (status == BD_OK)
        status = bd_pending_sync(&pending, err);
    *there = false;
    // Unlike rename(), link() never replaces. Where there are no links, as on exFAT, two
    // processes at the same moment could both succeed.
    if (status == BD_OK && link(pending.temporary, pending.final) != 0) {
        *there = errno == EEXIST || access(pending.final, F_OK) == 0;
        if (!*there && rename(pending.temporary, pending.final) != 0)
            status = bd_fail_errno(err, "cannot publish '%s'", pending.final);
    }
    if (status == BD_OK)
        status = sync_folder(folder, err);
    bd_pending_discard(&pending);
    return status;
}

// Returns the length of <name> in ".<name>.<8 hexadecimal digits>.part", 0 if the name has
// another form: other programs make .part files as well.
static size_t final_length(const char *name)
{
    const size_t n = strlen(name), n_digits = 8, n_suffix = strlen(part_suffix);
    if (name[0] != '.' || n < 1 + 1 + 1 + n_digits + n_suffix)
        return 0;
    const char *suffix = name + n - n_suffix, *digits = suffix - n_digits;
    const bool is_one = digits[-1] == '.' && strspn(digits, "0123456789abcdef") == n_digits &&
                        strcmp(suffix, part_suffix) == 0;
    return is_one ? (size_t)(digits - 1 - (name + 1)) : 0;
}

bool bd_pending_final_name(const char *name, char *final, size_t size_bytes)
{
    const size_t n = final_length(name);
    if (n == 0 || n >= size_bytes)
        return false;
    memcpy(final, name + 1, n);
    final[n] = '\0';
    return true;
}

bool bd_is_pending_of(const char *name, bd_name_test is_ours)
{
    char final[NAME_MAX + 1];
    return bd_pending_final_name(name, final, sizeof final) && is_ours(final);
}
