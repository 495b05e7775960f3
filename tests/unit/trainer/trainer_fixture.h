// trainer_fixture.h - datasets and models for the trainer's tests, and faulty backends.
#ifndef BINDERY_TESTS_UNIT_TRAINER_TRAINER_FIXTURE_H
#define BINDERY_TESTS_UNIT_TRAINER_TRAINER_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "kernels/backend.h"
#include "trainer/data/batch.h"
#include "trainer/model/parameters.h"
#include "trainer/step.h"

// Fails the test with the error's message.
void check(bd_status status, const bd_error *err);
void assert_mentions(const bd_error *err, const char *text);

// tests/golden/train-1/<name>
bd_json *read_golden(const char *name);

// ---- Datasets

// How documents become a dataset.
typedef struct packed_as {
    int64_t seq_len, batch_rows, unit_bytes, vocab_size;
    bd_shard_codec codec;
    bool masked;  // with loss masks: stretches of a few tokens that are trained or not
} packed_as;

// Packs documents of `lengths` bytes (and the separator) into `folder`, below the working
// directory, and opens it.
void pack_documents(bd_rows *rows, const char *folder, const int *lengths, size_t n,
                    packed_as how);
void open_golden_rows(bd_rows *rows);  // 27 rows of 64
// Opens a dataset with masks in rows of 63 tokens, which mostly begin inside a byte; it is packed
// below the working directory.
void pack_masked_rows(bd_rows *rows);

// Changes a token of row `number` on disk and opens the dataset again.
void damage_row(bd_rows *rows, const char *folder, int64_t number);

// Puts rows `numbers` [n] into one batch; release it.
bd_batch load_batch(const bd_rows *rows, const int64_t *numbers, int64_t n);

// ---- Models

// A model with the golden dataset; by name one of the golden models, "opt" or "gpt2".
typedef struct subject {
    bd_rows rows;
    bd_parameters parameters;
    float *weights;  // [n_total]
    bd_backend *backend;
    bd_group *group;  // of a single process
    // A copy of the backend's table that a test may change; used from the beginning.
    bd_operations operations;
    const bd_operations *honest;  // the backend's own
} subject;

void open_subject(subject *s, const char *model);
// Another model, with random weights that are far from 0, on the same dataset.
void open_random_subject(subject *s, bd_model_config config);
void close_subject(subject *s);
// Exchanges the subject's dataset for that of pack_masked_rows().
void give_masked_rows(subject *s);
bd_trainer_needs needs_of(const subject *s);

// Weights [n_total], moments and average of the slice, of a checkpoint; average is NULL if the
// trainer has none.
void set_state(bd_trainer *trainer, const float *weights, const float *m, const float *v,
               const float *average);

#endif
