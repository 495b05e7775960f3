#include "packer/pack/repack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/shard.h"
#include "common/dataset/stored_tokenizer.h"
#include "packer/pack/dataset_writer.h"
#include "packer/pack/existing_shards.h"
#include "packer/pack/output.h"
#include "packer/pack/pack_log.h"
#include "packer/pack/rebuild.h"
#include "packer/pack/unit_writer.h"

// One dataset: the one that was asked for, or the held-out one inside it. The tasks of the
// thread pool share it; each writes the entry of its own shard.
typedef struct repacking {
    const bd_joined *from;  // borrowed
    const char *target;     // a folder, borrowed
    bd_manifest *to;        // borrowed; its config is the new one
    bd_json *plan;          // of the target, owned
    bd_progress *progress;
    bool may_continue;
    bool card_kept;
} repacking;

// ---- One shard -----------------------------------------------------------------------------

// Whether the new shard exists already, and was made from the same records.
static bool take_existing(const repacking *r, const bd_shard_entry *source, const bd_unit *unit,
                          bd_shard_entry *entry)
{
    const bd_pack_job job = {.config = r->to->config, .folder = r->target};
    const bd_planned planned = {.unit = *unit};
    bd_packed_unit packed;
    if (!r->may_continue || !bd_take_existing_unit(&job, &planned, unit, &packed) ||
        strcmp(packed.shard.records.hex, source->records.hex) != 0 ||
        strcmp(packed.shard.positions.hex, source->positions.hex) != 0)
        return false;
    *entry = packed.shard;
    return true;
}

// A task: puts the documents of shard `index` of all datasets together, and packs them again.
static bd_status repack_shard(void *context, int64_t index, bd_error *err)
{
    repacking *r = context;
    const bd_joined_dataset *dataset = bd_joined_find_shard(r->from, (size_t)index);
    const size_t own_index = (size_t)index - dataset->first_shard;
    const bd_shard_entry *source = &dataset->manifest.shards[own_index];
    bd_shard_entry *entry = &r->to->shards[index];
    bd_unit unit = source->unit;
    unit.input += (int64_t)dataset->first_input;  // its place among the inputs of all datasets
    BD_TRY(bd_interrupt_check(err));
    if (!take_existing(r, source, &unit, entry)) {
        bd_shard shard;
        bd_documents documents;
        BD_TRY(
            bd_shard_open_entry(&shard, dataset->folder, &dataset->manifest, own_index, err));
        bd_documents_init(&documents, &r->to->config, NULL);
        bd_status status = bd_rebuild_documents(&shard, &documents, err);
        for (size_t d = 0; status == BD_OK && d < documents.n; d++)
            documents.items[d].input += (uint32_t)dataset->first_input;
        if (status == BD_OK) {
            *entry = (bd_shard_entry){.unit = unit,
                                      .records = shard.entry.records,
                                      .positions = shard.entry.positions};
            // Documents that were left out of the old dataset are left out of the new one too.
            bd_figures_take_left_out(&entry->figures, &shard.entry.figures);
            // So are those of one token, where others bring masks: see rebuild.h.
            const int64_t n_untrained = shard.entry.figures.documents - (int64_t)documents.n;
            entry->figures.untrained += n_untrained;
            entry->figures.untrained_documents += n_untrained;
            status = bd_unit_write(r->target, &documents, entry, err);
            if (status == BD_ERR_ARGUMENT)
                bd_error_prefix(err, status, "'%s'", shard.path);
        }
        bd_documents_release(&documents);
        bd_shard_close(&shard);
        BD_TRY(status);
    }
    bd_progress_add(r->progress, (uint64_t)source->size_bytes);
    return BD_OK;
}

// ---- One dataset ---------------------------------------------------------------------------

