// operations.h - the operations of the CUDA backend as C functions.
//
// Each takes the arguments of its contract (kernels/X.h). All pointers in them are device
// memory, including those of boundaries and ids. The function queues the operation on
// queue->stream and does not wait for it; a failed launch is reported at once. Results are the
// same to the last bit in every run.
//
// bd_cuda_X_scratch() is the number of bytes of queue->scratch that X needs besides its
// arguments. The caller must provide them; whatever is queued after X may use them again. If
// the number is 0, X does not touch the scratch.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_OPERATIONS_H
#define BINDERY_KERNELS_CUDA_OPERATIONS_OPERATIONS_H

#include "kernels/backend.h"
#include "kernels/cuda/runtime/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

// args->sum of sum_of_squares is device memory here: the backend brings it to the host.
#define BD_CUDA_OPERATION(name) \
    bd_status bd_cuda_##name(const bd_##name##_args *args, bd_cuda_queue *queue, bd_error *err)
#define BD_CUDA_SCRATCH(name) size_t bd_cuda_##name##_scratch(const bd_##name##_args *args)

#define BD_CUDA_DECLARE(name) \
    BD_CUDA_OPERATION(name);  \
    BD_CUDA_SCRATCH(name);
BD_FOR_EACH_OPERATION(BD_CUDA_DECLARE)
#undef BD_CUDA_DECLARE

// Beside the definition of an operation that needs no scratch.
#define BD_CUDA_NO_SCRATCH(name)     \
    extern "C" BD_CUDA_SCRATCH(name) \
    {                                \
        (void)args;                  \
        return 0;                    \
    }

// Not one of the backend's operations: the last step of linear_forward where cuBLASLt does not
// take it. out[i] = f(x[i]), arrays of n, of `type`; not for BD_ACTIVATION_NONE. out may be x.
typedef struct bd_activation_forward_args {
    bd_type type;
    bd_activation activation;
    int64_t n;
    const void *x;
    void *out;
} bd_activation_forward_args;
BD_CUDA_OPERATION(activation_forward);

#ifdef __cplusplus
}
#endif

#endif
