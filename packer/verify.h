// verify.h - is a dataset what its manifest says? Every file, every row, every rule.
#ifndef BINDERY_PACKER_VERIFY_H
#define BINDERY_PACKER_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct bd_verdict {
    bd_error *problems;  // [n_problems], owned; at most one per file, in the manifest's order
    size_t n_problems;
    size_t n_shards;
    int64_t n_rows, n_tokens;  // as the manifest says
} bd_verdict;

// Checks the dataset on `n_threads` threads. BD_OK means that there is a verdict, good or bad;
// a failure that it could not be reached (no such folder, no memory, no permission). A damaged
// manifest is a verdict. Release what comes out.
bd_status bd_verify(const char *folder, int n_threads, bool quiet, bd_verdict *verdict,
                    bd_error *err);

void bd_verdict_release(bd_verdict *verdict);  // safe on an empty struct and safe twice

#endif