// `output` is the folder that may be emptied first.
static bd_status check_possible(const repacking *r, const char *output, bd_error *err)
{
    const bd_dataset_config *config = &r->to->config;
    for (size_t i = 0; i < r->from->n; i++) {
        const bd_joined_dataset *dataset = &r->from->items[i];
        const bd_figures *totals = &dataset->manifest.totals;
        // Documents that were dropped must be too long for the new rows as well.
        const bool dropped_again = config->long_policy == BD_LONG_DROP &&
                                   config->seq_len <= dataset->manifest.config.seq_len;
        if (totals->truncated_documents > 0)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "'%s' holds %" PRId64
                           " truncated documents, whose ends are lost: pack "
                           "the corpus again",
                           dataset->folder, totals->truncated_documents);
        if (totals->dropped_documents > 0 && !dropped_again)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "'%s' lacks %" PRId64
                           " documents that were dropped and might be wanted "
                           "now: pack the corpus again",
                           dataset->folder, totals->dropped_documents);
        if (bd_lies_in_folder(dataset->folder, output))
            return bd_fail(err, BD_ERR_ARGUMENT, "'%s' lies in '%s', which is the output",
                           dataset->folder, output);
        if (bd_would_lie_in_folder(output, dataset->folder))
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "the output, '%s', lies in '%s', which is to be packed again",
                           output, dataset->folder);
    }
    return BD_OK;
}

// The datasets have the same fingerprint, so that the tokenizer of the first is that of all.
static bd_status publish_head(const repacking *r, bd_error *err)
{
    const bd_joined_dataset *first = &r->from->items[0];
    char *text;
    BD_TRY(
        bd_stored_tokenizer_read(first->folder, &first->manifest.tokenizer_digest, &text, err));
    const bd_status status = bd_dataset_publish_head(r->target, r->plan, text, r->to, err);
    free(text);
    return status;
}

static bd_status repack_shards(repacking *r, bd_threads *threads, bd_error *err)
{
    const size_t n = r->from->n_shards;
    r->to->shards = calloc(n + 1, sizeof *r->to->shards);
    if (!r->to->shards)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", n);
    r->to->n_shards = n;
    return bd_threads_run(threads, repack_shard, r, (int64_t)n, err);
}

static bd_status publish_tail(repacking *r, const bd_manifest *held_out, bd_error *err)
{
    const size_t n = r->from->n_inputs;
    const bd_input_entry **entries = malloc((n + 1) * sizeof *entries);
    if (!entries)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", n);
    bd_status status = BD_OK;
    r->to->passed_over.is_known = true;
    for (size_t i = 0; i < r->from->n; i++) {
        const bd_joined_dataset *dataset = &r->from->items[i];
        for (size_t k = 0; k < dataset->manifest.n_inputs; k++)
            entries[dataset->first_input + k] = &dataset->manifest.inputs[k];
        if (status == BD_OK)
            status =
                bd_passed_over_join(&r->to->passed_over, &dataset->manifest.passed_over, err);
    }
    if (status == BD_OK)
        status =
            bd_dataset_publish_tail(r->target, r->to, held_out, entries, n, &r->card_kept, err);
    free(entries);
    return status;
}

// ---- The held-out dataset ------------------------------------------------------------------

// The held-out dataset, if there is one; all but the repacking is owned.
typedef struct holdout {
    bool is_there;
    bd_joined from;
    char *target;
    bd_manifest to;
    repacking repacking;
} holdout;

static bd_status open_holdout(holdout *h, const bd_repack_job *job, bd_error *err)
{
    BD_TRY(bd_joined_open_holdouts(&h->from, job->from, err));
    h->is_there = h->from.n > 0;
    if (!h->is_there)
        return BD_OK;
    h->target = bd_path_join(job->to, BD_HOLDOUT_NAME);
    if (!h->target)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    h->to.config = job->config;
    h->to.config.part = BD_PART_HELD_OUT;
    h->repacking = (repacking){.from = &h->from, .target = h->target, .to = &h->to};
    BD_TRY(check_possible(&h->repacking, job->to, err));
    return bd_joined_plan(&h->from, &h->to.config, &h->repacking.plan, err);
}

