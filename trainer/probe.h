// probe.h - does anything of one document reach another? Asked of the real model on real rows.
#ifndef BINDERY_TRAINER_PROBE_H
#define BINDERY_TRAINER_PROBE_H

#include <stdint.h>

#include "common/error.h"
#include "trainer/batch.h"
#include "trainer/model.h"

typedef struct bd_probe {
    int64_t n_rows, n_segments;
    int64_t probed_tokens;   // of the document that was changed
    int64_t other_tokens;    // of all other segments
    int64_t leaked_tokens;   // of those, tokens whose logits or gradient changed in any bit
    int64_t changed_tokens;  // of the document itself: must not be 0, or the probe saw nothing
    int64_t leak_row, leak_segment;  // the first that leaked: the dataset's row, and the
                                     // segment's number in it; -1 if none
} bd_probe;

// Changes every token of one document of the batch's rows [first, first + n_rows), for which
// the model's buffers must have room, the longest that another one follows in its row, and
// compares, bit for bit, the logits and the gradient at the embedding of every token of every
// other segment. Adds to the model's gradients; its weights stay. Memory, floats: the logits of
// a row and the gradients of the stream.
bd_status bd_probe_batch(bd_probe *probe, bd_model *model, const bd_batch *rows, int64_t first,
                         int64_t n_rows, bd_error *err);

#endif
