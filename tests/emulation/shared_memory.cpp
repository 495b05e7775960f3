#include "tests/emulation/shared_memory.h"

#include <cstdlib>

#include <sys/mman.h>

#include "tests/emulation/fiber.h"

namespace emulation
{

namespace
{

constexpr size_t kGuardBytes = 1024;
constexpr size_t kStaticBytes = 48 * 1024;  // limit of static arrays
constexpr size_t kMaxArrays = sizeof SharedMemory().arrays / sizeof(SharedArray);
constexpr size_t kOrderBytes = kOrderObjects * 8;

// NaN as bf16 and as float, and nothing that a kernel is likely to write.
unsigned char guard_byte(const unsigned char *p)
{
    return reinterpret_cast<uintptr_t>(p) % 2 ? 0x7f : 0xbf;
}

// The guard zone after an array extends to the next multiple of kGuardBytes and one further.
unsigned char *guard_end(const SharedArray *array)
{
    const uintptr_t end = reinterpret_cast<uintptr_t>(array->memory + array->size_bytes);
    return reinterpret_cast<unsigned char *>((end + 2 * kGuardBytes - 1) / kGuardBytes *
                                             kGuardBytes);
}

void set_guard(unsigned char *begin, unsigned char *end)
{
    allow_access(begin, static_cast<size_t>(end - begin));
    for (volatile unsigned char *p = begin; p < end; p++)
        *p = guard_byte(const_cast<unsigned char *>(p));
    forbid_access(begin, static_cast<size_t>(end - begin));
}

void check_guard(const SharedArray *array, const unsigned char *begin, const unsigned char *end)
{
    allow_access(begin, static_cast<size_t>(end - begin));
    for (const unsigned char *p = begin; p < end; p++)
        if (*p != guard_byte(p))
            fatal({nullptr, 0},
                  "%s shared array of %zu bytes was written at byte %td, outside of it",
                  array->key ? "a static" : "the dynamic", array->size_bytes,
                  p - array->memory);
}

unsigned char *add_array(SharedMemory *shared, const void *key, size_t size_bytes)
{
    SharedArray *array = &shared->arrays[shared->n_arrays++];
    *array = {key, shared->free, size_bytes};
    allow_access(array->memory, size_bytes);
    poison(array->memory, size_bytes);
    set_guard(array->memory + size_bytes, guard_end(array));
    shared->free = guard_end(array);
    return array->memory;
}

}  // namespace

void shared_memory_map(SharedMemory *shared, size_t dynamic_bytes)
{
    *shared = SharedMemory();
    const size_t array_bytes =
        dynamic_bytes + kStaticBytes + (kMaxArrays + 1) * 2 * kGuardBytes;
    shared->mapping_bytes = kOrderBytes + array_bytes;
    void *memory = mmap(nullptr, shared->mapping_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fatal({nullptr, 0}, "no memory for a block's shared memory");
    shared->mapping = static_cast<unsigned char *>(memory);
    shared->order = shared->mapping;
    unsigned char *arrays = shared->mapping + kOrderBytes;
    forbid_access(arrays, array_bytes);
    set_guard(arrays, arrays + kGuardBytes);
    shared->free = arrays + kGuardBytes;
    add_array(shared, nullptr, dynamic_bytes);
}

void *shared_memory_array(SharedMemory *shared, const void *key, size_t size_bytes,
                          size_t alignment, Place place)
{
    size_t declared = size_bytes;
    for (int i = 0; i < shared->n_arrays; i++) {
        if (shared->arrays[i].key == key)
            return shared->arrays[i].memory;
        declared += shared->arrays[i].key ? shared->arrays[i].size_bytes : 0;
    }
    const size_t dynamic_bytes = shared->arrays[0].size_bytes;
    if (declared > kStaticBytes || declared + dynamic_bytes > kMaxSharedBytes)
        fatal(place, "%zu bytes of static and %zu of dynamic shared memory", declared,
              dynamic_bytes);
    if (static_cast<size_t>(shared->n_arrays) == kMaxArrays || alignment > kGuardBytes)
        fatal(place, "more than %zu shared arrays, or one aligned to %zu bytes", kMaxArrays,
              alignment);
    return add_array(shared, key, size_bytes);
}

bool shared_memory_has(const SharedMemory *shared, const void *p, size_t size_bytes)
{
    const unsigned char *begin = static_cast<const unsigned char *>(p);
    for (int i = 0; i < shared->n_arrays; i++) {
        const SharedArray *array = &shared->arrays[i];
        if (array->memory <= begin && begin + size_bytes <= array->memory + array->size_bytes)
            return true;
    }
    return false;
}

void shared_memory_unmap(SharedMemory *shared)
{
    check_guard(&shared->arrays[0], shared->arrays[0].memory - kGuardBytes,
                shared->arrays[0].memory);
    for (int i = 0; i < shared->n_arrays; i++) {
        const SharedArray *array = &shared->arrays[i];
        check_guard(array, array->memory + array->size_bytes, guard_end(array));
    }
    allow_access(shared->mapping, shared->mapping_bytes);
    munmap(shared->mapping, shared->mapping_bytes);
    *shared = SharedMemory();
}

}  // namespace emulation
