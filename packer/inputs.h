// inputs.h - which files make up the corpus, in which order, and what they are called.
#ifndef BINDERY_PACKER_INPUTS_H
#define BINDERY_PACKER_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/checksum.h"
#include "common/error.h"

typedef enum bd_input_format { BD_INPUT_TEXT, BD_INPUT_JSONL } bd_input_format;

// "text" and "jsonl", in the order of the enum, ended by NULL.
extern const char *const bd_input_format_words[];

// The label of every input: labels of their own are for a later version.
#define BD_DEFAULT_SOURCE "default"

typedef struct bd_input {
    char *path;  // owned; where to open it
    char *name;  // owned; what the dataset calls it: the operand's last name and, below a
                 // folder, the path from there; says nothing of where the corpus lies
    bd_input_format format;
    int64_t size_bytes;
    bd_digest edges;  // over its first and its last MiB, to notice a changed file
} bd_input;

typedef struct bd_inputs {
    bd_input *items;  // [n], owned
    size_t n, capacity;
    size_t n_skipped;     // files in folders whose name ends in nothing we know
    char *first_skipped;  // owned; path of the first of them, or NULL
} bd_inputs;

// How the format of a file is found: by its name's ending, or given for all.
typedef enum bd_format_choice {
    BD_FORMAT_AUTO,
    BD_FORMAT_TEXT,
    BD_FORMAT_JSONL,
} bd_format_choice;

// Takes files as they are and folders recursively, entries sorted by byte order of their
// names; names that begin with a dot are left out. A file given by name whose format is
// unknown is an error; one found in a folder is skipped and counted. Release what comes out.
bd_status bd_inputs_collect(bd_inputs *inputs, const char *const *operands, size_t n_operands,
                            bd_format_choice choice, bd_error *err);

// Frees everything. Safe on an empty struct and safe twice.
void bd_inputs_release(bd_inputs *inputs);

#endif
