// device_memory.h - device and pinned memory of the emulation.
//
// Device memory is host memory that can be accessed only during the work of a stream: a program
// that reads or writes it directly ends by SIGSEGV, with a line that says so.
#ifndef BINDERY_TESTS_EMULATION_DEVICE_MEMORY_H
#define BINDERY_TESTS_EMULATION_DEVICE_MEMORY_H

#include <cstddef>

namespace emulation
{

enum class MemoryKind { kPageable, kPinned, kDevice };

// NULL if there is not enough memory. Filled with NaN.
void *memory_allocate(MemoryKind kind, size_t size_bytes);
// Returns false if `memory` is not the beginning of an allocation of that kind.
bool memory_release(MemoryKind kind, void *memory);

// The size of the allocation that begins at `memory`, 0 if there is none.
size_t memory_size(const void *memory);

// The kind of the byte at `p`. Memory that the emulation has not allocated is pageable.
MemoryKind memory_kind(const void *p);
// Tells whether all those bytes lie in one allocation of that kind.
bool memory_has(MemoryKind kind, const void *p, size_t size_bytes);

// While such an object exists, device memory can be accessed.
struct DeviceAccess {
    DeviceAccess();
    ~DeviceAccess();
};

}  // namespace emulation

#endif
