// shared_memory.h - the shared memory of one block, between guard zones.
#ifndef BINDERY_TESTS_EMULATION_SHARED_MEMORY_H
#define BINDERY_TESTS_EMULATION_SHARED_MEMORY_H

#include <cstddef>

#include "tests/emulation/device.h"

namespace emulation
{

struct SharedArray {
    const void *key;  // identifies the declaration; NULL for the dynamic array
    unsigned char *memory;
    size_t size_bytes;
};

// One mapping per block, never used twice: ThreadSanitizer's state of it ends with it.
struct SharedMemory {
    unsigned char *mapping;
    size_t mapping_bytes;
    unsigned char *free;  // where the next static array goes
    SharedArray arrays[64];
    int n_arrays;
    // Addresses that stand for barriers: nothing is stored there.
    unsigned char *order;
};

constexpr size_t kOrderObjects = 4096;

// Has one dynamic array of `dynamic_bytes`, maybe 0.
void shared_memory_map(SharedMemory *shared, size_t dynamic_bytes);
// Returns the static array of that key; makes it if the block does not have it yet.
void *shared_memory_array(SharedMemory *shared, const void *key, size_t size_bytes,
                          size_t alignment, Place place);
// Tells whether all those bytes belong to one array.
bool shared_memory_has(const SharedMemory *shared, const void *p, size_t size_bytes);
// Fatal if a guard zone was written.
void shared_memory_unmap(SharedMemory *shared);

}  // namespace emulation

#endif
