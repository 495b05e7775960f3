// How units are packed in parallel.
//
// Workers take items from a queue (unit_queue.h) until it is empty. A unit that can be read on
// its own is read, packed and published by one worker. A stream, which can only be read from
// front to back, is passed from worker to worker: one reads a slice into memory, gives the stream
// back, and packs the slice while another reads on. So decompression, which is sequential, does
// not hold up tokenising, which takes longer.
//
// The bytes of a shard depend on its unit alone, so it does not matter who packs what, nor when.
// Results are stored by item and slice, not in the order in which they come.
//
// It ends: the queue hands out each unit once and each slice once. Streams end because files do;
// a worker that fails stops the queue, so nobody waits for a stream that it holds.
#include "packer/pack/workers.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "packer/input/reader.h"
#include "packer/input/slice_buffer.h"
#include "packer/pack/existing_shards.h"
#include "packer/pack/unit_queue.h"

// An input that is read from front to back. The worker that has taken its item from the queue owns
// it.
typedef struct stream {
    bd_reader *reader;  // owned; NULL until it is begun and after its end
    int64_t next_slice;
    int64_t consumed;  // bytes of the file that were added to the progress
    bool begun;
    bd_item_result existing;  // its first slices, as far as their shards exist
} stream;

// All workers share it. `lock` guards the results, the limit and the failure; the queue itself
// guards what it hands out.
typedef struct shared_work {
    bd_workers *workers;
    bd_unit_queue *queue;
    stream *streams;  // [units->n]; only those of streams are used
    pthread_mutex_t lock;
    int64_t limit_left;  // documents; INT64_MAX without a limit, and then never changed
    // The first failure in the order of the units.
    size_t failed_item;
    int64_t failed_slice;
    bd_error failure;
} shared_work;

// One worker keeps this from unit to unit.
typedef struct worker {
    shared_work *work;
    bd_unit_packer *packer;    // owned
    bd_reader *reader;         // owned; of the input that was read last, or NULL
    bd_slice_buffer gathered;  // owned; the slice of a stream
} worker;

// ---- Results -------------------------------------------------------------------------------

bd_status bd_workers_init(bd_workers *workers, const bd_pack_job *job, const bd_units *units,
                          bool may_continue, bd_error *err)
{
    *workers = (bd_workers){.job = job, .units = units, .may_continue = may_continue};
    workers->items = calloc(units->n + 1, sizeof *workers->items);
    return workers->items ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the units");
}

void bd_workers_release(bd_workers *workers)
{
    for (size_t i = 0; workers->items && i < workers->units->n; i++)
        free(workers->items[i].units);
    free(workers->items);
    bd_bad_places_release(&workers->bad);
    *workers = (bd_workers){0};
}

// `slice` is that of a stream; a unit on its own has the one place 0.
static bd_status set_result(bd_item_result *result, int64_t slice, const bd_packed_unit *packed,
                            bd_error *err)
{
    const size_t k = (size_t)slice, n_before = result->n;
    BD_TRY(bd_array_reserve((void **)&result->units, &result->capacity, k + 1,
                            sizeof *result->units, err));
    // Slices may be finished out of order: those between are not known yet.
    for (size_t i = n_before; i < k; i++)
        result->units[i] = (bd_packed_unit){0};
    result->units[k] = *packed;
    if (k >= n_before)
        result->n = k + 1;
    return BD_OK;
}

static bd_status record_result(shared_work *w, size_t item, int64_t slice,
                               const bd_packed_unit *packed, bool continued, bd_error *err)
{
    pthread_mutex_lock(&w->lock);
    const bd_status status = set_result(&w->workers->items[item], slice, packed, err);
    w->workers->n_packed += !continued;
    w->workers->n_continued += continued;
    if (w->limit_left != INT64_MAX)
        w->limit_left -= bd_figures_documents_read(&packed->shard.figures);
    pthread_mutex_unlock(&w->lock);
    return status;
}

// Publishes a unit whose records have all been added, and keeps its first bad records.
static bd_status publish_unit(worker *k, const bd_unit *unit, bd_packed_unit *packed,
                              bd_error *err)
{
    shared_work *w = k->work;
    const bd_bad_places *bad = bd_unit_packer_bad_places(k->packer);
    if (bad->n > 0) {
        pthread_mutex_lock(&w->lock);
        const bd_status status = bd_bad_places_merge(&w->workers->bad, bad, err);
        pthread_mutex_unlock(&w->lock);
        BD_TRY(status);
    }
    return bd_unit_packer_finish(k->packer, unit, packed, err);
}

