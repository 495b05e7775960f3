// operations.h - the operations of the CUDA backend as C functions, one file of kernels each.
//
// Each takes the arguments of the contract (kernels/X.h), whose pointers are device memory,
// boundaries and ids too. It is queued on queue->stream and not waited for; a failed launch is
// reported at once. Results are the same to the last bit on every run.
//
// Some need memory besides their arguments: bd_cuda_X_scratch() says how many bytes of
// queue->scratch, which must be there when X is called and are free again for whatever is
// queued next. The others have no such function and leave the scratch alone.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_OPERATIONS_H
#define BINDERY_KERNELS_CUDA_OPERATIONS_OPERATIONS_H

#include "kernels/backend.h"
#include "kernels/cuda/runtime/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BD_CUDA_OPERATION(name) \
    bd_status bd_cuda_##name(const bd_##name##_args *args, bd_cuda_queue *queue, bd_error *err)
#define BD_CUDA_SCRATCH(name) size_t bd_cuda_##name##_scratch(const bd_##name##_args *args)

BD_CUDA_OPERATION(embedding_forward);
BD_CUDA_OPERATION(embedding_backward);
BD_CUDA_OPERATION(layer_norm_forward);
BD_CUDA_OPERATION(layer_norm_backward);
BD_CUDA_OPERATION(linear_forward);
BD_CUDA_OPERATION(linear_backward);
BD_CUDA_OPERATION(activation_forward);
BD_CUDA_OPERATION(activation_backward);
BD_CUDA_OPERATION(add);
BD_CUDA_OPERATION(cross_entropy);
BD_CUDA_OPERATION(adamw);
// args->sum is device memory here; the backend's own function brings it to the host.
BD_CUDA_OPERATION(sum_of_squares);

BD_CUDA_SCRATCH(embedding_backward);
BD_CUDA_SCRATCH(layer_norm_backward);
BD_CUDA_SCRATCH(linear_forward);
BD_CUDA_SCRATCH(linear_backward);
BD_CUDA_SCRATCH(sum_of_squares);

#ifdef __cplusplus
}
#endif

#endif
