// verify.h - is a dataset what its manifest says? Every file, every row, every rule; and, if it
// is asked for, every token of the corpus.
#ifndef BINDERY_PACKER_VERIFY_VERIFY_H
#define BINDERY_PACKER_VERIFY_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"

// How much of a dataset is looked at.
#define BD_VERIFY_DEPTHS(X)                                                       \
    X(BD_VERIFY_STRUCTURE, "structure") /* files and metadata: D1 to D4 and S1 */ \
    X(BD_VERIFY_ROWS, "rows")           /* and every row: R1 to R9, S2 to S7 */   \
    X(BD_VERIFY_CORPUS, "corpus")       /* and every document of the corpus */
BD_ENUM(bd_verify_depth, BD_VERIFY_DEPTHS);

typedef struct bd_verify_settings {
    bd_verify_depth depth;
    const char *const *corpus;  // [n_corpus] operands as of `pack`, for BD_VERIFY_CORPUS;
    size_t n_corpus;            // borrowed
    int n_threads;
    bool quiet;
} bd_verify_settings;

typedef struct bd_verdict {
    bd_error *problems;  // [n_problems], owned; at most one per file, in the manifest's order
    size_t n_problems;
    size_t n_shards;
    int64_t n_rows, n_tokens;  // as the manifest says
    uint64_t n_bytes;          // of the shards, as it says, too
    int64_t n_compared;        // documents of the corpus that were read again
} bd_verdict;

// Checks the dataset. BD_OK means that there is a verdict, good or bad. It fails if there can be
// none (no such folder, no memory, no permission, a part of the corpus is missing). A damaged
// manifest is a verdict, and so is a corpus that has changed. Release the verdict. Shards are
// checked in parallel; the last ones, if they are few, one after another by all threads. Memory:
// check.h and verify_corpus.h.
bd_status bd_verify(const char *folder, const bd_verify_settings *settings, bd_verdict *verdict,
                    bd_error *err);

void bd_verdict_release(bd_verdict *verdict);  // safe on an empty struct and safe twice

#endif
