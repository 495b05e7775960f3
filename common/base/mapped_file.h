// mapped_file.h - a file mapped for reading, with an error message if it shrinks meanwhile.
//
// Touching a page beyond the end of a file that was cut after mapping raises SIGBUS. The
// program installs one handler that finds the file by the address and ends with exit
// status 2 and the file's name, instead of dying of the signal.
#ifndef BINDERY_COMMON_BASE_MAPPED_FILE_H
#define BINDERY_COMMON_BASE_MAPPED_FILE_H

#include <stddef.h>

#include "common/base/error.h"

typedef struct bd_mapped_file {
    const void *data;   // owned mapping, read-only, page-aligned; NULL for an empty file
    size_t size_bytes;  // of the file when it was opened
    int slot;           // where the SIGBUS handler finds it, -1 if nowhere
} bd_mapped_file;

// Maps the regular file at `path`. On failure *file is empty and needs no closing.
bd_status bd_mapped_file_open(bd_mapped_file *file, const char *path, bd_error *err);

// Tells the system that the bytes [data, data + size_bytes) will hardly be read again, so that
// their pages no longer count as this process's memory; a range outside the file is ignored.
// The bytes stay readable. Any number of threads may call it.
void bd_mapped_file_forget(const bd_mapped_file *file, const void *data, size_t size_bytes);

// Unmaps. Every pointer into file->data is then invalid. Safe on an empty struct and safe
// twice.
void bd_mapped_file_close(bd_mapped_file *file);

// For main(): from now on a SIGBUS inside a mapped file prints
// "bindery: '<path>' became shorter while it was being read" to stderr and exits with 2.
// Any other SIGBUS keeps its default action. Up to 4096 files at once are known by name.
void bd_mapped_file_handle_sigbus(void);

#endif
