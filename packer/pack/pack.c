// A run, in this order, so that a kill at any moment leaves what the same command can continue:
//
//   plan.json, tokenizer.json   say what the folder is going to hold
//   pack-log.json               says which inputs the shards are made from
//   shards                      in any order, by any number of threads and processes
//   manifest.json               last of all: with it the dataset is finished
//
// A holdout is a second dataset in the same folder; its manifest is published before the other.
#include "packer/pack/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/memory.h"
#include "packer/pack/dataset_writer.h"
#include "packer/pack/output.h"
#include "packer/pack/pack_log.h"
#include "packer/pack/pack_plan.h"
#include "packer/pack/recheck.h"
#include "packer/pack/workers.h"

// A run in a folder that this process may write to.
typedef struct dataset_run {
    const bd_pack_job *job;
    const bd_pack_settings *settings;
    const bd_json *plan;
    bd_output *output;
    bd_units units;
    bd_workers workers;
    bd_manifest held_out;  // of the held-out dataset, if there is one
    int64_t started_ns;
    bool *same;  // [inputs], owned; inputs known to be those that the shards are made from
    bool is_updating;   // shards that differ are packed again
    bd_bad_places bad;  // owned; bad records that an earlier run has met in finished units
} dataset_run;

// ---- Before the shards ---------------------------------------------------------------------

static bd_status publish_heads(dataset_run *p, bd_manifest *manifest, bd_error *err)
{
    const bd_pack_job *job = p->job;
    char *tokenizer;
    int n_made;
    manifest->config = job->config;
    BD_TRY(job->tokenizer->kind->to_file(job->tokenizer, &tokenizer, err));
    bd_status status = bd_dataset_publish_head(job->folder, p->plan, tokenizer, manifest, err);
    if (status == BD_OK && job->holdout_folder) {
        p->held_out.config = bd_holdout_config(job);
        status = bd_folder_make(job->holdout_folder, &n_made, err);
        if (status == BD_OK && p->settings->mode != BD_PACK_SHARED)
            status = bd_folder_remove_pending(job->holdout_folder, bd_output_is_file_name, err);
        if (status == BD_OK) {
            bd_json *plan = bd_pack_plan_to_json(job, &p->held_out.config);
            status = bd_dataset_publish_head(job->holdout_folder, plan, tokenizer, &p->held_out,
                                             err);
            bd_json_free(plan);
        }
    }
    free(tokenizer);
    return status;
}

// ---- Changed inputs ------------------------------------------------------------------------

// Compares the inputs with what the log in the folder says. *same is malloc'd.
static bd_status compare_with_log(const bd_pack_job *job, bool **same, bool *is_updating,
                                  bd_error *err)
{
    *same = calloc(job->inputs->n + 1, sizeof **same);
    if (!*same)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", job->inputs->n);
    bd_pack_log_compare(job->folder, job->inputs, *same, is_updating);
    return BD_OK;
}

// Reads finished units again where an input may have changed. Those that differ are removed by
// an update, and a failure otherwise.
static bd_status recheck_inputs(const dataset_run *p, bd_error *err)
{
    const bd_inputs *inputs = p->job->inputs;
    const bd_recheck check = {.job = p->job,
                              .units = &p->units,
                              .same = p->same,
                              .removes = p->is_updating,
                              .n_threads = p->settings->n_threads,
                              .quiet = p->settings->quiet};
    bd_rechecked found;
    size_t n_same = 0;
    while (n_same < inputs->n && p->same[n_same])
        n_same++;
    if (n_same == inputs->n && !p->is_updating)
        return BD_OK;
    BD_TRY(bd_recheck_units(&check, &found, err));
    if (found.n_different == 0 || p->is_updating)
        return BD_OK;
    const bd_unit *unit = &found.first;
    const bool is_one = found.n_different == 1;
    int64_t input = unit->input;
    while (p->same[input] && input + 1 < unit->input + unit->n_inputs)
        input++;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' has changed since it was packed: %" PRId64 " finished unit%s %s (%s)",
                   inputs->items[input].path, found.n_different,
                   is_one ? " differs," : "s differ, such as", bd_unit_shard_name(unit).text,
                   is_one ? "--update packs it again" : "--update packs them again");
}

