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

// One dataset: the one that was asked for, or the held-out one inside it. The tasks of the
// thread pool share it; each writes the entry of its own shard.
typedef struct repacking {
    const char *source, *target;  // folders, borrowed
    const bd_manifest *from;      // borrowed
    bd_manifest *to;              // borrowed; its packing is the new one
    bd_json *plan;                // of the target, owned
    bd_progress *progress;
    bool may_continue;
    bool card_kept;
} repacking;

// ---- One shard -----------------------------------------------------------------------------

static bool take_finished(const repacking *r, const bd_shard_entry *source,
                          bd_shard_entry *entry)
{
    const bd_pack_job job = {.packing = r->to->packing, .folder = r->target};
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
    BD_TRY(bd_shard_open_entry(&shard, r->source, r->from, index, err));
    bd_documents_init(&documents, &r->to->packing, NULL);
    bd_status status = bd_rebuild_documents(&shard, &documents, err);
    if (status == BD_OK) {
        *entry = (bd_shard_entry){.unit = shard.entry.unit,
                                  .records = shard.entry.records,
                                  .figures = carry_over(&shard.entry.figures)};
        status = bd_unit_write(r->target, &documents, entry, err);
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

// ---- One dataset ---------------------------------------------------------------------------

// `output` is the folder that may be emptied first.
static bd_status check_possible(const repacking *r, const char *output, bd_error *err)
{
    const bd_figures *totals = &r->from->totals;
    const bd_packing *packing = &r->to->packing;
    // Those that were dropped must be too long for the new rows as well.
    const bool dropped_again =
        packing->long_policy == BD_LONG_DROP && packing->seq_len <= r->from->packing.seq_len;
    if (totals->truncated_documents > 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds %" PRId64 " truncated documents, whose ends are lost: pack "
                       "the corpus again",
                       r->source, totals->truncated_documents);
    if (totals->dropped_documents > 0 && !dropped_again)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' lacks %" PRId64 " documents that were dropped and might be wanted "
                       "now: pack the corpus again",
                       r->source, totals->dropped_documents);
    if (bd_lies_in_folder(r->source, output))
        return bd_fail(err, BD_ERR_ARGUMENT, "'%s' lies in '%s', which is the output",
                       r->source, output);
    return BD_OK;
}

// The plan that packing the corpus with the new options would have had.
static bd_status make_plan(repacking *r, bd_error *err)
{
    bd_json *old;
    const bd_json *reading, *inputs;
    BD_TRY(bd_plan_read(r->source, &old, err));
    bd_status status = bd_json_get_object(old, "reading", &reading, err);
    if (status == BD_OK)
        status = bd_json_get_array(old, "inputs", &inputs, err);
    if (status == BD_OK) {
        r->plan = bd_json_object();
        bd_json_set_string(r->plan, "format", BD_FORMAT_VERSION);
        bd_json_set(r->plan, "packing", bd_packing_to_json(&r->to->packing));
        bd_json_set(r->plan, "reading", bd_json_share(reading));
        bd_json_set(r->plan, "inputs", bd_json_share(inputs));
    }
    bd_json_free(old);
    return status;
}

static bd_status publish_head(const repacking *r, bd_error *err)
{
    char *text;
    BD_TRY(bd_stored_tokenizer_read(r->source, &r->from->tokenizer_digest, &text, err));
    const bd_status status = bd_dataset_publish_head(r->target, r->plan, text, r->to, err);
    free(text);
    return status;
}

static bd_status repack_shards(repacking *r, bd_threads *threads, bd_error *err)
{
    r->to->shards = calloc(r->from->n_shards + 1, sizeof *r->to->shards);
    if (!r->to->shards)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", r->from->n_shards);
    r->to->n_shards = r->from->n_shards;
    return bd_threads_run(threads, do_shard, r, (int64_t)r->from->n_shards, err);
}

// A manifest of format 1.0 does not tell how its inputs were cut; the new one does.
static bd_status complete_inputs(const repacking *r, bd_error *err)
{
    bd_plan_cuts cuts;
    BD_TRY(bd_plan_read_cuts(&cuts, r->source, err));
    for (size_t i = 0; i < r->from->n_inputs; i++)
        BD_TRY(bd_plan_complete_entry(&cuts, &r->from->inputs[i], err));
    return BD_OK;
}

static bd_status publish_tail(repacking *r, const bd_manifest *held_out, bd_error *err)
{
    BD_TRY(complete_inputs(r, err));
    const bd_input_entry **entries = malloc((r->from->n_inputs + 1) * sizeof *entries);
    if (!entries)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", r->from->n_inputs);
    for (size_t i = 0; i < r->from->n_inputs; i++)
        entries[i] = &r->from->inputs[i];
    const bd_status status = bd_dataset_publish_tail(r->target, r->to, held_out, entries,
                                                     r->from->n_inputs, &r->card_kept, err);
    free(entries);
    return status;
}

// ---- The held-out dataset ------------------------------------------------------------------

// Everything about a holdout that is there: its folders are owned, and so are its manifests.
typedef struct holdout {
    bool is_there;
    char *source, *target;
    bd_manifest from, to;
    repacking repacking;
} holdout;

// It must be the other side of the very packing that is taken apart.
static bd_status check_other_side(const holdout *h, const bd_manifest *from, bd_error *err)
{
    bd_packing expected = from->packing;
    expected.part = BD_PART_HELD_OUT;
    bd_json *here = bd_packing_to_json(&h->from.packing);
    bd_json *there = bd_packing_to_json(&expected);
    char where[256];
    const bool differ = bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    if (!differ)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' is not what was held out of the dataset around it: %s (move it "
                   "elsewhere to repack without it)",
                   h->source, where);
}

