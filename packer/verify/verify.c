#include "packer/verify/verify.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "common/dataset/stored_tokenizer.h"
#include "packer/verify/check.h"
#include "packer/verify/corpus.h"
#include "packer/verify/verify_corpus.h"

BD_ENUM_NAMES(bd_verify_depth, BD_VERIFY_DEPTHS);

// The tasks of the thread pool share this. Each writes the problem of its own shard.
typedef struct checking {
    const char *folder;
    const bd_verify_settings *settings;
    const bd_manifest *manifest;
    bd_check check;
    bd_error *shard_problems;  // [n_shards], owned; status BD_OK: none
    bd_threads *threads;       // owned
    bd_progress *progress;     // owned
    bd_corpus corpus;          // owned
} checking;

// Damage is part of the verdict; anything else (no memory, no permission) ends the run.
static bool is_damage(bd_status status)
{
    return status == BD_ERR_FORMAT;
}

static bd_status add_problem(bd_verdict *verdict, const bd_error *problem, bd_error *err)
{
    size_t capacity = verdict->n_problems;  // few: growing one by one is fine
    BD_TRY(bd_array_reserve((void **)&verdict->problems, &capacity, verdict->n_problems + 1,
                            sizeof *verdict->problems, err));
    verdict->problems[verdict->n_problems++] = *problem;
    return BD_OK;
}

// Runs one check of the whole dataset; its damage becomes a problem of the verdict.
static bd_status judge(bd_verdict *verdict, bd_status status, const bd_error *found,
                       bd_error *err)
{
    if (status == BD_OK)
        return BD_OK;
    if (is_damage(status))
        return add_problem(verdict, found, err);
    if (err)
        *err = *found;
    return status;
}

// D1 for one file. A missing file is damage as well; one that cannot be read for another reason is
// a failure.
static bd_status check_file(const char *folder, const char *name, const bd_digest *digest,
                            bd_error *err)
{
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_digest found;
    int64_t found_bytes;
    bd_status status = bd_digest_file(path, &found, &found_bytes, err);
    if (status == BD_OK)
        status = bd_check_file_digest(path, &found, digest, err);
    else if (status == BD_ERR_IO && access(path, F_OK) != 0)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D1: it is missing", path);
    free(path);
    return status;
}

// Compares the dataset's tokenizer.json with that of the built-in tokenizer.
static bd_status check_tokenizer_file(const char *folder, const bd_tokenizer *tokenizer,
                                      bd_error *err)
{
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME), *text = NULL;
    bd_json *stored = NULL, *own = NULL;
    char where[256];
    bd_status status = path ? bd_json_read_file(path, BD_MAX_TOKENIZER_FILE, &stored, err)
                            : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    if (status == BD_OK)
        status = tokenizer->kind->to_file(tokenizer, &text, err);
    if (status == BD_OK)
        status = bd_json_parse(text, strlen(text), &own, err);
    if (status == BD_OK && bd_json_difference(stored, own, where, sizeof where))
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D4: not what its fingerprint says: %s",
                         path, where);
    bd_json_free(stored);
    bd_json_free(own);
    free(text);
    free(path);
    return status;
}

// D4. A tokenizer that was read from the file itself need not be compared with it again.
static bd_status check_tokenizer(const char *folder, const bd_dataset_config *config,
                                 bd_error *err)
{
    const bd_tokenizer *tokenizer;
    BD_TRY(bd_stored_tokenizer_open(&tokenizer, folder, config, err));
    const bool is_built_in = strcmp(tokenizer->name, BD_BPE_NAME) != 0;
    const bd_status status = is_built_in ? check_tokenizer_file(folder, tokenizer, err) : BD_OK;
    bd_tokenizer_close(tokenizer);
    return status;
}

// ---- Shards --------------------------------------------------------------------------------

