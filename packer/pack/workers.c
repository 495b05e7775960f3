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
#include "packer/pack/schedule.h"

// An input that is read from front to back, slice after slice, by one worker at a time.
typedef struct series {
    bd_reader *reader;  // owned; NULL until it is begun and after its end
    int64_t next_slice;
    int64_t consumed;  // bytes of the file that progress knows of
    bool begun;
    bd_item_result finished;  // its first slices, as far as they were there already
} series;

// What the workers share. `lock` guards the results, not what the schedule hands out.
typedef struct work {
    bd_packing_run *run;
    bd_schedule *schedule;
    series *series;  // [units->n]; only those of series are used
    pthread_mutex_t lock;
    int64_t limit_left;  // documents; INT64_MAX without a limit, and then never changed
    // The first failure in the order of the units.
    size_t failed_item;
    int64_t failed_slice;
    bd_error failure;
} work;

// What one worker keeps from unit to unit.
typedef struct worker {
    work *work;
    bd_unit_packer *packer;  // owned
    bd_reader *reader;       // owned; of input `input`, or NULL
    int64_t input;
    bd_gathered gathered;  // owned
} worker;

// ---- Results -------------------------------------------------------------------------------

bd_status bd_packing_run_init(bd_packing_run *run, const bd_pack_job *job,
                              const bd_units *units, bool may_continue, bd_error *err)
{
    *run = (bd_packing_run){.job = job, .units = units, .may_continue = may_continue};
    run->items = calloc(units->n + 1, sizeof *run->items);
    return run->items ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the units");
}

void bd_packing_run_release(bd_packing_run *run)
{
    for (size_t i = 0; run->items && i < run->units->n; i++)
        free(run->items[i].units);
    free(run->items);
    bd_bad_places_release(&run->bad);
    *run = (bd_packing_run){0};
}

static bd_status set_result(bd_item_result *result, int64_t slice, const bd_packed_unit *packed,
                            bd_error *err)
{
    const size_t k = (size_t)slice, n_before = result->n;
    BD_TRY(bd_array_reserve((void **)&result->units, &result->capacity, k + 1,
                            sizeof *result->units, err));
    // Slices of a series may be finished out of order.
    for (size_t i = n_before; i < k; i++)
        result->units[i] = (bd_packed_unit){0};
    result->units[k] = *packed;
    if (k >= n_before)
        result->n = k + 1;
    return BD_OK;
}

// `slice` is that of a series; a unit alone has the one place 0.
static bd_status record_result(work *w, size_t item, int64_t slice,
                               const bd_packed_unit *packed, bool continued, bd_error *err)
{
    pthread_mutex_lock(&w->lock);
    const bd_status status = set_result(&w->run->items[item], slice, packed, err);
    w->run->n_packed += !continued;
    w->run->n_continued += continued;
    if (w->limit_left != INT64_MAX)
        w->limit_left -= bd_figures_documents_read(&packed->shard.figures);
    pthread_mutex_unlock(&w->lock);
    return status;
}

// ---- A unit --------------------------------------------------------------------------------

// Bytes of the file that positions up to `position` stand for.
static int64_t bytes_before(const bd_input *input, int64_t position)
{
    const bd_input_entry *entry = &input->entry;
    if (entry->extent <= 0 || position > entry->extent)
        return position > 0 ? entry->size_bytes : 0;
    return (int64_t)((double)position / (double)entry->extent * (double)entry->size_bytes);
}

// A worker's units often are neighbouring slices of one input, which is opened only once then.
static bd_status open_reader(worker *k, int64_t index, bd_error *err)
{
    const bd_pack_job *job = k->work->run->job;
    if (k->reader && k->input == index)
        return BD_OK;
    bd_reader_close(k->reader);
    k->reader = NULL;
    k->input = index;
    return bd_reader_open(&k->reader, &job->inputs->items[index], &job->reading, err);
}

static bd_status read_slice(worker *k, int64_t index, bd_slice slice, bd_error *err)
{
    const work *w = k->work;
    const bd_pack_job *job = w->run->job;
    const bd_input *input = &job->inputs->items[index];
    BD_TRY(open_reader(k, index, err));
    bd_reader_begin(k->reader, slice);
    bd_status status = BD_OK;
    bd_record record = {.position = slice.begin};
    bool found;
    int64_t reported = bytes_before(input, slice.begin);
    while (status == BD_OK && bd_unit_packer_n_documents(k->packer) < w->limit_left) {
        status = bd_interrupt_check(err);
        if (status == BD_OK)
            status = bd_reader_next(k->reader, &record, &found, err);
        if (status != BD_OK || !found)
            break;
        status = bd_unit_packer_add(k->packer, index, &record, err);
        const int64_t now = bytes_before(input, record.position);
        bd_progress_add(w->run->progress, (uint64_t)(now - reported));
        reported = now;
    }
    bd_progress_add(w->run->progress, (uint64_t)(bytes_before(input, slice.end) - reported));
    return status;
}

