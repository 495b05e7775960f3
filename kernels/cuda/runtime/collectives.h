// collectives.h - kernels/collectives.h by NCCL. Only collectives.cu knows NCCL.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_COLLECTIVES_H
#define BINDERY_KERNELS_CUDA_RUNTIME_COLLECTIVES_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/collectives.h"

bd_status bd_cuda_make_collectives_id(bd_collectives_id *id, bd_error *err);

// For the current device of the calling thread; no two ranks may have the same device. Returns
// when all ranks have called it. Exchanges are queued on `stream`, which is borrowed.
bd_status bd_cuda_open_collectives(const bd_collectives_id *id, int32_t rank, int32_t n_ranks,
                                   cudaStream_t stream, bd_collectives **collectives,
                                   bd_error *err);

#endif
