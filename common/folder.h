// folder.h - a folder that one process at a time writes into: locking it, going through it,
// and clearing away what a killed process left.
#ifndef BINDERY_COMMON_FOLDER_H
#define BINDERY_COMMON_FOLDER_H

#include "common/error.h"

// Creates `folder` unless it is there; its parent must exist.
bd_status bd_folder_make(const char *folder, bd_error *err);

// Opens `folder` and locks it against other processes until *lock is closed or the process
// ends. A folder that is locked already is BD_ERR_IO: "another process is <doing> '<folder>'".
// On failure *lock is -1.
bd_status bd_folder_lock(int *lock, const char *folder, const char *doing, bd_error *err);

// Calls `visit` for every entry but "." and "..", in no order, until it fails.
typedef bd_status (*bd_folder_visitor)(void *context, const char *folder, const char *name,
                                       bd_error *err);
bd_status bd_folder_visit(const char *folder, bd_folder_visitor visit, void *context,
                          bd_error *err);

// Removes the file <folder>/<name>; it may be absent.
bd_status bd_folder_remove(const char *folder, const char *name, bd_error *err);

// Removes every file with a name of bd_is_pending_name(). For whoever holds the lock: another
// process's pending files are then nobody's.
bd_status bd_folder_remove_pending(const char *folder, bd_error *err);

#endif
