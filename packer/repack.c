#include "packer/repack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/folder.h"
#include "common/interrupt.h"
#include "common/progress.h"
#include "common/shard.h"
#include "common/stored_tokenizer.h"
#include "common/threads.h"
#include "packer/dataset_writer.h"
#include "packer/finished.h"
#include "packer/output.h"
#include "packer/pack_log.h"
#include "packer/plan.h"
#include "packer/rebuild.h"
#include "packer/unit_writer.h"

// What the tasks of the thread pool share. Each writes the entry of its own shard.
typedef struct repacking {
    const bd_repack_job *job;
    const bd_manifest *from;
    bd_manifest *to;
    bd_progress *progress;
    bool may_continue;
    int64_t started_ns;
} repacking;

// ---- One shard -----------------------------------------------------------------------------

static bool take_finished(const repacking *r, const bd_shard_entry *source,
                          bd_shard_entry *entry)
{
    const bd_pack_job job = {.packing = r->job->packing, .folder = r->job->to};
    const bd_planned planned = {.unit = source->unit};
    bd_packed_unit packed;
    const bool taken = r->may_continue &&
                       bd_take_finished(&job, &planned, &source->unit, &packed) &&
                       strcmp(packed.shard.records.hex, source->records.hex) == 0;
    if (taken)
        *entry = packed.shard;
    return taken;
}

// What reading the inputs told about the unit stays true.
static bd_figures carry_over(const bd_figures *figures)
{
    return (bd_figures){
        .dropped = figures->dropped,
        .dropped_documents = figures->dropped_documents,
        .too_short = figures->too_short,
        .too_short_documents = figures->too_short_documents,
        .held_out = figures->held_out,
        .held_out_documents = figures->held_out_documents,
        .headless_documents = figures->headless_documents,
        .invalid_utf8_documents = figures->invalid_utf8_documents,
    };
}

static bd_status repack_shard(const repacking *r, size_t index, bd_shard_entry *entry,
                              bd_error *err)
{
    bd_shard shard;
    bd_documents documents;
    BD_TRY(bd_shard_open_entry(&shard, r->job->from, r->from, index, err));
    bd_documents_init(&documents, &r->job->packing, NULL);
    bd_status status = bd_rebuild_documents(&shard, &documents, err);
    if (status == BD_OK) {
        *entry = (bd_shard_entry){.unit = shard.entry.unit,
                                  .records = shard.entry.records,
                                  .figures = carry_over(&shard.entry.figures)};
        status = bd_unit_write(r->job->to, &documents, entry, err);
        if (status == BD_ERR_ARGUMENT)
            bd_error_prefix(err, status, "'%s'", shard.path);
    }
    bd_documents_release(&documents);
    bd_shard_close(&shard);
    return status;
}

static bd_status do_shard(void *context, int64_t index, bd_error *err)
{
    repacking *r = context;
    const bd_shard_entry *source = &r->from->shards[index];
    BD_TRY(bd_interrupt_check(err));
    if (!take_finished(r, source, &r->to->shards[index]))
        BD_TRY(repack_shard(r, (size_t)index, &r->to->shards[index], err));
    bd_progress_add(r->progress, (uint64_t)source->size_bytes);
    return BD_OK;
}

// ---- Around them ---------------------------------------------------------------------------

static bd_status check_possible(const bd_repack_job *job, const bd_manifest *from,
                                bd_error *err)
{
    const bd_figures *totals = &from->totals;
    // Those that were dropped must be too long for the new rows as well.
    const bool dropped_again = job->packing.long_policy == BD_LONG_DROP &&
                               job->packing.seq_len <= from->packing.seq_len;
    if (totals->truncated_documents > 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds %" PRId64 " truncated documents, whose ends are lost: pack "
                       "the corpus again",
                       job->from, totals->truncated_documents);
    if (totals->dropped_documents > 0 && !dropped_again)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' lacks %" PRId64 " documents that were dropped and might be wanted "
                       "now: pack the corpus again",
                       job->from, totals->dropped_documents);
    if (bd_lies_in_folder(job->from, job->to))
        return bd_fail(err, BD_ERR_ARGUMENT, "'%s' lies in '%s', which is the output",
                       job->from, job->to);
    return BD_OK;
}

// The plan that packing the corpus with the new options would have had.
static bd_status make_plan(const bd_repack_job *job, bd_json **plan, bd_error *err)
{
    bd_json *old;
    const bd_json *reading, *inputs;
    BD_TRY(bd_plan_read(job->from, &old, err));
    bd_status status = bd_json_get_object(old, "reading", &reading, err);
    if (status == BD_OK)
        status = bd_json_get_array(old, "inputs", &inputs, err);
    if (status == BD_OK) {
        *plan = bd_json_object();
        bd_json_set_string(*plan, "format", BD_FORMAT_VERSION);
        bd_json_set(*plan, "packing", bd_packing_to_json(&job->packing));
        bd_json_set(*plan, "reading", bd_json_share(reading));
        bd_json_set(*plan, "inputs", bd_json_share(inputs));
    }
    bd_json_free(old);
    return status;
}

