// file.h - reading whole small files, and publishing files so that they exist whole or not at
// all.
//
//   pending   <dir>/.<name>.<random>.part   being written, may be cut short at any moment
//   published <dir>/<name>                  synced, renamed, and the folder synced
#ifndef BINDERY_COMMON_BASE_FILE_H
#define BINDERY_COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// "<dir>/<name>", malloc'd; NULL when out of memory.
char *bd_path_join(const char *dir, const char *name);

// The folder that `path` lies in, "." if it has no slash; malloc'd, NULL when out of memory.
char *bd_path_folder(const char *path);

// The part of `path` after its last slash, trailing slashes not counted; malloc'd.
// Empty for "/", "." and "..", which name nothing.
char *bd_path_last_name(const char *path);

// The part after the last slash, borrowed from `path`; empty if it ends with one.
const char *bd_path_tail(const char *path);

// Opens the regular file at `path` for reading; *size_bytes is its size then. Every file that
// is read is opened by this function or by the next one. Anything but a regular file is
// BD_ERR_IO, because it might never end (a device) or never begin (a FIFO). *fd is the caller's
// to close, -1 on failure.
bd_status bd_file_open(const char *path, int *fd, int64_t *size_bytes, bd_error *err);
// The same with `flags` of open(), for writers; a new file has the usual permissions.
bd_status bd_file_open_as(const char *path, int flags, int *fd, int64_t *size_bytes,
                          bd_error *err);

// Tells, without reading it, whether a file has changed. A writer changes its time of
// modification; a copy that keeps size and time has another inode.
typedef struct bd_file_mark {
    int64_t size_bytes;
    int64_t modified_ns;  // since 1970
    int64_t inode;
} bd_file_mark;

bd_status bd_file_mark_of(const char *path, bd_file_mark *mark, bd_error *err);
bd_status bd_file_mark_of_open(int fd, const char *path, bd_file_mark *mark, bd_error *err);
bool bd_file_mark_equal(const bd_file_mark *a, const bd_file_mark *b);

// Reads all of `path`, which must be a regular file of at most `max_bytes`. *text is malloc'd,
// has a NUL after its *size_bytes bytes, and is the caller's to free.
bd_status bd_file_read(const char *path, size_t max_bytes, char **text, size_t *size_bytes,
                       bd_error *err);

// Reads exactly `size_bytes` from `offset`; a file that ends sooner is BD_ERR_IO.
// `path` is for the message.
bd_status bd_file_read_at(int fd, const char *path, void *buffer, size_t size_bytes,
                          int64_t offset, bd_error *err);

// A file on its way to being published.
typedef struct bd_pending {
    char *temporary;  // owned; exists on disk while the struct is not empty
    char *final;      // owned
    char *folder;     // owned
} bd_pending;

// Creates an empty temporary file beside <folder>/<name>. On failure *pending is empty.
bd_status bd_pending_begin(bd_pending *pending, const char *folder, const char *name,
                           bd_error *err);
// Writes `size_bytes` bytes as the whole content of the temporary file. (Arrow, which opens
// files itself, writes to pending->temporary instead.)
bd_status bd_pending_write(const bd_pending *pending, const void *data, size_t size_bytes,
                           bd_error *err);
// Syncs the temporary file: whatever happens to the machine, it is there whole afterwards.
bd_status bd_pending_sync(const bd_pending *pending, bd_error *err);
// Syncs, renames to the final name, syncs the folder, and empties *pending. A regular file of
// that name is replaced, and so is a link to one; anything else that is there, such as a
// device, stays and is BD_ERR_IO. On failure the temporary file is removed. A folder that its
// file system does not sync is passed over: rename() has given the file its name all the same.
bd_status bd_pending_publish(bd_pending *pending, bd_error *err);
// Makes the same refusal before work that would be lost. A folder is BD_OK here, because
// rename() itself never replaces one by a file.
bd_status bd_file_check_replaceable(const char *path, bd_error *err);
// Removes the temporary file, if any. Safe on an empty struct and safe twice.
void bd_pending_discard(bd_pending *pending);

// Begin, write, publish.
bd_status bd_file_publish(const char *folder, const char *name, const void *data,
                          size_t size_bytes, bd_error *err);

// The same for a file that must not be there yet: if it is, *there becomes true and nothing is
// changed. If several processes try at once, one succeeds.
bd_status bd_file_publish_new(const char *folder, const char *name, const void *data,
                              size_t size_bytes, bool *there, bd_error *err);

// True for names that bd_pending_begin() makes, with the name that the file was to be published
// under in `final` [size_bytes]; false as well if that does not fit.
bool bd_pending_final_name(const char *name, char *final, size_t size_bytes);

// Whether a name is that of a file which the caller writes.
typedef bool (*bd_name_test)(const char *name);

// True for pending names whose final name passes `is_ours`; other programs may have made the
// rest.
bool bd_is_pending_of(const char *name, bd_name_test is_ours);

#endif
