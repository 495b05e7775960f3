#include "common/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

bd_status bd_folder_make(const char *folder, bd_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return bd_fail_errno(err, "cannot create the folder '%s'", folder);
    return BD_OK;
}

bd_status bd_folder_lock(int *lock, const char *folder, const char *doing, bd_error *err)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return bd_fail_errno(err, "cannot open the folder '%s'", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0)
        return BD_OK;
    const bd_status status =
        errno == EWOULDBLOCK
            ? bd_fail(err, BD_ERR_IO, "another process is %s '%s'", doing, folder)
            : bd_fail_errno(err, "cannot lock the folder '%s'", folder);
    close(*lock);
    *lock = -1;
    return status;
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
    (void)context;
    return bd_is_pending_name(name) ? bd_folder_remove(folder, name, err) : BD_OK;
}

bd_status bd_folder_remove_pending(const char *folder, bd_error *err)
{
    return bd_folder_visit(folder, remove_if_pending, NULL, err);
}
