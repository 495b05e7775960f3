// model.h - a decoder on a backend: forward, backward, gradients.
//
//   ids -> embedding -> n_layers x [ x + attention(norm(x)), then x + feed_forward(norm(x)) ]
//       -> final norm -> logits by the head -> loss
//
// The family (family.h) says which of the parts a model has: norms before or after blocks, norms
// of queries and keys, rotation, gates, biases, a head of its own.
//
// The batch's boundaries reach every operation unchanged. Memory, in floats, for n = max_rows *
// seq_len tokens:
//   2 x parameters (weights and gradients; the optimizer's moments are elsewhere);
//   n_layers x n x the activations of a layer: 4 n_channels (5 or 6 with norms after blocks, 1
//     less for each block without a norm before it), q, k and v (twice with norms of them), heads
//     x head_size, n_feed_forward two or, gated, three times (with ReLU once), and statistics;
//   about n x (5 n_channels + q, k and v or what a block expands to) on the way through;
//   seq_len x n_vocabulary (rounded up to 64) for the logits of one row, which never exist all at
//     once.
// In bf16 the weights are kept a second time, rounded, and all tensors but gradients of
// parameters and statistics (mean, rstd, lse, losses) take half as much.
//
// A model that recomputes keeps only the output of each layer, n x n_channels; all layers share
// the memory for the other activations, and the backward pass computes those of each layer
// again. This takes a third more work and gives the same bits.
#ifndef BINDERY_TRAINER_MODEL_MODEL_H
#define BINDERY_TRAINER_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/data/batch_transfer.h"
#include "trainer/model/parameters.h"

// What a norm keeps for its backward pass, [n] each. RMS norms have no mean.
typedef struct bd_norm_statistics {
    float *mean, *rstd;
} bd_norm_statistics;

// All are the backend's memory; NULL if the family has no such part.
typedef struct bd_layer_activations {
    void *attention_in;  // the norm's output, [n][n_channels]
    bd_norm_statistics attention_norm;
    void *qkv;                     // [n][bd_qkv_width()]
    void *normed;                  // of the same shape: queries and keys after their norms
    float *query_rstd, *key_rstd;  // [n][heads], or [n] for norms of the whole width
    void *attention_out;           // [n][n_heads * head_size]
    float *lse;                    // [n][n_heads]
    void *attention_branch;        // [n][n_channels]: the input of the norm after attention
    bd_norm_statistics attention_post_norm;
    void *middle;  // the residual stream after attention
    void *feed_forward_in;
    bd_norm_statistics feed_forward_norm;
    void *expanded;   // [n][bd_expanded_width()]; NULL with ReLU, whose slope follows from its
                      // result
    void *activated;  // [n][n_feed_forward]
    void *feed_forward_branch;
    bd_norm_statistics feed_forward_post_norm;
    void *out;  // the residual stream after the layer
} bd_layer_activations;

// Bytes of the backend's memory, by what they are for.
#define BD_MEMORY_KINDS(X)                  \
    X(BD_MEMORY_WEIGHTS, "weights")         \
    X(BD_MEMORY_GRADIENTS, "gradients")     \
    X(BD_MEMORY_ACTIVATIONS, "activations") \
    X(BD_MEMORY_LOGITS, "logits") /* of one row */
BD_ENUM(bd_memory_kind, BD_MEMORY_KINDS);
enum { BD_N_MEMORY_KINDS = BD_ENUM_COUNT(BD_MEMORY_KINDS) };

typedef struct bd_model_memory {
    size_t of[BD_N_MEMORY_KINDS];
    size_t total;
} bd_model_memory;

