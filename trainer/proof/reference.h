// reference.h - one sequence through the model in double precision, naively: what `prove`
// compares the kernels with.
//
// A sequence is one document: plain causal attention over all of it, positions 0, 1, 2, …
// There are no boundaries here, and no code of the kernels.
//
// ReLU has no derivative at 0. An input that is 0 up to the kernels' rounding may be on the
// other side of it there, and then a whole unit's gradient differs although nobody is wrong.
// For such inputs alone, those within `nearly_zero` of the largest of their token, the side
// that the kernels saw decides; how often it was the other one is counted.
//
// How exact can a program be that computes in float? A run with a rounding answers it without
// looking at any program: every result is moved at random, up or down, by as much as plain
// loops in float may move it (Monte Carlo arithmetic). The gradients of a few such runs scatter
// around the exact ones as those of an honest float program do.
#ifndef BINDERY_TRAINER_PROOF_REFERENCE_H
#define BINDERY_TRAINER_PROOF_REFERENCE_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "trainer/model/parameters.h"

// Units are the largest relative error of one rounding: 2^-24 in float, 2^-8 in bf16.
typedef struct bd_rounding {
    double sum;     // of every addition of a sum inside an operation; 0: exact
    double stored;  // of every number that an operation hands to the next one; 0: exact
    bd_random random;
} bd_rounding;

typedef struct bd_reference {
    const bd_parameters *parameters;  // borrowed, must outlive the reference
    const double *weights;            // [n_total], borrowed likewise
    double *gradients;                // [n_total], owned; what the sequences added so far
    double *magnitudes;               // [n_total], owned, or NULL; likewise the absolute
                                      // values of the terms that make up each gradient
    double loss_sum;                  // likewise
    int64_t n_kinks;                  // ReLU inputs whose side the kernels decided
    double nearly_zero;
    bd_rounding rounding;  // exact at first; may be set before the first sequence. The sums
                           // over tokens that make a gradient stay exact: the magnitudes tell
                           // what those may lose
} bd_reference;

// Gradients and loss begin at 0. Release what comes out.
bd_status bd_reference_init(bd_reference *reference, const bd_parameters *parameters,
                            const double *weights, double nearly_zero, bd_error *err);
// From now on the magnitudes are added up, too.
bd_status bd_reference_measure(bd_reference *reference, bd_error *err);
void bd_reference_release(bd_reference *reference);  // safe on an empty struct and safe twice

// Runs ids [n] forward and backward. With
//   loss = sum over t < n - 1 of -log p(ids[t + 1] | ids[0 … t])
// adds `loss` to loss_sum and the gradient of loss_scale * loss to the gradients; loss_scale is
// 1 / (targets of the whole batch). relu_results, if not NULL, is [n_layers] arrays
// [n][n_feed_forward]: what the kernels' ReLUs gave for the same tokens. A sequence of one token
// has no target and adds nothing. BD_ERR_ARGUMENT if n is not from 1 to n_positions or an id is
// not in the vocabulary; a failure adds nothing.
//
// Memory besides the weights and gradients: n_layers * n * (8 n_channels + 2 n_feed_forward)
// doubles and a little more, nothing of size n x n.
bd_status bd_reference_add(bd_reference *reference, const uint32_t *ids, int64_t n,
                           double loss_scale, const float *const *relu_results, bd_error *err);

// That memory, exactly, in bytes.
size_t bd_reference_bytes(const bd_model_config *config, int64_t n);

#endif
