#include "packer/verify.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/array.h"
#include "common/file.h"
#include "common/json.h"
#include "common/manifest.h"
#include "common/progress.h"
#include "common/threads.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/scan.h"

enum { MAX_TOKENIZER_BYTES = 1 << 30 };

// What the tasks of the thread pool share. Each writes the problem of its own shard.
typedef struct checking {
    const char *folder;
    const bd_manifest *manifest;
    bd_scan scan;
    bd_error *shard_problems;  // [n_shards]; status BD_OK: none
    bd_progress *progress;
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

// D1 for one file. A file that is missing is damage, too.
static bd_status check_file(const char *folder, const char *name, const bd_digest *digest,
                            int64_t size_bytes, bd_error *err)
{
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_digest found;
    int64_t found_bytes;
    bd_status status = bd_digest_file(path, &found, &found_bytes, err);
    if (status == BD_OK && size_bytes >= 0 && found_bytes != size_bytes)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D1: %lld bytes, the manifest says %lld",
                         path, (long long)found_bytes, (long long)size_bytes);
    else if (status == BD_OK && strcmp(found.hex, digest->hex) != 0)
        status =
            bd_fail(err, BD_ERR_FORMAT, "'%s': D1: the file's checksum does not match", path);
    else if (status == BD_ERR_IO && access(path, F_OK) != 0)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D1: it is missing", path);
    free(path);
    return status;
}

// Whether the dataset's tokenizer.json says what the tokenizer's own would.
static bd_status check_tokenizer_file(const char *folder, const bd_tokenizer *tokenizer,
                                      bd_error *err)
{
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME), *text = NULL;
    bd_json *stored = NULL, *own = NULL;
    char where[256];
    bd_status status = path ? bd_json_read_file(path, MAX_TOKENIZER_BYTES, &stored, err)
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

// D4.
static bd_status check_tokenizer(const char *folder, const bd_packing *packing, bd_error *err)
{
    const bd_tokenizer *tokenizer;
    BD_TRY(bd_tokenizer_open(&tokenizer, packing->tokenizer, err));
    const bool same = strcmp(tokenizer->fingerprint.hex, packing->fingerprint.hex) == 0 &&
                      tokenizer->vocab_size == packing->vocab_size;
    const bd_status status =
        same ? check_tokenizer_file(folder, tokenizer, err)
             : bd_fail(err, BD_ERR_FORMAT, "D4: tokenizer '%s' is not the one of the dataset",
                       packing->tokenizer);
    bd_tokenizer_close(tokenizer);
    return status;
}

static bd_status check_shard(void *context, int64_t index, bd_error *err)
{
    checking *c = context;
    const bd_shard_entry *entry = &c->manifest->shards[index];
    bd_error *problem = &c->shard_problems[index];
    const bd_shard_name name = bd_unit_shard_name(&entry->unit);
    bd_figures figures;
    // The rows first: they can name the place, the file's checksum cannot.
    bd_status status = bd_scan_shard(&c->scan, (size_t)index, &figures, problem);
    if (status == BD_OK || status == BD_ERR_IO)
        status = check_file(c->folder, name.text, &entry->digest, entry->size_bytes, problem);
    bd_progress_add(c->progress, (uint64_t)entry->size_bytes);
    problem->status = status;
    if (status == BD_OK || is_damage(status))
        return BD_OK;
    if (err)
        *err = *problem;
    return status;
}

static bd_status check_shards(checking *c, int n_threads, bd_verdict *verdict, bd_error *err)
{
    const size_t n = c->manifest->n_shards;
    c->shard_problems = calloc(n + 1, sizeof *c->shard_problems);
    if (!c->shard_problems)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", n);
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    const bd_status status = bd_threads_run(threads, check_shard, c, (int64_t)n, err);
    bd_threads_free(threads);
    BD_TRY(status);
    for (size_t i = 0; i < n; i++)
        if (c->shard_problems[i].status != BD_OK)
            BD_TRY(add_problem(verdict, &c->shard_problems[i], err));
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

static bd_status check_dataset(checking *c, int n_threads, bd_verdict *verdict, bd_error *err)
{
    const bd_manifest *manifest = c->manifest;
    bd_error found;
    bd_status status =
        check_file(c->folder, BD_TOKENIZER_NAME, &manifest->tokenizer_digest, -1, &found);
    if (status == BD_OK)
        status = check_tokenizer(c->folder, &manifest->packing, &found);
    BD_TRY(judge(verdict, status, &found, err));
    // Without its plan a dataset's units are unknown, so the rows cannot be judged.
    const size_t n_before = verdict->n_problems;
    BD_TRY(judge(verdict,
                 check_file(c->folder, BD_PLAN_NAME, &manifest->plan_digest, -1, &found),
                 &found, err));
    if (verdict->n_problems > n_before)
        return BD_OK;
    BD_TRY(judge(verdict, bd_scan_init(&c->scan, c->folder, manifest, &found), &found, err));
    if (verdict->n_problems > n_before)
        return BD_OK;
    BD_TRY(judge(verdict, bd_scan_check_units(&c->scan, &found), &found, err));
    return check_shards(c, n_threads, verdict, err);
}

static uint64_t shard_bytes(const bd_manifest *manifest)
{
    uint64_t n = 0;
    for (size_t i = 0; i < manifest->n_shards; i++)
        n += (uint64_t)manifest->shards[i].size_bytes;
    return n;
}

bd_status bd_verify(const char *folder, int n_threads, bool quiet, bd_verdict *verdict,
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
    checking c = {.folder = folder, .manifest = &manifest};
    c.progress = bd_progress_new(&(bd_progress_config){.label = "verifying",
                                                       .unit = "bytes",
                                                       .total = shard_bytes(&manifest),
                                                       .quiet = quiet});
    const bd_status status = check_dataset(&c, n_threads, verdict, err);
    bd_progress_free(c.progress);
    free(c.shard_problems);
    bd_scan_release(&c.scan);
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
