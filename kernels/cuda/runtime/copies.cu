#include "kernels/cuda/runtime/copies.h"

#include <cstring>

#include "kernels/cuda/runtime/check.cuh"

static constexpr size_t kStagingBytes = size_t(4) << 20;

bd_status bd_cuda_copies_init(bd_cuda_copies *copies, cudaStream_t stream, bd_error *err)
{
    *copies = {};
    copies->stream = stream;
    for (bd_cuda_staging &buffer : copies->staging) {
        BD_TRY(bd_cuda_check(cudaMallocHost(&buffer.memory, kStagingBytes),
                             "allocate pinned memory", err));
        BD_TRY(bd_cuda_check(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming),
                             "create an event", err));
    }
    return BD_OK;
}

void bd_cuda_copies_release(bd_cuda_copies *copies)
{
    for (bd_cuda_staging &buffer : copies->staging) {
        if (buffer.copied)
            cudaEventDestroy(buffer.copied);
        if (buffer.memory)
            cudaFreeHost(buffer.memory);
    }
    *copies = {};
}

static bd_status wait_for_copy(const bd_cuda_staging *buffer, bd_error *err)
{
    return bd_cuda_check(cudaEventSynchronize(buffer->copied), "wait for a copy", err);
}

static bd_status start_copy(bd_cuda_copies *copies, const bd_cuda_staging *buffer, void *to,
                            const void *from, size_t size_bytes, cudaMemcpyKind kind,
                            bd_error *err)
{
    BD_TRY(bd_cuda_check(cudaMemcpyAsync(to, from, size_bytes, kind, copies->stream),
                         "copy between host and device", err));
    return bd_cuda_check(cudaEventRecord(buffer->copied, copies->stream), "record an event",
                         err);
}

static size_t piece_size(size_t size_bytes, size_t done_bytes)
{
    const size_t left = size_bytes - done_bytes;
    return left < kStagingBytes ? left : kStagingBytes;
}

// One buffer is filled while the other is on its way.
bd_status bd_cuda_upload(bd_cuda_copies *copies, void *to, const void *from, size_t size_bytes,
                         bd_error *err)
{
    int turn = 0;
    for (size_t done = 0; done < size_bytes; done += kStagingBytes, turn ^= 1) {
        const bd_cuda_staging *buffer = &copies->staging[turn];
        const size_t n = piece_size(size_bytes, done);
        BD_TRY(wait_for_copy(buffer, err));
        memcpy(buffer->memory, (const char *)from + done, n);
        BD_TRY(start_copy(copies, buffer, (char *)to + done, buffer->memory, n,
                          cudaMemcpyHostToDevice, err));
    }
    return bd_cuda_check(cudaStreamSynchronize(copies->stream), "upload", err);
}

// One buffer is emptied while the other is on its way.
bd_status bd_cuda_download(bd_cuda_copies *copies, void *to, const void *from,
                           size_t size_bytes, bd_error *err)
{
    const size_t n_pieces = (size_bytes + kStagingBytes - 1) / kStagingBytes;
    for (size_t i = 0; i < n_pieces + 1; i++) {
        if (i < n_pieces) {
            const bd_cuda_staging *buffer = &copies->staging[i % 2];
            const size_t begin = i * kStagingBytes;
            BD_TRY(start_copy(copies, buffer, buffer->memory, (const char *)from + begin,
                              piece_size(size_bytes, begin), cudaMemcpyDeviceToHost, err));
        }
        if (i > 0) {
            const bd_cuda_staging *buffer = &copies->staging[(i - 1) % 2];
            const size_t begin = (i - 1) * kStagingBytes;
            BD_TRY(wait_for_copy(buffer, err));
            memcpy((char *)to + begin, buffer->memory, piece_size(size_bytes, begin));
        }
    }
    return BD_OK;
}