// ---- A unit on its own ---------------------------------------------------------------------

// Bytes of the file that positions up to `position` stand for.
static int64_t bytes_before(const bd_input *input, int64_t position)
{
    const bd_input_entry *entry = &input->entry;
    if (entry->extent <= 0 || position > entry->extent)
        return position > 0 ? entry->size_bytes : 0;
    return (int64_t)((double)position / (double)entry->extent * (double)entry->size_bytes);
}

static bd_status add_slice(worker *k, int64_t index, bd_slice slice, bd_error *err)
{
    const shared_work *w = k->work;
    const bd_pack_job *job = w->workers->job;
    const bd_input *input = &job->inputs->items[index];
    BD_TRY(bd_reader_open_slice(&k->reader, input, &job->reading, slice, err));
    bd_status status = BD_OK;
    bd_record record = {.position = slice.begin};
    bool found;
    int64_t reported = bytes_before(input, slice.begin);
    while (status == BD_OK && bd_unit_packer_n_documents(k->packer) < w->limit_left) {
        status = bd_reader_next(k->reader, &record, &found, err);
        if (status != BD_OK || !found)
            break;
        status = bd_unit_packer_add(k->packer, index, &record, err);
        const int64_t now = bytes_before(input, record.position);
        bd_progress_add(w->workers->progress, (uint64_t)(now - reported));
        reported = now;
    }
    bd_progress_add(w->workers->progress,
                    (uint64_t)(bytes_before(input, slice.end) - reported));
    return status;
}

static bd_status pack_unit(worker *k, size_t item, bd_error *err)
{
    shared_work *w = k->work;
    const bd_workers *workers = w->workers;
    const bd_planned *planned = &workers->units->items[item];
    const bd_unit *unit = &planned->unit;
    bd_packed_unit packed;
    const bool exists =
        workers->may_continue && bd_take_existing_unit(workers->job, planned, unit, &packed);
    if (!exists)
        bd_unit_packer_begin(k->packer, unit->input);
    for (int64_t i = unit->input; i < unit->input + unit->n_inputs; i++) {
        const bd_input *input = &workers->job->inputs->items[i];
        const bd_slice slice = bd_input_entry_slice(&input->entry, unit->slice);
        if (exists)
            bd_progress_add(workers->progress, (uint64_t)(bytes_before(input, slice.end) -
                                                          bytes_before(input, slice.begin)));
        else
            BD_TRY(add_slice(k, i, slice, err));
    }
    if (!exists)
        BD_TRY(publish_unit(k, unit, &packed, err));
    BD_TRY(record_result(w, item, 0, &packed, exists, err));
    bd_unit_queue_give_back(w->queue, item, true);
    return BD_OK;
}

// ---- A slice of a stream -------------------------------------------------------------------

// Takes the first slices of a stream, as far as their shards exist. *complete tells whether those
// are all.
static bd_status take_existing_slices(const bd_workers *workers, const bd_planned *planned,
                                      bd_item_result *existing, bool *complete, bd_error *err)
{
    bd_unit unit = planned->unit;
    bd_packed_unit packed;
    *complete = false;
    for (unit.slice = 0; !*complete && unit.slice < BD_MAX_UNITS; unit.slice++) {
        BD_TRY(bd_interrupt_check(err));
        if (!bd_take_existing_unit(workers->job, planned, &unit, &packed))
            return BD_OK;
        BD_TRY(set_result(existing, unit.slice, &packed, err));
        *complete = packed.shard.unit.last;
    }
    return BD_OK;
}

// Whether a shard was made from the records that were gathered: from all of them, or from the
// first ones if the limit on documents was met with them.
static bd_status is_made_from(const bd_shard_entry *shard, const bd_slice_buffer *gathered,
                              int64_t limit, bool *same, bd_error *err)
{
    const bd_figures *figures = &shard->figures;
    const int64_t n_documents = bd_figures_documents_read(figures);
    const int64_t n = n_documents + bd_figures_bad_records(figures);
    const bool meets_limit = n_documents == limit;
    bd_record_digests digests;
    const bd_record_digests stored = {shard->records, shard->positions};
    *same = (n == (int64_t)gathered->n || (meets_limit && n < (int64_t)gathered->n)) &&
            shard->unit.last == (gathered->last || meets_limit);
    if (!*same)
        return BD_OK;
    BD_TRY(bd_slice_buffer_digests(gathered, (size_t)n, &digests, err));
    *same = bd_record_digests_equal(&digests, &stored);
    return BD_OK;
}

