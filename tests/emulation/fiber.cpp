// Compiled without ThreadSanitizer, which is informed by explicit calls.
#include "tests/emulation/fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <pthread.h>
#include <sys/mman.h>

// Defined if, and only if, the program is linked with the sanitizer.
extern "C" {
void *__tsan_create_fiber(unsigned) __attribute__((weak));
void *__tsan_get_current_fiber() __attribute__((weak));
void __tsan_destroy_fiber(void *) __attribute__((weak));
void __tsan_switch_to_fiber(void *, unsigned) __attribute__((weak));
void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));
void __tsan_read_range(void *, long) __attribute__((weak));
void __tsan_write_range(void *, long) __attribute__((weak));
void __sanitizer_start_switch_fiber(void **, const void *, size_t) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) __attribute__((weak));
void __asan_poison_memory_region(const volatile void *, size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *, size_t) __attribute__((weak));

__attribute__((visibility("hidden"))) void bd_emulation_switch(void **save, void *load);
__attribute__((visibility("hidden"))) void bd_emulation_begin();
}

#ifndef __x86_64__
#error "the emulation switches stacks in x86-64 assembly"
#endif

// The callee-saved registers are the whole context: everything else is dead across a call. A
// fresh fiber returns into bd_emulation_begin with begin() in %r12, its argument in %r13 and
// the stack aligned as before a call.
asm(R"(
    .text
    .globl bd_emulation_switch
    .hidden bd_emulation_switch
    .type bd_emulation_switch, @function
bd_emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size bd_emulation_switch, .-bd_emulation_switch

    .globl bd_emulation_begin
    .hidden bd_emulation_begin
    .type bd_emulation_begin, @function
bd_emulation_begin:
    movq %r13, %rdi
    callq *%r12
    ud2
    .size bd_emulation_begin, .-bd_emulation_begin
    .section .note.GNU-stack, "", @progbits
    .text
)");

namespace emulation
{

namespace
{

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kGuardBytes = 4096;  // an inaccessible page below the stack
constexpr size_t kUsedAtTheEnd = 4096;

// An odd number of words, so that the stack is aligned once the seven of them are popped.
enum { kR15, kR14, kR13, kR12, kRbx, kRbp, kReturn, kFrameWords = 17 };

void get_stack(Fiber *fiber)
{
    void *memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
        perror("emulation: no stack for a CUDA thread");
        abort();
    }
    fiber->stack = static_cast<unsigned char *>(memory) + kGuardBytes;
    fiber->stack_bytes = kStackBytes;
}

void begin(void (*body)())
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    body();
}

}  // namespace

bool under_thread_sanitizer()
{
    return __tsan_create_fiber != nullptr;
}

void fiber_adopt_host(Fiber *fiber)
{
    *fiber = Fiber();
    pthread_attr_t attributes;
    void *stack = nullptr;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &fiber->stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    fiber->stack = static_cast<unsigned char *>(stack);
    if (__tsan_get_current_fiber)
        fiber->thread_sanitizer = __tsan_get_current_fiber();
}

void fiber_prepare(Fiber *fiber, void (*body)())
{
    if (!fiber->stack)
        get_stack(fiber);
    // The frames that were open when its last body left are still marked there.
    allow_access(fiber->stack + fiber->stack_bytes - kUsedAtTheEnd, kUsedAtTheEnd);
    uint64_t *frame = reinterpret_cast<uint64_t *>(fiber->stack + fiber->stack_bytes);
    frame -= kFrameWords;
    frame[kR12] = reinterpret_cast<uint64_t>(begin);
    frame[kR13] = reinterpret_cast<uint64_t>(body);
    frame[kRbp] = 0;  // ends a backtrace
    frame[kReturn] = reinterpret_cast<uint64_t>(bd_emulation_begin);
    fiber->stack_pointer = frame;
    fiber->fake_stack = nullptr;
    if (__tsan_create_fiber && !fiber->thread_sanitizer)
        fiber->thread_sanitizer = __tsan_create_fiber(0);
}

void fiber_switch(Fiber *from, Fiber *to, bool last)
{
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(last ? nullptr : &from->fake_stack, to->stack,
                                       to->stack_bytes);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(to->thread_sanitizer, 1);  // 1: the switch orders nothing
    bd_emulation_switch(&from->stack_pointer, to->stack_pointer);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}

void order_release(void *object)
{
    if (__tsan_release)
        __tsan_release(object);
}

void order_acquire(void *object)
{
    if (__tsan_acquire)
        __tsan_acquire(object);
}

void note_read(const void *p, size_t size_bytes)
{
    if (__tsan_read_range)
        __tsan_read_range(const_cast<void *>(p), size_bytes);
}

void note_write(void *p, size_t size_bytes)
{
    if (__tsan_write_range)
        __tsan_write_range(p, size_bytes);
}

void forbid_access(const void *p, size_t size_bytes)
{
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(p, size_bytes);
}

void allow_access(const void *p, size_t size_bytes)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(p, size_bytes);
}

}  // namespace emulation
