#include "kernels/cuda/runtime/transfer.h"

#include <cstring>
#include <initializer_list>

#include "kernels/cuda/runtime/check.cuh"

static constexpr size_t kStagingBytes = size_t(4) << 20;
static constexpr size_t kLeastCapacity = size_t(1) << 20;
static constexpr size_t kPartAlignment = 256;  // of every part of a batch in pinned memory

static bd_status create_event(cudaEvent_t *event, bd_error *err)
{
    return bd_cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                         "create an event", err);
}

static bd_status record(cudaEvent_t event, cudaStream_t stream, bd_error *err)
{
    return bd_cuda_check(cudaEventRecord(event, stream), "record an event", err);
}

// An event that was never recorded is not waited for, here and in wait_on_host().
static bd_status wait_on_stream(cudaStream_t stream, cudaEvent_t event, bd_error *err)
{
    return bd_cuda_check(cudaStreamWaitEvent(stream, event, 0), "wait for an event", err);
}

static bd_status wait_on_host(cudaEvent_t event, bd_error *err)
{
    return bd_cuda_check(cudaEventSynchronize(event), "wait for a copy", err);
}

bd_status bd_cuda_transfer_init(bd_cuda_transfer *transfer, cudaStream_t computing,
                                bd_error *err)
{
    *transfer = {};
    transfer->computing = computing;
    for (bd_cuda_staging &buffer : transfer->staging) {
        BD_TRY(bd_cuda_check(cudaMallocHost(&buffer.memory, kStagingBytes),
                             "allocate pinned memory", err));
        BD_TRY(create_event(&buffer.copied, err));
    }
    BD_TRY(bd_cuda_check(cudaStreamCreateWithFlags(&transfer->copying, cudaStreamNonBlocking),
                         "create a stream", err));
    BD_TRY(create_event(&transfer->cleared, err));
    for (bd_cuda_transfer_slot &slot : transfer->slots) {
        BD_TRY(create_event(&slot.sent, err));
        BD_TRY(create_event(&slot.left, err));
    }
    return BD_OK;
}

void bd_cuda_transfer_release(bd_cuda_transfer *transfer)
{
    if (transfer->copying)
        cudaStreamSynchronize(transfer->copying);
    for (bd_cuda_transfer_slot &slot : transfer->slots) {
        for (cudaEvent_t event : {slot.sent, slot.left})
            if (event)
                cudaEventDestroy(event);
        if (slot.pinned)
            cudaFreeHost(slot.pinned);
    }
    if (transfer->cleared)
        cudaEventDestroy(transfer->cleared);
    if (transfer->copying)
        cudaStreamDestroy(transfer->copying);
    for (bd_cuda_staging &buffer : transfer->staging) {
        if (buffer.copied)
            cudaEventDestroy(buffer.copied);
        if (buffer.memory)
            cudaFreeHost(buffer.memory);
    }
    *transfer = {};
}

// ---- Uploads and downloads ------------------------------------------------------------------

static bd_status start_copy(bd_cuda_transfer *transfer, const bd_cuda_staging *buffer, void *to,
                            const void *from, size_t size_bytes, cudaMemcpyKind kind,
                            bd_error *err)
{
    BD_TRY(bd_cuda_check(cudaMemcpyAsync(to, from, size_bytes, kind, transfer->computing),
                         "copy between host and device", err));
    return record(buffer->copied, transfer->computing, err);
}

static size_t piece_size(size_t size_bytes, size_t done_bytes)
{
    const size_t left = size_bytes - done_bytes;
    return left < kStagingBytes ? left : kStagingBytes;
}

// The host fills one buffer while the other is copied to the device.
bd_status bd_cuda_upload(bd_cuda_transfer *transfer, void *to, const void *from,
                         size_t size_bytes, bd_error *err)
{
    int turn = 0;
    for (size_t done = 0; done < size_bytes; done += kStagingBytes, turn ^= 1) {
        const bd_cuda_staging *buffer = &transfer->staging[turn];
        const size_t n = piece_size(size_bytes, done);
        BD_TRY(wait_on_host(buffer->copied, err));
        memcpy(buffer->memory, (const char *)from + done, n);
        BD_TRY(start_copy(transfer, buffer, (char *)to + done, buffer->memory, n,
                          cudaMemcpyHostToDevice, err));
    }
    return bd_cuda_check(cudaStreamSynchronize(transfer->computing), "upload", err);
}

