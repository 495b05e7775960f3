#include "common/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int noted;  // the signal's number; 0: none

static void note(int number)
{
    atomic_store(&noted, number);
    // The second time, whichever of the two it is, the default action is taken.
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

// A signal that was being ignored when the program began, as in a script's background job,
// stays so.
static void catch_signal(int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = note};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void bd_interrupt_catch(void)
{
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
}

bd_status bd_interrupt_check(bd_error *err)
{
    if (atomic_load_explicit(&noted, memory_order_relaxed) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_INTERRUPTED, "interrupted");
}

void bd_interrupt_raise(void)
{
    const int number = atomic_load(&noted);
    if (number == 0)
        return;
    signal(number, SIG_DFL);
    raise(number);
}
