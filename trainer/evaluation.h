// evaluation.h - the loss of a model on a dataset, forward only: in all and for each source.
#ifndef BINDERY_TRAINER_EVALUATION_H
#define BINDERY_TRAINER_EVALUATION_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/tokenizer.h"
#include "trainer/data/batch.h"
#include "trainer/model/model.h"

typedef struct bd_evaluation_sum {
    double loss;  // sum over the targets of -log p, in their order
    int64_t n_targets;
    int64_t n_bytes;  // of text that the targets stand for; a separator stands for none
} bd_evaluation_sum;

double bd_evaluation_mean(const bd_evaluation_sum *sum);  // not a number without targets
// The loss in bits, that of separators included, for each byte; not a number without bytes.
double bd_evaluation_bits_per_byte(const bd_evaluation_sum *sum);

typedef struct bd_evaluated_source {
    const char *name;  // borrowed from the manifest
    bd_evaluation_sum sum;
} bd_evaluated_source;

typedef struct bd_evaluation {
    int64_t n_rows;
    bd_evaluation_sum total;
    bd_evaluated_source *sources;  // [n_sources], owned; in the order of their first input
    size_t n_sources;
} bd_evaluation;

// Whether the dataset's ids have the meaning of `fingerprint`, the model's.
bd_status bd_evaluation_check_tokenizer(const char *fingerprint, const bd_rows *rows,
                                        bd_error *err);

// Runs rows of the dataset through the model, which must have been found to fit it and whose
// buffers must have room for one row: all rows, or if max_rows > 0 no more than that, spread
// evenly. `tokenizer` is the dataset's, or NULL if its ids stand for no text that is known:
// then there are no bytes. Changes nothing of the model that training relies on. A loss that is
// no finite number is BD_ERR_FORMAT and names the row; a signal that was noted is
// BD_ERR_INTERRUPTED. Release what comes out. Memory: that of a batch, and 4 bytes for each
// input of the dataset.
bd_status bd_evaluate(bd_evaluation *evaluation, bd_model *model, const bd_rows *rows,
                      const bd_tokenizer *tokenizer, int64_t max_rows, bd_error *err);
void bd_evaluation_release(bd_evaluation *evaluation);  // safe if empty, safe twice

#endif