// Both manifests come after all shards, so that a shard that was lost in the meantime is noticed,
// and the dataset's own last of all: with it both are finished.
static bd_status repack_both(const bd_repack_job *job, repacking *r, holdout *h, bd_error *err)
{
    const int64_t started_ns = bd_now_ns();
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, job->n_threads, err));
    bd_progress *progress =
        bd_progress_new(&(bd_progress_config){.label = "repacking",
                                              .unit = "bytes",
                                              .total = r->from->n_bytes + h->from.n_bytes,
                                              .quiet = job->quiet});
    r->progress = h->repacking.progress = progress;
    h->repacking.may_continue = r->may_continue;
    bd_status status = publish_head(r, err);
    if (status == BD_OK && h->is_there) {  // the dataset's lock is that of its holdout as well
        int n_made;                        // it is removed together with the dataset's folder
        status = bd_folder_make(h->target, &n_made, err);
        if (status == BD_OK)
            status = bd_folder_remove_pending(h->target, bd_output_is_file_name, err);
        if (status == BD_OK)
            status = publish_head(&h->repacking, err);
        if (status == BD_OK)
            status = repack_shards(&h->repacking, threads, err);
    }
    if (status == BD_OK)
        status = repack_shards(r, threads, err);
    if (status == BD_OK) {
        char *tokenizer_file = bd_pack_log_tokenizer(job->from->items[0].folder);
        const bd_pack_log log = {
            .repacked_from = job->from,
            .tokenizer = tokenizer_file,
            .n_threads = job->n_threads,
            .n_ranks = 1,
            .n_units = (int64_t)r->to->n_shards,
            .elapsed_ns = bd_now_ns() - started_ns,
        };
        status = bd_pack_log_publish(job->to, &log, err);
        free(tokenizer_file);
    }
    if (status == BD_OK && h->is_there)
        status = publish_tail(&h->repacking, NULL, err);
    if (status == BD_OK)
        status = publish_tail(r, h->is_there ? &h->to : NULL, err);
    if (status == BD_ERR_IO) {  // if the plan is gone, no run could continue without it
        publish_head(r, NULL);
        if (h->is_there)
            publish_head(&h->repacking, NULL);
    }
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

bd_status bd_repack(const bd_repack_job *job, bd_repack_result *result, bd_error *err)
{
    *result = (bd_repack_result){.manifest.config = job->config};
    bd_output output = {.lock = -1};
    holdout h = {0};
    repacking r = {.from = job->from, .target = job->to, .to = &result->manifest};
    bd_status status = check_possible(&r, job->to, err);
    if (status == BD_OK)
        status = open_holdout(&h, job, err);
    if (status == BD_OK)
        status = bd_joined_plan(job->from, &job->config, &r.plan, err);
    if (status == BD_OK)
        status =
            bd_output_open(&output, job->to, r.plan, BD_LOCK_EXCLUSIVE,
                           job->overwrite ? BD_EXISTING_OVERWRITE : BD_EXISTING_CONTINUE, err);
    if (status != BD_OK)
        goto done;
    result->already_finished = output.state == BD_OUTPUT_FINISHED;
    r.may_continue = output.state == BD_OUTPUT_UNFINISHED;
    status = result->already_finished ? bd_manifest_read(&result->manifest, job->to, err)
                                      : repack_both(job, &r, &h, err);
    result->card_kept = r.card_kept;
    result->n_bytes = job->from->n_bytes + h.from.n_bytes;
    if (status != BD_OK && status != BD_ERR_INTERRUPTED && output.state == BD_OUTPUT_NEW &&
        !has_rows(&result->manifest) && !has_rows(&h.to))
        bd_output_withdraw(&output, job->to);
done:
    bd_output_close(&output);
    bd_json_free(r.plan);
    bd_json_free(h.repacking.plan);
    bd_joined_release(&h.from);
    bd_manifest_release(&h.to);
    free(h.target);
    if (status != BD_OK)
        bd_repack_result_release(result);
    return status;
}