// An update removes the log. Its bad records are kept where the input has not changed.
static bd_status keep_bad_places(dataset_run *p, bd_error *err)
{
    bd_bad_places logged = {0};
    bool is_updating, *same;
    BD_TRY(compare_with_log(p->job, &same, &is_updating, err));
    bd_status status = bd_pack_log_bad_places(p->job->folder, p->job->inputs, &logged, err);
    for (size_t i = 0; status == BD_OK && i < logged.n; i++)
        if (same[logged.items[i].input])
            status = bd_bad_places_add(&p->bad, &logged.items[i], err);
    bd_bad_places_release(&logged);
    free(same);
    return status;
}

// Afterwards the shards in the folder are those of the inputs as they are now, and the log says
// so to a run that continues.
static bd_status settle_inputs(dataset_run *p, bd_error *err)
{
    const bd_pack_job *job = p->job;
    bool has_log = p->output->state != BD_OUTPUT_NEW;
    if (!has_log)  // unless another process has published one in the meantime
        BD_TRY(bd_pack_log_begin(job->folder, job->inputs, job->tokenizer_file, &p->bad,
                                 &has_log, err));
    BD_TRY(compare_with_log(job, &p->same, &p->is_updating, err));
    if (!has_log)
        return BD_OK;
    if (p->is_updating && p->settings->mode != BD_PACK_ALONE)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "an update of '%s' was stopped: it goes on with --update, in one process "
            "alone",
            job->folder);
    BD_TRY(recheck_inputs(p, err));
    p->is_updating = false;
    BD_TRY(bd_pack_log_bad_places(job->folder, job->inputs, &p->bad, err));
    if (p->settings->mode != BD_PACK_ALONE)  // another process may be writing the log
        return BD_OK;
    return bd_pack_log_begin(job->folder, job->inputs, job->tokenizer_file, &p->bad, NULL, err);
}

// Counts the inputs of a finished dataset that may have changed since: without a log all may.
static bd_status find_doubtful(const bd_pack_job *job, bd_pack_result *result, bd_error *err)
{
    bool is_updating, *same;
    BD_TRY(compare_with_log(job, &same, &is_updating, err));
    for (size_t i = job->inputs->n; i-- > 0;) {
        result->n_doubtful += !same[i];
        if (!same[i])
            result->first_doubtful = i;
    }
    free(same);
    return BD_OK;
}

// ---- The shards ----------------------------------------------------------------------------

// Packs the units as the mode says. *alone tells whether this process may finish the dataset.
static bd_status pack_units(dataset_run *p, bd_pack_result *result, bool *alone, bd_error *err)
{
    const bd_pack_job *job = p->job;
    const int n_threads = p->settings->n_threads;
    *alone = true;
    if (p->settings->mode == BD_PACK_ALONE)
        return bd_workers_pack_units(&p->workers, n_threads, -1, 0, err);
    if (p->settings->mode == BD_PACK_FINISH)
        return bd_workers_take_existing(&p->workers, n_threads, err);

    // Several processes: each packs what no other has claimed, beginning at another place.
    const size_t first =
        (size_t)((int64_t)p->units.n * p->settings->rank / p->settings->n_ranks);
    BD_TRY(bd_workers_pack_units(&p->workers, n_threads, p->output->lock, first, err));
    BD_TRY(bd_folder_lock_alone(p->output->lock, alone, err));
    if (!*alone)
        return BD_OK;

    // This one is the last. It has the folder to itself and packs what others left undone,
    // unless another one was last before and has finished the dataset.
    bd_output_refresh(p->output, job->folder);
    result->already_finished = p->output->state == BD_OUTPUT_FINISHED;
    if (result->already_finished)
        return BD_OK;
    BD_TRY(bd_folder_remove_pending(job->folder, bd_output_is_file_name, err));
    if (job->holdout_folder)
        BD_TRY(bd_folder_remove_pending(job->holdout_folder, bd_output_is_file_name, err));
    // Other processes may have packed since then, and the first one has published the log by now.
    bd_pack_log_compare(job->folder, job->inputs, p->same, &p->is_updating);
    BD_TRY(recheck_inputs(p, err));
    return bd_workers_pack_units(&p->workers, n_threads, -1, 0, err);
}

