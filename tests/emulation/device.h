// device.h - what the parts of the emulation know of each other.
#ifndef BINDERY_TESTS_EMULATION_DEVICE_H
#define BINDERY_TESTS_EMULATION_DEVICE_H

#include <cstdint>

#include "tests/emulation/cuda_emulation.h"
#include "tests/emulation/emulation.h"

namespace emulation
{

// Says where and what in one line and aborts. Where: the running CUDA thread if there is one.
[[noreturn]] void fatal(Place place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const bd_emulation_settings &settings();

// Counters of the running host thread, added to the total when its share of a grid is done.
bd_emulation_counters &counters();

// Runs all blocks of a launch that was found to be valid; done on return.
void run_grid(const LaunchShape &shape, const std::function<void()> &body);

// A small generator: x is its state.
inline uint64_t draw(uint64_t *x)
{
    *x += 0x9e3779b97f4a7c15u;
    uint64_t z = *x;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Byte 0xff: NaN in every floating-point type. Not by memset, which ThreadSanitizer would take
// for a write by whoever runs.
inline void poison(void *p, size_t size_bytes)
{
    volatile unsigned char *bytes = static_cast<volatile unsigned char *>(p);
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = 0xff;
}

// What an opted-in block may have at most: the least of our architectures (sm_120).
constexpr size_t kMaxSharedBytes = 99 * 1024;

}  // namespace emulation

#endif
