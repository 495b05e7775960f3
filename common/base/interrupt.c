#include "common/base/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static atomic_int noted_signal;  // the signal's number; 0: none
static _Atomic(const char *) answer;

// A signal handler: it may call only async-signal-safe functions.
static void note_signal(int number)
{
    const int before = errno;
    const char *text = atomic_load(&answer);
    if (text && write(STDERR_FILENO, text, strlen(text)) < 0) {
        // Nothing can be done about it here.
    }
    errno = before;
    atomic_store(&noted_signal, number);
    // The second time, whichever of the two it is, the default action is taken.
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

// A signal that was ignored when the program began, as in a background job of a script, stays
// ignored.
static void catch_signal(int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = note_signal, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

// Gives note_signal() a stack of its own, because the generated code of oneDNN's matrix
// products does not tolerate a handler on the stack that it runs on: about one run in a hundred
// that was interrupted inside a product had its heap corrupted. The system delivers a process's
// signals to the thread that calls this, unless it blocks them.
static void use_own_stack(void)
{
    static char stack[1 << 16];  // registers alone take 11 KiB with AMX
    stack_t there;
    if (sigaltstack(NULL, &there) == 0 && (there.ss_flags & SS_DISABLE))
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
}

void bd_interrupt_catch(void)
{
    use_own_stack();
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
}

void bd_interrupt_answer(const char *text)
{
    atomic_store(&answer, text);
}

bool bd_interrupt_is_noted(void)
{
    return atomic_load_explicit(&noted_signal, memory_order_relaxed) != 0;
}

bd_status bd_interrupt_check(bd_error *err)
{
    if (!bd_interrupt_is_noted())
        return BD_OK;
    return bd_fail(err, BD_ERR_INTERRUPTED, "interrupted");
}

void bd_interrupt_raise(void)
{
    const int number = atomic_load(&noted_signal);
    if (number == 0)
        return;
    signal(number, SIG_DFL);
    raise(number);
}