// Lists the units that are missing; of a stream the first of them.
static bd_status check_complete(const bd_workers *workers, const char *folder,
                                bd_pack_result *result, bd_error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < workers->units->n; i++) {
        if (workers->items[i].complete)
            continue;
        BD_TRY(bd_array_reserve((void **)&result->missing, &capacity, result->n_missing + 1,
                                sizeof *result->missing, err));
        bd_planned *missing = &result->missing[result->n_missing++];
        *missing = workers->units->items[i];
        if (missing->is_stream)
            missing->unit.slice = (int64_t)workers->items[i].n;
    }
    if (result->n_missing == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT, "'%s' is not finished: %s is missing%s", folder,
                   bd_unit_shard_name(&result->missing[0].unit).text,
                   result->n_missing > 1 ? ", and others" : "");
}

// ---- After the shards ----------------------------------------------------------------------

static size_t count_shards(const bd_workers *workers)
{
    size_t n = 0;
    for (size_t i = 0; i < workers->units->n; i++)
        n += workers->items[i].n;
    return n;
}

static bd_status list_shards(const bd_workers *workers, bool held_out, bd_manifest *manifest,
                             bd_error *err)
{
    const size_t n = count_shards(workers);
    const int64_t unit_bytes = workers->job->reading.unit_bytes;
    if ((int64_t)n > bd_units_most(unit_bytes))
        return bd_units_fail_many(NULL, unit_bytes, err);
    manifest->shards = calloc(n + 1, sizeof *manifest->shards);
    if (!manifest->shards)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", n);
    for (size_t i = 0; i < workers->units->n; i++) {
        const bd_item_result *result = &workers->items[i];
        for (size_t k = 0; k < result->n; k++)
            manifest->shards[manifest->n_shards++] =
                held_out ? result->units[k].held_out : result->units[k].shard;
    }
    return BD_OK;
}

static bd_status fail_bad(const dataset_run *p, bd_figures *totals, bd_error *err)
{
    const int64_t n_bad = bd_figures_bad_records(totals);
    char kinds[200] = "";
    size_t n = 0;
    for (int kind = BD_BAD_NONE + 1; bd_bad_kind_names[kind] && n < sizeof kinds; kind++) {
        const int64_t of_kind = *bd_figures_bad(totals, (bd_bad_kind)kind);
        if (of_kind > 0)
            n += (size_t)snprintf(kinds + n, sizeof kinds - n, "%s%" PRId64 " %s",
                                  n > 0 ? ", " : "", of_kind, bd_bad_kind_names[kind]);
    }
    bd_fail(err, BD_ERR_FORMAT,
            "%" PRId64 " of %" PRId64 " records are bad, more than --max-bad %g%%: %s", n_bad,
            n_bad + bd_figures_documents_read(totals), (double)p->job->reading.max_bad / 1e4,
            kinds);
    if (p->workers.bad.n > 0) {
        const bd_bad_place *first = &p->workers.bad.items[0];
        const bd_input *input = &p->job->inputs->items[first->input];
        bd_error_suffix(err, BD_ERR_FORMAT, "the first in '%.100s' at %s %" PRId64, input->path,
                        bd_position_unit(input->entry.format), first->position);
    }
    if (totals->documents > 0)
        bd_error_suffix(err, BD_ERR_FORMAT,
                        "the shards stay, a larger --max-bad finishes the dataset");
    return BD_ERR_FORMAT;
}

