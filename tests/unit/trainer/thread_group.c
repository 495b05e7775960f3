#include "tests/unit/trainer/thread_group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The data that ranks exchange between two barriers.
typedef struct world {
    pthread_barrier_t barrier;
    const void *given[MAX_THREAD_RANKS];
} world;

typedef struct thread_rank {
    bd_group base;
    bd_collectives collectives;
    world *world;
    void (*work)(bd_group *group, void *context);
    void *context;
    pthread_t thread;
} thread_rank;

static thread_rank *rank_of(bd_group *group)
{
    return (thread_rank *)group;
}

static thread_rank *rank_of_collectives(bd_collectives *collectives)
{
    return (thread_rank *)((char *)collectives - offsetof(thread_rank, collectives));
}

// Every rank's data stays there until all have met again.
static const void *const *hand_out(thread_rank *rank, const void *given)
{
    rank->world->given[rank->base.rank] = given;
    pthread_barrier_wait(&rank->world->barrier);
    return rank->world->given;
}

static void meet(thread_rank *rank)
{
    pthread_barrier_wait(&rank->world->barrier);
}

static bd_status collect(bd_group *group, const void *mine, size_t size_bytes, void *all,
                         bd_error *err)
{
    (void)err;
    const void *const *given = hand_out(rank_of(group), mine);
    for (int32_t r = 0; r < group->n_ranks; r++)
        memcpy((char *)all + (size_t)r * size_bytes, given[r], size_bytes);
    meet(rank_of(group));
    return BD_OK;
}

static bd_status assemble(bd_group *group, const float *mine, float *whole,
                          const int64_t *bounds, bd_error *err)
{
    (void)err;
    const void *const *given = hand_out(rank_of(group), mine);
    for (int32_t r = 0; group->rank == 0 && r < group->n_ranks; r++) {
        const bd_rank_slice slice = bd_rank_slice_of(bounds, r);
        memcpy(whole + slice.begin, given[r],
               (size_t)(slice.end - slice.begin) * sizeof *whole);
    }
    meet(rank_of(group));
    return BD_OK;
}

static bd_status sum_slices(bd_collectives *collectives, float *x, const int64_t *bounds,
                            bd_error *err)
{
    (void)err;
    thread_rank *rank = rank_of_collectives(collectives);
    const bd_rank_slice own = bd_rank_slice_of(bounds, collectives->rank);
    float *sums = calloc((size_t)(own.end - own.begin) + 1, sizeof *sums);
    if (!sums)
        abort();
    const void *const *given = hand_out(rank, x);
    for (int64_t i = own.begin; i < own.end; i++)
        for (int32_t r = 0; r < collectives->n_ranks; r++)
            sums[i - own.begin] += ((const float *)given[r])[i];
    meet(rank);
    // The rest is unspecified and must not be used.
    memset(x, 0xff, (size_t)bounds[collectives->n_ranks] * sizeof *x);
    memcpy(x + own.begin, sums, (size_t)(own.end - own.begin) * sizeof *x);
    free(sums);
    return BD_OK;
}

static bd_status gather_slices(bd_collectives *collectives, void *x, const int64_t *bounds,
                               size_t number_bytes, bd_error *err)
{
    (void)err;
    thread_rank *rank = rank_of_collectives(collectives);
    const void *const *given = hand_out(rank, x);
    for (int32_t r = 0; r < collectives->n_ranks; r++) {
        const bd_rank_slice slice = bd_rank_slice_of(bounds, r);
        const size_t at = (size_t)slice.begin * number_bytes;
        if (r != collectives->rank)
            memcpy((char *)x + at, (const char *)given[r] + at,
                   (size_t)(slice.end - slice.begin) * number_bytes);
    }
    meet(rank);
    return BD_OK;
}

static void leave(bd_group *group)
{
    (void)group;
}

static void abort_all(bd_group *group, int exit_status)
{
    (void)group;
    exit(exit_status);
}

static const bd_collectives_operations collectives_operations = {
    .name = "threads", .sum_slices = sum_slices, .gather_slices = gather_slices};
static const bd_group_operations group_operations = {
    .collect = collect, .assemble = assemble, .abort = abort_all, .leave = leave};

static void *rank_main(void *argument)
{
    thread_rank *rank = argument;
    rank->work(&rank->base, rank->context);
    return NULL;
}

void run_ranks(int32_t n_ranks, void (*work)(bd_group *group, void *context), void *context)
{
    world w;
    thread_rank ranks[MAX_THREAD_RANKS];
    pthread_barrier_init(&w.barrier, NULL, (unsigned)n_ranks);
    for (int32_t r = 0; r < n_ranks; r++) {
        thread_rank *rank = &ranks[r];
        *rank = (thread_rank){.collectives = {&collectives_operations, r, n_ranks},
                              .world = &w,
                              .work = work,
                              .context = context};
        rank->base = (bd_group){.operations = &group_operations,
                                .collectives = &rank->collectives,
                                .rank = r,
                                .n_ranks = n_ranks};
        if (pthread_create(&rank->thread, NULL, rank_main, rank) != 0)
            abort();
    }
    for (int32_t r = 0; r < n_ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&w.barrier);
}
