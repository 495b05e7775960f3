// verify_corpus.h - are the tokens of a dataset those of the corpus that it was packed from?
//
// Every unit is read and tokenised again, by the readers and with the options that packed it,
// and each document's tokens are compared with its pieces in the rows:
//
//   corpus       | A A A | B B B B B B | C C |        in input order
//   rows           A A A |  B B B B
//                           B B B | C C |
//
// It is damage if only one of the two has a document, or if lengths, tokens or the figures of what
// was left out differ. For each shard the first difference in input order is reported.
#ifndef BINDERY_PACKER_VERIFY_VERIFY_CORPUS_H
#define BINDERY_PACKER_VERIFY_VERIFY_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/verify/check.h"
#include "packer/verify/corpus.h"

typedef struct bd_verify_corpus_job {
    const bd_check *check;    // of a dataset whose units are the plan's (D2); borrowed
    const bd_corpus *corpus;  // borrowed
    int n_threads;
    bool quiet;
} bd_verify_corpus_job;

// Fills in problems[n_shards] where there is none (BD_OK) yet; shards that have one are not
// compared. *n_documents is how many documents were read. Damage is a problem and no failure.
// With a limit on documents one thread does it, in order. Memory, for each thread: that of
// packing a unit (unit.h) and 56 bytes per segment of its shard.
bd_status bd_verify_corpus(const bd_verify_corpus_job *job, bd_error *problems,
                           int64_t *n_documents, bd_error *err);

#endif
