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
    void *thread_sanitizer;  // its handle there, NULL without it
    void *fake_stack;        // AddressSanitizer's, while it does not run
};

// True where ThreadSanitizer watches: then bodies that it may see no order between need fibers
// of their own.
bool under_thread_sanitizer();

// The stack that the calling host thread runs on.
void fiber_adopt_host(Fiber *fiber);

// Makes `fiber` begin at `body` when it is next switched to; `body` never returns. Its stack is
// kept from call to call for good, and so is what ThreadSanitizer knows of it: to it,
// all bodies of a fiber are one thread, one after the other.
void fiber_prepare(Fiber *fiber, void (*body)());

// Leaves `from`, which is running, for `to`. The switch itself orders nothing between them in
// the eyes of ThreadSanitizer. With `last`, `from` is never switched to again before it is
// prepared anew.
void fiber_switch(Fiber *from, Fiber *to, bool last);

// Order for ThreadSanitizer: what came before a release of `object` comes before what follows
// an acquire of it. Nothing without it.
void order_release(void *object);
void order_acquire(void *object);

// Accesses that code of ours makes in a kernel's name.
void note_read(const void *p, size_t size_bytes);
void note_write(void *p, size_t size_bytes);

// AddressSanitizer's opinion of a range. Nothing without it.
void forbid_access(const void *p, size_t size_bytes);
void allow_access(const void *p, size_t size_bytes);

}  // namespace emulation

#endif
