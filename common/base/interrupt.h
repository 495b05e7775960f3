// interrupt.h - Ctrl-C and SIGTERM, noticed at the next convenient moment.
#ifndef BINDERY_COMMON_BASE_INTERRUPT_H
#define BINDERY_COMMON_BASE_INTERRUPT_H

#include <stdbool.h>

#include "common/base/error.h"

// For commands, in their first thread: from now on the first SIGINT or SIGTERM is only noted. A
// second one ends the program as it would have without this call.
void bd_interrupt_catch(void);

// `text`, which must stay valid, is written to stderr at the moment the first signal comes: for
// work whose next convenient moment may be far away. With NULL, the default, nothing is
// written.
void bd_interrupt_answer(const char *text);

// BD_ERR_INTERRUPTED once a signal was noted. Cheap enough for every record.
bd_status bd_interrupt_check(bd_error *err);

// Whether one was noted, for loops that can only stop.
bool bd_interrupt_is_noted(void);

// Ends the program by the signal that was noted, so that its parent process sees the reason.
// Returns if there was none.
void bd_interrupt_raise(void);

#endif