typedef struct bd_model {
    bd_backend *backend;              // borrowed
    const bd_parameters *parameters;  // borrowed
    bd_type type;                     // of every tensor below that is void
    bool recomputes;                  // layers share all activations but `out`
    int64_t max_rows, seq_len;        // what the buffers are made for
    double z_loss;                    // see bd_model_options, likewise:
    bd_loss_kind loss;
    void *weights;               // [n_total], the backend's memory
    float *masters;              // [n_total]: the weights before rounding
    float *gradients;            // [n_total]
    bd_batch_transfer transfer;  // owned
    void **allocated;            // every block of the backend's memory, owned
    size_t n_allocated, allocated_capacity;
    bd_model_memory memory;  // of all of them
    bool only_counts;        // the model is only measured: nothing is allocated

    void *embedded;  // [n][n_channels]: the residual stream before the first layer
    bd_layer_activations *layers;  // [n_layers], owned
    void *final_in;
    bd_norm_statistics final_norm;
    uint64_t *turns, *local_turns;  // [head_size / 2], of all layers and of those with a window
    int64_t logits_stride;          // n_vocabulary, rounded up
    void *logits;                   // [seq_len][logits_stride]: of one row at a time
    float *losses;                  // [n]
    float *host_losses;             // [n], host memory, owned: a copy of them
    // Gradients of the backward pass.
    void *d_stream;     // [n][n_channels]
    void *d_narrow;     // [n][max(n_channels, n_heads * head_size)]
    void *d_wide;       // [n][max(bd_qkv_width(), bd_expanded_width())]
    void *d_activated;  // [n][n_feed_forward]; d_wide itself without a gate
    void *branch;       // [n][n_channels]: what a block adds to the stream
} bd_model;

// Whether the backend computes a model of this shape in this type; BD_ERR_UNSUPPORTED says why
// not.
bd_status bd_model_check_type(const bd_backend *backend, const bd_model_config *config,
                              bd_type type, bd_error *err);

// What a model's buffers are made for.
typedef struct bd_model_options {
    bd_type type;
    bool recomputes;
    int64_t max_rows, seq_len;  // of a batch
    double z_loss;      // see kernels/cross_entropy.h: part of the gradients, not of the losses
    bd_loss_kind loss;  // what bd_model_train() adds up and follows the gradient of
} bd_model_options;

// How much of the backend's memory bd_model_init() would take for the same options, but for what
// a batch itself takes.
bd_status bd_model_measure(const bd_parameters *parameters, const bd_model_options *options,
                           bd_model_memory *memory, bd_error *err);

// Makes the buffers. The weights are zero until uploaded. BD_ERR_UNSUPPORTED says what the
// backend cannot do in bf16. Release what comes out.
bd_status bd_model_init(bd_model *model, bd_backend *backend, const bd_parameters *parameters,
                        const bd_model_options *options, bd_error *err);
void bd_model_release(bd_model *model);  // safe on an empty struct and safe twice

// Copy [n_total] floats between host memory and the model's masters or gradients.
bd_status bd_model_set_weights(bd_model *model, const float *weights, bd_error *err);
bd_status bd_model_get_gradients(bd_model *model, float *gradients, bd_error *err);
bd_status bd_model_zero_gradients(bd_model *model, bd_error *err);
// The first n numbers of one of the model's tensors, as floats.
bd_status bd_model_download(bd_model *model, float *to, const void *tensor, int64_t n,
                            bd_error *err);

// Sends a batch, which lies in the host's memory and must stay as it is until it was used, to
// where the model's backend reads it.
bd_status bd_model_send(bd_model *model, const bd_model_batch *batch, bd_sent_batch *sent,
                        bd_error *err);

// Runs the batch forward and backward and adds to the gradients those of the sum of the loss's
// terms (bd_loss_kind), times gradient_scale (bd_loss_scale() of the global batch). *loss_sum
// (host) is the sum itself, in double, in an order that depends on shapes alone.
bd_status bd_model_train(bd_model *model, const bd_model_batch *batch, double gradient_scale,
                         double *loss_sum, bd_error *err);
// The same for a batch that was sent, which is used up: *batch becomes `next`, sent while the
// model still computes, or empty if `next` is NULL.
bd_status bd_model_train_sent(bd_model *model, bd_sent_batch *batch, const bd_model_batch *next,
                              double gradient_scale, double *loss_sum, bd_error *err);

// Forward only: the losses [n_rows][seq_len] of the batch's tokens, -log p whatever the kind of
// the loss, exactly 0 where there is no target, into host memory.
bd_status bd_model_losses(bd_model *model, const bd_model_batch *batch, float *losses,
                          bd_error *err);

// Forward only, up to the final norm.
bd_status bd_model_forward(bd_model *model, const bd_model_batch *batch, bd_error *err);
// After it: the logits [seq_len][n_vocabulary] of row `row` of the same batch, into host
// memory.
bd_status bd_model_row_logits(bd_model *model, const bd_model_batch *batch, int64_t row,
                              float *logits, bd_error *err);

#endif