// The host empties one buffer while the device copies into the other.
bd_status bd_cuda_download(bd_cuda_transfer *transfer, void *to, const void *from,
                           size_t size_bytes, bd_error *err)
{
    const size_t n_pieces = (size_bytes + kStagingBytes - 1) / kStagingBytes;
    for (size_t i = 0; i < n_pieces + 1; i++) {
        if (i < n_pieces) {
            const bd_cuda_staging *buffer = &transfer->staging[i % 2];
            const size_t begin = i * kStagingBytes;
            BD_TRY(start_copy(transfer, buffer, buffer->memory, (const char *)from + begin,
                              piece_size(size_bytes, begin), cudaMemcpyDeviceToHost, err));
        }
        if (i > 0) {
            const bd_cuda_staging *buffer = &transfer->staging[(i - 1) % 2];
            const size_t begin = (i - 1) * kStagingBytes;
            BD_TRY(wait_on_host(buffer->copied, err));
            memcpy((char *)to + begin, buffer->memory, piece_size(size_bytes, begin));
        }
    }
    return BD_OK;
}

// ---- Transfer slots -------------------------------------------------------------------------

// Makes room for size_bytes more. A buffer that is too small is replaced by one of twice the size.
// Its parts have been copied out by then, so that they need no room in the new one.
static bd_status make_room(bd_cuda_transfer_slot *slot, size_t size_bytes, bd_error *err)
{
    if (size_bytes <= slot->capacity_bytes - slot->used_bytes)
        return BD_OK;
    if (size_bytes > SIZE_MAX / 4 - slot->used_bytes)
        return bd_fail(err, BD_ERR_MEMORY, "cannot send %zu bytes", size_bytes);
    size_t capacity = kLeastCapacity;
    while (capacity < slot->used_bytes + size_bytes)
        capacity *= 2;
    BD_TRY(wait_on_host(slot->sent, err));
    if (slot->pinned)
        cudaFreeHost(slot->pinned);
    slot->pinned = NULL;
    slot->capacity_bytes = slot->used_bytes = 0;
    void *memory;
    BD_TRY(bd_cuda_check(cudaMallocHost(&memory, capacity), "allocate pinned memory", err));
    slot->pinned = (char *)memory;
    slot->capacity_bytes = capacity;
    return BD_OK;
}

bd_status bd_cuda_send(bd_cuda_transfer *transfer, int number, void *to, const void *from,
                       size_t size_bytes, bd_error *err)
{
    bd_cuda_transfer_slot *slot = &transfer->slots[number];
    if (!slot->begun) {
        // The slot's last batch has been copied out of the pinned memory, and the copies of this one
        // do not begin before that batch has left the device's memory.
        BD_TRY(wait_on_host(slot->sent, err));
        BD_TRY(wait_on_stream(transfer->copying, slot->left, err));
        slot->used_bytes = 0;
        slot->begun = true;
    }
    if (!transfer->knows_cleared)
        BD_TRY(wait_on_stream(transfer->copying, transfer->cleared, err));
    transfer->knows_cleared = true;
    if (size_bytes == 0)
        return BD_OK;
    const size_t rounded = (size_bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    BD_TRY(make_room(slot, rounded, err));
    char *staged = slot->pinned + slot->used_bytes;
    memcpy(staged, from, size_bytes);
    slot->used_bytes += rounded;
    BD_TRY(bd_cuda_check(
        cudaMemcpyAsync(to, staged, size_bytes, cudaMemcpyHostToDevice, transfer->copying),
        "send a batch", err));
    return record(slot->sent, transfer->copying, err);
}

bd_status bd_cuda_arrive(bd_cuda_transfer *transfer, int slot, bd_error *err)
{
    return wait_on_stream(transfer->computing, transfer->slots[slot].sent, err);
}

bd_status bd_cuda_leave(bd_cuda_transfer *transfer, int slot, bd_error *err)
{
    transfer->slots[slot].begun = false;
    return record(transfer->slots[slot].left, transfer->computing, err);
}

bd_status bd_cuda_transfer_before_reuse(bd_cuda_transfer *transfer, bd_error *err)
{
    for (const bd_cuda_transfer_slot &slot : transfer->slots)
        BD_TRY(wait_on_stream(transfer->computing, slot.sent, err));
    return BD_OK;
}

bd_status bd_cuda_transfer_after_clearing(bd_cuda_transfer *transfer, bd_error *err)
{
    transfer->knows_cleared = false;
    return record(transfer->cleared, transfer->computing, err);
}