// The unit's records have all been added.
static bd_status finish_unit(worker *k, const bd_unit *unit, bd_packed_unit *packed,
                             bd_error *err)
{
    work *w = k->work;
    const bd_bad_places *bad = bd_unit_packer_bad_places(k->packer);
    if (bad->n > 0) {
        pthread_mutex_lock(&w->lock);
        const bd_status status = bd_bad_places_merge(&w->run->bad, bad, err);
        pthread_mutex_unlock(&w->lock);
        BD_TRY(status);
    }
    return bd_unit_packer_finish(k->packer, unit, packed, err);
}

static bd_status pack_inputs(worker *k, const bd_unit *unit, bd_packed_unit *packed,
                             bd_error *err)
{
    const bd_pack_job *job = k->work->run->job;
    bd_unit_packer_begin(k->packer, unit->input);
    for (int64_t i = unit->input; i < unit->input + unit->n_inputs; i++) {
        const bd_input_entry *entry = &job->inputs->items[i].entry;
        BD_TRY(read_slice(k, i, bd_input_entry_slice(entry, unit->slice), err));
    }
    return finish_unit(k, unit, packed, err);
}

static uint64_t unit_file_bytes(const bd_pack_job *job, const bd_unit *unit)
{
    int64_t n = 0;
    for (int64_t i = unit->input; i < unit->input + unit->n_inputs; i++) {
        const bd_input *input = &job->inputs->items[i];
        const bd_slice slice = bd_input_entry_slice(&input->entry, unit->slice);
        n += bytes_before(input, slice.end) - bytes_before(input, slice.begin);
    }
    return (uint64_t)n;
}

static bd_status do_unit(worker *k, size_t item, bd_error *err)
{
    work *w = k->work;
    const bd_planned *planned = &w->run->units->items[item];
    bd_packed_unit packed;
    const bool continued =
        w->run->may_continue && bd_take_finished(w->run->job, planned, &planned->unit, &packed);
    if (continued)
        bd_progress_add(w->run->progress, unit_file_bytes(w->run->job, &planned->unit));
    else
        BD_TRY(pack_inputs(k, &planned->unit, &packed, err));
    BD_TRY(record_result(w, item, 0, &packed, continued, err));
    bd_schedule_return(w->schedule, item, true);
    return BD_OK;
}

// ---- A slice of a series -------------------------------------------------------------------

static bd_status pack_gathered(worker *k, bd_unit *unit, bd_packed_unit *packed, bd_error *err)
{
    const int64_t limit = k->work->limit_left;
    for (size_t i = 0; i < k->gathered.n && bd_unit_packer_n_documents(k->packer) < limit;
         i++) {
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(bd_unit_packer_add(k->packer, unit->input, &k->gathered.records[i], err));
    }
    unit->last |= bd_unit_packer_n_documents(k->packer) == limit;
    return finish_unit(k, unit, packed, err);
}

// Where bad records are left out, only packing tells how many records a limit is.
static int64_t most_records(const work *w)
{
    return w->run->job->reading.bad_records == BD_BAD_SKIP ? INT64_MAX : w->limit_left;
}

// Whether a shard was made from the records that were gathered: from all of them, or from the
// first ones if the limit on documents was met with them.
static bd_status is_made_from(const bd_shard_entry *shard, const bd_gathered *gathered,
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
    BD_TRY(bd_gathered_digests(gathered, (size_t)n, &digests, err));
    *same = bd_record_digests_equal(&digests, &stored);
    return BD_OK;
}

// A shard that is there serves if it was made from the very records that were read now.
static bd_status take_same(const work *w, size_t item, const bd_unit *unit,
                           const bd_gathered *gathered, bd_packed_unit *packed, bool *taken,
                           bd_error *err)
{
    const bd_packing_run *run = w->run;
    const bd_item_result *finished = &w->series[item].finished;
    bool same;
    *taken = (size_t)unit->slice < finished->n;
    if (*taken)
        *packed = finished->units[unit->slice];
    else
        *taken = run->may_continue &&
                 bd_take_finished(run->job, &run->units->items[item], unit, packed);
    if (!*taken)
        return BD_OK;
    BD_TRY(is_made_from(&packed->shard, gathered, w->limit_left, &same, err));
    if (!same)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' is not what the finished part of the dataset was made from: "
                       "slice %" PRId64 " differs (%s)",
                       run->job->inputs->items[unit->input].path, unit->slice,
                       bd_input_is_stdin(&run->job->inputs->items[unit->input])
                           ? "--overwrite packs it anew"
                           : "--update packs it again");
    return BD_OK;
}

