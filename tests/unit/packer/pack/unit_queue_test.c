#include "packer/pack/unit_queue.h"

#include <pthread.h>
#include <sys/wait.h>

#include "common/base/folder.h"
#include "common/base/threads.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { MAX_ITEMS = 600, N_SLICES = 40, ALONE = -1 };

// Units; every `one_in`-th is a stream (0: none).
static bd_units make_units(size_t n, size_t one_in)
{
    static bd_planned items[MAX_ITEMS];
    assert_true(n <= MAX_ITEMS);
    for (size_t i = 0; i < n; i++)
        items[i] = (bd_planned){.unit = {(int64_t)i, 0, 1, true},
                                .is_stream = one_in > 0 && i % one_in == 0};
    return (bd_units){.items = items, .n = n};
}

static bd_unit_queue *make_schedule(const bd_units *units, int lock, size_t first)
{
    bd_unit_queue *queue;
    bd_error err = {0};
    if (bd_unit_queue_new(&queue, units, lock, first, &err) != BD_OK)
        fail_msg("%s", err.message);
    return queue;
}

static bool take(bd_unit_queue *queue, size_t *item)
{
    bool found;
    assert_int_equal(bd_unit_queue_take(queue, item, &found, NULL), BD_OK);
    return found;
}

// ---- One worker ---------------------------------------------------------------------------

static void items_are_handed_out_in_order_from_the_first(void **state)
{
    (void)state;
    static const size_t COUNTS[] = {0, 1, 2, 7};
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
        for (size_t first = 0; first <= 2 * COUNTS[c]; first++) {
            const bd_units units = make_units(COUNTS[c], 0);
            bd_unit_queue *queue = make_schedule(&units, ALONE, first);
            size_t item;
            for (size_t i = 0; i < COUNTS[c]; i++) {
                assert_true(take(queue, &item));
                assert_int_equal(item, (first + i) % COUNTS[c]);
                if (i % 2)  // whether it is returned soon or late changes nothing
                    bd_unit_queue_give_back(queue, item, true);
            }
            assert_false(take(queue, &item));
            assert_false(take(queue, &item));
            bd_unit_queue_free(queue);
        }
    }
    bd_unit_queue_free(NULL);
}

static void a_stream_that_is_not_done_comes_before_what_follows_it(void **state)
{
    (void)state;
    const bd_units units = make_units(3, 2);  // stream, unit, stream
    bd_unit_queue *queue = make_schedule(&units, ALONE, 0);
    size_t item;
    for (int slice = 0; slice < 3; slice++) {
        assert_true(take(queue, &item));
        assert_int_equal(item, 0);
        bd_unit_queue_give_back(queue, item, slice == 2);
    }
    for (size_t expected = 1; expected <= 2; expected++) {
        assert_true(take(queue, &item));
        assert_int_equal(item, expected);
        bd_unit_queue_give_back(queue, item, true);
    }
    assert_false(take(queue, &item));
    bd_unit_queue_free(queue);
}

static void a_stream_that_is_being_read_is_passed_over(void **state)
{
    (void)state;
    const bd_units units = make_units(3, 2);
    bd_unit_queue *queue = make_schedule(&units, ALONE, 0);
    size_t a, b, c;
    assert_true(take(queue, &a));
    assert_true(take(queue, &b));
    assert_true(take(queue, &c));
    assert_int_equal(a, 0);
    assert_int_equal(b, 1);
    assert_int_equal(c, 2);
    bd_unit_queue_give_back(queue, c, false);
    assert_true(take(queue, &c));
    assert_int_equal(c, 2);
    bd_unit_queue_free(queue);
}

static void nothing_is_handed_out_after_a_stop(void **state)
{
    (void)state;
    const bd_units units = make_units(3, 2);
    bd_unit_queue *queue = make_schedule(&units, ALONE, 0);
    size_t item;
    assert_true(take(queue, &item));
    bd_unit_queue_stop(queue);
    assert_false(take(queue, &item));
    bd_unit_queue_give_back(queue, 0, false);
    assert_false(take(queue, &item));
    bd_unit_queue_free(queue);
}

