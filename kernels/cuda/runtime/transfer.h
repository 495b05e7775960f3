// transfer.h - all copies between host and device: upload, download, and the transfer slots of
// kernels/backend.h (send, arrive, leave).
//
// Every copy passes through pinned host memory, because the driver would cut a copy of other
// memory into pieces of its own and wait for each of them.
//
// Uploads and downloads are queued on the computing stream. Batches have a second stream, so that
// one travels while another is computed. Two events of each slot order the two streams:
//
//   host      fill pinned memory ..........(waits for `sent`).. fill it again
//   copying   (waits for `left`) copy, record `sent`
//   computing                          (arrive waits for `sent`) read, (leave) record `left`
//
// A third event, `cleared`, is needed because the computing stream clears memory that the pool
// gives out: a copy into that memory has to come after it.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_TRANSFER_H
#define BINDERY_KERNELS_CUDA_RUNTIME_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include "common/base/error.h"
#include "kernels/backend.h"

// A buffer of uploads and downloads.
typedef struct bd_cuda_staging {
    void *memory;        // pinned, owned
    cudaEvent_t copied;  // on the computing stream, after the last copy from or to it
} bd_cuda_staging;

typedef struct bd_cuda_transfer_slot {
    char *pinned;  // owned; grows to the largest batch
    size_t capacity_bytes;
    size_t used_bytes;  // by the parts of the present batch that were sent
    bool begun;         // a part of the present batch was sent
    cudaEvent_t sent;   // on the copying stream, after the last copy
    cudaEvent_t left;   // on the computing stream, after the last reader
} bd_cuda_transfer_slot;

typedef struct bd_cuda_transfer {
    cudaStream_t computing;  // borrowed
    cudaStream_t copying;    // owned
    bd_cuda_staging staging[2];
    bd_cuda_transfer_slot slots[BD_TRANSFER_SLOTS];
    cudaEvent_t cleared;  // on the computing stream, after memory was last cleared
    bool knows_cleared;   // the copying stream already waits for it
} bd_cuda_transfer;

// After a failure the caller releases it as well.
bd_status bd_cuda_transfer_init(bd_cuda_transfer *transfer, cudaStream_t computing,
                                bd_error *err);

// Call it when the computing stream is idle; it waits for the copying stream itself. Safe on an
// empty struct and safe twice.
void bd_cuda_transfer_release(bd_cuda_transfer *transfer);

// Done on return.
bd_status bd_cuda_upload(bd_cuda_transfer *transfer, void *to, const void *from,
                         size_t size_bytes, bd_error *err);
bd_status bd_cuda_download(bd_cuda_transfer *transfer, void *to, const void *from,
                           size_t size_bytes, bd_error *err);

// As kernels/backend.h says of the transfer slots.
bd_status bd_cuda_send(bd_cuda_transfer *transfer, int slot, void *to, const void *from,
                       size_t size_bytes, bd_error *err);
bd_status bd_cuda_arrive(bd_cuda_transfer *transfer, int slot, bd_error *err);
bd_status bd_cuda_leave(bd_cuda_transfer *transfer, int slot, bd_error *err);

// The pool gives memory out again while batches may still be copied into it. The first call, before
// the computing stream uses such memory, makes that stream wait for all copies. The second, after
// it has cleared the memory, makes later copies wait for the clearing.
bd_status bd_cuda_transfer_before_reuse(bd_cuda_transfer *transfer, bd_error *err);
bd_status bd_cuda_transfer_after_clearing(bd_cuda_transfer *transfer, bd_error *err);

#endif
