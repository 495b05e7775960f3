// device.h - the interface between the parts of the emulation.
#ifndef BINDERY_TESTS_EMULATION_DEVICE_H
#define BINDERY_TESTS_EMULATION_DEVICE_H

#include <cstdint>

#include "tests/emulation/cuda_emulation.h"
#include "tests/emulation/emulation.h"

namespace emulation
{

// Prints place and fault in one line and aborts. The place is the running CUDA thread, if any.
[[noreturn]] void fatal(Place place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const bd_emulation_settings &settings();

// Counters of the running host thread, added to the total when its part of a grid is done.
bd_emulation_counters &counters();

// Runs all blocks of a valid launch; they are done on return.
void run_grid(const LaunchShape &shape, const std::function<void()> &body);

// A small random number generator; x is its state.
inline uint64_t draw(uint64_t *x)
{
    *x += 0x9e3779b97f4a7c15u;
    uint64_t z = *x;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Byte 0xff: NaN in every floating-point type. memset is not used, because ThreadSanitizer
// would take it for a write by the running thread.
inline void poison(void *p, size_t size_bytes)
{
    volatile unsigned char *bytes = static_cast<volatile unsigned char *>(p);
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = 0xff;
}

// Limit of a block that has opted in: the lowest of our architectures (sm_120).
constexpr size_t kMaxSharedBytes = 99 * 1024;

}  // namespace emulation

#endif
