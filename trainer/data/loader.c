#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/balance.h"
#include "trainer/data/mixture.h"

// Two slots: the trainer uses one while the thread fills the other.
typedef struct slot {
    bd_balanced_batch balanced;
    bd_status status;
    bd_error error;
    bool full;
} slot;

struct bd_loader {
    const bd_rows *rows;
    bd_loader_order order;
    bd_mixture mixture;
    int64_t place;
    int64_t *numbers;   // [batch_rows]: the rows of a batch, then their order after balancing
    bd_batch in_order;  // a batch in the order of the run
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

static int64_t count_parts(const bd_loader_order *order)
{
    return order->n_ranks * order->n_micro_batches;
}

static bd_status fill(bd_loader *loader, bd_balanced_batch *balanced, bd_error *err)
{
    const bd_loader_order *order = &loader->order;
    const int64_t n = order->batch_rows;
    const bool is_whole =
        count_parts(order) == 1;  // it stays in order: neighbours need no copy
    bd_batch *batch = is_whole ? &balanced->batch : &loader->in_order;
    for (int64_t i = 0; i < n; i++)
        BD_TRY(bd_mixture_at(&loader->mixture, loader->place + i, &loader->numbers[i], err));
    loader->place += n;
    BD_TRY(bd_batch_load(batch, loader->rows, loader->numbers, n, loader->hasher, err));
    if (is_whole) {
        balanced->part_ends[0] = n;
        return BD_OK;
    }
    BD_TRY(bd_balance_rows(&batch->boundaries, order->n_ranks, order->n_micro_batches,
                           loader->numbers, balanced->part_ends, err));
    return bd_batch_rearrange(&balanced->batch, batch, loader->numbers, err);
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
        s->status = fill(loader, &s->balanced, &s->error);
        pthread_mutex_lock(&loader->lock);
        s->full = true;
        pthread_cond_broadcast(&loader->changed);
        if (s->status != BD_OK)
            break;  // the trainer gets the error and stops
        turn = 1 - turn;
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

bd_status bd_loader_new(bd_loader **out, const bd_rows *rows, const bd_loader_order *order,
                        bd_error *err)
{
    *out = NULL;
    bd_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the loader");
    loader->rows = rows;
    loader->order = *order;
    loader->place = order->first_place;
    loader->in_use = -1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->numbers = calloc((size_t)order->batch_rows, sizeof *loader->numbers);
    loader->hasher = bd_hasher_new();
    bool complete = loader->numbers && loader->hasher;
    for (int i = 0; i < 2; i++) {
        int64_t *ends = calloc((size_t)count_parts(order), sizeof *ends);
        loader->slots[i].balanced.part_ends = ends;
        complete = complete && ends;
    }
    bd_status status =
        complete ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the loader");
    if (status == BD_OK)
        status = bd_mixture_init(&loader->mixture, rows, order->seed, err);
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

bd_status bd_loader_next(bd_loader *loader, const bd_balanced_batch **batch, bd_error *err)
{
    pthread_mutex_lock(&loader->lock);
    loader->in_use = -1;  // the trainer has finished the last one
    pthread_cond_broadcast(&loader->changed);
    slot *s = &loader->slots[loader->next];
    while (!s->full)
        pthread_cond_wait(&loader->changed, &loader->lock);
    if (s->status == BD_OK) {
        s->full = false;
        loader->in_use = loader->next;
        loader->next = 1 - loader->next;
    }  // otherwise the slot keeps the error for later calls: the thread has ended
    pthread_mutex_unlock(&loader->lock);
    *batch = s->status == BD_OK ? &s->balanced : NULL;
    if (s->status != BD_OK && err)
        *err = s->error;
    return s->status;
}

const bd_balanced_batch *bd_loader_peek(bd_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    const slot *s = &loader->slots[loader->next];
    const bool ready = s->full && s->status == BD_OK;
    pthread_mutex_unlock(&loader->lock);
    return ready ? &s->balanced : NULL;
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
    for (int i = 0; i < 2; i++) {
        bd_batch_release(&loader->slots[i].balanced.batch);
        free(loader->slots[i].balanced.part_ends);
    }
    bd_batch_release(&loader->in_order);
    bd_mixture_release(&loader->mixture);
    bd_hasher_free(loader->hasher);
    free(loader->numbers);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
