#include "trainer/loader.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/mixture.h"

// Two slots: the trainer uses one while the thread fills the other.
typedef struct slot {
    bd_batch batch;
    bd_status status;
    bd_error error;
    bool full;
} slot;

struct bd_loader {
    const bd_rows *rows;
    bd_mixture order;
    int64_t batch_rows, place;
    int64_t *numbers;  // [batch_rows]
    bd_hasher *hasher;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;  // guards what follows
    pthread_cond_t changed;
    slot slots[2];
    int next;    // slot that the trainer gets next
    int in_use;  // slot that the trainer has, -1 at first
    bool ending;
};

static bd_status fill(bd_loader *loader, bd_batch *batch, bd_error *err)
{
    for (int64_t i = 0; i < loader->batch_rows; i++)
        BD_TRY(bd_mixture_at(&loader->order, loader->place + i, &loader->numbers[i], err));
    loader->place += loader->batch_rows;
    return bd_batch_load(batch, loader->rows, loader->numbers, loader->batch_rows,
                         loader->hasher, err);
}

static void *loader_main(void *argument)
{
    bd_loader *loader = argument;
    int turn = 0;
    pthread_mutex_lock(&loader->lock);
    while (!loader->ending) {
        slot *s = &loader->slots[turn];
        if (s->full || loader->in_use == turn) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        pthread_mutex_unlock(&loader->lock);
        s->status = fill(loader, &s->batch, &s->error);
        pthread_mutex_lock(&loader->lock);
        s->full = true;
        pthread_cond_broadcast(&loader->changed);
        if (s->status != BD_OK)
            break;  // the trainer will meet the error and stop
        turn = 1 - turn;
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

bd_status bd_loader_new(bd_loader **out, const bd_rows *rows, uint64_t seed, int64_t batch_rows,
                        int64_t first_place, bd_error *err)
{
    *out = NULL;
    bd_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the loader");
    loader->rows = rows;
    loader->batch_rows = batch_rows;
    loader->place = first_place;
    loader->in_use = -1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->numbers = calloc((size_t)batch_rows, sizeof *loader->numbers);
    loader->hasher = bd_hasher_new();
    bd_status status = loader->numbers && loader->hasher
                           ? bd_mixture_init(&loader->order, rows, seed, err)
                           : bd_fail(err, BD_ERR_MEMORY, "no memory for the loader");
    if (status == BD_OK) {
        const int number = pthread_create(&loader->thread, NULL, loader_main, loader);
        loader->started = number == 0;
        if (number != 0)
            status = bd_fail(err, BD_ERR_IO, "cannot start the loader: %s", strerror(number));
    }
    if (status != BD_OK)
        bd_loader_free(loader);
    else
        *out = loader;
    return status;
}

bd_status bd_loader_next(bd_loader *loader, const bd_batch **batch, bd_error *err)
{
    pthread_mutex_lock(&loader->lock);
    loader->in_use = -1;  // the trainer is done with the last one
    pthread_cond_broadcast(&loader->changed);
    slot *s = &loader->slots[loader->next];
    while (!s->full)
        pthread_cond_wait(&loader->changed, &loader->lock);
    if (s->status == BD_OK) {
        s->full = false;
        loader->in_use = loader->next;
        loader->next = 1 - loader->next;
    }  // else it stays, for whoever asks again: the thread has ended
    pthread_mutex_unlock(&loader->lock);
    *batch = s->status == BD_OK ? &s->batch : NULL;
    if (s->status != BD_OK && err)
        *err = s->error;
    return s->status;
}

const bd_batch *bd_loader_peek(bd_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    const slot *s = &loader->slots[loader->next];
    const bool ready = s->full && s->status == BD_OK;
    pthread_mutex_unlock(&loader->lock);
    return ready ? &s->batch : NULL;
}

void bd_loader_free(bd_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->ending = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    if (loader->started)
        pthread_join(loader->thread, NULL);
    for (int i = 0; i < 2; i++)
        bd_batch_release(&loader->slots[i].batch);
    bd_mixture_release(&loader->order);
    bd_hasher_free(loader->hasher);
    free(loader->numbers);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
