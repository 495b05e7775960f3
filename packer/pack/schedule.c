#include "packer/pack/schedule.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/folder.h"

typedef enum item_state {
    ITEM_UNCLAIMED,  // nobody in this process has touched it
    ITEM_WAITING,    // a series of ours, to be read further
    ITEM_BUSY,
    ITEM_DONE,  // or another process has it
} item_state;

struct bd_schedule {
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    const bd_units *units;  // borrowed
    int lock;
    size_t first;
    item_state *states;  // [units->n], owned
    size_t n_before;     // items from `first` on of which nothing is left
    bool stopped;
};

bd_status bd_schedule_new(bd_schedule **out, const bd_units *units, int lock, size_t first,
                          bd_error *err)
{
    bd_schedule *schedule = calloc(1, sizeof *schedule);
    *out = schedule;
    if (schedule)
        schedule->states = calloc(units->n + 1, sizeof *schedule->states);
    if (!schedule || !schedule->states) {
        free(schedule);
        *out = NULL;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu units", units->n);
    }
    pthread_mutex_init(&schedule->mutex, NULL);
    pthread_cond_init(&schedule->returned, NULL);
    schedule->units = units;
    schedule->lock = lock;
    schedule->first = first;
    return BD_OK;
}

void bd_schedule_free(bd_schedule *schedule)
{
    if (!schedule)
        return;
    pthread_cond_destroy(&schedule->returned);
    pthread_mutex_destroy(&schedule->mutex);
    free(schedule->states);
    free(schedule);
}

static bd_status claim(bd_schedule *schedule, size_t item, bool *claimed, bd_error *err)
{
    *claimed = true;
    if (schedule->lock < 0 || schedule->states[item] != ITEM_UNCLAIMED)
        return BD_OK;
    return bd_folder_claim(schedule->lock, (int64_t)item, claimed, err);
}

static size_t item_at(const bd_schedule *schedule, size_t i)
{
    return (schedule->first + i) % schedule->units->n;
}

// One look at all items. *found is false if none can be had now; *later tells whether one may
// come back.
static bd_status look(bd_schedule *schedule, size_t *item, bool *found, bool *later,
                      bd_error *err)
{
    const size_t n = schedule->units->n;
    *found = *later = false;
    while (schedule->n_before < n &&
           schedule->states[item_at(schedule, schedule->n_before)] == ITEM_DONE)
        schedule->n_before++;
    for (size_t i = schedule->n_before; i < n; i++) {
        *item = item_at(schedule, i);
        item_state *state = &schedule->states[*item];
        *later |= *state == ITEM_BUSY && schedule->units->items[*item].is_series;
        if (*state == ITEM_BUSY || *state == ITEM_DONE)
            continue;
        BD_TRY(claim(schedule, *item, found, err));
        *state = *found ? ITEM_BUSY : ITEM_DONE;
        if (*found)
            return BD_OK;
    }
    return BD_OK;
}

bd_status bd_schedule_take(bd_schedule *schedule, size_t *item, bool *found, bd_error *err)
{
    bd_status status = BD_OK;
    bool later = true;
    *found = false;
    pthread_mutex_lock(&schedule->mutex);
    while (status == BD_OK && !*found && later && !schedule->stopped) {
        status = look(schedule, item, found, &later, err);
        if (status == BD_OK && !*found && later)
            pthread_cond_wait(&schedule->returned, &schedule->mutex);
    }
    pthread_mutex_unlock(&schedule->mutex);
    return status;
}

void bd_schedule_return(bd_schedule *schedule, size_t item, bool done)
{
    pthread_mutex_lock(&schedule->mutex);
    schedule->states[item] = done ? ITEM_DONE : ITEM_WAITING;
    pthread_cond_broadcast(&schedule->returned);
    pthread_mutex_unlock(&schedule->mutex);
}

void bd_schedule_stop(bd_schedule *schedule)
{
    pthread_mutex_lock(&schedule->mutex);
    schedule->stopped = true;
    pthread_cond_broadcast(&schedule->returned);
    pthread_mutex_unlock(&schedule->mutex);
}
