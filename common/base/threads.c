#include "common/base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct bd_threads {
    pthread_mutex_t lock;
    pthread_cond_t work;      // a job has been posted, or the pool is to end
    pthread_cond_t finished;  // the last worker has left the job

    // The job, all under `lock`. Tasks are coarse, so a lock per task costs nothing.
    bd_task task;
    void *context;
    int64_t n_tasks;
    int64_t next;
    int64_t failed_index;  // lowest so far, INT64_MAX if none
    bd_error error;
    uint64_t generation;  // of the job: each worker joins each generation once
    int n_busy;           // workers inside the job
    bool ending;

    int n_workers;  // threads of ours, one less than asked for
    pthread_t *workers;
};

// Takes tasks until there are none; called and left with the lock held.
static void run_tasks(bd_threads *threads)
{
    while (threads->next < threads->n_tasks && threads->failed_index == INT64_MAX) {
        const int64_t index = threads->next++;
        pthread_mutex_unlock(&threads->lock);
        bd_error err = {0};
        const bd_status status = threads->task(threads->context, index, &err);
        pthread_mutex_lock(&threads->lock);
        if (status != BD_OK && index < threads->failed_index) {
            threads->failed_index = index;
            threads->error = err;
            threads->error.status = status;
        }
    }
}

static void *worker_main(void *argument)
{
    bd_threads *threads = argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&threads->lock);
    for (;;) {
        while (!threads->ending && threads->generation == seen)
            pthread_cond_wait(&threads->work, &threads->lock);
        if (threads->ending)
            break;
        seen = threads->generation;
        run_tasks(threads);
        if (--threads->n_busy == 0)
            pthread_cond_signal(&threads->finished);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

// Every worker has the same stack, whatever `ulimit -s` says: if that is unlimited, as on many
// clusters, a thread would get 2 MiB.
static int start_worker(bd_threads *threads)
{
    pthread_attr_t attributes;
    int number = pthread_attr_init(&attributes);
    if (number != 0)
        return number;
    number = pthread_attr_setstacksize(&attributes, BD_THREADS_STACK_BYTES);
    if (number == 0)
        number = pthread_create(&threads->workers[threads->n_workers], &attributes, worker_main,
                                threads);
    pthread_attr_destroy(&attributes);
    return number;
}

bd_status bd_threads_new(bd_threads **out, int n_threads, bd_error *err)
{
    bd_threads *threads = calloc(1, sizeof *threads);
    *out = NULL;
    if (!threads)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a thread pool");
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->work, NULL);
    pthread_cond_init(&threads->finished, NULL);
    threads->workers = calloc((size_t)n_threads, sizeof *threads->workers);
    if (!threads->workers) {
        bd_threads_free(threads);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %d threads", n_threads);
    }
    while (threads->n_workers < n_threads - 1) {
        const int number = start_worker(threads);
        if (number != 0) {
            const int so_far = threads->n_workers + 1;
            bd_threads_free(threads);
            return bd_fail(err, BD_ERR_IO, "cannot start thread %d of %d: %s", so_far + 1,
                           n_threads, strerror(number));
        }
        threads->n_workers++;
    }
    *out = threads;
    return BD_OK;
}

bd_status bd_threads_run(bd_threads *threads, bd_task task, void *context, int64_t n_tasks,
                         bd_error *err)
{
    if (n_tasks == 1)  // waking the workers would take longer than most single tasks
        return task(context, 0, err);
    pthread_mutex_lock(&threads->lock);
    threads->task = task;
    threads->context = context;
    threads->n_tasks = n_tasks;
    threads->next = 0;
    threads->failed_index = INT64_MAX;
    threads->n_busy = threads->n_workers;
    threads->generation++;
    pthread_cond_broadcast(&threads->work);
    run_tasks(threads);
    while (threads->n_busy > 0)
        pthread_cond_wait(&threads->finished, &threads->lock);
    const bool failed = threads->failed_index != INT64_MAX;
    const bd_status status = failed ? threads->error.status : BD_OK;
    if (failed && err)
        *err = threads->error;
    pthread_mutex_unlock(&threads->lock);
    return status;
}

void bd_threads_free(bd_threads *threads)
{
    if (!threads)
        return;
    pthread_mutex_lock(&threads->lock);
    threads->ending = true;
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    for (int i = 0; i < threads->n_workers; i++)
        pthread_join(threads->workers[i], NULL);
    pthread_cond_destroy(&threads->work);
    pthread_cond_destroy(&threads->finished);
    pthread_mutex_destroy(&threads->lock);
    free(threads->workers);
    free(threads);
}

int bd_threads_size(const bd_threads *threads)
{
    return threads->n_workers + 1;
}

int bd_threads_count(int64_t asked)
{
    if (asked > 0)
        return (int)asked;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    const int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