// Checks the sums over the whole dataset, so that it does not matter who packed what. A dataset
// without rows is refused as well: it would be of no use to anybody.
static bd_status check_packed_totals(const dataset_run *p, bd_error *err)
{
    bd_figures totals = {0};
    for (size_t i = 0; i < p->units.n; i++)
        for (size_t k = 0; k < p->workers.items[i].n; k++)
            BD_TRY(bd_figures_add(&totals, &p->workers.items[i].units[k].shard.figures, err));
    const int64_t n_bad = bd_figures_bad_records(&totals);
    const int64_t n = n_bad + bd_figures_documents_read(&totals);
    if ((__int128)n_bad * BD_MILLION > (__int128)n * p->job->reading.max_bad)
        return fail_bad(p, &totals, err);
    if (totals.documents > 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "nothing to pack: the inputs hold no document%s",
                   totals.dropped_documents > 0     ? " that fits a row"
                   : totals.too_short_documents > 0 ? " of --min-tokens"
                   : totals.untrained_documents > 0 ? " with a token that is trained"
                   : totals.held_out_documents > 0  ? " that is not held out"
                   : n_bad > 0                      ? ", only bad records"
                                                    : "");
}

static bd_status publish_part(const dataset_run *p, const char *folder, bd_manifest *manifest,
                              const bd_manifest *held_out, bool *card_kept, bd_error *err)
{
    const bd_inputs *inputs = p->job->inputs;
    const bd_input_entry **entries = malloc((inputs->n + 1) * sizeof *entries);
    if (!entries)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", inputs->n);
    for (size_t i = 0; i < inputs->n; i++)
        entries[i] = &inputs->items[i].entry;
    manifest->passed_over.is_known = true;
    bd_status status = bd_passed_over_join(&manifest->passed_over, &inputs->passed, err);
    if (status == BD_OK)
        status = bd_dataset_publish_tail(folder, manifest, held_out, entries, inputs->n,
                                         card_kept, err);
    free(entries);
    return status;
}

static bd_status finish_dataset(dataset_run *p, bd_pack_result *result, bd_error *err)
{
    const bd_pack_job *job = p->job;
    const bd_manifest *held_out = job->holdout_folder ? &p->held_out : NULL;
    bool card_kept;
    BD_TRY(bd_bad_places_merge(&p->workers.bad, &p->bad, err));
    const bd_pack_log log = {
        .inputs = job->inputs,
        .tokenizer = job->tokenizer_file,
        .n_threads = p->settings->n_threads,
        .n_ranks = p->settings->n_ranks,
        .n_units = (int64_t)count_shards(&p->workers),
        .n_continued = p->workers.n_continued,
        .elapsed_ns = bd_now_ns() - p->started_ns,
        .bad = &p->workers.bad,
    };
    // The log comes first: it names the bad records, also if they are too many.
    BD_TRY(bd_pack_log_publish(job->folder, &log, err));
    BD_TRY(check_packed_totals(p, err));
    for (size_t i = 0; i < job->inputs->n; i++)
        if (!bd_input_is_unchanged(&job->inputs->items[i]))
            return bd_fail(err, BD_ERR_IO,
                           "'%s' changed while it was being packed (--update packs again what "
                           "differs)",
                           job->inputs->items[i].path);
    if (held_out) {
        BD_TRY(list_shards(&p->workers, true, &p->held_out, err));
        BD_TRY(publish_part(p, job->holdout_folder, &p->held_out, NULL, &card_kept, err));
    }
    BD_TRY(list_shards(&p->workers, false, &result->manifest, err));
    return publish_part(p, job->folder, &result->manifest, held_out, &result->card_kept, err);
}

// ---- All of it -----------------------------------------------------------------------------

