#include "tests/emulation/device_memory.h"

#include <csignal>
#include <cstdio>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>

#include "tests/emulation/device.h"
#include "tests/emulation/fiber.h"

namespace emulation
{

namespace
{

constexpr size_t kPageBytes = 4096;
constexpr size_t kAlignment = 256;  // alignment of cudaMalloc
constexpr size_t kMostDeviceBytes = size_t(16) << 30;

// |no access| unused |   memory   | unused, < 256 bytes |no access|
struct Allocation {
    MemoryKind kind;
    unsigned char *pages;  // the bytes between the pages without access
    size_t page_bytes;
    unsigned char *memory;
    size_t size_bytes;
    bool is_open;  // device memory that may be accessed now
};

// Guards what follows. Nothing else is locked while it is held.
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct Locked {
    Locked()
    {
        pthread_mutex_lock(&lock);
    }
    ~Locked()
    {
        pthread_mutex_unlock(&lock);
    }
};

std::vector<Allocation> allocations;
size_t device_bytes;
bool device_is_open;
struct sigaction previous_action;  // before the first allocation
struct sigaction
    outer_action;  // the handler before a stream's work: a test framework may have one

Allocation *find(const void *p)
{
    const unsigned char *byte = static_cast<const unsigned char *>(p);
    for (Allocation &a : allocations)
        if (a.pages - kPageBytes <= byte && byte < a.pages + a.page_bytes + kPageBytes)
            return &a;
    return nullptr;
}

void set_open(Allocation *a, bool open)
{
    const int protection = open ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mprotect(a->pages, a->page_bytes, protection) != 0)
        fatal({nullptr, 0}, "cannot change the protection of device memory");
    a->is_open = open;
}

// The work of a stream opens only the device memory that it accesses, because there may be much
// more. Nothing here accesses device memory while it holds the lock.
bool open_touched(const void *p)
{
    Locked locked;
    Allocation *a = find(p);
    const unsigned char *byte = static_cast<const unsigned char *>(p);
    if (!a || a->kind != MemoryKind::kDevice || byte < a->pages ||
        byte >= a->pages + a->page_bytes)
        return false;
    set_open(a, true);
    return true;
}

// Any other fault in a stream's work is fatal: another handler might continue while our locks
// are held. A fault of the host is named, and then left to the handler that was installed
// before.
void handle_fault(int, siginfo_t *info, void *)
{
    if (device_is_open && open_touched(info->si_addr))
        return;
    const Allocation *a = find(info->si_addr);
    if (device_is_open && a)
        fatal({nullptr, 0}, "an allocation of %zu bytes was touched at byte %td", a->size_bytes,
              static_cast<unsigned char *>(info->si_addr) - a->memory);
    if (device_is_open)
        fatal({nullptr, 0}, "segmentation fault at %p", info->si_addr);
    if (a)
        fprintf(stderr, "emulation: the host touched %s allocation of %zu bytes at byte %td\n",
                a->kind == MemoryKind::kDevice ? "a device" : "a pinned", a->size_bytes,
                static_cast<unsigned char *>(info->si_addr) - a->memory);
    sigaction(SIGSEGV, &previous_action, nullptr);
}

void handle_faults(struct sigaction *previous)
{
    struct sigaction action = {};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, previous);
}

void check_surroundings(const Allocation &a)
{
    for (const unsigned char *p = a.pages; p < a.pages + a.page_bytes; p++) {
        const bool inside = a.memory <= p && p < a.memory + a.size_bytes;
        if (!inside && *p != 0xff)
            fatal({nullptr, 0}, "an allocation of %zu bytes was written at byte %td",
                  a.size_bytes, p - a.memory);
    }
}

}  // namespace

void *memory_allocate(MemoryKind kind, size_t size_bytes)
{
    Locked locked;
    static bool handled;
    if (!handled)
        handle_faults(&previous_action);
    handled = true;
    if (size_bytes > kMostDeviceBytes - device_bytes)
        return nullptr;
    Allocation a = {
        kind,    nullptr,    (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes,
        nullptr, size_bytes, true};
    void *mapping = mmap(nullptr, a.page_bytes + 2 * kPageBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return nullptr;
    a.pages = static_cast<unsigned char *>(mapping) + kPageBytes;
    a.memory = a.pages + (a.page_bytes - size_bytes) / kAlignment * kAlignment;
    if (mprotect(a.pages, a.page_bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, a.page_bytes + 2 * kPageBytes);
        return nullptr;
    }
    poison(a.pages, a.page_bytes);
    forbid_access(a.pages, a.page_bytes);
    allow_access(a.memory, size_bytes);
    if (kind == MemoryKind::kDevice) {
        set_open(&a, device_is_open);
        device_bytes += size_bytes;
    }
    allocations.push_back(a);
    return a.memory;
}

bool memory_release(MemoryKind kind, void *memory)
{
    Locked locked;
    for (size_t i = 0; i < allocations.size(); i++) {
        Allocation a = allocations[i];
        if (a.memory != memory || a.kind != kind)
            continue;
        set_open(&a, true);
        allow_access(a.pages, a.page_bytes);
        check_surroundings(a);
        munmap(a.pages - kPageBytes, a.page_bytes + 2 * kPageBytes);
        if (kind == MemoryKind::kDevice)
            device_bytes -= a.size_bytes;
        allocations.erase(allocations.begin() + static_cast<ptrdiff_t>(i));
        return true;
    }
    return false;
}

size_t memory_size(const void *memory)
{
    Locked locked;
    const Allocation *a = find(memory);
    return a && a->memory == memory ? a->size_bytes : 0;
}

MemoryKind memory_kind(const void *p)
{
    Locked locked;
    const Allocation *a = find(p);
    return a ? a->kind : MemoryKind::kPageable;
}

bool memory_has(MemoryKind kind, const void *p, size_t size_bytes)
{
    Locked locked;
    const Allocation *a = find(p);
    const unsigned char *begin = static_cast<const unsigned char *>(p);
    return a && a->kind == kind && a->memory <= begin &&
           size_bytes <= static_cast<size_t>(a->memory + a->size_bytes - begin);
}

DeviceAccess::DeviceAccess()
{
    Locked locked;
    handle_faults(&outer_action);
    device_is_open = true;
}

DeviceAccess::~DeviceAccess()
{
    Locked locked;
    device_is_open = false;
    for (Allocation &a : allocations)
        if (a.kind == MemoryKind::kDevice && a.is_open)
            set_open(&a, false);
    sigaction(SIGSEGV, &outer_action, nullptr);
}

}  // namespace emulation
