#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/balance.h"
#include "trainer/data/mixture.h"

// Two slots: the trainer uses one while the thread fills the other.
typedef struct slot {
    bd_dealt_batch dealt;
    bd_status status;
    bd_error error;
    bool full;
} slot;

struct bd_loader {
    const bd_rows *rows;
    bd_loader_order order;
    bd_mixture mixture;
    int64_t place;
    int64_t
        *numbers;  // [batch_rows]: the rows of a batch, then the order that they are dealt in
    bd_batch undealt;  // a batch in the order of the run
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

static bd_status load_next(bd_loader *loader, bd_batch *batch, bd_error *err)
{
    const int64_t n = loader->order.batch_rows;
    for (int64_t i = 0; i < n; i++)
        BD_TRY(bd_mixture_at(&loader->mixture, loader->place + i, &loader->numbers[i], err));
    loader->place += n;
    return bd_batch_load(batch, loader->rows, loader->numbers, n, loader->hasher, err);
}

static bd_status fill(bd_loader *loader, bd_dealt_batch *dealt, bd_error *err)
{
    const bd_loader_order *order = &loader->order;
    if (count_parts(order) == 1) {  // as it is, so that neighbouring rows need no copy
        dealt->part_ends[0] = order->batch_rows;
        return load_next(loader, &dealt->batch, err);
    }
    bd_batch *undealt = &loader->undealt;
    BD_TRY(load_next(loader, undealt, err));
    BD_TRY(bd_deal_rows(&undealt->boundaries, order->n_ranks, order->n_micro_batches,
                        loader->numbers, dealt->part_ends, err));
    return bd_batch_rearrange(&dealt->batch, undealt, loader->numbers, err);
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
        s->status = fill(loader, &s->dealt, &s->error);
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

static bd_status allocate(bd_loader *loader, bd_error *err)
{
    bool complete = true;
    for (int i = 0; i < 2; i++) {
        int64_t *ends = calloc((size_t)count_parts(&loader->order), sizeof *ends);
        loader->slots[i].dealt.part_ends = ends;
        complete &= ends != NULL;
    }
    loader->numbers = calloc((size_t)loader->order.batch_rows, sizeof *loader->numbers);
    loader->hasher = bd_hasher_new();
    if (!complete || !loader->numbers || !loader->hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the loader");
    return BD_OK;
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
    bd_status status = allocate(loader, err);
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

bd_status bd_loader_next(bd_loader *loader, const bd_dealt_batch **batch, bd_error *err)
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
    *batch = s->status == BD_OK ? &s->dealt : NULL;
    if (s->status != BD_OK && err)
        *err = s->error;
    return s->status;
}

const bd_dealt_batch *bd_loader_peek(bd_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    const slot *s = &loader->slots[loader->next];
    const bool ready = s->full && s->status == BD_OK;
    pthread_mutex_unlock(&loader->lock);
    return ready ? &s->dealt : NULL;
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
        bd_batch_release(&loader->slots[i].dealt.batch);
        free(loader->slots[i].dealt.part_ends);
    }
    bd_batch_release(&loader->undealt);
    bd_mixture_release(&loader->mixture);
    bd_hasher_free(loader->hasher);
    free(loader->numbers);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