// D1 and S1: the shard opens, says what the manifest says, and has its bytes.
static bd_status check_structure(const checking *c, size_t index, bd_error *err)
{
    const bd_shard_entry *entry = &c->manifest->shards[index];
    bd_shard shard;
    BD_TRY(bd_shard_open_entry(&shard, c->folder, c->manifest, index, err));
    bd_status status =
        bd_check_file_size(shard.path, (int64_t)shard.file.size_bytes, entry->size_bytes, err);
    bd_digest found;
    if (status == BD_OK)
        status = bd_check_hash_file(&shard, &found, err);
    if (status == BD_OK)
        status = bd_check_file_digest(shard.path, &found, &entry->digest, err);
    bd_shard_close(&shard);
    bd_progress_add(c->progress, (uint64_t)entry->size_bytes);
    return status;
}

// A shard that could not be read, or not by this version, may just be missing or damaged.
static bd_status blame_file(const checking *c, size_t index, bd_status status, bd_error *err)
{
    const bd_shard_entry *entry = &c->manifest->shards[index];
    const bd_shard_name name = bd_unit_shard_name(&entry->unit);
    bd_error found;
    if (status != BD_ERR_IO && status != BD_ERR_UNSUPPORTED)
        return status;
    if (check_file(c->folder, name.text, &entry->digest, &found) != BD_ERR_FORMAT)
        return status;
    *err = found;
    return BD_ERR_FORMAT;
}

// Checks one shard by the caller alone, or by all of `threads`. Damage becomes the problem of the
// shard; the call fails only if the shard could not be checked.
static bd_status check_shard(checking *c, size_t index, bd_threads *threads, bd_error *err)
{
    const bd_check_options options = {
        .threads = threads, .progress = c->progress, .file = true};
    bd_error *problem = &c->shard_problems[index];
    bd_figures figures;
    bd_status status = c->settings->depth == BD_VERIFY_STRUCTURE
                           ? check_structure(c, index, problem)
                           : bd_check_shard(&c->check, index, &options, &figures, problem);
    if (status != BD_OK)
        status = blame_file(c, index, status, problem);
    problem->status = status;
    if (status == BD_OK || is_damage(status))
        return BD_OK;
    if (err)
        *err = *problem;
    return status;
}

static bd_status check_shard_alone(void *context, int64_t index, bd_error *err)
{
    return check_shard(context, (size_t)index, NULL, err);
}

// How many of the last shards are better checked one after another, each by all threads, because
// most threads would be idle. Compressed shards never are: decompressing takes longest, and only
// one thread can do it.
static size_t n_shared(const checking *c)
{
    const size_t n_threads = (size_t)c->settings->n_threads;
    const size_t rest = c->manifest->n_shards % n_threads;
    const bool has_rows = c->settings->depth != BD_VERIFY_STRUCTURE;
    const bool is_plain = c->manifest->config.codec == BD_SHARD_UNCOMPRESSED;
    return has_rows && is_plain && 2 * rest <= n_threads ? rest : 0;
}

static bd_status check_shards(checking *c, bd_error *err)
{
    const size_t n = c->manifest->n_shards, n_alone = n - n_shared(c);
    BD_TRY(bd_threads_run(c->threads, check_shard_alone, c, (int64_t)n_alone, err));
    for (size_t i = n_alone; i < n; i++)
        BD_TRY(check_shard(c, i, c->threads, err));
    return BD_OK;
}

static bd_status list_problems(const bd_error *problems, size_t n, bd_verdict *verdict,
                               bd_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (problems[i].status != BD_OK)
            BD_TRY(add_problem(verdict, &problems[i], err));
    return BD_OK;
}

// ---- The corpus ----------------------------------------------------------------------------

// Finds the corpus, before hours are spent on rows. One that cannot be read is damage of the
// corpus: then *usable is false.
static bd_status find_corpus(checking *c, bd_verdict *verdict, bool *usable, bd_error *err)
{
    const bd_verify_settings *settings = c->settings;
    bd_error found;
    bd_status status =
        bd_corpus_open(&c->corpus, &c->check, settings->corpus, settings->n_corpus, &found);
    if (status == BD_OK)
        status = bd_corpus_examine_all(&c->corpus, c->threads, &found);
    *usable = status == BD_OK;
    BD_TRY(judge(verdict, status, &found, err));
    for (size_t i = 0; i < c->corpus.inputs.n; i++)
        BD_TRY(list_problems(&c->corpus.found[i].change, 1, verdict, err));
    return BD_OK;
}

