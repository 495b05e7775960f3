// runtime.h - what the stand-ins for NVIDIA's libraries share: streams.
#ifndef BINDERY_TESTS_EMULATION_RUNTIME_H
#define BINDERY_TESTS_EMULATION_RUNTIME_H

#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

namespace emulation
{

// What a stream waits for. `comes_from_afar`: it may need what other host threads are still to
// queue, so that nothing is wrong while nobody can go on.
struct Mark {
    bool reached, comes_from_afar;
};

// How long other host threads are waited for before they are taken to be stuck.
constexpr int kPatienceSeconds = 60;

// Queues `act` on the stream, which must be one of the current device; it runs when something
// waits for it, or before. Everything that is queued runs under one lock.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> act);
// Holds the stream back until something that is queued elsewhere has reached the mark.
cudaError_t enqueue_wait(cudaStream_t stream, const std::shared_ptr<Mark> &mark);

// Of the calling thread.
int current_device();

}  // namespace emulation

#endif