// ---- Many workers -------------------------------------------------------------------------

// The work of each worker. No lock guards this: the queue gives an item to one worker at a
// time, so there is no race, and ThreadSanitizer checks that.
typedef struct crowd {
    bd_unit_queue *queue;
    const bd_units *units;
    int times[MAX_ITEMS];
} crowd;

static bd_status work(void *context, int64_t index, bd_error *err)
{
    crowd *c = context;
    uint64_t random = (uint64_t)index;
    for (;;) {
        size_t item;
        bool found;
        BD_TRY(bd_unit_queue_take(c->queue, &item, &found, err));
        if (!found)
            return BD_OK;
        const int n = ++c->times[item];
        for (int spin = random_between(&random, 0, 200); spin > 0; spin--)
            next_random(&random);
        bd_unit_queue_give_back(c->queue, item,
                                !c->units->items[item].is_stream || n == N_SLICES);
    }
}

static void nothing_is_lost_or_done_twice_by_many_workers(void **state)
{
    (void)state;
    static const struct {
        size_t n, one_in, first;
        int n_workers;
    } CASES[] = {
        {600, 50, 0, 8}, {600, 50, 599, 3}, {5, 1, 2, 16}, {1, 1, 0, 4}, {600, 0, 7, 5}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const bd_units units = make_units(CASES[i].n, CASES[i].one_in);
        crowd c = {make_schedule(&units, ALONE, CASES[i].first), &units, {0}};
        bd_threads *threads;
        assert_int_equal(bd_threads_new(&threads, CASES[i].n_workers, NULL), BD_OK);
        assert_int_equal(bd_threads_run(threads, work, &c, CASES[i].n_workers, NULL), BD_OK);
        for (size_t k = 0; k < units.n; k++)
            assert_int_equal(c.times[k], units.items[k].is_stream ? N_SLICES : 1);
        bd_threads_free(threads);
        bd_unit_queue_free(c.queue);
    }
}

typedef struct waiter {
    bd_unit_queue *queue;
    size_t item;
    bool found;
    pthread_t thread;
} waiter;

static void *wait_for_one(void *context)
{
    waiter *w = context;
    if (bd_unit_queue_take(w->queue, &w->item, &w->found, NULL) != BD_OK)
        w->item = SIZE_MAX;
    return NULL;
}

static void start_waiter(waiter *w, bd_unit_queue *queue)
{
    *w = (waiter){.queue = queue, .item = SIZE_MAX};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_one, w), 0);
    usleep(20000);  // most likely it waits by now; otherwise the outcome is the same
}

static void whoever_waits_for_a_stream_goes_on_with_it(void **state)
{
    (void)state;
    const bd_units units = make_units(1, 1);
    bd_unit_queue *queue = make_schedule(&units, ALONE, 0);
    size_t item;
    waiter w;
    assert_true(take(queue, &item));
    start_waiter(&w, queue);
    bd_unit_queue_give_back(queue, item, false);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_true(w.found);
    assert_int_equal(w.item, 0);
    bd_unit_queue_free(queue);
}

static void whoever_waits_ends_with_the_stream(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        const bd_units units = make_units(1, 1);
        bd_unit_queue *queue = make_schedule(&units, ALONE, 0);
        size_t item;
        waiter w[2];
        assert_true(take(queue, &item));
        start_waiter(&w[0], queue);
        start_waiter(&w[1], queue);
        if (stopped)
            bd_unit_queue_stop(queue);
        else
            bd_unit_queue_give_back(queue, item, true);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(w[i].thread, NULL), 0);
            assert_false(w[i].found);
        }
        bd_unit_queue_free(queue);
    }
}

// ---- Several processes --------------------------------------------------------------------

