#include "kernels/cuda/runtime/transfer_slots.h"

#include <cstring>
#include <initializer_list>

#include "kernels/cuda/runtime/check.cuh"

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

// An event that was never recorded is not waited for.
static bd_status wait_on_stream(cudaStream_t stream, cudaEvent_t event, bd_error *err)
{
    return bd_cuda_check(cudaStreamWaitEvent(stream, event, 0), "wait for an event", err);
}

bd_status bd_cuda_lanes_init(bd_cuda_lanes *lanes, cudaStream_t computing, bd_error *err)
{
    *lanes = {};
    lanes->computing = computing;
    BD_TRY(bd_cuda_check(cudaStreamCreateWithFlags(&lanes->copying, cudaStreamNonBlocking),
                         "create a stream", err));
    BD_TRY(create_event(&lanes->cleared, err));
    for (bd_cuda_lane &lane : lanes->lanes) {
        BD_TRY(create_event(&lane.sent, err));
        BD_TRY(create_event(&lane.left, err));
    }
    return BD_OK;
}

void bd_cuda_lanes_release(bd_cuda_lanes *lanes)
{
    if (lanes->copying)
        cudaStreamSynchronize(lanes->copying);
    for (bd_cuda_lane &lane : lanes->lanes) {
        for (cudaEvent_t event : {lane.sent, lane.left})
            if (event)
                cudaEventDestroy(event);
        if (lane.pinned)
            cudaFreeHost(lane.pinned);
    }
    if (lanes->cleared)
        cudaEventDestroy(lanes->cleared);
    if (lanes->copying)
        cudaStreamDestroy(lanes->copying);
    *lanes = {};
}

// ---- Sending --------------------------------------------------------------------------------

// The first part of a batch: all of the pinned memory is free again once the batch before has
// been copied out of it, and the device's memory once that batch has left.
static bd_status begin_batch(bd_cuda_lanes *lanes, bd_cuda_lane *lane, bd_error *err)
{
    BD_TRY(bd_cuda_check(cudaEventSynchronize(lane->sent), "wait for a copy", err));
    BD_TRY(wait_on_stream(lanes->copying, lane->left, err));
    lane->used_bytes = 0;
    lane->begun = true;
    return BD_OK;
}

// Room for size_bytes more. A buffer that is too small is replaced by one for twice as much;
// parts that lie in it must have been copied, and need no room in the new one.
static bd_status make_room(bd_cuda_lane *lane, size_t size_bytes, bd_error *err)
{
    if (size_bytes <= lane->capacity_bytes - lane->used_bytes)
        return BD_OK;
    if (size_bytes > SIZE_MAX / 4 - lane->used_bytes)
        return bd_fail(err, BD_ERR_MEMORY, "cannot send %zu bytes", size_bytes);
    size_t capacity = kLeastCapacity;
    while (capacity < lane->used_bytes + size_bytes)
        capacity *= 2;
    BD_TRY(bd_cuda_check(cudaEventSynchronize(lane->sent), "wait for a copy", err));
    if (lane->pinned)
        cudaFreeHost(lane->pinned);
    lane->pinned = NULL;
    lane->capacity_bytes = lane->used_bytes = 0;
    void *memory;
    BD_TRY(bd_cuda_check(cudaMallocHost(&memory, capacity), "allocate pinned memory", err));
    lane->pinned = (char *)memory;
    lane->capacity_bytes = capacity;
    return BD_OK;
}

bd_status bd_cuda_send(bd_cuda_lanes *lanes, int number, void *to, const void *from,
                       size_t size_bytes, bd_error *err)
{
    bd_cuda_lane *lane = &lanes->lanes[number];
    if (!lane->begun)
        BD_TRY(begin_batch(lanes, lane, err));
    if (!lanes->knows_cleared)
        BD_TRY(wait_on_stream(lanes->copying, lanes->cleared, err));
    lanes->knows_cleared = true;
    if (size_bytes == 0)
        return BD_OK;
    const size_t rounded = (size_bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    BD_TRY(make_room(lane, rounded, err));
    char *staged = lane->pinned + lane->used_bytes;
    memcpy(staged, from, size_bytes);
    lane->used_bytes += rounded;
    BD_TRY(bd_cuda_check(
        cudaMemcpyAsync(to, staged, size_bytes, cudaMemcpyHostToDevice, lanes->copying),
        "send a batch", err));
    return record(lane->sent, lanes->copying, err);
}

// ---- Arriving and leaving -------------------------------------------------------------------

bd_status bd_cuda_arrive(bd_cuda_lanes *lanes, int lane, bd_error *err)
{
    return wait_on_stream(lanes->computing, lanes->lanes[lane].sent, err);
}

bd_status bd_cuda_leave(bd_cuda_lanes *lanes, int lane, bd_error *err)
{
    lanes->lanes[lane].begun = false;
    return record(lanes->lanes[lane].left, lanes->computing, err);
}

// ---- Memory that is given out ---------------------------------------------------------------

bd_status bd_cuda_lanes_before_reuse(bd_cuda_lanes *lanes, bd_error *err)
{
    for (const bd_cuda_lane &lane : lanes->lanes)
        BD_TRY(wait_on_stream(lanes->computing, lane.sent, err));
    return BD_OK;
}

bd_status bd_cuda_lanes_after_clearing(bd_cuda_lanes *lanes, bd_error *err)
{
    lanes->knows_cleared = false;
    return record(lanes->cleared, lanes->computing, err);
}
