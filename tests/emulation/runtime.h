// runtime.h - streams, shared by the emulations of NVIDIA's libraries.
#ifndef BINDERY_TESTS_EMULATION_RUNTIME_H
#define BINDERY_TESTS_EMULATION_RUNTIME_H

#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

namespace emulation
{

// An event that a stream waits for. If `comes_from_afar`, it may depend on work that other host
// threads still have to queue, so it is no fault if nothing can run.
struct Mark {
    bool reached, comes_from_afar;
};

// Time after which other host threads are assumed to be stuck.
constexpr int kPatienceSeconds = 60;

// Queues `act` on the stream, which must belong to the current device; it runs when something
// waits for it, or before. All queued work runs under one lock.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> act);
// Holds the stream back until work that is queued elsewhere has reached the mark.
cudaError_t enqueue_wait(cudaStream_t stream, const std::shared_ptr<Mark> &mark);

// The current device of the calling thread.
int current_device();

}  // namespace emulation

#endif
