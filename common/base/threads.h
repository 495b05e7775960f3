// threads.h - our one thread pool: numbered tasks, any worker, results independent of which.
#ifndef BINDERY_COMMON_BASE_THREADS_H
#define BINDERY_COMMON_BASE_THREADS_H

#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_threads bd_threads;

// The stack that every task has; the kernels' largest tiles lie there.
enum { BD_THREADS_STACK_BYTES = 8 << 20 };

// A task: `index` is 0 to n_tasks - 1. Tasks run at the same time, each exactly once, and may
// share `context`. The results of a task must not depend on which worker runs it.
typedef bd_status (*bd_task)(void *context, int64_t index, bd_error *err);

// A pool of `n_threads` workers (the calling thread of bd_threads_run() is one of them).
// Free with bd_threads_free().
bd_status bd_threads_new(bd_threads **out, int n_threads, bd_error *err);

// Runs task(context, 0 … n_tasks - 1), handing out indices in order, and waits. After a
// failure no further task begins; the error reported is that of the lowest failed index, so
// that it depends on timing as little as possible.
bd_status bd_threads_run(bd_threads *threads, bd_task task, void *context, int64_t n_tasks,
                         bd_error *err);

void bd_threads_free(bd_threads *threads);  // safe on NULL

// How many workers the pool has.
int bd_threads_size(const bd_threads *threads);

// The number of threads to use if `asked` were asked for: as many, or if that is 0 one for each
// processor that this process may use.
int bd_threads_count(int64_t asked);

#endif
