// file_facts.h - what tells, without reading it, that a file is the one that it was.
//
// Whoever writes to a file changes its time. A copy that keeps size and time has another inode.
#ifndef BINDERY_PACKER_FILE_FACTS_H
#define BINDERY_PACKER_FILE_FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/json.h"

typedef struct bd_file_facts {
    int64_t size_bytes;
    int64_t modified_ns;  // since 1970
    int64_t inode;
} bd_file_facts;

bd_file_facts bd_file_facts_of(const struct stat *info);

// Whether the file at `path` is there and has these.
bool bd_file_has_facts(const char *path, const bd_file_facts *facts);

// Adds them to an object, and whether an object has the very same.
void bd_file_facts_to_json(const bd_file_facts *facts, bd_json *json);
bool bd_file_facts_are_in(const bd_json *json, const bd_file_facts *facts);

#endif
