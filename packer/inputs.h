// inputs.h - which files make up the corpus, in which order, and what they are called.
//
// An operand is a file, a folder, a pattern ("data/*.jsonl", for shells that were kept from
// expanding it), "@list.txt" for a file that names operands line by line, or "-" for standard
// input.
#ifndef BINDERY_PACKER_INPUTS_H
#define BINDERY_PACKER_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arrow_columns.h"
#include "common/checksum.h"
#include "common/error.h"
#include "common/input_entry.h"
#include "common/threads.h"
#include "packer/byte_stream.h"
#include "packer/file_facts.h"
#include "packer/reading.h"
#include "packer/token_file.h"

typedef enum bd_input_format {
    BD_INPUT_TEXT,
    BD_INPUT_JSONL,
    BD_INPUT_PARQUET,
    BD_INPUT_ARROW,
    BD_INPUT_ARROW_STREAM,
    BD_INPUT_MEGATRON,
    BD_INPUT_LLM_C,
    BD_INPUT_TOKENS,
} bd_input_format;

// "text", "jsonl", …: in the order of the enum, ended by NULL.
extern const char *const bd_input_format_words[];

// The label of inputs that were given none.
#define BD_DEFAULT_SOURCE "default"

typedef struct bd_input {
    char *path;  // owned; where to open it
    bd_input_entry
        entry;  // owned; its name is the operand's last name and, below a folder, the
                // path from there: it says nothing of where the corpus lies
    bd_input_format format;
    bd_compression compression;
    int id_bytes;         // of its token ids; 0 if it holds text
    bool has_signed_ids;  // they are of a signed type, and negative ones are wrong
    bd_digest edges;  // over its first and its last MiB (and those of its index), to notice a
                      // changed file; empty for standard input
    bd_file_facts facts;        // as they were when the edges were read
    char *index;                // owned; the file beside it that it is read with, or NULL,
    bd_file_facts index_facts;  // and that file's
} bd_input;

// Whether its files are those that were examined, as far as can be told without reading them.
bool bd_input_is_unchanged(const bd_input *input);

bool bd_input_is_stdin(const bd_input *input);

bool bd_input_is_bytes(const bd_input *input);  // text or JSONL: may be compressed
bool bd_input_is_table(const bd_input *input);  // Parquet or Arrow
bd_columns_format bd_input_columns_format(const bd_input *input);  // of a table
bd_token_layout bd_input_token_layout(const bd_input *input);      // of a file of tokens

// Where reading has to begin for the record at `position`: a table is read group by group, and
// of those the slices tell where some begin.
int64_t bd_input_group_begin(const bd_input *input, int64_t position);

typedef struct bd_inputs {
    bd_input *items;  // [n], owned
    size_t n, capacity;
    size_t n_skipped;     // files in folders whose name ends in nothing we know
    char *first_skipped;  // owned; path of the first of them, or NULL
} bd_inputs;

// Adds what `operand` names, labelled `source`. Folders are taken recursively, entries sorted
// by byte order of their names; names that begin with a dot are left out. A file whose name
// ends in nothing that we know is taken if it was given by name, and skipped and counted in a
// folder; with a choice other than auto every file of a folder is taken, but for the index of a
// file of tokens that is there. A folder below an operand that is `excluded` (a path, or NULL)
// is passed over: a dataset may lie beside its corpus. Only names are collected here; on
// failure release the inputs.
bd_status bd_inputs_add(bd_inputs *inputs, const char *operand, const char *source,
                        bd_format_choice choice, const char *excluded, bd_error *err);

// Opens every input, on all threads, to find its format, how it is to be cut, and its edges. An
// input whose format cannot be told is BD_ERR_ARGUMENT.
bd_status bd_inputs_examine(bd_inputs *inputs, const bd_reading *reading, bd_threads *threads,
                            bd_error *err);

// Frees everything. Safe on an empty struct and safe twice.
void bd_inputs_release(bd_inputs *inputs);

#endif