static bd_status begin_series(work *w, size_t item, bd_error *err)
{
    const bd_pack_job *job = w->run->job;
    series *s = &w->series[item];
    s->begun = true;
    return bd_reader_open(&s->reader,
                          &job->inputs->items[w->run->units->items[item].unit.input],
                          &job->reading, err);
}

// Reads the next slice and hands the series back, so that another worker can go on with it.
// *taken tells that its shard is there already.
static bd_status gather_next(work *w, size_t item, bd_unit *unit, bd_gathered *gathered,
                             bd_packed_unit *packed, bool *taken, bd_error *err)
{
    const bd_pack_job *job = w->run->job;
    const bd_input *input = &job->inputs->items[unit->input];
    series *s = &w->series[item];
    if (!s->begun)
        BD_TRY(begin_series(w, item, err));
    unit->slice = s->next_slice++;
    bd_reader_begin(s->reader, bd_input_entry_slice(&input->entry, unit->slice));
    BD_TRY(bd_gather(gathered, s->reader, most_records(w), err));
    unit->last = gathered->last;
    const int64_t unit_bytes = job->reading.unit_bytes;
    if (unit->slice + 1 == bd_units_most(unit_bytes) && !unit->last)
        return bd_units_fail_many(input->path, unit_bytes, err);
    // Before anybody reads on: what comes after a slice that differs must not be published.
    BD_TRY(take_same(w, item, unit, gathered, packed, taken, err));
    const int64_t consumed = bd_reader_consumed(s->reader);
    bd_progress_add(w->run->progress, (uint64_t)(consumed - s->consumed));
    s->consumed = consumed;
    if (unit->last) {
        bd_reader_close(s->reader);
        s->reader = NULL;
    }
    bd_schedule_return(w->schedule, item, unit->last);
    return BD_OK;
}

// Takes the first slices of a series, as far as they are finished. *complete tells whether
// those are all.
static bd_status take_slices(const bd_packing_run *run, const bd_planned *planned,
                             bd_item_result *finished, bool *complete, bd_error *err)
{
    bd_unit unit = planned->unit;
    bd_packed_unit packed;
    *complete = false;
    for (unit.slice = 0; !*complete && unit.slice < BD_MAX_UNITS; unit.slice++) {
        BD_TRY(bd_interrupt_check(err));
        if (!bd_take_finished(run->job, planned, &unit, &packed))
            return BD_OK;
        BD_TRY(set_result(finished, unit.slice, &packed, err));
        *complete = packed.shard.unit.last;
    }
    return BD_OK;
}

// A series that is finished need not be read again, unless it is standard input, of which
// nothing but its records tells that it is the same.
static bd_status take_series(work *w, size_t item, bool *taken, bd_error *err)
{
    const bd_packing_run *run = w->run;
    const bd_planned *planned = &run->units->items[item];
    const bd_input *input = &run->job->inputs->items[planned->unit.input];
    bd_item_result *finished = &w->series[item].finished;
    *taken = false;
    if (!run->may_continue || w->series[item].begun)
        return BD_OK;
    BD_TRY(take_slices(run, planned, finished, taken, err));
    *taken &= !bd_input_is_stdin(input);
    for (size_t k = 0; *taken && k < finished->n; k++)
        BD_TRY(record_result(w, item, (int64_t)k, &finished->units[k], true, err));
    if (*taken)
        bd_progress_add(run->progress, (uint64_t)input->entry.size_bytes);
    return BD_OK;
}

static bd_status do_slice(worker *k, size_t item, int64_t *slice, bd_error *err)
{
    work *w = k->work;
    const bd_packing_run *run = w->run;
    const bd_planned *planned = &run->units->items[item];
    bd_unit unit = planned->unit;
    bd_packed_unit packed;
    bool taken;
    BD_TRY(take_series(w, item, &taken, err));
    if (taken) {
        bd_schedule_return(w->schedule, item, true);
        return BD_OK;
    }
    *slice = w->series[item].next_slice;
    BD_TRY(gather_next(w, item, &unit, &k->gathered, &packed, &taken, err));
    if (!taken)
        BD_TRY(pack_gathered(k, &unit, &packed, err));
    return record_result(w, item, unit.slice, &packed, taken, err);
}

// ---- Workers -------------------------------------------------------------------------------

