// reference.h - one sequence through the model in double precision, by plain loops: the values
// that `prove` compares the kernels with.
//
// A sequence is one document: plain causal attention over all of it (or over a window, where the
// model has one), positions 0, 1, 2, … It knows no boundaries. It shares the description of the
// model (family.h, parameters.h) with the kernels, and no code: even the frequencies of a
// rotation are computed apart (exact_operations.h).
//
// ReLU has no derivative at 0. The kernels' rounding may move an input that is nearly 0 to the
// other side of 0, and then the gradient of a whole unit differs although neither side is
// wrong. For inputs whose absolute value is at most `nearly_zero` times the largest of their
// token, and only for these, the reference takes the side that the kernels took; it counts how
// often that was not its own.
//
// With a rounding (exact_arithmetic.h) the gradients of a few runs scatter around the exact ones
// as those of a correct float program do.
#ifndef BINDERY_TRAINER_PROOF_REFERENCE_H
#define BINDERY_TRAINER_PROOF_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/model/parameters.h"
#include "trainer/proof/exact_arithmetic.h"

typedef struct bd_reference {
    const bd_parameters *parameters;  // borrowed, must outlive the reference
    const double *weights;            // [n_total], borrowed likewise
    double *gradients;                // [n_total], owned; the sum over the sequences so far
    double *magnitudes;               // [n_total], owned, or NULL; the same sum of the
                                      // absolute values of its terms
    double loss_sum;                  // the sum of the losses so far
    int64_t n_kinks;                  // ReLU inputs whose side the kernels decided
    double nearly_zero;
    bd_rounding rounding;  // exact at first; may be set before the first sequence. The sums
                           // over tokens that make a gradient stay exact: their error follows
                           // from the magnitudes
} bd_reference;

// Gradients and loss begin at 0. Release the result.
bd_status bd_reference_init(bd_reference *reference, const bd_parameters *parameters,
                            const double *weights, double nearly_zero, bd_error *err);
// Makes the sequences that follow add up the magnitudes, too.
bd_status bd_reference_measure(bd_reference *reference, bd_error *err);
void bd_reference_release(bd_reference *reference);  // safe on an empty struct and safe twice

// One sequence, all borrowed.
typedef struct bd_reference_sequence {
    const uint32_t *ids;  // [n]
    int64_t n;
    const bool *is_target;             // [n], or NULL: all are; the first never is
    double weight;                     // of the sequence's losses in the loss
    double loss_scale;                 // 1 / (terms of the loss of the whole batch)
    const float *const *relu_results;  // NULL, or [n_layers] arrays [n][n_feed_forward]: the
                                       // results of the kernels' ReLUs for the same tokens
} bd_reference_sequence;

// Runs the sequence forward and backward. With
//   loss = weight * sum over targets t + 1 of -log p(ids[t + 1] | ids[0 … t])
// adds `loss` to loss_sum and the gradient of loss_scale * loss to the gradients. A sequence
// without a target adds nothing. BD_ERR_ARGUMENT if n is not from 1 to n_positions or an id is not
// in the vocabulary; a failure adds nothing.
//
// Memory besides the weights and gradients: for each layer and token some doubles for each channel
// of the stream, of q, k and v, and of the feed-forward block; nothing of size n x n.
bd_status bd_reference_add(bd_reference *reference, const bd_reference_sequence *sequence,
                           bd_error *err);

// Exactly that memory, in bytes.
size_t bd_reference_bytes(const bd_model_config *config, int64_t n);

#endif
