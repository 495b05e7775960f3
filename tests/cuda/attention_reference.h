// attention_reference.h - the naive computation that attention is compared with.
#ifndef BINDERY_TESTS_CUDA_ATTENTION_REFERENCE_H
#define BINDERY_TESTS_CUDA_ATTENTION_REFERENCE_H

#include "attention_model.h"

// Computes in double; or (plain) as a straightforward bf16 program would: products are summed
// in float, but probabilities, their gradients and results are rounded to bf16.
typedef struct reference {
    const model *m;
    bool plain;
    double *out, *lse, *d_qkv;
    double *p;  // [n_tokens], one query's probabilities
} reference;

// The model must outlive it.
reference make_reference(const model *m, bool plain);
void free_reference(reference *r);

#endif
