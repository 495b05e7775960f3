// file.h - reading whole small files, and publishing files so that they exist whole or not at
// all.
//
//   pending   <dir>/.<name>.<random>.part   being written, may be cut short at any moment
//   published <dir>/<name>                  synced, renamed, and the folder synced
#ifndef BINDERY_COMMON_FILE_H
#define BINDERY_COMMON_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

// "<dir>/<name>", malloc'd; NULL when out of memory.
char *bd_path_join(const char *dir, const char *name);

// The part of `path` after its last slash, trailing slashes not counted; malloc'd.
// Empty for "/", "." and "..", which name nothing.
char *bd_path_last_name(const char *path);

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
// Syncs, renames to the final name (replacing what is there), syncs the folder, and empties
// *pending. On failure the temporary file is removed.
bd_status bd_pending_publish(bd_pending *pending, bd_error *err);
// Removes the temporary file, if any. Safe on an empty struct and safe twice.
void bd_pending_discard(bd_pending *pending);

// Begin, write, publish.
bd_status bd_file_publish(const char *folder, const char *name, const void *data,
                          size_t size_bytes, bd_error *err);

// The same for a file that must not be there yet: if it is, *there becomes true and nothing is
// changed. Of several processes at once, one succeeds.
bd_status bd_file_publish_new(const char *folder, const char *name, const void *data,
                              size_t size_bytes, bool *there, bd_error *err);

// True for names that bd_pending_begin() makes.
bool bd_is_pending_name(const char *name);

// The same, with the name that the file was to be published under in `final` [size_bytes]; false
// as well if that does not fit.
bool bd_pending_final_name(const char *name, char *final, size_t size_bytes);

#endif
