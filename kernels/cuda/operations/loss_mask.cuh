// loss_mask.cuh - kernels/loss_mask.h for device code.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_LOSS_MASK_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_LOSS_MASK_CUH

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/loss_mask.h"

// The bit at which row `row` begins, or BD_ALL_TRAINED.
static __device__ __forceinline__ int64_t mask_offset(const bd_loss_mask &mask, int64_t row)
{
    return mask.bits ? mask.offsets[row] : int64_t(BD_ALL_TRAINED);
}

static __device__ __forceinline__ bool token_is_trained(const bd_loss_mask &mask,
                                                        int64_t offset, int64_t t)
{
    return offset == BD_ALL_TRAINED || (mask.bits[(offset + t) / 8] >> (offset + t) % 8 & 1);
}

// The number of targets of the segment. The lanes of the warp, all of which must call this, take
// the bytes in turn, and each gets the sum.
static __device__ int count_targets(const bd_loss_mask &mask, int64_t offset,
                                    const token_segment &segment)
{
    if (offset == BD_ALL_TRAINED)
        return segment.end - segment.begin - 1;
    const int64_t first = offset + segment.begin + 1, last = offset + segment.end;
    int n_targets = 0;
    for (int64_t i = first / 8 + lane_of_thread(); 8 * i < last; i += kWarpSize) {
        unsigned byte = mask.bits[i];
        if (8 * i < first)
            byte &= 0xffu << (first - 8 * i);
        if (last < 8 * i + 8)
            byte &= 0xffu >> (8 * i + 8 - last);
        n_targets += __popc(byte);
    }
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        n_targets += __shfl_xor_sync(kWholeWarp, n_targets, distance);
    return n_targets;
}

#endif
