#include "packer/pack/recheck.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/folder.h"
#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "packer/input/reader.h"
#include "packer/pack/existing_shards.h"

enum { NO_SLICE = -1 };

// The tasks of the thread pool share this.
typedef struct checking {
    const bd_recheck *check;
    int64_t
        *last_slices;  // [inputs], owned; the last with a shard, of either part; or NO_SLICE
    bd_progress *progress;
    pthread_mutex_t lock;  // of the result
    bd_rechecked *result;
    // With a limit on documents, which one thread counts:
    bool limited;
    int64_t limit_left;
    bool is_uncertain;  // a unit before is missing or differs: nobody knows what is left
} checking;

// One unit and what was read of it.
typedef struct reading {
    bd_unit unit;
    bool is_finished;
    bd_packed_unit packed;     // if it is
    int64_t most;              // records that are wanted
    int64_t n;                 // that were read
    bool goes_on;              // there are more
    bd_record_hashes *hashes;  // owned
} reading;

// ---- Existing shards -----------------------------------------------------------------------

static bd_status note_shard(void *context, const char *folder, const char *name, bd_error *err)
{
    checking *c = context;
    bd_unit unit;
    (void)folder;
    (void)err;
    if (bd_unit_from_name(&unit, name, ".arrow") &&
        unit.input < (int64_t)c->check->job->inputs->n &&
        unit.slice > c->last_slices[unit.input])
        c->last_slices[unit.input] = unit.slice;
    return BD_OK;
}

static bool is_before(const bd_unit *a, const bd_unit *b)
{
    return a->input != b->input ? a->input < b->input : a->slice < b->slice;
}

// A unit counts as finished if the shard in job->folder exists, so that one is removed first.
static bd_status remove_shards(const bd_pack_job *job, const bd_unit *unit, bd_error *err)
{
    const char *name = bd_unit_shard_name(unit).text;
    BD_TRY(bd_folder_remove(job->folder, name, err));
    return job->holdout_folder ? bd_folder_remove(job->holdout_folder, name, err) : BD_OK;
}

static bd_status note_difference(checking *c, const bd_unit *unit, bd_error *err)
{
    pthread_mutex_lock(&c->lock);
    if (c->result->n_different++ == 0 || is_before(unit, &c->result->first))
        c->result->first = *unit;
    pthread_mutex_unlock(&c->lock);
    return c->check->removes ? remove_shards(c->check->job, unit, err) : BD_OK;
}

// ---- One unit ------------------------------------------------------------------------------