static void note_failure(work *w, size_t item, int64_t slice, const bd_error *err)
{
    pthread_mutex_lock(&w->lock);
    const bool earlier = w->failure.status == BD_OK || item < w->failed_item ||
                         (item == w->failed_item && slice < w->failed_slice);
    if (earlier) {
        w->failed_item = item;
        w->failed_slice = slice;
        w->failure = *err;
    }
    pthread_mutex_unlock(&w->lock);
    bd_schedule_stop(w->schedule);
}

// Takes items until nothing is left. Failures are noted, so that the one reported is the first
// in the order of the units, whatever the timing.
static bd_status take_items(worker *k, bd_error *err)
{
    work *w = k->work;
    size_t item;
    bool found;
    for (;;) {
        BD_TRY(bd_schedule_take(w->schedule, &item, &found, err));
        if (!found)
            return BD_OK;
        bd_error problem = {0};
        int64_t slice = 0;
        bd_status status = BD_OK;
        if (w->run->items[item].complete || w->limit_left <= 0)
            bd_schedule_return(w->schedule, item, true);
        else if (w->run->units->items[item].is_series)
            status = do_slice(k, item, &slice, &problem);
        else
            status = do_unit(k, item, &problem);
        if (status == BD_OK)
            continue;
        problem.status = status;
        note_failure(w, item, slice, &problem);
        return BD_OK;
    }
}

static bd_status work_on(void *context, int64_t index, bd_error *err)
{
    worker k = {.work = context};
    (void)index;
    bd_status status = bd_unit_packer_new(&k.packer, k.work->run->job, err);
    if (status == BD_OK)
        status = take_items(&k, err);
    if (status != BD_OK)
        bd_schedule_stop(k.work->schedule);
    bd_reader_close(k.reader);
    bd_gathered_release(&k.gathered);
    bd_unit_packer_free(k.packer);
    return status;
}

static bool is_whole(const bd_item_result *result, bool is_series)
{
    if (result->n == 0)
        return false;
    for (size_t k = 0; k < result->n; k++)
        if (result->units[k].shard.size_bytes == 0)
            return false;
    return !is_series || result->units[result->n - 1].shard.unit.last;
}

static void mark_complete(const work *w)
{
    bd_packing_run *run = w->run;
    for (size_t i = 0; i < run->units->n; i++) {
        bd_item_result *result = &run->items[i];
        result->complete |= is_whole(result, run->units->items[i].is_series) ||
                            (result->n == 0 && w->limit_left <= 0);
    }
}

bd_status bd_packing_run_pack(bd_packing_run *run, int n_threads, int lock, size_t first,
                              bd_error *err)
{
    const bool limited = run->job->limit != BD_NO_LIMIT;
    work w = {.run = run, .limit_left = limited ? run->job->limit : INT64_MAX};
    const int n = limited ? 1 : n_threads;
    bd_threads *threads = NULL;
    pthread_mutex_init(&w.lock, NULL);
    bd_status status = bd_schedule_new(&w.schedule, run->units, lock, first, err);
    if (status == BD_OK && !(w.series = calloc(run->units->n + 1, sizeof *w.series)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the units");
    if (status == BD_OK)
        status = bd_threads_new(&threads, n, err);
    if (status == BD_OK)
        status = bd_threads_run(threads, work_on, &w, n, err);
    if (status == BD_OK && w.failure.status != BD_OK) {
        status = w.failure.status;
        if (err)
            *err = w.failure;
    }
    if (status == BD_OK)
        mark_complete(&w);
    for (size_t i = 0; w.series && i < run->units->n; i++) {
        bd_reader_close(w.series[i].reader);
        free(w.series[i].finished.units);
    }
    bd_threads_free(threads);
    free(w.series);
    bd_schedule_free(w.schedule);
    pthread_mutex_destroy(&w.lock);
    return status;
}

// ---- What is there -------------------------------------------------------------------------

static bd_status collect_item(void *context, int64_t index, bd_error *err)
{
    bd_packing_run *run = context;
    bd_item_result *result = &run->items[index];
    const bd_planned *planned = &run->units->items[index];
    bd_packed_unit packed;
    if (planned->is_series)
        return take_slices(run, planned, result, &result->complete, err);
    BD_TRY(bd_interrupt_check(err));
    result->complete = bd_take_finished(run->job, planned, &planned->unit, &packed);
    return result->complete ? set_result(result, 0, &packed, err) : BD_OK;
}

bd_status bd_packing_run_collect(bd_packing_run *run, int n_threads, bd_error *err)
{
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    const bd_status status =
        bd_threads_run(threads, collect_item, run, (int64_t)run->units->n, err);
    bd_threads_free(threads);
    return status;
}
