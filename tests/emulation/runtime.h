// runtime.h - what the stand-ins for NVIDIA's libraries share: streams.
#ifndef BINDERY_TESTS_EMULATION_RUNTIME_H
#define BINDERY_TESTS_EMULATION_RUNTIME_H

#include <functional>

#include <cuda_runtime_api.h>

namespace emulation
{

// Queues `act` on the stream; it runs when something waits for it, or before.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> act);

}  // namespace emulation

#endif