static bd_status pack_into_folder(dataset_run *p, bd_pack_result *result, bd_error *err)
{
    bool alone;
    const bool may_continue =
        p->output->state != BD_OUTPUT_NEW || p->settings->mode == BD_PACK_SHARED;
    BD_TRY(publish_heads(p, &result->manifest, err));
    BD_TRY(settle_inputs(p, err));
    BD_TRY(bd_workers_init(&p->workers, p->job, &p->units, may_continue, err));
    p->workers.progress =
        bd_progress_new(&(bd_progress_config){.label = "packing",
                                              .unit = "bytes",
                                              .total = bd_pack_job_bytes(p->job),
                                              .quiet = p->settings->quiet});
    bd_status status = pack_units(p, result, &alone, err);
    bd_progress_free(p->workers.progress);
    result->n_packed = p->workers.n_packed;
    result->n_continued = p->workers.n_continued;
    if (status != BD_OK || !alone || result->already_finished)
        return status;
    BD_TRY(check_complete(&p->workers, p->job->folder, result, err));
    status = finish_dataset(p, result, err);
    result->finished = status == BD_OK;
    if (status == BD_ERR_IO) {  // if the plan is gone, no run could continue without it
        bd_manifest again = {0};
        publish_heads(p, &again, NULL);
    }
    return status;
}

// Whether a failure has left no rows that the same command could continue from. Then what was
// published is removed, and another command finds the folder as it was before.
static bool has_no_rows(const dataset_run *p)
{
    for (size_t i = 0; p->workers.items && i < p->units.n; i++)
        for (size_t k = 0; k < p->workers.items[i].n; k++)
            if (p->workers.items[i].units[k].shard.figures.rows > 0)
                return false;
    return true;
}

void bd_pack_result_release(bd_pack_result *result)
{
    bd_manifest_release(&result->manifest);
    free(result->missing);
    *result = (bd_pack_result){0};
}

bd_status bd_pack(const bd_pack_job *job, const bd_pack_settings *settings,
                  bd_pack_result *result, bd_error *err)
{
    *result = (bd_pack_result){0};
    if (settings->mode == BD_PACK_FINISH && !bd_folder_holds(job->folder, BD_PLAN_NAME))
        return bd_fail(err, BD_ERR_ARGUMENT, "'%s' holds no dataset that could be finished",
                       job->folder);
    bd_output output = {.lock = -1};
    bd_json *plan = bd_pack_plan_to_json(job, &job->config);
    dataset_run p = {.job = job,
                     .settings = settings,
                     .plan = plan,
                     .output = &output,
                     .started_ns = bd_now_ns()};
    const bd_lock_mode lock =
        settings->mode == BD_PACK_SHARED ? BD_LOCK_SHARED : BD_LOCK_EXCLUSIVE;
    bd_status status = bd_pack_job_units(job, &p.units, err);
    if (status == BD_OK && settings->update)
        status = keep_bad_places(&p, err);
    if (status == BD_OK)
        status = bd_output_open(&output, job->folder, plan, lock,
                                settings->overwrite ? BD_EXISTING_OVERWRITE
                                : settings->update  ? BD_EXISTING_UPDATE
                                                    : BD_EXISTING_CONTINUE,
                                err);
    if (status != BD_OK)
        goto done;
    const bool is_new = output.state == BD_OUTPUT_NEW;
    result->already_finished = output.state == BD_OUTPUT_FINISHED;
    if (!result->already_finished)
        status = pack_into_folder(&p, result, err);
    if (status != BD_OK && status != BD_ERR_INTERRUPTED && is_new &&
        settings->mode == BD_PACK_ALONE && has_no_rows(&p))
        bd_output_withdraw(&output, job->folder);
    if (status == BD_OK && result->already_finished) {
        bd_manifest_release(&result->manifest);
        status = bd_manifest_read(&result->manifest, job->folder, err);
        result->finished = status == BD_OK;
        if (status == BD_OK)
            status = find_doubtful(job, result, err);
    }
    if (status != BD_OK || !result->finished)
        bd_manifest_release(&result->manifest);
done:
    free(p.same);
    bd_bad_places_release(&p.bad);
    bd_workers_release(&p.workers);
    bd_units_release(&p.units);
    bd_manifest_release(&p.held_out);
    bd_output_close(&output);
    bd_json_free(plan);
    return status;
}
