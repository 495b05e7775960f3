#include "packer/pack.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/shard.h"
#include "common/threads.h"
#include "packer/output.h"
#include "packer/pack_log.h"
#include "packer/plan.h"
#include "packer/units.h"

// What the tasks of the thread pool share. Each writes the entry of its own unit.
typedef struct run {
    const bd_pack_job *job;
    const bd_units *units;
    bd_shard_entry *entries;  // [units->n]
    bool *continued;          // [units->n]
    bool may_continue;
} run;

// ---- One unit ----------------------------------------------------------------------------

// Whether a shard is one of this job and unit, and no row of it is damaged.
static bool is_sound(const bd_shard *shard, const bd_pack_job *job, const bd_unit *unit)
{
    bd_json *here = bd_shard_metadata(&shard->packing, &shard->unit, &shard->figures);
    bd_json *there = bd_shard_metadata(&job->packing, unit, &shard->figures);
    char where[256];
    const bool ours = !bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    bd_hasher *hasher = bd_hasher_new();
    bool sound = ours && hasher;
    bd_row row;
    for (int64_t r = 0; sound && r < shard->figures.rows; r++)
        sound = bd_shard_row(shard, r, hasher, &row, NULL) == BD_OK;
    bd_hasher_free(hasher);
    return sound;
}

// A shard that an earlier run published. False if there is none, or one that is damaged: then
// the unit is packed again.
static bool take_finished(const bd_pack_job *job, const bd_unit *unit, bd_shard_entry *entry)
{
    const bd_shard_name name = bd_unit_shard_name(unit);
    bd_shard shard;
    if (bd_shard_open(&shard, job->folder, name.text, NULL) != BD_OK)
        return false;
    *entry = (bd_shard_entry){.unit = *unit, .figures = shard.figures};
    const bool taken =
        is_sound(&shard, job, unit) &&
        bd_digest_file(shard.path, &entry->digest, &entry->size_bytes, NULL) == BD_OK;
    bd_shard_close(&shard);
    return taken;
}

static int64_t unit_bytes(const bd_pack_job *job, const bd_unit *unit)
{
    int64_t n = 0;
    for (int64_t i = unit->input; i < unit->input + unit->n_inputs; i++) {
        const bd_slice slice = bd_unit_slice(unit, &job->inputs->items[i], job->unit_bytes,
                                             job->delimiter == NULL);
        n += slice.end - slice.begin;
    }
    return n;
}

static bd_status run_unit(void *context, int64_t index, bd_error *err)
{
    run *r = context;
    const bd_unit *unit = &r->units->items[index];
    if (r->may_continue && take_finished(r->job, unit, &r->entries[index])) {
        r->continued[index] = true;
        bd_progress_add(r->job->progress, (uint64_t)unit_bytes(r->job, unit));
        return BD_OK;
    }
    return bd_pack_unit(r->job, unit, &r->entries[index], err);
}

static bd_status run_units(run *r, int n_threads, bd_error *err)
{
    bd_threads *threads;
    // More threads than units would only wait.
    const int n = (size_t)n_threads < r->units->n ? n_threads : (int)r->units->n;
    BD_TRY(bd_threads_new(&threads, n, err));
    const bd_status status = bd_threads_run(threads, run_unit, r, (int64_t)r->units->n, err);
    bd_threads_free(threads);
    return status;
}

// ---- What is published around them ---------------------------------------------------------

static bd_status publish_text(const bd_pack_job *job, const char *name, const char *text,
                              bd_digest *digest, bd_error *err)
{
    const size_t n = strlen(text);
    *digest = bd_digest_of(text, n);
    return bd_file_publish(job->folder, name, text, n, err);
}

// Also when a run is continued: whatever became of the files, they are then as they should be.
static bd_status publish_head(const bd_pack_job *job, const bd_json *plan,
                              bd_manifest *manifest, bd_error *err)
{
    char *plan_text = NULL, *tokenizer_text = NULL;
    bd_status status = bd_plan_print(plan, &plan_text, err);
    if (status == BD_OK)
        status = publish_text(job, BD_PLAN_NAME, plan_text, &manifest->plan_digest, err);
    if (status == BD_OK)
        status = job->tokenizer->kind->to_file(job->tokenizer, &tokenizer_text, err);
    if (status == BD_OK)
        status = publish_text(job, BD_TOKENIZER_NAME, tokenizer_text,
                              &manifest->tokenizer_digest, err);
    free(plan_text);
    free(tokenizer_text);
    return status;
}

