// uncertainty.h - the exact gradients of a batch, and the error that float arithmetic may have.
//
// Both are computed by reference.h, every segment as a sequence of its own, and by no kernel.
// For each element i of the gradient:
//
//   S_i   the sum over tokens of the absolute values of its terms
//   N_i   the error of these terms, which comes from the layers before: the largest
//         |D'_i - D_i| over BD_NOISE_RUNS runs with random rounding, or the root mean square of
//         that over the element's row of its matrix if this is more, since a few runs may by
//         chance move an element little. N_i is 0 if S_i is and no run moves the element: it
//         has no term
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

// The results of the kernels' ReLUs by layer [n_layers], each [n_tokens][n_feed_forward] in the
// order of the batch's tokens; reference.h explains what for. NULL for models without ReLU.
typedef float *const *bd_relu_results;

// The exact gradients of the batch, computed segment by segment.
typedef struct bd_exact {
    double *gradients;  // [n_total], owned
    double loss_sum;
    int64_t n_kinks;
} bd_exact;

typedef struct bd_uncertainty {
    double *magnitudes;  // S: [n_total], owned
    double *noise;       // N: [n_total], owned
} bd_uncertainty;

// The input of the reference; all borrowed.
typedef struct bd_reference_task {
    const bd_parameters *parameters;
    const double *weights;  // [n_total]
    bd_type type;           // in which the kernels store between operations
    bd_loss_kind loss;
    const bd_batch *batch;
    bd_threads *threads;
} bd_reference_task;

// Release the results. The second form makes both at once, each run of the reference on its own
// thread. Memory: 8 bytes for each element of the gradient, in the second form 40 more.
bd_status bd_exact_init(bd_exact *exact, const bd_reference_task *task, bd_relu_results relu,
                        bd_error *err);
bd_status bd_exact_init_with_uncertainty(bd_exact *exact, bd_uncertainty *uncertainty,
                                         const bd_reference_task *task, bd_relu_results relu,
                                         bd_error *err);
void bd_exact_release(bd_exact *exact);  // safe on an empty struct and safe twice
void bd_uncertainty_release(bd_uncertainty *uncertainty);  // likewise

#endif
