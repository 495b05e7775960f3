// uncertainty.h - what the gradients of a batch are, and how far off an honest float program may be.
//
// Both come from reference.h alone, every segment as a sequence of its own, and from no kernel. For
// each element i of the gradient:
//
//   S_i   the sum of the absolute values of the terms that are added up in it (over tokens)
//   N_i   the error that these terms bring along through the layers: the largest |D'_i - D_i|
//         over BD_NOISE_RUNS runs with random rounding, or the root mean square of that over the
//         element's row of its matrix if this is more, since a few runs may hit an element lightly
//
// docs/proof.md has the derivation.
#ifndef BINDERY_TRAINER_PROOF_UNCERTAINTY_H
#define BINDERY_TRAINER_PROOF_UNCERTAINTY_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/base/threads.h"
#include "kernels/type.h"
#include "trainer/data/batch.h"
#include "trainer/model/parameters.h"

enum { BD_NOISE_RUNS = 4 };

// What the kernels' ReLUs gave, by layer [n_layers] of [n_tokens][n_feed_forward] with the
// batch's tokens in their order: see reference.h on kinks. NULL for models without ReLU.
typedef float *const *bd_relu_results;

// The exact gradients of the batch's segments, each on its own.
typedef struct bd_exact {
    double *gradients;  // [n_total], owned
    double loss_sum;
    int64_t n_kinks;
} bd_exact;

typedef struct bd_uncertainty {
    double *magnitudes;  // S: [n_total], owned
    double *noise;       // N: [n_total], owned
} bd_uncertainty;

// What the reference is run on; all borrowed.
typedef struct bd_reference_task {
    const bd_parameters *parameters;
    const double *weights;  // [n_total]
    bd_type type;           // of what the kernels store between operations
    const bd_batch *batch;
    bd_threads *threads;
} bd_reference_task;

// Release what comes out. The second form makes both at once, each run of the reference on a
// thread of its own. Memory: for each element of the gradient 8 bytes, in the second form 40 more.
bd_status bd_exact_init(bd_exact *exact, const bd_reference_task *task, bd_relu_results relu,
                        bd_error *err);
bd_status bd_exact_init_with_uncertainty(bd_exact *exact, bd_uncertainty *uncertainty,
                                         const bd_reference_task *task, bd_relu_results relu,
                                         bd_error *err);
void bd_exact_release(bd_exact *exact);  // safe on an empty struct and safe twice
void bd_uncertainty_release(bd_uncertainty *uncertainty);  // likewise

#endif
