// fiber.h - stacks that one host thread switches between, known to the sanitizers.
#ifndef BINDERY_TESTS_EMULATION_FIBER_H
#define BINDERY_TESTS_EMULATION_FIBER_H

#include <cstddef>

namespace emulation
{

struct Fiber {
    void *stack_pointer;   // while it does not run
    unsigned char *stack;  // owned, except the host thread's own
    size_t stack_bytes;
    void *thread_sanitizer;  // ThreadSanitizer's handle, NULL without it
    void *fake_stack;        // AddressSanitizer's, while it does not run
};

// True under ThreadSanitizer: then bodies that are not ordered must have different fibers.
bool under_thread_sanitizer();

// The stack that the calling host thread runs on.
void fiber_adopt_host(Fiber *fiber);

// Makes `fiber` begin at `body` when it is next switched to; `body` never returns. Its stack is
// kept for ever, and so is ThreadSanitizer's state: it sees all bodies of a fiber as one
// thread, one after the other.
void fiber_prepare(Fiber *fiber, void (*body)());

// Switches from `from`, which is running, to `to`. For ThreadSanitizer the switch itself orders
// nothing. With `last`, `from` is not switched to again before it is prepared anew.
void fiber_switch(Fiber *from, Fiber *to, bool last);

// Order for ThreadSanitizer: everything before a release of `object` comes before everything
// after an acquire of it. Without ThreadSanitizer they do nothing.
void order_release(void *object);
void order_acquire(void *object);

// Reports accesses that the emulation makes for a kernel.
void note_read(const void *p, size_t size_bytes);
void note_write(void *p, size_t size_bytes);

// Marks a range for AddressSanitizer. Without it they do nothing.
void forbid_access(const void *p, size_t size_bytes);
void allow_access(const void *p, size_t size_bytes);

}  // namespace emulation

#endif