static bd_status publish_head(const repacking *r, const bd_json *plan, bd_error *err)
{
    char *text;
    BD_TRY(bd_stored_tokenizer_read(r->job->from, &r->from->tokenizer_digest, &text, err));
    const bd_status status = bd_dataset_publish_head(r->job->to, plan, text, r->to, err);
    free(text);
    return status;
}

// A manifest of format 1.0 does not tell how its inputs were cut; the new one does.
static bd_status complete_inputs(const repacking *r, bd_error *err)
{
    bd_plan_cuts cuts;
    BD_TRY(bd_plan_read_cuts(&cuts, r->job->from, err));
    for (size_t i = 0; i < r->from->n_inputs; i++)
        BD_TRY(bd_plan_complete_entry(&cuts, &r->from->inputs[i], err));
    return BD_OK;
}

static bd_status publish_tail(const repacking *r, bd_error *err)
{
    BD_TRY(complete_inputs(r, err));
    const bd_input_entry **entries = malloc((r->from->n_inputs + 1) * sizeof *entries);
    if (!entries)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", r->from->n_inputs);
    for (size_t i = 0; i < r->from->n_inputs; i++)
        entries[i] = &r->from->inputs[i];
    char *tokenizer_file = bd_pack_log_tokenizer(r->job->from);
    const bd_pack_run log = {
        .repacked_from = r->job->from,
        .tokenizer = tokenizer_file,
        .n_threads = r->job->n_threads,
        .n_ranks = 1,
        .n_units = (int64_t)r->to->n_shards,
        .elapsed_ns = bd_now_ns() - r->started_ns,
    };
    bd_status status = bd_pack_log_publish(r->job->to, &log, err);
    if (status == BD_OK)
        status =
            bd_dataset_publish_manifest(r->job->to, r->to, entries, r->from->n_inputs, err);
    free(entries);
    free(tokenizer_file);
    return status;
}

static bd_status repack_shards(repacking *r, bd_error *err)
{
    r->to->shards = calloc(r->from->n_shards + 1, sizeof *r->to->shards);
    if (!r->to->shards)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", r->from->n_shards);
    r->to->n_shards = r->from->n_shards;
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, r->job->n_threads, err));
    r->progress = bd_progress_new(&(bd_progress_config){.label = "repacking",
                                                        .unit = "bytes",
                                                        .total = bd_manifest_bytes(r->from),
                                                        .quiet = r->job->quiet});
    const bd_status status =
        bd_threads_run(threads, do_shard, r, (int64_t)r->from->n_shards, err);
    bd_progress_free(r->progress);
    bd_threads_free(threads);
    return status;
}

static bool has_rows(const bd_manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_shards; i++)
        if (manifest->shards[i].figures.rows > 0)
            return true;
    return false;
}

bd_status bd_repack(const bd_repack_job *job, const bd_manifest *from, bd_manifest *manifest,
                    bool *already_finished, bd_error *err)
{
    *manifest = (bd_manifest){.packing = job->packing};
    BD_TRY(check_possible(job, from, err));
    bd_json *plan = NULL;
    bd_output output = {.lock = -1};
    repacking r = {.job = job, .from = from, .to = manifest, .started_ns = bd_now_ns()};
    bd_status status = make_plan(job, &plan, err);
    if (status == BD_OK)
        status = bd_output_open(&output, job->to, plan, BD_LOCK_EXCLUSIVE, job->overwrite, err);
    if (status != BD_OK)
        goto done;
    *already_finished = output.state == BD_OUTPUT_FINISHED;
    r.may_continue = output.state == BD_OUTPUT_UNFINISHED;
    if (*already_finished) {
        status = bd_manifest_read(manifest, job->to, err);
        goto done;
    }
    status = publish_head(&r, plan, err);
    if (status == BD_OK)
        status = repack_shards(&r, err);
    if (status == BD_OK)
        status = publish_tail(&r, err);
    if (status != BD_OK && status != BD_ERR_INTERRUPTED && output.state == BD_OUTPUT_NEW &&
        !has_rows(manifest))
        bd_output_withdraw(&output, job->to);
done:
    bd_output_close(&output);
    bd_json_free(plan);
    if (status != BD_OK)
        bd_manifest_release(manifest);
    return status;
}
