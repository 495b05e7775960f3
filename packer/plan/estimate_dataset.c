#include "packer/plan/estimate_dataset.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/shard.h"

typedef struct found_document {
    bd_document_place place;
    uint32_t length;
} found_document;

typedef struct found_documents {
    found_document *items;  // [n], owned
    size_t n, capacity;
    int64_t n_claimed;  // tokens of these documents, as their lengths say,
    int64_t n_covered;  // and as many as there are in the rows
} found_documents;

// The tasks of the thread pool share this.
typedef struct estimating {
    bd_estimates *estimates;
    const char *folder;
    const bd_manifest *manifest;
    bd_progress *progress;
    int64_t *time_ns;  // atomic
} estimating;

static bd_status take_lengths(found_documents *found, const bd_dataset_config *config,
                              const bd_row *row, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&found->items, &found->capacity,
                            found->n + (size_t)row->n_segments, sizeof *found->items, err));
    for (int64_t s = 0; s < row->n_segments; s++) {
        const bool is_first = row->segments.offset[s] == 0;
        found->n_covered += row->bounds[s + 1] - row->bounds[s] - !is_first;
        if (!is_first)
            continue;
        found->n_claimed += row->segments.length[s];
        found->items[found->n++] =
            (found_document){.place = bd_dataset_place(config, row->segments.input[s],
                                                       row->segments.position[s]),
                             .length = row->segments.length[s]};
    }
    return BD_OK;
}

static int compare_by_place(const void *left, const void *right)
{
    const found_document *a = left, *b = right;
    return bd_document_place_compare(&a->place, &b->place);
}

static bd_status read_documents(const estimating *e, const bd_shard *shard,
                                found_documents *found, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = BD_OK;
    for (int64_t r = 0; status == BD_OK && r < shard->entry.figures.rows; r++) {
        bd_row row;
        status = bd_interrupt_check(err);
        if (status == BD_OK)
            status = bd_shard_row(shard, r, hasher, &row, err);
        if (status == BD_OK)
            status = take_lengths(found, &shard->config, &row, err);
        bd_progress_add(e->progress, 1);
    }
    bd_hasher_free(hasher);
    // A wrong length could demand any amount of memory. Truncated documents have the length that
    // they state.
    if (status == BD_OK && found->n_claimed != found->n_covered &&
        shard->config.long_policy != BD_LONG_TRUNCATE)
        status = bd_fail(err, BD_ERR_FORMAT,
                         "'%s': S3: its documents have %" PRId64 " tokens, its rows %" PRId64,
                         shard->path, found->n_claimed, found->n_covered);
    // Rows are in the order of their earliest document; the documents themselves are not in input
    // order.
    if (status == BD_OK && found->n > 0)
        qsort(found->items, found->n, sizeof *found->items, compare_by_place);
    return status;
}

static bd_status read_lengths(const estimating *e, size_t index, bd_lengths *lengths,
                              bd_error *err)
{
    bd_shard shard;
    found_documents found = {0};
    BD_TRY(bd_shard_open_entry(&shard, e->folder, e->manifest, index, err));
    bd_status status = read_documents(e, &shard, &found, err);
    for (size_t i = 0; status == BD_OK && i < found.n; i++)
        status = bd_lengths_append(lengths, found.items[i].length, err);
    free(found.items);
    bd_shard_close(&shard);
    return status;
}

static bd_status estimate_shard(void *context, int64_t index, bd_error *err)
{
    const estimating *e = context;
    bd_lengths lengths = {0};
    const int64_t begun = bd_now_ns();
    bd_status status = read_lengths(e, (size_t)index, &lengths, err);
    __atomic_fetch_add(e->time_ns, bd_now_ns() - begun, __ATOMIC_RELAXED);
    for (size_t i = 0; status == BD_OK && i < e->estimates->n; i++)
        status = bd_estimates_add(e->estimates, i, &lengths, err);
    bd_lengths_release(&lengths);
    return status;
}

bd_status bd_estimate_dataset(bd_estimates *estimates, const char *folder,
                              const bd_manifest *manifest, int n_threads, bool quiet,
                              int64_t *time_ns, bd_error *err)
{
    estimating e = {estimates, folder, manifest, NULL, time_ns};
    bd_threads *threads;
    *time_ns = 0;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    e.progress = bd_progress_new(&(bd_progress_config){.label = "reading",
                                                       .unit = "rows",
                                                       .total = (uint64_t)manifest->totals.rows,
                                                       .quiet = quiet});
    const bd_status status =
        bd_threads_run(threads, estimate_shard, &e, (int64_t)manifest->n_shards, err);
    bd_progress_free(e.progress);
    bd_threads_free(threads);
    return status;
}
