// probe.h - tests on real rows with the real model whether one document influences another.
#ifndef BINDERY_TRAINER_PROOF_PROBE_H
#define BINDERY_TRAINER_PROOF_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/data/batch.h"
#include "trainer/model/model.h"

// Counts are over all documents that were changed, one after another.
typedef struct bd_probe {
    int64_t n_rows, n_segments;
    int64_t n_documents;     // that were changed
    int64_t probed_tokens;   // tokens of these documents
    int64_t other_tokens;    // tokens of all other segments, counted for each document
    int64_t leaked_tokens;   // other tokens whose logits or gradient changed in any bit
    int64_t changed_tokens;  // probed tokens that changed
    int64_t n_silent;        // documents that changed none of their own tokens: no evidence
    int64_t leak_row, leak_segment;  // the first that leaked: the dataset's row, and the
                                     // segment's number in it; -1 if none
} bd_probe;

// Every document changed tokens of its own, and no others.
bool bd_probe_is_clean(const bd_probe *probe);

enum { BD_MOST_PROBED_DOCUMENTS = 8 };

// Changes every token of one document of the batch's rows [first, first + n_rows), for which
// the model's buffers must have room, and compares, bit for bit, the logits and the gradient at
// the embedding of every token of every other segment; then the same for the next document, up
// to n_documents (at most BD_MOST_PROBED_DOCUMENTS) of them: the longest of those that another
// one follows in its row, where a leak through attention would go, or the longest of all if
// there is none. Adds to the model's gradients; its weights stay. Memory, floats: the logits of
// a row and the gradients of the stream.
bd_status bd_probe_batch(bd_probe *probe, bd_model *model, const bd_batch *rows, int64_t first,
                         int64_t n_rows, int64_t n_documents, bd_error *err);

#endif
