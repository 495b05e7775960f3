// inputs.h - which files make up the corpus, in which order, and what they are called.
//
// An operand is a file, a folder, a pattern ("data/*.jsonl", for shells that were kept from
// expanding it), "@list.txt" for a file that names operands line by line, or "-" for standard
// input.
//
// Operands are first collected, by names alone, and then examined: a file is read once, however
// often it is met (by device and inode); the index of another input is not an input; and the
// content of a file tells its kind (recognise.h). Files that are not read are counted by reason.
// In a folder that may be any file, since nobody asked for it in particular. A file that was
// given by name must be readable, unless it was met before or is the index of another input.
#ifndef BINDERY_PACKER_INPUT_INPUTS_H
#define BINDERY_PACKER_INPUT_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/threads.h"
#include "common/cli/options.h"
#include "common/dataset/input_entry.h"
#include "common/dataset/passed_over.h"
#include "packer/input/byte_stream.h"
#include "packer/input/input_options.h"

// Why a file is not read. Up to BD_LAST_WANTED the user may have intended it; for all other
// reasons together not more than half of a folder may be passed over.
typedef enum bd_pass_reason {
    BD_PASS_NOT,  // it is read
    BD_PASS_HIDDEN,
    BD_PASS_EXCLUDED,
    BD_PASS_NOT_INCLUDED,
    BD_PASS_MET_BEFORE,
    BD_PASS_INDEX,
    BD_PASS_DANGLING,
    BD_PASS_IRREGULAR,
    BD_PASS_CSV,
    BD_PASS_JSON_SPREAD,
    BD_PASS_JSON_CONFIG,
    BD_PASS_COMPRESSED,
    BD_PASS_ZIP,
    BD_PASS_ARCHIVE,
    BD_PASS_TAR,
    BD_PASS_PDF,
    BD_PASS_IMAGE,
    BD_PASS_MEDIA,
    BD_PASS_PROGRAM,
    BD_PASS_NUMPY,
    BD_PASS_DATA,
    BD_PASS_UTF16,
    BD_PASS_COMPRESSED_TABLE,
    BD_PASS_LFS,
    BD_PASS_MISNAMED,
    BD_PASS_NOT_UTF8,
    BD_PASS_BINARY,
} bd_pass_reason;
#define BD_LAST_WANTED BD_PASS_INDEX

// The reason in manifests and messages, and the remedy: "PDF", "extract its text first".
const char *bd_pass_reason_word(bd_pass_reason reason);
const char *bd_pass_reason_advice(bd_pass_reason reason);

#define BD_STDIN_OPERAND "-"

// The label of inputs that were given none.
#define BD_DEFAULT_SOURCE "default"

// The columns beside the ids of a table that say which tokens are trained. In `labels` it is those
// that are not -100; in the others, those that are true or 1.
#define BD_MASK_COLUMNS(X)                        \
    X(BD_MASK_LABELS, "labels")                   \
    X(BD_MASK_LOSS_MASK, "loss_mask")             \
    X(BD_MASK_COMPLETION_MASK, "completion_mask") \
    X(BD_MASK_ASSISTANT_MASKS, "assistant_masks")
BD_ENUM(bd_mask_column, BD_MASK_COLUMNS);

typedef struct bd_input {
    char *path;  // owned; where to open it
    // Owned. Its name is the last name of the operand and, below a folder, the path from there,
    // so that a dataset does not depend on where its corpus lies.
    bd_input_entry entry;
    const bd_input_kind *kind;           // kinds.h
    const bd_decompressor *compression;  // NULL: none
    int id_bytes;                        // of its token ids; 0 if it holds text
    bool has_signed_ids;      // they are of a signed type, and negative ones are wrong
    bool has_masks;           // it says which of its tokens are trained
    const char *mask_column;  // where a table says so, of bd_mask_column_names; NULL: nowhere
    bd_own_options own;       // owned; they replace the options of all inputs
    size_t folder;  // it was found in: inputs.folders[folder - 1]; 0: it was given by name
    uint64_t device, inode;  // of the file when it was found; 0 for standard input
    int64_t found_bytes;     // its size then
    bd_pass_reason passed;   // why it is not read after all
    bd_digest edges;    // hash of the first and the last MiB of it and of its index, to notice
                        // a changed file; empty for standard input
    bd_file_mark mark;  // as it was when the edges were read
    char *index;        // owned; the file beside it that it is read with, or NULL,
    bd_file_mark index_mark;  // and that file's
} bd_input;