static bd_status compare_corpus(checking *c, bd_verdict *verdict, bd_error *err)
{
    const bd_verify_corpus_job job = {&c->check, &c->corpus, c->settings->n_threads,
                                      c->settings->quiet};
    return bd_verify_corpus(&job, c->shard_problems, &verdict->n_compared, err);
}

// ---- The dataset ---------------------------------------------------------------------------

// Checks the tokenizer and the plan. *usable tells whether the plan can be used: without it the
// units are unknown, and the shards cannot be judged.
static bd_status check_head(checking *c, bd_verdict *verdict, bool *usable, bd_error *err)
{
    const bd_manifest *manifest = c->manifest;
    bd_error found;
    bd_status status =
        check_file(c->folder, BD_TOKENIZER_NAME, &manifest->tokenizer_digest, &found);
    if (status == BD_OK)
        status = check_tokenizer(c->folder, &manifest->config, &found);
    BD_TRY(judge(verdict, status, &found, err));
    status = check_file(c->folder, BD_PLAN_NAME, &manifest->plan_digest, &found);
    if (status == BD_OK)
        status = bd_check_init(&c->check, c->folder, manifest, &found);
    *usable = status == BD_OK;
    return judge(verdict, status, &found, err);
}

static bd_status check_dataset(checking *c, bd_verdict *verdict, bd_error *err)
{
    bool usable;
    bd_error found;
    BD_TRY(check_head(c, verdict, &usable, err));
    if (!usable)
        return BD_OK;
    BD_TRY(judge(verdict, bd_check_units(&c->check, &found), &found, err));
    // The corpus is read as the plan and the tokenizer say, so they must be right.
    bool comparable = c->settings->depth == BD_VERIFY_CORPUS && verdict->n_problems == 0;
    if (comparable)
        BD_TRY(find_corpus(c, verdict, &comparable, err));
    c->progress = bd_progress_new(&(bd_progress_config){.label = "verifying",
                                                        .unit = "bytes",
                                                        .total = bd_manifest_bytes(c->manifest),
                                                        .quiet = c->settings->quiet});
    const bd_status status = check_shards(c, err);
    bd_progress_free(c->progress);
    BD_TRY(status);
    if (comparable)
        BD_TRY(compare_corpus(c, verdict, err));
    return list_problems(c->shard_problems, c->manifest->n_shards, verdict, err);
}

static bd_status check_manifest(const char *folder, const bd_verify_settings *settings,
                                const bd_manifest *manifest, bd_verdict *verdict, bd_error *err)
{
    checking c = {.folder = folder, .settings = settings, .manifest = manifest};
    c.shard_problems = calloc(manifest->n_shards + 1, sizeof *c.shard_problems);
    bd_status status =
        c.shard_problems
            ? bd_threads_new(&c.threads, settings->n_threads, err)
            : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", manifest->n_shards);
    if (status == BD_OK)
        status = check_dataset(&c, verdict, err);
    bd_corpus_release(&c.corpus);
    bd_threads_free(c.threads);
    free(c.shard_problems);
    bd_check_release(&c.check);
    return status;
}

bd_status bd_verify(const char *folder, const bd_verify_settings *settings, bd_verdict *verdict,
                    bd_error *err)
{
    *verdict = (bd_verdict){0};
    bd_manifest manifest;
    bd_error found;
    const bd_status read = bd_manifest_read(&manifest, folder, &found);
    if (read != BD_OK)
        return judge(verdict, read, &found, err);
    verdict->n_shards = manifest.n_shards;
    verdict->n_rows = manifest.totals.rows;
    verdict->n_tokens = manifest.totals.packed;
    verdict->n_bytes = bd_manifest_bytes(&manifest);
    const bd_status status = check_manifest(folder, settings, &manifest, verdict, err);
    bd_manifest_release(&manifest);
    if (status != BD_OK)
        bd_verdict_release(verdict);
    return status;
}

void bd_verdict_release(bd_verdict *verdict)
{
    free(verdict->problems);
    *verdict = (bd_verdict){0};
}
