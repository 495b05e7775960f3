// folder.h - a folder that processes write into: locking it, claiming parts of the work,
// visiting its entries, and removing the files that a killed process left.
//
// Locks lie on a file in the folder, which stays there: byte 0 is the folder's, those after it
// are for claims. They belong to the process and end with it, however it ends, also over NFS.
#ifndef BINDERY_COMMON_BASE_FOLDER_H
#define BINDERY_COMMON_BASE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/file.h"

// Creates `folder` and the folders above it, as far as they are absent. *n_made becomes the
// number of those that were, for bd_folder_withdraw(); on failure none of them stays.
bd_status bd_folder_make(const char *folder, int *n_made, bd_error *err);

#define BD_LOCK_NAME ".lock"

typedef enum bd_lock_mode {
    BD_LOCK_EXCLUSIVE,  // nobody else
    BD_LOCK_SHARED,     // with others that share, and nobody else
} bd_lock_mode;

// Locks `folder` until *lock is closed or the process ends. A folder that is locked already is
// BD_ERR_IO: "another process is <doing> '<folder>'"; but a process that wants to share waits
// until the other one is done. On failure *lock is -1.
bd_status bd_folder_lock(int *lock, const char *folder, bd_lock_mode mode, const char *doing,
                         bd_error *err);

// Gives a shared lock up and tries to get an exclusive one: among the processes that share a
// folder, the last to call this succeeds. *alone is false while others still share it.
bd_status bd_folder_lock_alone(int lock, bool *alone, bd_error *err);

// Claims piece of work `n` for this process. *claimed is false if another process has it.
bd_status bd_folder_claim(int lock, int64_t n, bool *claimed, bd_error *err);

// After a refusal: closes `lock` (-1 if it was never taken) and removes the folders that
// bd_folder_make() made, with the lock file, unless something else has come into them
// meanwhile. A folder that existed before (`n_made` 0) is left as it is.
void bd_folder_withdraw(const char *folder, int n_made, int lock);

// Calls `visit` for every entry but "." and "..", in no order, until it fails.
typedef bd_status (*bd_folder_visitor)(void *context, const char *folder, const char *name,
                                       bd_error *err);
bd_status bd_folder_visit(const char *folder, bd_folder_visitor visit, void *context,
                          bd_error *err);

// Whether two paths name the same file or folder. False if one is absent.
bool bd_same_file(const char *a, const char *b);

// Whether `path` is `folder` or lies anywhere below it. False if one is absent.
bool bd_lies_in_folder(const char *path, const char *folder);
// The same for a path that may be absent: whether it would lie there once it is made.
bool bd_would_lie_in_folder(const char *path, const char *folder);

// Whether <folder>/<name> is there.
bool bd_folder_holds(const char *folder, const char *name);

// Removes the file <folder>/<name>; it may be absent.
bd_status bd_folder_remove(const char *folder, const char *name, bd_error *err);

// Removes the pending files whose names pass `is_ours` (bd_is_pending_of()). The caller must
// hold the lock: only then does nobody else use them.
bd_status bd_folder_remove_pending(const char *folder, bd_name_test is_ours, bd_error *err);

#endif
