// operations.h - the one list of all operations, and their contracts.
//
// The backend's table (backend.h), the check that program and module agree (module.h), and the
// declarations and tables of both backends are made from this list. A new operation X is
//   kernels/X.h         bd_X_args: shapes and meaning, the same for every backend; included below
//   one line here
//   kernels/cpu/X.c     BD_CPU_OPERATION(X)
//   kernels/cuda/operations/X.cu    BD_CUDA_OPERATION(X), and the scratch memory that it needs
// and the names of its files in the CMakeLists.txt of these folders.
#ifndef BINDERY_KERNELS_OPERATIONS_H
#define BINDERY_KERNELS_OPERATIONS_H

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_cached.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gated_activation.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/linear_by_token.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"

// X(name) for each operation; its arguments are a bd_name_args.
#define BD_FOR_EACH_OPERATION(X) \
    X(embedding_forward)         \
    X(embedding_backward)        \
    X(layer_norm_forward)        \
    X(layer_norm_backward)       \
    X(rms_norm_forward)          \
    X(rms_norm_backward)         \
    X(rotary)                    \
    X(linear_forward)            \
    X(linear_backward)           \
    X(linear_by_token)           \
    X(attention_forward)         \
    X(attention_backward)        \
    X(attention_cached)          \
    X(activation_backward)       \
    X(gated_activation_forward)  \
    X(gated_activation_backward) \
    X(add)                       \
    X(cross_entropy)             \
    X(adamw)                     \
    X(muon)                      \
    X(sum_of_squares)            \
    X(average)

#endif
