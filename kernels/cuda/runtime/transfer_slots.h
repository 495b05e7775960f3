// transfer_slots.h - batches that travel to the device while others are computed there: send, arrive and
// leave of kernels/backend.h.
//
// Copies have a stream of their own. Two events of each lane keep them and the computing apart:
//
//   host      fill pinned memory ..........(waits for `sent`).. fill it again
//   copying   (waits for `left`) copy, record `sent`
//   computing                          (arrive waits for `sent`) read, (leave) record `left`
//
// and `cleared`, because memory that is given out is cleared by the computing stream.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_TRANSFER_SLOTS_H
#define BINDERY_KERNELS_CUDA_RUNTIME_TRANSFER_SLOTS_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include "common/base/error.h"
#include "kernels/backend.h"

typedef struct bd_cuda_lane {
    char *pinned;  // owned; grows to the largest batch
    size_t capacity_bytes;
    size_t used_bytes;  // by what was sent of the present batch
    bool begun;         // something of it was sent
    cudaEvent_t sent;   // on the copying stream, after the last copy
    cudaEvent_t left;   // on the computing stream, after the last reader
} bd_cuda_lane;

typedef struct bd_cuda_lanes {
    cudaStream_t computing;  // borrowed
    cudaStream_t copying;    // owned
    cudaEvent_t cleared;     // on the computing stream, after memory was last cleared
    bool knows_cleared;      // the copying stream waits for it already
    bd_cuda_lane lanes[BD_N_LANES];
} bd_cuda_lanes;

// After a failure, release what there is.
bd_status bd_cuda_lanes_init(bd_cuda_lanes *lanes, cudaStream_t computing, bd_error *err);

// Waits for copies under way. Safe on an empty struct and safe twice.
void bd_cuda_lanes_release(bd_cuda_lanes *lanes);

bd_status bd_cuda_send(bd_cuda_lanes *lanes, int lane, void *to, const void *from,
                       size_t size_bytes, bd_error *err);
bd_status bd_cuda_arrive(bd_cuda_lanes *lanes, int lane, bd_error *err);
bd_status bd_cuda_leave(bd_cuda_lanes *lanes, int lane, bd_error *err);

// Memory that is given out anew is first used by the computing stream. Copies into what it was
// before are done by then, and copies into what it is now come after it was cleared.
bd_status bd_cuda_lanes_before_reuse(bd_cuda_lanes *lanes, bd_error *err);
bd_status bd_cuda_lanes_after_clearing(bd_cuda_lanes *lanes, bd_error *err);

#endif
