#include "common/base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const int thread_counts[] = {1, 2, 7};
enum { N_THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };

static bd_threads *pool_of(int n_threads)
{
    bd_threads *threads = NULL;
    bd_error err = {0};
    assert_int_equal(bd_threads_new(&threads, n_threads, &err), BD_OK);
    assert_non_null(threads);
    return threads;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// Waits until *value is at least `wanted`; returns false after half a minute.
static bool wait_for(atomic_int *value, int wanted)
{
    for (int ms = 0; atomic_load(value) < wanted; ms++) {
        if (ms == 30000)
            return false;
        pause_ms(1);
    }
    return true;
}

// ---- Every task once --------------------------------------------------------------

enum { MAX_TASKS = 1000 };

// Plain memory: the pool itself must order a task's writes before the caller's reads.
typedef struct tally {
    int runs[MAX_TASKS];
    int64_t seen[MAX_TASKS];
} tally;

static bd_status count_task(void *context, int64_t index, bd_error *err)
{
    (void)err;
    tally *t = context;
    t->runs[index]++;
    t->seen[index] = index * index;
    return BD_OK;
}

static void assert_each_once(const tally *t, int n_tasks)
{
    for (int i = 0; i < MAX_TASKS; i++) {
        assert_int_equal(t->runs[i], i < n_tasks);
        assert_int_equal(t->seen[i], i < n_tasks ? (int64_t)i * i : 0);
    }
}

static void every_index_runs_exactly_once(void **state)
{
    (void)state;
    static const int task_counts[] = {0, 1, 2, 6, 7, 8, 1000};
    for (int c = 0; c < N_THREAD_COUNTS; c++) {
        bd_threads *threads = pool_of(thread_counts[c]);
        for (size_t k = 0; k < sizeof task_counts / sizeof *task_counts; k++) {
            static tally t;
            t = (tally){0};
            assert_int_equal(bd_threads_run(threads, count_task, &t, task_counts[k], NULL),
                             BD_OK);
            assert_each_once(&t, task_counts[k]);
        }
        bd_threads_free(threads);
    }
}

static void pool_is_used_again_and_again(void **state)
{
    (void)state;
    for (int c = 0; c < N_THREAD_COUNTS; c++) {
        bd_threads *threads = pool_of(thread_counts[c]);
        for (int n_tasks = 0; n_tasks < 300; n_tasks++) {
            static tally t;
            t = (tally){0};
            assert_int_equal(bd_threads_run(threads, count_task, &t, n_tasks, NULL), BD_OK);
            assert_each_once(&t, n_tasks);
        }
        bd_threads_free(threads);
    }
}

static void pool_that_never_ran_is_freed(void **state)
{
    (void)state;
    for (int c = 0; c < N_THREAD_COUNTS; c++)
        bd_threads_free(pool_of(thread_counts[c]));
    bd_threads_free(NULL);
}

// Each task waits for the others to begin.
static bd_status meet(void *context, int64_t index, bd_error *err)
{
    (void)index;
    atomic_int *n_begun = context;
    atomic_fetch_add(n_begun, 1);
    return wait_for(n_begun, 7) ? BD_OK : bd_fail(err, BD_ERR_IO, "alone");
}

static void as_many_tasks_as_threads_run_at_the_same_time(void **state)
{
    (void)state;
    bd_threads *threads = pool_of(7);
    for (int round = 0; round < 3; round++) {
        atomic_int n_begun = 0;
        assert_int_equal(bd_threads_run(threads, meet, &n_begun, 7, NULL), BD_OK);
    }
    bd_threads_free(threads);
}

// ---- Failure ----------------------------------------------------------------------

typedef struct failing {
    int64_t first_failure;  // this task and every later one fails
    atomic_int n_begun;
    atomic_int n_failed;
    enum { AS_IT_COMES, LOWEST_LAST, LOWEST_FIRST } order;  // the order in which they fail
} failing;

// Makes two failures happen in the wanted order; needs two threads.
static bool wait_for_turn(failing *f, bool lowest)
{
    if (f->order == AS_IT_COMES)
        return true;
    if (lowest && f->order == LOWEST_FIRST)  // but only after the other task has begun
        return wait_for(&f->n_begun, (int)f->first_failure + 2);
    const bool waits = lowest == (f->order == LOWEST_LAST);
    if (waits && !wait_for(&f->n_failed, 1))
        return false;
    pause_ms(waits ? 2 : 0);  // so that the other failure is recorded
    return true;
}

static bd_status fail_late(void *context, int64_t index, bd_error *err)
{
    failing *f = context;
    atomic_fetch_add(&f->n_begun, 1);
    if (index < f->first_failure)
        return BD_OK;
    if (!wait_for_turn(f, index == f->first_failure))
        return bd_fail(err, BD_ERR_IO, "no other task has run");
    atomic_fetch_add(&f->n_failed, 1);
    return bd_fail(err, BD_ERR_FORMAT, "task %lld", (long long)index);
}

static void lowest_failed_task_is_reported_whoever_fails_first(void **state)
{
    (void)state;
    for (int c = 0; c < N_THREAD_COUNTS; c++) {
        bd_threads *threads = pool_of(thread_counts[c]);
        for (int64_t first = 0; first < 20; first++) {
            failing f = {.first_failure = first};
            if (thread_counts[c] > 1)
                f.order = first % 2 ? LOWEST_FIRST : LOWEST_LAST;
            char expected[32];
            snprintf(expected, sizeof expected, "task %lld", (long long)first);
            bd_error err = {0};
            assert_int_equal(bd_threads_run(threads, fail_late, &f, 1000, &err), BD_ERR_FORMAT);
            assert_int_equal(err.status, BD_ERR_FORMAT);
            assert_string_equal(err.message, expected);
        }
        bd_threads_free(threads);
    }
}

static void no_task_begins_after_a_failure(void **state)
{
    (void)state;
    for (int c = 0; c < N_THREAD_COUNTS; c++) {
        bd_threads *threads = pool_of(thread_counts[c]);
        failing f = {.first_failure = 10};
        assert_int_equal(bd_threads_run(threads, fail_late, &f, 100000, NULL), BD_ERR_FORMAT);
        // Every thread may have begun one more task, but none two.
        assert_in_range(atomic_load(&f.n_begun), 11, 10 + thread_counts[c]);
        bd_threads_free(threads);
    }
}

static void failure_is_forgotten_by_the_next_run(void **state)
{
    (void)state;
    for (int c = 0; c < N_THREAD_COUNTS; c++) {
        bd_threads *threads = pool_of(thread_counts[c]);
        for (int round = 0; round < 20; round++) {
            failing f = {.first_failure = round};
            static tally t;
            t = (tally){0};
            bd_error err = {0};
            assert_int_equal(bd_threads_run(threads, fail_late, &f, 100, NULL), BD_ERR_FORMAT);
            assert_int_equal(bd_threads_run(threads, count_task, &t, 100, &err), BD_OK);
            assert_each_once(&t, 100);
            assert_string_equal(err.message, "");
        }
        bd_threads_free(threads);
    }
}

static bd_status fail_silently(void *context, int64_t index, bd_error *err)
{
    (void)context;
    (void)err;
    return index == 1 ? BD_ERR_DEVICE : BD_OK;
}

static void status_is_reported_even_without_a_message(void **state)
{
    (void)state;
    bd_threads *threads = pool_of(2);
    bd_error err = {.message = "from before"};
    assert_int_equal(bd_threads_run(threads, fail_silently, NULL, 5, &err), BD_ERR_DEVICE);
    assert_int_equal(err.status, BD_ERR_DEVICE);
    assert_string_equal(err.message, "");
    bd_threads_free(threads);
}

// ---- How many ---------------------------------------------------------------------

static void available_processors_are_those_of_this_process(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(bd_threads_count(0), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const int available = bd_threads_count(0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(available, 1);
}

// ---- Stacks ---------------------------------------------------------------------------------

typedef struct stacks {
    atomic_int n_there;
    pthread_t caller;
    size_t worker_bytes;
} stacks;

static bd_status note_stack(void *context, int64_t index, bd_error *err)
{
    (void)index;
    (void)err;
    stacks *s = context;
    pthread_attr_t attributes;
    if (!pthread_equal(pthread_self(), s->caller)) {
        assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
        assert_int_equal(pthread_attr_getstacksize(&attributes, &s->worker_bytes), 0);
        pthread_attr_destroy(&attributes);
    }
    atomic_fetch_add(&s->n_there, 1);
    assert_true(wait_for(&s->n_there, 2));  // so that either thread takes one
    return BD_OK;
}

// The default is set to the stack that a thread gets under `ulimit -s unlimited`.
static void every_worker_has_the_promised_stack(void **state)
{
    (void)state;
    pthread_attr_t small;
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 2 << 20), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    pthread_attr_destroy(&small);
    stacks found = {.caller = pthread_self()};
    bd_threads *threads = pool_of(2);
    assert_int_equal(bd_threads_run(threads, note_stack, &found, 2, NULL), BD_OK);
    bd_threads_free(threads);
    assert_true(found.worker_bytes >= BD_THREADS_STACK_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        // Runs first, since the C library gives new threads the stacks of earlier ones.
        cmocka_unit_test(every_worker_has_the_promised_stack),
        cmocka_unit_test(every_index_runs_exactly_once),
        cmocka_unit_test(pool_is_used_again_and_again),
        cmocka_unit_test(pool_that_never_ran_is_freed),
        cmocka_unit_test(as_many_tasks_as_threads_run_at_the_same_time),
        cmocka_unit_test(lowest_failed_task_is_reported_whoever_fails_first),
        cmocka_unit_test(no_task_begins_after_a_failure),
        cmocka_unit_test(failure_is_forgotten_by_the_next_run),
        cmocka_unit_test(status_is_reported_even_without_a_message),
        cmocka_unit_test(available_processors_are_those_of_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
