// prove.h - the experiment: packing changes nothing, shown on the user's own shards.
//
//   packed    whole rows through the real loader and the real kernels, in float or bf16
//   alone     every segment as a sequence of its own through reference.h, in double, which
//             knows no boundaries
//
// Both give the gradient of the same loss for every parameter, from the same weights (in bf16
// the rounded ones); they must agree as closely as the kernels' arithmetic can.
#ifndef BINDERY_TRAINER_PROVE_H
#define BINDERY_TRAINER_PROVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "kernels/backend.h"
#include "trainer/batch.h"
#include "trainer/parameters.h"
#include "trainer/probe.h"

// What is broken on purpose: one operation gets the boundaries {0, used} for every row.
typedef enum bd_sabotage {
    BD_SABOTAGE_NONE,
    BD_SABOTAGE_MASK,       // attention sees the whole row before it
    BD_SABOTAGE_POSITIONS,  // positions count through the row
    BD_SABOTAGE_TARGETS,    // a document's last token predicts the next document's first
} bd_sabotage;

extern const char *const bd_sabotage_words[];  // in the order of the enum, ended by NULL

typedef struct bd_proof_line {
    const bd_parameter *parameter;  // borrowed
    double largest_gradient;        // of the reference
    double largest_difference;
    double bound;              // see bd_prove()
    bool agrees;               // largest_difference <= bound
    bool zero_by_mathematics;  // a key bias shifts all scores of a query alike: no gradient
} bd_proof_line;

typedef struct bd_proof {
    bd_proof_line *lines;  // [n_lines], owned; one per parameter
    size_t n_lines;
    size_t n_disagree;
    int64_t n_rows, n_segments, n_targets;
    double loss_packed, loss_alone;  // means over the targets
    int64_t n_kinks;                 // ReLU inputs too close to 0 to call, see reference.h
} bd_proof;

// What an experiment is made with, all borrowed.
typedef struct bd_experiment {
    const bd_rows *rows;
    const bd_parameters *parameters;
    const float *weights;  // [n_total], host memory
    bd_backend *backend;
    bd_type type;         // what the kernels compute in
    int64_t n_documents;  // take whole rows, from the dataset's first on, until they have as
                          // many segments; all rows if there are not as many
} bd_experiment;

// A parameter agrees if its largest difference is within its bound: in float 1e-5 of its own
// largest gradient plus 1e-7 of any parameter's; in bf16, whose numbers are rounded to 2^-9
// at every step of the way, 2^-5 and 1e-5. BD_OK means that there is a result, whether
// or not it agrees. Release what comes out.
bd_status bd_prove(bd_proof *proof, const bd_experiment *experiment, bd_sabotage sabotage,
                   bd_error *err);
void bd_proof_release(bd_proof *proof);  // safe on an empty struct and safe twice

// bd_probe_batch() on those rows.
bd_status bd_probe_run(bd_probe *probe, const bd_experiment *experiment, bd_error *err);

#endif