static bd_status open_holdout(holdout *h, const bd_repack_job *job, const bd_manifest *from,
                              bd_error *err)
{
    h->source = bd_path_join(job->from, BD_HOLDOUT_NAME);
    h->target = bd_path_join(job->to, BD_HOLDOUT_NAME);
    if (!h->source || !h->target)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    h->is_there =
        from->packing.part == BD_PART_TRAINING && bd_folder_holds(h->source, BD_MANIFEST_NAME);
    if (!h->is_there)
        return BD_OK;
    BD_TRY(bd_manifest_read(&h->from, h->source, err));
    BD_TRY(check_other_side(h, from, err));
    h->to.packing = job->packing;
    h->to.packing.part = BD_PART_HELD_OUT;
    h->repacking =
        (repacking){.source = h->source, .target = h->target, .from = &h->from, .to = &h->to};
    BD_TRY(check_possible(&h->repacking, job->to, err));
    return make_plan(&h->repacking, err);
}

// The folder's lock is that of the dataset around it.
static bd_status repack_holdout(holdout *h, bd_threads *threads, bd_error *err)
{
    int n_made;  // it lies in a folder that is ours, and goes with that
    BD_TRY(bd_folder_make(h->target, &n_made, err));
    BD_TRY(bd_folder_remove_pending(h->target, err));
    BD_TRY(publish_head(&h->repacking, err));
    BD_TRY(repack_shards(&h->repacking, threads, err));
    return publish_tail(&h->repacking, NULL, err);
}

static void close_holdout(holdout *h)
{
    bd_json_free(h->repacking.plan);
    bd_manifest_release(&h->from);
    bd_manifest_release(&h->to);
    free(h->source);
    free(h->target);
}

// ---- All of it -----------------------------------------------------------------------------

static bd_status publish_log(const bd_repack_job *job, const repacking *r, int64_t started_ns,
                             bd_error *err)
{
    char *tokenizer_file = bd_pack_log_tokenizer(job->from);
    const bd_pack_run log = {
        .repacked_from = job->from,
        .tokenizer = tokenizer_file,
        .n_threads = job->n_threads,
        .n_ranks = 1,
        .n_units = (int64_t)r->to->n_shards,
        .elapsed_ns = bd_now_ns() - started_ns,
    };
    const bd_status status = bd_pack_log_publish(job->to, &log, err);
    free(tokenizer_file);
    return status;
}

// The dataset's own manifest is the last file of all: with it both are finished.
static bd_status repack_both(const bd_repack_job *job, repacking *r, holdout *h, bd_error *err)
{
    const int64_t started_ns = bd_now_ns();
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, job->n_threads, err));
    bd_progress *progress = bd_progress_new(
        &(bd_progress_config){.label = "repacking",
                              .unit = "bytes",
                              .total = bd_manifest_bytes(r->from) + bd_manifest_bytes(&h->from),
                              .quiet = job->quiet});
    r->progress = h->repacking.progress = progress;
    h->repacking.may_continue = r->may_continue;
    bd_status status = publish_head(r, err);
    if (status == BD_OK && h->is_there)
        status = repack_holdout(h, threads, err);
    if (status == BD_OK)
        status = repack_shards(r, threads, err);
    if (status == BD_OK)
        status = publish_log(job, r, started_ns, err);
    if (status == BD_OK)
        status = publish_tail(r, h->is_there ? &h->to : NULL, err);
    bd_progress_free(progress);
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

void bd_repack_result_release(bd_repack_result *result)
{
    bd_manifest_release(&result->manifest);
    *result = (bd_repack_result){0};
}

bd_status bd_repack(const bd_repack_job *job, const bd_manifest *from, bd_repack_result *result,
                    bd_error *err)
{
    *result = (bd_repack_result){.manifest.packing = job->packing};
    bd_output output = {.lock = -1};
    holdout h = {0};
    repacking r = {
        .source = job->from, .target = job->to, .from = from, .to = &result->manifest};
    bd_status status = check_possible(&r, job->to, err);
    if (status == BD_OK)
        status = open_holdout(&h, job, from, err);
    if (status == BD_OK)
        status = make_plan(&r, err);
    if (status == BD_OK)
        status =
            bd_output_open(&output, job->to, r.plan, BD_LOCK_EXCLUSIVE, job->overwrite, err);
    if (status != BD_OK)
        goto done;
    result->already_finished = output.state == BD_OUTPUT_FINISHED;
    r.may_continue = output.state == BD_OUTPUT_UNFINISHED;
    status = result->already_finished ? bd_manifest_read(&result->manifest, job->to, err)
                                      : repack_both(job, &r, &h, err);
    result->card_kept = r.card_kept;
    result->n_bytes = bd_manifest_bytes(from) + bd_manifest_bytes(&h.from);
    if (status != BD_OK && status != BD_ERR_INTERRUPTED && output.state == BD_OUTPUT_NEW &&
        !has_rows(&result->manifest) && !has_rows(&h.to))
        bd_output_withdraw(&output, job->to);
done:
    bd_output_close(&output);
    bd_json_free(r.plan);
    close_holdout(&h);
    if (status != BD_OK)
        bd_repack_result_release(result);
    return status;
}