static bd_status begin_reading(reading *r, const checking *c, const bd_planned *planned,
                               bd_unit unit, bd_error *err)
{
    *r = (reading){.unit = unit, .most = INT64_MAX, .hashes = bd_record_hashes_new()};
    if (!r->hashes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    r->is_finished = bd_take_existing_unit(c->check->job, planned, &unit, &r->packed);
    const bd_figures *figures = &r->packed.shard.figures;
    if (c->limited && r->is_finished)
        r->most = bd_figures_documents_read(figures) + bd_figures_bad_records(figures);
    bd_record_hashes_begin(r->hashes, unit.input);
    return BD_OK;
}

static bd_status hash_slice(reading *r, bd_reader *reader, int64_t index, bd_slice slice,
                            bd_error *err)
{
    bd_record record;
    bool found;
    bd_reader_begin(reader, slice);
    while (!r->goes_on) {
        BD_TRY(bd_reader_next(reader, &record, &found, err));
        if (!found)
            break;
        if (r->n == r->most)
            r->goes_on = true;
        else
            bd_record_hashes_add(r->hashes, index, &record);
        r->n += !r->goes_on;
    }
    return BD_OK;
}

// `last` tells whether the input ends with what was read; only for a stream.
static bd_status judge_unit(checking *c, reading *r, bool is_stream, bool last, bd_error *err)
{
    const bd_shard_entry *shard = &r->packed.shard;
    const int64_t n_documents = bd_figures_documents_read(&shard->figures);
    const bd_record_digests found = bd_record_hashes_take(r->hashes);
    const bd_record_digests stored = {shard->records, shard->positions};
    const bool meets_limit = c->limited && (n_documents == c->limit_left || c->is_uncertain);
    const bool removed_after = c->is_uncertain && c->check->removes;
    const bool same = r->n == (r->most == INT64_MAX ? r->n : r->most) &&
                      (!r->goes_on || meets_limit) &&
                      (!is_stream || shard->unit.last == (last || r->goes_on) ||
                       (meets_limit && shard->unit.last)) &&
                      bd_record_digests_equal(&found, &stored) && !removed_after;
    if (c->limited) {
        c->limit_left -= n_documents;
        c->is_uncertain |= !same || c->limit_left < 0;
    }
    return same ? BD_OK : note_difference(c, &r->unit, err);
}

// An unfinished unit will be packed again. But if the limit on documents is reached before it,
// nobody packs it, and what exists of it must be removed here.
static bd_status pass_unfinished(checking *c, const bd_unit *unit, bd_error *err)
{
    if (c->limited)
        c->is_uncertain = true;
    return c->check->removes ? remove_shards(c->check->job, unit, err) : BD_OK;
}

static bd_status recheck_unit(checking *c, const bd_planned *planned, bd_error *err)
{
    const bd_pack_job *job = c->check->job;
    reading r;
    bd_status status = begin_reading(&r, c, planned, planned->unit, err);
    const int64_t end = planned->unit.input + planned->unit.n_inputs;
    for (int64_t i = planned->unit.input; status == BD_OK && r.is_finished && i < end; i++) {
        const bd_input *input = &job->inputs->items[i];
        bd_reader *reader;
        status = bd_reader_open(&reader, input, &job->reading, err);
        if (status == BD_OK)
            status = hash_slice(&r, reader, i,
                                bd_input_entry_slice(&input->entry, planned->unit.slice), err);
        bd_reader_close(reader);
    }
    if (status == BD_OK)
        status = r.is_finished ? judge_unit(c, &r, false, false, err)
                               : pass_unfinished(c, &r.unit, err);
    bd_record_hashes_free(r.hashes);
    return status;
}

static bd_status recheck_slice(checking *c, const bd_planned *planned, bd_reader *reader,
                               bd_unit unit, bool *ended, bd_error *err)
{
    const bd_input *input = &c->check->job->inputs->items[unit.input];
    bool last = false;
    reading r;
    bd_status status = begin_reading(&r, c, planned, unit, err);
    if (status == BD_OK)
        status = hash_slice(&r, reader, unit.input,
                            bd_input_entry_slice(&input->entry, unit.slice), err);
    if (status == BD_OK && !r.goes_on)
        status = bd_reader_is_last(reader, &last, err);
    *ended = last || r.goes_on;
    if (status == BD_OK)
        status = r.is_finished ? judge_unit(c, &r, true, last, err)
                               : pass_unfinished(c, &r.unit, err);
    bd_record_hashes_free(r.hashes);
    return status;
}

// Whether the units before reach the limit on documents, so that this one must not have a shard.
static bool is_behind_limit(const checking *c)
{
    return c->limited && c->limit_left <= 0 && !c->is_uncertain;
}

// Every slice is compared: a change in one moves the records after it, or leaves them as they were.
static bd_status recheck_stream(checking *c, const bd_planned *planned, bd_error *err)
{
    const bd_pack_job *job = c->check->job;
    const int64_t last_slice = c->last_slices[planned->unit.input];
    bd_unit unit = planned->unit;
    bd_reader *reader;
    bool ended = false;
    BD_TRY(bd_reader_open(&reader, &job->inputs->items[unit.input], &job->reading, err));
    bd_status status = BD_OK;
    for (; status == BD_OK && !ended && !is_behind_limit(c) && unit.slice <= last_slice;
         unit.slice++)
        status = recheck_slice(c, planned, reader, unit, &ended, err);
    for (; status == BD_OK && unit.slice <= last_slice; unit.slice++)  // it has become shorter
        status = note_difference(c, &unit, err);
    bd_reader_close(reader);
    return status;
}

// ---- All units -----------------------------------------------------------------------------

static bool is_to_be_read(const checking *c, const bd_planned *planned)
{
    const bd_recheck *check = c->check;
    bool wanted = c->limited;
    for (int64_t i = planned->unit.input; i < planned->unit.input + planned->unit.n_inputs; i++)
        wanted |= !check->same[i];
    return wanted && c->last_slices[planned->unit.input] >= planned->unit.slice &&
           !bd_input_is_stdin(&check->job->inputs->items[planned->unit.input]);
}

static bd_status recheck_item(void *context, int64_t index, bd_error *err)
{
    checking *c = context;
    const bd_planned *planned = &c->check->units->items[index];
    bd_progress_add(c->progress, 1);
    if (!is_to_be_read(c, planned)) {
        if (c->limited && c->limit_left > 0)
            c->is_uncertain = true;
        return BD_OK;
    }
    if (planned->is_stream)
        return recheck_stream(c, planned, err);
    return is_behind_limit(c) ? note_difference(c, &planned->unit, err)
                              : recheck_unit(c, planned, err);
}

bd_status bd_recheck_units(const bd_recheck *check, bd_rechecked *result, bd_error *err)
{
    const size_t n_inputs = check->job->inputs->n;
    checking c = {.check = check,
                  .result = result,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .limited = check->job->limit != BD_NO_LIMIT,
                  .limit_left = check->job->limit};
    bd_threads *threads = NULL;
    *result = (bd_rechecked){0};
    c.last_slices = malloc((n_inputs + 1) * sizeof *c.last_slices);
    if (!c.last_slices)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", n_inputs);
    for (size_t i = 0; i < n_inputs; i++)
        c.last_slices[i] = NO_SLICE;
    bd_status status = bd_folder_visit(check->job->folder, note_shard, &c, err);
    // A kill may have come between the removals of the two shards of a unit.
    if (status == BD_OK && check->job->holdout_folder)
        status = bd_folder_visit(check->job->holdout_folder, note_shard, &c, err);
    c.progress = bd_progress_new(&(bd_progress_config){.label = "comparing",
                                                       .unit = "units",
                                                       .total = check->units->n,
                                                       .quiet = check->quiet});
    if (status == BD_OK)
        status = bd_threads_new(&threads, c.limited ? 1 : check->n_threads, err);
    if (status == BD_OK)
        status = bd_threads_run(threads, recheck_item, &c, (int64_t)check->units->n, err);
    bd_threads_free(threads);
    bd_progress_free(c.progress);
    pthread_mutex_destroy(&c.lock);
    free(c.last_slices);
    return status;
}
