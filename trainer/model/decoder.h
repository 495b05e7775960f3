// decoder.h - a model that continues documents: each new token is computed from those before it,
// whose keys and values are kept.
//
// It computes what bd_model_forward() computes for the whole document, with sums in another order.
// The tests hold the difference of a logit, in float, to the bound of a single sum (BD_LONGEST_SUM
// units of rounding of the sum of its absolute terms, kernels/summation.h); they see 7 of 192. Bit
// for bit, a document's logits depend on its own tokens alone: neither on how many are added at a
// time, nor on the other documents, nor on the number of threads.
//
// Memory of the backend: the weights, unless they are borrowed; of every layer the keys and values
// of n_documents x max_tokens (rounded up to 64) tokens; the activations of one layer for
// BD_DECODER_TOKENS tokens; and the scratch memory of attention for as many tokens at the end of a
// document of max_tokens: BD_DECODER_TOKENS x n_heads x max_tokens / 256 x (2 + head_size) floats.
// There are no gradients.
#ifndef BINDERY_TRAINER_MODEL_DECODER_H
#define BINDERY_TRAINER_MODEL_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/model/parameters.h"

enum {
    BD_DECODER_TOKENS = 64,  // that go through the layers together
    BD_DECODER_BUFFERS = 16,
};

typedef struct bd_decoder_options {
    bd_type type;
    int64_t n_documents;
    int64_t max_tokens;  // of a document; the model may have fewer positions
    bool borrows;        // the weights; otherwise the decoder has its own, 0 at first
} bd_decoder_options;

typedef struct bd_decoder {
    bd_backend *backend;              // borrowed
    const bd_parameters *parameters;  // borrowed
    bd_decoder_options options;
    const void *weights;  // [n_total] of the type, the backend's memory
    int64_t max_tokens;   // of a document: what options and positions allow
    int64_t capacity;     // the same, rounded up to BD_CACHE_BLOCK
    int64_t *lengths;     // [n_documents], owned: tokens so far

    // All are the backend's memory.
    void *owned[BD_DECODER_BUFFERS];  // [n_owned]: those below that exist, to be released
    size_t n_owned;
    void *own_weights;
    void *keys, *values;            // [n_layers], each a cache of kernels/attention_cached.h
    uint64_t *turns, *local_turns;  // [head_size / 2], of all layers and of those with a window
    void *numbers;                  // ids, boundaries and the like of the new tokens
    void *stream, *normed, *qkv, *attended, *branch, *expanded, *activated;
    float *mean, *rstd;
    void *logits;  // [min(BD_DECODER_TOKENS, n_documents)][n_vocabulary]
} bd_decoder;

// How much of the backend's memory a decoder takes, scratch memory included.
bd_status bd_decoder_measure(const bd_parameters *parameters, const bd_decoder_options *options,
                             size_t *size_bytes, bd_error *err);
// The most documents, up to n_documents, for which it takes at most `size_bytes`; 0 if one takes
// more.
int64_t bd_decoder_most_documents(const bd_parameters *parameters,
                                  const bd_decoder_options *options, size_t size_bytes);

// Compares the memory that it takes with what is free, then makes the buffers. All documents are
// empty. Release what comes out.
bd_status bd_decoder_init(bd_decoder *decoder, bd_backend *backend,
                          const bd_parameters *parameters, const bd_decoder_options *options,
                          bd_error *err);
void bd_decoder_release(bd_decoder *decoder);  // safe on an empty struct and safe twice

// Sets the decoder's own weights from [n_total] floats of the host.
bd_status bd_decoder_set_weights(bd_decoder *decoder, const float *weights, bd_error *err);
// Makes a decoder that borrows read `weights`, the backend's memory, from now on.
void bd_decoder_borrow(bd_decoder *decoder, const void *weights);

// Tokens to be added to a document.
typedef struct bd_new_tokens {
    int64_t document;
    const uint32_t *ids;  // [n], n >= 1, all below n_vocabulary
    int64_t n;
    // [n_vocabulary], host memory: for the token after the last of these; NULL if not wanted.
    float *logits;
} bd_new_tokens;

// Adds tokens to n documents, none of which comes twice. A document that would get too long is
// BD_ERR_ARGUMENT, and nothing is added; after any other failure the documents are to be emptied.
bd_status bd_decoder_add(bd_decoder *decoder, const bd_new_tokens *tokens, int64_t n,
                         bd_error *err);

// The document has no tokens afterwards.
void bd_decoder_empty(bd_decoder *decoder, int64_t document);

#endif