#ifndef __SANITIZE_THREAD__  // it does not follow forks
// Takes as many items as it can, one at a time, and reports each through the pipe; keeps its
// claims until `end` is closed.
static void claim_in_process(const bd_units *units, size_t first, int said, const int *end)
{
    int lock;
    size_t item;
    char byte;
    uint64_t random = first;
    close(end[1]);
    if (bd_folder_lock(&lock, ".", BD_LOCK_SHARED, "testing", NULL) != BD_OK)
        _exit(1);
    bd_unit_queue *queue = make_schedule(units, lock, first);
    int times[MAX_ITEMS] = {0};
    while (take(queue, &item)) {
        const int n = ++times[item];
        const bool done = !units->items[item].is_stream || n == 3;
        if (done)
            (void)!write(said, &item, sizeof item);
        if (random_between(&random, 0, 9) == 0)
            usleep(200);
        bd_unit_queue_give_back(queue, item, done);
    }
    item = SIZE_MAX;  // nothing is left for this process
    (void)!write(said, &item, sizeof item);
    (void)!read(end[0], &byte, 1);
    _exit(0);
}

static void every_item_is_claimed_by_one_process(void **state)
{
    (void)state;
    enum { N_PROCESSES = 4 };
    const bd_units units = make_units(200, 20);
    int said[2], end[2], times[MAX_ITEMS] = {0};
    pid_t children[N_PROCESSES];
    assert_int_equal(pipe(said), 0);
    assert_int_equal(pipe(end), 0);
    for (size_t i = 0; i < N_PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            claim_in_process(&units, i * units.n / N_PROCESSES, said[1], end);
    }
    close(said[1]);
    close(end[0]);
    for (int n_ended = 0; n_ended < N_PROCESSES;) {
        size_t item;
        assert_int_equal(read(said[0], &item, sizeof item), sizeof item);
        if (item == SIZE_MAX)
            n_ended++;
        else
            times[item]++;
    }
    for (size_t i = 0; i < units.n; i++)
        assert_int_equal(times[i], 1);

    // While they live, nothing is left for another process; afterwards everything is.
    int lock;
    size_t item;
    assert_int_equal(bd_folder_lock(&lock, ".", BD_LOCK_SHARED, "testing", NULL), BD_OK);
    bd_unit_queue *queue = make_schedule(&units, lock, 0);
    assert_false(take(queue, &item));
    bd_unit_queue_free(queue);
    close(end[1]);
    close(said[0]);
    for (size_t i = 0; i < N_PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    queue = make_schedule(&units, lock, 0);
    assert_true(take(queue, &item));
    assert_int_equal(item, 0);
    bd_unit_queue_free(queue);
    close(lock);
}
#endif

static void a_lock_that_cannot_be_asked_is_an_error(void **state)
{
    (void)state;
    const bd_units units = make_units(1, 0);
    int lock;
    assert_int_equal(bd_folder_lock(&lock, ".", BD_LOCK_SHARED, "testing", NULL), BD_OK);
    close(lock);  // now it is no lock file
    bd_unit_queue *queue = make_schedule(&units, lock, 0);
    size_t item;
    bool found;
    bd_error err = {0};
    assert_int_equal(bd_unit_queue_take(queue, &item, &found, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "cannot lock"));
    bd_unit_queue_free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_handed_out_in_order_from_the_first),
        cmocka_unit_test(a_stream_that_is_not_done_comes_before_what_follows_it),
        cmocka_unit_test(a_stream_that_is_being_read_is_passed_over),
        cmocka_unit_test(nothing_is_handed_out_after_a_stop),
        cmocka_unit_test(nothing_is_lost_or_done_twice_by_many_workers),
        cmocka_unit_test(whoever_waits_for_a_stream_goes_on_with_it),
        cmocka_unit_test(whoever_waits_ends_with_the_stream),
#ifndef __SANITIZE_THREAD__
        test_inside_folder(every_item_is_claimed_by_one_process),
#endif
        test_inside_folder(a_lock_that_cannot_be_asked_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