// A shard that exists is kept only if it was made from the very records that were read now.
static bd_status take_existing_slice(const shared_work *w, size_t item, const bd_unit *unit,
                                     const bd_slice_buffer *gathered, bd_packed_unit *packed,
                                     bool *exists, bd_error *err)
{
    const bd_workers *workers = w->workers;
    const bd_input *input = &workers->job->inputs->items[unit->input];
    const bd_item_result *existing = &w->streams[item].existing;
    bool same;
    *exists = (size_t)unit->slice < existing->n;
    if (*exists)
        *packed = existing->units[unit->slice];
    else
        *exists =
            workers->may_continue &&
            bd_take_existing_unit(workers->job, &workers->units->items[item], unit, packed);
    if (!*exists)
        return BD_OK;
    BD_TRY(is_made_from(&packed->shard, gathered, w->limit_left, &same, err));
    if (!same)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' is not what the finished part of the dataset was made from: "
                       "slice %" PRId64 " differs (%s)",
                       input->path, unit->slice,
                       bd_input_is_stdin(input) ? "--overwrite packs it anew"
                                                : "--update packs it again");
    return BD_OK;
}

// Reads the next slice of a stream into memory, gives the stream back, and packs the slice.
// *slice is its number, for the order of failures.
static bd_status pack_next_slice(worker *k, size_t item, int64_t *slice, bd_error *err)
{
    shared_work *w = k->work;
    const bd_workers *workers = w->workers;
    const bd_pack_job *job = workers->job;
    const bd_planned *planned = &workers->units->items[item];
    const bd_input *input = &job->inputs->items[planned->unit.input];
    stream *s = &w->streams[item];
    bd_unit unit = planned->unit;
    bd_packed_unit packed;
    bool exists = false;

    // If all of its shards exist, the stream need not be read again: the inputs were compared
    // before (recheck.h). Only standard input must be, since nothing but its records tells
    // whether it is the same.
    if (workers->may_continue && !s->begun) {
        BD_TRY(take_existing_slices(workers, planned, &s->existing, &exists, err));
        if (exists && !bd_input_is_stdin(input)) {
            for (size_t i = 0; i < s->existing.n; i++)
                BD_TRY(record_result(w, item, (int64_t)i, &s->existing.units[i], true, err));
            bd_progress_add(workers->progress, (uint64_t)input->entry.size_bytes);
            bd_unit_queue_give_back(w->queue, item, true);
            return BD_OK;
        }
    }

    // Reading. Where bad records are skipped, only packing tells how many records the limit
    // allows, so that all of the slice is read.
    *slice = unit.slice = s->next_slice++;
    if (!s->begun) {
        s->begun = true;
        BD_TRY(bd_reader_open(&s->reader, input, &job->reading, err));
    }
    bd_reader_begin(s->reader, bd_input_entry_slice(&input->entry, unit.slice));
    BD_TRY(bd_slice_buffer_fill(
        &k->gathered, s->reader,
        job->reading.bad_records == BD_BAD_SKIP ? INT64_MAX : w->limit_left, err));
    unit.last = k->gathered.last;
    if (unit.slice + 1 == bd_units_most(job->reading.unit_bytes) && !unit.last)
        return bd_units_fail_many(input->path, job->reading.unit_bytes, err);

    // The comparison comes before the stream is given back: after a slice that differs nobody
    // may read on and publish what follows it.
    BD_TRY(take_existing_slice(w, item, &unit, &k->gathered, &packed, &exists, err));
    const int64_t consumed = bd_reader_consumed(s->reader);
    bd_progress_add(workers->progress, (uint64_t)(consumed - s->consumed));
    s->consumed = consumed;
    if (unit.last) {
        bd_reader_close(s->reader);
        s->reader = NULL;
    }
    bd_unit_queue_give_back(w->queue, item, unit.last);  // from here on `s` is another worker's

    if (!exists) {
        const int64_t limit = w->limit_left;
        for (size_t i = 0; i < k->gathered.n && bd_unit_packer_n_documents(k->packer) < limit;
             i++) {
            BD_TRY(bd_interrupt_check(err));
            BD_TRY(bd_unit_packer_add(k->packer, unit.input, &k->gathered.records[i], err));
        }
        unit.last |= bd_unit_packer_n_documents(k->packer) == limit;
        BD_TRY(publish_unit(k, &unit, &packed, err));
    }
    return record_result(w, item, unit.slice, &packed, exists, err);
}

// ---- All units -----------------------------------------------------------------------------

