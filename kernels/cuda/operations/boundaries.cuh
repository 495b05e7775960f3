// boundaries.cuh - kernels/boundaries.h for device code: the segment around a token.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_BOUNDARIES_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_BOUNDARIES_CUH

#include "kernels/boundaries.h"
#include "kernels/cuda/runtime/gpu.cuh"

// The segment around token t of a row: begin <= t < end. In padding it is empty, with end = 0.
struct token_segment {
    int32_t t, begin, end;
    int64_t number;  // among the segments of the batch
};

static __device__ __forceinline__ int64_t n_tokens_of(const bd_boundaries &boundaries)
{
    return boundaries.n_rows * boundaries.seq_len;
}

// Whether token `token` of the batch lies in a segment.
static __device__ __forceinline__ bool token_is_used(const bd_boundaries &boundaries,
                                                     int64_t token)
{
    const int64_t row = token / boundaries.seq_len;
    const int32_t used = boundaries.values[boundaries.offsets[row + 1] - 1];
    return token % boundaries.seq_len < used;
}

static __device__ __forceinline__ token_segment segment_around(const bd_boundaries &boundaries,
                                                               int64_t token)
{
    const int64_t row = token / boundaries.seq_len;
    const int32_t t = int32_t(token % boundaries.seq_len);
    const int32_t *bounds = boundaries.values + boundaries.offsets[row];
    int32_t low = 0, high = boundaries.offsets[row + 1] - boundaries.offsets[row] - 1;
    if (t >= bounds[high])
        return {t, 0, 0, 0};
    while (high - low > 1) {  // bounds[low] <= t < bounds[high]
        const int32_t middle = low + (high - low) / 2;
        if (bounds[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    // Each row has one bound more than segments.
    return {t, bounds[low], bounds[high],
            boundaries.offsets[row] - boundaries.offsets[0] - row + low};
}

// The position of the token in its document, of which past[s] tokens (NULL: none) precede segment s
// of the batch.
static __device__ __forceinline__ int64_t position_of(const token_segment &segment,
                                                      const int32_t *past)
{
    return segment.t - segment.begin + (past ? past[segment.number] : 0);
}

static __device__ __forceinline__ uint32_t token_id(const void *ids, int32_t id_bytes,
                                                    int64_t token)
{
    return id_bytes == 2 ? ((const uint16_t *)ids)[token] : ((const uint32_t *)ids)[token];
}

#endif