static bd_status list_inputs(bd_manifest *manifest, const bd_inputs *inputs, bd_error *err)
{
    manifest->inputs = calloc(inputs->n, sizeof *manifest->inputs);
    if (!manifest->inputs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", inputs->n);
    manifest->n_inputs = inputs->n;
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input *input = &inputs->items[i];
        manifest->inputs[i] = (bd_input_entry){
            .name = strdup(input->name),
            .source = strdup(BD_DEFAULT_SOURCE),
            .format = strdup(bd_input_format_words[input->format]),
            .size_bytes = input->size_bytes,
        };
        const bd_input_entry *entry = &manifest->inputs[i];
        if (!entry->name || !entry->source || !entry->format)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", inputs->n);
    }
    return BD_OK;
}

static bd_status finish(const bd_pack_job *job, const bd_pack_run *log, bd_manifest *manifest,
                        bd_error *err)
{
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&manifest->totals, &manifest->shards[i].figures, err));
    if (manifest->totals.documents == 0)
        return bd_fail(err, BD_ERR_FORMAT, "nothing to pack: the inputs hold no document%s",
                       manifest->totals.dropped_documents > 0 ? " that fits a row" : "");
    BD_TRY(list_inputs(manifest, job->inputs, err));
    BD_TRY(bd_pack_log_publish(job, log, err));
    return bd_manifest_publish(manifest, job->folder, err);
}

// Packs what is left to do in a folder that is ours.
static bd_status pack_units(const bd_pack_job *job, int n_threads, const bd_json *plan,
                            bool is_new, bd_pack_result *result, bd_error *err)
{
    const int64_t started_ns = bd_now_ns();
    bd_manifest *manifest = &result->manifest;
    manifest->packing = job->packing;
    bd_units units;
    BD_TRY(bd_units_plan(&units, job->inputs, job->unit_bytes, job->delimiter == NULL, err));

    run r = {.job = job, .units = &units, .may_continue = !is_new};
    bd_status status = publish_head(job, plan, manifest, err);
    if (status != BD_OK)
        goto done;
    r.entries = calloc(units.n, sizeof *r.entries);
    r.continued = calloc(units.n, sizeof *r.continued);
    if (!r.entries || !r.continued) {
        free(r.entries);
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu units", units.n);
        goto done;
    }
    manifest->shards = r.entries;  // released with the manifest from here on
    manifest->n_shards = units.n;
    status = run_units(&r, n_threads, err);
    if (status != BD_OK)
        goto done;
    for (size_t i = 0; i < units.n; i++)
        result->n_continued += r.continued[i];
    const bd_pack_run log = {
        .n_threads = n_threads,
        .n_units = (int64_t)units.n,
        .n_continued = result->n_continued,
        .elapsed_ns = bd_now_ns() - started_ns,
    };
    status = finish(job, &log, manifest, err);
done:
    free(r.continued);
    bd_units_release(&units);
    return status;
}

bd_status bd_pack(const bd_pack_job *job, int n_threads, bool overwrite, bd_pack_result *result,
                  bd_error *err)
{
    *result = (bd_pack_result){0};
    bd_output output = {.lock = -1};
    bd_json *plan = bd_plan_to_json(job);
    bd_status status = bd_output_open(&output, job->folder, plan, overwrite, err);
    if (status != BD_OK)
        goto done;
    result->already_finished = output.state == BD_OUTPUT_FINISHED;
    if (result->already_finished)
        status = bd_manifest_read(&result->manifest, job->folder, err);
    else
        status = pack_units(job, n_threads, plan, output.state == BD_OUTPUT_NEW, result, err);
    if (status != BD_OK)
        bd_manifest_release(&result->manifest);
done:
    bd_output_close(&output);
    bd_json_free(plan);
    return status;
}
