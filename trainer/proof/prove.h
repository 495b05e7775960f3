// prove.h - the experiment that shows, on the user's own shards, that packing changes nothing.
//
//   packed (P)   whole rows through the real loader and the real kernels, in float or bf16
//   alone (A)    every segment in a row of its own through the same kernels
//   exact (D)    every segment as a sequence of its own in double precision, through
//                reference.h, which knows no boundaries
//
// All three give the gradient of the same loss for every parameter, from the same weights (in
// bf16 the rounded ones). P and A must be as close to D as tolerance.h says, element by
// element. Then documents are changed one at a time, and no bit of any other may change
// (probe.h).
#ifndef BINDERY_TRAINER_PROOF_PROVE_H
#define BINDERY_TRAINER_PROOF_PROVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/data/batch.h"
#include "trainer/model/parameters.h"
#include "trainer/proof/probe.h"
#include "trainer/proof/uncertainty.h"

// Which operation is broken on purpose: it gets the boundaries {0, used} for every row, or the
// loss gets no mask. Positions
// are learned or rotated. A rotation depends on differences of positions alone, so that counting
// through the row is not noticed unless queries count so and keys do not.
#define BD_SABOTAGES(X)                                                                       \
    X(BD_SABOTAGE_NONE, "none")                                                               \
    X(BD_SABOTAGE_MASK, "mask")           /* attention sees the whole row before it */        \
    X(BD_SABOTAGE_POSITIONS, "positions") /* learned positions count through the row */       \
    X(BD_SABOTAGE_ROTATION, "rotation")   /* so do those by which queries are rotated */      \
    X(BD_SABOTAGE_TARGETS, "targets")     /* documents predict the first token of the next */ \
    X(BD_SABOTAGE_MASK_LOSS, "mask-loss") /* all tokens are trained */
BD_ENUM(bd_sabotage, BD_SABOTAGES);

// The verdict on a parameter, by its worst element, which may exceed its bound.
#define BD_PROOF_VERDICTS(X)                                                                   \
    X(BD_PROOF_AGREES, "agrees")                                                               \
    X(BD_PROOF_ROUNDING, "rounding") /* by a factor below BD_PROOF_ROUNDING_RATIO */           \
    X(BD_PROOF_KERNEL, "kernel") /* by more, also alone: the kernels compute something else */ \
    X(BD_PROOF_LEAK, "leak")     /* by more, and only when packed */
BD_ENUM(bd_proof_verdict, BD_PROOF_VERDICTS);

#define BD_PROOF_ROUNDING_RATIO 10.0

// One parameter, by its element with the largest ratio of difference to bound.
typedef struct bd_proof_line {
    const bd_parameter *parameter;  // borrowed
    int64_t element;                // of its flat array
    double gradient;                // D
    double packed_difference;       // |P - D|
    double alone_difference;        // |A - D|
    double packed_to_alone;         // |P - A|
    double noise, magnitude;        // N and S, see uncertainty.h
    double bound;                   // see tolerance.h
    double ratio;  // the larger of the first two differences, divided by the bound; infinite
                   // if that is NaN, or if the bound is 0 and the difference is not
    bd_proof_verdict verdict;
    bool zero_by_mathematics;  // BD_ROLE_KEY_BIAS
} bd_proof_line;

typedef struct bd_proof {
    bd_proof_line *lines;  // [n_lines], owned; one per parameter
    size_t n_lines;
    size_t n_disagree;
    double worst_ratio;  // of all lines
    int64_t n_rows, n_segments, n_targets;
    int64_t longest_sum;                         // see tolerance.h
    double loss_packed, loss_alone, loss_exact;  // means over the loss's terms
    int64_t n_kinks;  // ReLU inputs whose side the kernels decided, see reference.h
    bd_probe probe;   // empty (no row) with a sabotage
    bool proved;      // every line agrees and the probe found nothing; never with a sabotage
} bd_proof;

// The input of an experiment, all borrowed.
typedef struct bd_experiment {
    const bd_rows *rows;
    const bd_parameters *parameters;
    const float *weights;  // [n_total], host memory
    bd_backend *backend;
    bd_threads *threads;  // for the runs of the reference
    bd_type type;         // in which the kernels compute
    bd_loss_kind loss;    // of which all gradients are
    int64_t n_documents;  // take whole rows until they have as many segments; all rows if
                          // there are not as many
    uint64_t seed;        // 0: from the dataset's first row on; otherwise it chooses where
    bd_uncertainty *uncertainty;  // NULL, or a cache: filled if it is empty, otherwise it must
                                  // be of the same rows, weights, type and loss
} bd_experiment;

enum { BD_PROBED_DOCUMENTS = 3 };  // documents that a proof changes, one at a time

// BD_OK means that there is a result, whether or not it is a proof. Release it. A sabotage that
// would change nothing in this model or in these rows is BD_ERR_ARGUMENT. Memory: 64 bytes on the
// host for each parameter, the model's own, and that of a sequence in reference.h on each of up
// to 1 + BD_NOISE_RUNS threads.
bd_status bd_prove(bd_proof *proof, const bd_experiment *experiment, bd_sabotage sabotage,
                   bd_error *err);
void bd_proof_release(bd_proof *proof);  // safe on an empty struct and safe twice

// The probe alone, on the same rows.
bd_status bd_probe_run(bd_probe *probe, const bd_experiment *experiment, bd_error *err);

#endif
