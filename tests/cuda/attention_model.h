// attention_model.h - the inputs of attention_test.c: a shape, a batch, and numbers.
#ifndef BINDERY_TESTS_CUDA_ATTENTION_MODEL_H
#define BINDERY_TESTS_CUDA_ATTENTION_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/kernels/kernel_fixture.h"

typedef struct shape {
    int64_t n_heads, n_kv_heads, head_size;
    bool bf16;
    bool together;  // q, k and v are parts of one array
} shape;

// q, k, v (and their gradients) in one array: either [token][q k v] or one after the other.
typedef struct model {
    shape s;
    batch b;
    int64_t q_stride, kv_stride;
    int64_t k_at, v_at;  // where k and v begin in the array
    int64_t n_qkv, n_out, n_lse;
    int64_t window;
    float scale;
    float *qkv, *d_out;
} model;

// There is no window. Takes ownership of the batch. The numbers of padding are NaN, because no
// kernel may read them; for bf16 all others are representable in it.
model make_model(shape s, batch b);
void free_model(model *m);

float rounded(float x);  // rounds to bf16

#endif
