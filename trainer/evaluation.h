// evaluation.h - the loss of a model on a dataset: the total, and for each source.
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

double bd_evaluation_mean(const bd_evaluation_sum *sum);  // NAN without targets
// The loss in bits, that of separators included, per byte; NAN without bytes.
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

// BD_ERR_ARGUMENT if the dataset has another tokenizer than the model, whose fingerprint is given.
bd_status bd_evaluation_check_tokenizer(const char *fingerprint, const bd_rows *rows,
                                        bd_error *err);

// Evaluates the model, forward only, on all rows of the dataset, or if max_rows > 0 on at most
// that many, spread evenly. The model must fit the dataset (bd_check_fit()), and its buffers must
// have room for one row. `tokenizer` is the dataset's, or NULL if its ids stand for no known text:
// then there are no bytes. Nothing of the model changes that training relies on. A loss that is
// not finite is BD_ERR_FORMAT, and the message names the row; BD_ERR_INTERRUPTED after a signal.
// Release the evaluation. Memory: a batch, and 4 bytes for each input of the dataset.
bd_status bd_evaluate(bd_evaluation *evaluation, bd_model *model, const bd_rows *rows,
                      const bd_tokenizer *tokenizer, int64_t max_rows, bd_error *err);
void bd_evaluation_release(bd_evaluation *evaluation);  // safe if empty, safe twice

#endif