// The failure that is reported is the first in the order of the units and does not depend on
// timing: units before it were handed out before it, and each of them is finished, or its failure
// is noted here.
static void note_failure(shared_work *w, size_t item, int64_t slice, const bd_error *err)
{
    pthread_mutex_lock(&w->lock);
    if (w->failure.status == BD_OK || item < w->failed_item ||
        (item == w->failed_item && slice < w->failed_slice)) {
        w->failed_item = item;
        w->failed_slice = slice;
        w->failure = *err;
    }
    pthread_mutex_unlock(&w->lock);
    bd_unit_queue_stop(w->queue);
}

// One thread: takes items until nothing is left, or something has failed.
static bd_status run_worker(void *context, int64_t index, bd_error *err)
{
    shared_work *w = context;
    worker k = {.work = w};
    size_t item;
    bool found = false;
    (void)index;
    bd_status status = bd_unit_packer_new(&k.packer, w->workers->job, err);
    if (status == BD_OK)
        status = bd_unit_queue_take(w->queue, &item, &found, err);
    while (status == BD_OK && found) {
        bd_error problem = {0};
        int64_t slice = 0;
        if (w->workers->items[item].complete || w->limit_left <= 0)
            bd_unit_queue_give_back(w->queue, item, true);
        else
            problem.status = w->workers->units->items[item].is_stream
                                 ? pack_next_slice(&k, item, &slice, &problem)
                                 : pack_unit(&k, item, &problem);
        if (problem.status != BD_OK)
            note_failure(w, item, slice, &problem);
        status = bd_unit_queue_take(w->queue, &item, &found, err);
    }
    if (status != BD_OK)
        bd_unit_queue_stop(w->queue);
    bd_reader_close(k.reader);
    bd_slice_buffer_release(&k.gathered);
    bd_unit_packer_free(k.packer);
    return status;
}

// An item is complete if all of its shards are there, up to the last one of a stream; or if it
// lies after the limit and has none.
static bool is_complete(const bd_item_result *result, bool is_stream, int64_t limit_left)
{
    if (result->n == 0)
        return limit_left <= 0;
    for (size_t k = 0; k < result->n; k++)
        if (result->units[k].shard.size_bytes == 0)
            return false;
    return !is_stream || result->units[result->n - 1].shard.unit.last;
}

bd_status bd_workers_pack_units(bd_workers *workers, int n_threads, int lock, size_t first,
                                bd_error *err)
{
    const bool limited = workers->job->limit != BD_NO_LIMIT;
    const size_t n_items = workers->units->n;
    shared_work w = {.workers = workers,
                     .limit_left = limited ? workers->job->limit : INT64_MAX};
    const int n = limited ? 1 : n_threads;
    bd_threads *threads = NULL;
    pthread_mutex_init(&w.lock, NULL);
    bd_status status = bd_unit_queue_new(&w.queue, workers->units, lock, first, err);
    if (status == BD_OK && !(w.streams = calloc(n_items + 1, sizeof *w.streams)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the units");
    if (status == BD_OK)
        status = bd_threads_new(&threads, n, err);
    if (status == BD_OK)
        status = bd_threads_run(threads, run_worker, &w, n, err);
    if (status == BD_OK && w.failure.status != BD_OK) {
        status = w.failure.status;
        if (err)
            *err = w.failure;
    }
    for (size_t i = 0; status == BD_OK && i < n_items; i++)
        workers->items[i].complete |=
            is_complete(&workers->items[i], workers->units->items[i].is_stream, w.limit_left);
    for (size_t i = 0; w.streams && i < n_items; i++) {
        bd_reader_close(w.streams[i].reader);
        free(w.streams[i].existing.units);
    }
    bd_threads_free(threads);
    free(w.streams);
    bd_unit_queue_free(w.queue);
    pthread_mutex_destroy(&w.lock);
    return status;
}

// ---- Existing shards -----------------------------------------------------------------------

static bd_status take_existing_item(void *context, int64_t index, bd_error *err)
{
    bd_workers *workers = context;
    bd_item_result *result = &workers->items[index];
    const bd_planned *planned = &workers->units->items[index];
    bd_packed_unit packed;
    if (planned->is_stream)
        return take_existing_slices(workers, planned, result, &result->complete, err);
    BD_TRY(bd_interrupt_check(err));
    result->complete = bd_take_existing_unit(workers->job, planned, &planned->unit, &packed);
    return result->complete ? set_result(result, 0, &packed, err) : BD_OK;
}

bd_status bd_workers_take_existing(bd_workers *workers, int n_threads, bd_error *err)
{
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    const bd_status status =
        bd_threads_run(threads, take_existing_item, workers, (int64_t)workers->units->n, err);
    bd_threads_free(threads);
    return status;
}
