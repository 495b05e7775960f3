// optimizer.h - what moves the weights: AdamW, or Muon for the matrices of linear layers and
// AdamW for the rest. Each rank moves a slice of the parameters, and has moments of that slice
// alone.
#ifndef BINDERY_TRAINER_OPTIMIZER_H
#define BINDERY_TRAINER_OPTIMIZER_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/hyperparameters.h"
#include "trainer/model/model.h"
#include "trainer/model/parameters.h"

// A stretch of the slice that one call of an operation moves.
typedef struct bd_optimizer_stretch {
    int64_t begin, end;           // in the slice
    const bd_parameter *matrix;   // moved by Muon; NULL: moved by AdamW
    int64_t first_part, n_parts;  // AdamW: its parts
    int64_t first_v;              // AdamW: the place of its second moments
} bd_optimizer_stretch;

typedef struct bd_optimizer {
    bd_backend *backend;  // borrowed
    bd_rank_slice slice;  // of the parameters: those that this rank moves
    float *m;  // [slice], the backend's memory, owned: first moments, or Muon's momentum
    float *v;  // [n_v], likewise: second moments, which Muon's matrices do not have
    int64_t n_v;
    float *average;  // [slice], likewise; NULL if the run has none
    // [n_total], of the model's type, likewise: the averages of all ranks, to be evaluated.
    // NULL where that is `average` itself: in float, on a rank that is alone.
    void *averaged;
    bd_adamw_part *parts;             // of all stretches, likewise
    bd_optimizer_stretch *stretches;  // [n_stretches], owned
    size_t n_stretches;
} bd_optimizer;

// Divides the parameters among the ranks: bounds [n_ranks + 1] as in kernels/collectives.h.
// AdamW takes equal slices. With Muon every parameter belongs to one rank, and slices are as
// equal as that allows.
void bd_optimizer_divide(bd_optimizer_kind kind, const bd_parameters *parameters,
                         int32_t n_ranks, int64_t *bounds);

// The bytes of the backend's memory that an optimizer of this slice takes, those included that
// it takes only while it works.
size_t bd_optimizer_measure(const bd_hyperparameters *hyperparameters,
                            const bd_parameters *parameters, bd_rank_slice slice,
                            int32_t n_ranks);

// Moments and average are zero, to be filled before the first step. `parameters` must outlive
// the optimizer. On failure the result is empty; else release it.
bd_status bd_optimizer_init(bd_optimizer *optimizer, const bd_hyperparameters *hyperparameters,
                            const bd_parameters *parameters, bd_backend *backend,
                            bd_rank_slice slice, int32_t n_ranks, bd_error *err);
void bd_optimizer_release(bd_optimizer *optimizer);  // safe on an empty struct and safe twice

// Moves the slice of the model's weights by its gradients times gradient_scale, and then the
// average. step = 1, 2, …
bd_status bd_optimizer_step(bd_optimizer *optimizer, const bd_hyperparameters *hyperparameters,
                            const bd_model *model, int64_t step, double learning_rate,
                            double gradient_scale, bd_error *err);

#endif
