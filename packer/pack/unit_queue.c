#include "packer/pack/unit_queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/folder.h"

typedef enum item_state {
    ITEM_UNCLAIMED,  // nobody in this process has touched it
    ITEM_WAITING,    // a stream that this process has begun, to be read further
    ITEM_BUSY,
    ITEM_DONE,  // or another process has it
} item_state;

struct bd_unit_queue {
    pthread_mutex_t mutex;
    pthread_cond_t given_back;
    const bd_units *units;  // borrowed
    int lock;
    size_t first;
    item_state *states;  // [units->n], owned
    size_t n_before;     // so many items, from `first` on, are done
    bool stopped;
};

bd_status bd_unit_queue_new(bd_unit_queue **out, const bd_units *units, int lock, size_t first,
                            bd_error *err)
{
    bd_unit_queue *queue = calloc(1, sizeof *queue);
    *out = queue;
    if (queue)
        queue->states = calloc(units->n + 1, sizeof *queue->states);
    if (!queue || !queue->states) {
        free(queue);
        *out = NULL;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu units", units->n);
    }
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->given_back, NULL);
    queue->units = units;
    queue->lock = lock;
    queue->first = first;
    return BD_OK;
}

void bd_unit_queue_free(bd_unit_queue *queue)
{
    if (!queue)
        return;
    pthread_cond_destroy(&queue->given_back);
    pthread_mutex_destroy(&queue->mutex);
    free(queue->states);
    free(queue);
}

static size_t item_at(const bd_unit_queue *queue, size_t i)
{
    return (queue->first + i) % queue->units->n;
}

// Looks once through all items. *found is false if none can be had now; *later tells whether one
// may be given back.
static bd_status find_item(bd_unit_queue *queue, size_t *item, bool *found, bool *later,
                           bd_error *err)
{
    const size_t n = queue->units->n;
    *found = *later = false;
    while (queue->n_before < n && queue->states[item_at(queue, queue->n_before)] == ITEM_DONE)
        queue->n_before++;
    for (size_t i = queue->n_before; i < n; i++) {
        *item = item_at(queue, i);
        item_state *state = &queue->states[*item];
        *later |= *state == ITEM_BUSY && queue->units->items[*item].is_stream;
        if (*state == ITEM_BUSY || *state == ITEM_DONE)
            continue;
        *found = true;
        if (queue->lock >= 0 && *state == ITEM_UNCLAIMED)
            BD_TRY(bd_folder_claim(queue->lock, (int64_t)*item, found, err));
        *state = *found ? ITEM_BUSY : ITEM_DONE;  // another process has it
        if (*found)
            return BD_OK;
    }
    return BD_OK;
}

// The loop ends: a worker waits only while another one holds a stream, which gives it back, or
// stops the queue after a failure; both wake all that wait.
bd_status bd_unit_queue_take(bd_unit_queue *queue, size_t *item, bool *found, bd_error *err)
{
    bd_status status = BD_OK;
    bool later = true;
    *found = false;
    pthread_mutex_lock(&queue->mutex);
    while (status == BD_OK && !*found && later && !queue->stopped) {
        status = find_item(queue, item, found, &later, err);
        if (status == BD_OK && !*found && later)
            pthread_cond_wait(&queue->given_back, &queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

void bd_unit_queue_give_back(bd_unit_queue *queue, size_t item, bool done)
{
    pthread_mutex_lock(&queue->mutex);
    queue->states[item] = done ? ITEM_DONE : ITEM_WAITING;
    pthread_cond_broadcast(&queue->given_back);
    pthread_mutex_unlock(&queue->mutex);
}

void bd_unit_queue_stop(bd_unit_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->stopped = true;
    pthread_cond_broadcast(&queue->given_back);
    pthread_mutex_unlock(&queue->mutex);
}
