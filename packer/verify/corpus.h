// corpus.h - the inputs that a dataset was packed from, found again where they lie now.
//
// The manifest has their names below what was given to pack, the plan how they were read, how
// they were cut and their edges. A file is looked for by its name, and is the one that was
// packed if all of that is as it was.
#ifndef BINDERY_PACKER_VERIFY_CORPUS_H
#define BINDERY_PACKER_VERIFY_CORPUS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/threads.h"
#include "packer/input/input_options.h"
#include "packer/input/inputs.h"
#include "packer/verify/check.h"

// How an input of the manifest was found.
typedef struct bd_corpus_input {
    bool needed;  // a shard holds something of it; the others are left alone
    char *path;   // owned; NULL if nothing is called so
    bool examined;
    bd_input_options reading;  // how it is read, once it is examined; its texts are the plan's
    bd_error change;           // BD_ERR_FORMAT and why, if it is not what was packed
} bd_corpus_input;

typedef struct bd_corpus {
    const bd_check *check;   // borrowed
    bd_inputs inputs;        // owned; in the order of the manifest, those that were examined
    bd_corpus_input *found;  // [inputs.n], owned
} bd_corpus;

// Looks for every needed input among what the operands name (inputs.h): by its name, or by the
// end of its path if another folder was given or it was renamed. Files that the dataset was not
// packed from are passed over; of several with one name the first of the right size is taken.
// Only names and sizes are looked at here, and a missing one is no failure yet. The check must
// outlive the corpus. On failure *corpus is empty.
bd_status bd_corpus_open(bd_corpus *corpus, const bd_check *check, const char *const *operands,
                         size_t n, bd_error *err);

// Fills in inputs.items[index] and found[index], unless that was done. One that is missing is
// BD_ERR_ARGUMENT; one that changed is no failure, see above. Any number of threads may examine
// different inputs.
bd_status bd_corpus_examine(bd_corpus *corpus, size_t index, bd_error *err);

// The same for every input that is needed.
bd_status bd_corpus_examine_all(bd_corpus *corpus, bd_threads *threads, bd_error *err);

void bd_corpus_release(bd_corpus *corpus);  // safe on an empty struct and safe twice

#endif