void bd_input_release(bd_input *input);  // safe on an empty one and safe twice

// Whether its files are those that were examined, as far as can be told without reading them.
bool bd_input_is_unchanged(const bd_input *input);

// BD_ERR_IO: it is not as it was examined.
bd_status bd_input_fail_changed(const bd_input *input, bd_error *err);

// Whether it can be read only from front to back, slice after slice.
bool bd_input_is_stream(const bd_input *input);

bool bd_input_is_stdin(const bd_input *input);

// The options that it is read with: its own, and otherwise those of all inputs. Texts are borrowed
// from both.
bd_input_options bd_input_options_of(const bd_input *input, const bd_input_options *options);

// Where reading has to begin for the record at `position`: a table is read by whole groups, and
// the beginnings of slices are beginnings of groups.
int64_t bd_input_group_begin(const bd_input *input, int64_t position);

// A folder that was given.
typedef struct bd_input_folder {
    char *path;              // owned
    bd_passed_over passed;   // owned; of what was found in it
    int64_t n_met;           // files of it that are read elsewhere: BD_PASS_MET_BEFORE, _INDEX
    int64_t unwanted_bytes;  // of those that were passed over for reasons that nobody chose
} bd_input_folder;

typedef struct bd_inputs {
    bd_input *items;  // [n], owned
    size_t n, capacity;
    bd_input_folder *folders;  // [n_folders], owned
    size_t n_folders, folders_capacity;
    bd_passed_over passed;  // owned; what is not read, by whatever operand it was met
    bool allow_skipped;     // more than half of a folder may be passed over; set by the caller
} bd_inputs;

// Where and under which name operands are collected. Everything is borrowed.
typedef struct bd_collect_options {
    const char *source;   // the label of what is found
    bd_own_options own;   // copied to every input
    const char *avoided;  // a folder that is never entered, nor counted: a dataset may lie
                          // beside its corpus; NULL: none
    bd_texts include;     // patterns of names below a folder; if there are any, only files
                          // that match one are taken
    bd_texts exclude;     // the same; files and folders that match one are passed over
} bd_collect_options;

// Adds what `operand` names. Folders are taken recursively, entries sorted by byte order of
// their names; names that begin with a dot are passed over. Links to files are followed, and
// links to folders if that folder was not entered before. A pattern is one of fnmatch(), whose
// * matches / as well, for the path below the folder that was given; without a / it may also
// match the last name alone. Only names are collected here; on failure release the inputs.
bd_status bd_inputs_add(bd_inputs *inputs, const char *operand, const bd_collect_options *how,
                        bd_error *err);

// Counts a file called `name`, found in folder number `folder` (as in bd_input), that is not
// read.
bd_status bd_inputs_pass_over(bd_inputs *inputs, size_t folder, bd_pass_reason reason,
                              int64_t size_bytes, const char *name, bd_error *err);

// Decides which of them are read; then opens each, on all threads, to find its format, how it
// is to be cut, and its edges. BD_ERR_ARGUMENT: a file that was given by name and cannot be
// read; one that was given twice with different labels or options; a folder in which nothing
// is to be read, or less than is passed over for reasons that nobody has chosen (see
// allow_skipped).
bd_status bd_inputs_examine(bd_inputs *inputs, const bd_input_options *options,
                            bd_threads *threads, bd_error *err);

// Frees everything. Safe on an empty struct and safe twice.
void bd_inputs_release(bd_inputs *inputs);

#endif
