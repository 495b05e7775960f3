// Repeated documents: hashes from all shards, then pairs that are sorted, or a sketch.
#include <pthread.h>
#include <stdlib.h>

#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "packer/inspect/distinct_sketch.h"
#include "packer/inspect/document_hashes.h"
#include "packer/inspect/inspection.h"

typedef struct counting {
    bd_inspection *inspection;
    int64_t *first_number;  // [n_shards + 1], owned; of the documents of each shard
    bd_pair *pairs;         // [documents], owned; NULL: the sketch counts
    pthread_mutex_t lock;   // of the two below
    bd_distinct_sketch sketch;
    int64_t tokens;
    bd_progress *progress;
} counting;

// The part of one shard.
typedef struct shard_counting {
    counting *all;
    int64_t first_number;
    bd_distinct_sketch sketch;
    int64_t tokens;
} shard_counting;

static bd_status count_hashed_document(void *context, const bd_hashed_document *document,
                                       bd_error *err)
{
    (void)err;
    shard_counting *c = context;
    const int64_t number = c->first_number + document->number;
    if (c->all->pairs)
        c->all->pairs[number] = bd_duplicates_pair(document->hash, document->n_tokens, number);
    else
        bd_distinct_sketch_add(&c->sketch, document->hash);
    c->tokens += document->n_tokens;
    return BD_OK;
}

static bd_status count_shard(void *context, int64_t index, bd_error *err)
{
    counting *all = context;
    bd_shard shard;
    BD_TRY(bd_inspection_open_shard(all->inspection, (size_t)index, &shard, err));
    shard_counting *c = calloc(1, sizeof *c);
    bd_status status = c ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a sketch");
    if (status == BD_OK) {
        c->all = all;
        c->first_number = all->first_number[index];
        status = bd_document_hashes_visit(&shard, count_hashed_document, c, err);
        pthread_mutex_lock(&all->lock);
        bd_distinct_sketch_merge(&all->sketch, &c->sketch);
        all->tokens += c->tokens;
        pthread_mutex_unlock(&all->lock);
        bd_progress_add(all->progress, (uint64_t)shard.entry.figures.rows);
    }
    free(c);
    bd_shard_close(&shard);
    return status;
}

// ---- Where the most repeated ones lie ------------------------------------------------------

typedef struct finding {
    bd_duplicates *duplicates;
    size_t shard;
    int64_t first_number;  // of the shard's documents
} finding;

static bd_status find_place(void *context, const bd_hashed_document *document, bd_error *err)
{
    (void)err;
    const finding *f = context;
    for (size_t i = 0; i < f->duplicates->n_most; i++) {
        bd_repeated_document *wanted = &f->duplicates->most[i];
        if (wanted->shard == f->shard && wanted->number == f->first_number + document->number) {
            wanted->row = document->row;
            wanted->input = document->input;
            wanted->position = document->position;
        }
    }
    return BD_OK;
}

// Whether an earlier one of the most repeated lies in the same shard.
static bool was_visited(const bd_duplicates *d, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (d->most[k].shard == d->most[i].shard)
            return true;
    return false;
}

static bd_status find_places(counting *all, bd_error *err)
{
    bd_duplicates *d = &all->inspection->duplicates;
    for (size_t i = 0; i < d->n_most; i++)
        while (all->first_number[d->most[i].shard + 1] <= d->most[i].number)
            d->most[i].shard++;
    for (size_t i = 0; i < d->n_most; i++) {
        const size_t index = d->most[i].shard;
        finding f = {d, index, all->first_number[index]};
        bd_shard shard;
        if (was_visited(d, i))
            continue;
        BD_TRY(bd_inspection_open_shard(all->inspection, index, &shard, err));
        const bd_status status = bd_document_hashes_visit(&shard, find_place, &f, err);
        bd_shard_close(&shard);
        BD_TRY(status);
    }
    return BD_OK;
}

// ---- All of it -----------------------------------------------------------------------------

static bd_status prepare_counting(counting *all, int64_t memory_bytes, bd_error *err)
{
    const bd_manifest *manifest = &all->inspection->manifest;
    const int64_t n = manifest->totals.documents;
    const bool fits = n <= UINT32_MAX && n <= memory_bytes / (int64_t)sizeof *all->pairs;
    all->first_number = calloc(manifest->n_shards + 1, sizeof *all->first_number);
    if (fits)
        all->pairs = calloc((size_t)n + 1, sizeof *all->pairs);
    if (!all->first_number || (fits && !all->pairs))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the hashes of the documents");
    for (size_t i = 0; i < manifest->n_shards; i++)
        all->first_number[i + 1] = all->first_number[i] + manifest->shards[i].figures.documents;
    return BD_OK;
}

static bd_status conclude_duplicates(counting *all, bd_error *err)
{
    bd_inspection *in = all->inspection;
    const int64_t n = in->manifest.totals.documents;
    in->has_duplicates = true;
    if (all->pairs) {
        bd_duplicates_find(&in->duplicates, all->pairs, (size_t)n);
        return find_places(all, err);
    }
    const double estimate = bd_distinct_sketch_estimate(&all->sketch);
    in->duplicates = (bd_duplicates){
        .documents = n,
        .distinct = estimate < (double)n ? (int64_t)(estimate + 0.5) : n,
        .error = bd_distinct_sketch_error,
        .tokens = all->tokens,
    };
    return BD_OK;
}

bd_status bd_inspection_count_duplicates(bd_inspection *inspection, int64_t memory_bytes,
                                         int n_threads, bool quiet, bd_error *err)
{
    const bd_manifest *manifest = &inspection->manifest;
    bd_threads *threads = NULL;
    counting *all = calloc(1, sizeof *all);
    if (!all)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a sketch");
    all->inspection = inspection;
    pthread_mutex_init(&all->lock, NULL);
    bd_status status = prepare_counting(all, memory_bytes, err);
    if (status == BD_OK)
        status = bd_threads_new(&threads, n_threads, err);
    if (status == BD_OK) {
        all->progress = bd_progress_new(&(bd_progress_config){
            .label = "hashing",
            .unit = "rows",
            .total = (uint64_t)manifest->totals.rows,
            .quiet = quiet,
        });
        status = bd_threads_run(threads, count_shard, all, (int64_t)manifest->n_shards, err);
        bd_progress_free(all->progress);
    }
    if (status == BD_OK)
        status = conclude_duplicates(all, err);
    bd_threads_free(threads);
    pthread_mutex_destroy(&all->lock);
    free(all->first_number);
    free(all->pairs);
    free(all);
    return status;
}
