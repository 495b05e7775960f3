// The statistics of an inspection: from a sample of the rows, or from all of them.
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/shard.h"
#include "packer/inspect/inspection.h"
#include "packer/verify/check.h"

// ---- What follows from the rows that were read ---------------------------------------------

// Puts the token where it belongs among the most frequent; of equals the lower id is first.
static void offer_token(bd_inspection *in, uint32_t id, int64_t count)
{
    size_t at = in->n_frequent;
    while (at > 0 && in->frequent[at - 1].count < count)
        at--;
    if (at == BD_FREQUENT_TOKENS)
        return;
    in->n_frequent += in->n_frequent < BD_FREQUENT_TOKENS;
    memmove(&in->frequent[at + 1], &in->frequent[at],
            (in->n_frequent - at - 1) * sizeof in->frequent[0]);
    in->frequent[at] = (bd_frequent_token){id, count};
}

static void find_frequent(bd_inspection *in)
{
    bd_statistics_settle(&in->statistics);
    const int64_t *counts = in->statistics.token_counts;
    in->n_frequent = 0;
    in->tokens_counted = in->statistics.figures.packed;
    for (int64_t id = 0; counts && id < in->manifest.config.vocab_size; id++)
        if (counts[id] > 0)
            offer_token(in, (uint32_t)id, counts[id]);
}

// The nearest count; figures that a file claims may lead to any number.
static int64_t count_of(double n)
{
    return n < (double)INT64_MAX ? (int64_t)(n + 0.5) : INT64_MAX;
}

// Scales the figures of the rows that were read up to all rows.
static void conclude_rows(bd_inspection *in)
{
    const bd_figures *totals = &in->manifest.totals;
    const bool exact = bd_inspection_is_exact(in);
    const int64_t rows_read = in->statistics.figures.rows;
    const double scale = rows_read > 0 ? (double)totals->rows / (double)rows_read : 0.0;
    in->lengths =
        exact ? bd_statistics_quantiles(&in->statistics) : bd_figures_quantiles(totals);
    for (int i = 0; i < BD_N_TILE_SIZES; i++) {
        const int64_t found = in->statistics.tiles[i];
        in->tiles[i] = exact ? found : count_of((double)found * scale);
        in->causal_tiles[i] =
            count_of((double)totals->rows *
                     (double)bd_segment_tiles(in->manifest.config.seq_len, bd_tile_sizes[i]));
    }
    find_frequent(in);
}

static int64_t min_rows(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// ---- A sample ------------------------------------------------------------------------------

static bd_status add_shard_rows(bd_statistics *statistics, const bd_shard *shard, int64_t from,
                                int64_t to, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = BD_OK;
    for (int64_t r = from; status == BD_OK && r < to; r++) {
        bd_row row;
        status = bd_shard_row(shard, r, hasher, &row, err);
        if (status == BD_OK)
            bd_statistics_add_row(statistics, &row);
    }
    bd_hasher_free(hasher);
    return status;
}

static bd_status read_all(bd_inspection *in, bd_error *err)
{
    in->rows_read = BD_ROWS_ALL;
    for (size_t i = 0; i < in->manifest.n_shards; i++) {
        const int64_t rows = in->manifest.shards[i].figures.rows;
        bd_shard shard;
        if (rows == 0)
            continue;
        BD_TRY(bd_inspection_open_shard(in, i, &shard, err));
        const bd_status status = add_shard_rows(&in->statistics, &shard, 0, rows, err);
        bd_shard_close(&shard);
        in->shards_read++;
        BD_TRY(status);
    }
    return BD_OK;
}

// Runs of `run` rows at `n_runs` places that divide the rows evenly; a run ends with its shard.
static bd_status read_runs(bd_inspection *in, int64_t n_runs, int64_t run, bd_error *err)
{
    const int64_t rows = in->manifest.totals.rows;
    size_t opened = SIZE_MAX;
    bd_shard shard = {.file = {.slot = -1}};
    bd_status status = BD_OK;
    in->rows_read = BD_ROWS_SAMPLED;
    for (int64_t i = 0; status == BD_OK && i < n_runs; i++) {
        size_t index;
        int64_t from;
        const int64_t place = (int64_t)((__int128)rows * (2 * i + 1) / (2 * n_runs));
        const bool found = bd_manifest_find_row(&in->manifest, place, &index, &from);
        assert(found);
        (void)found;
        if (index != opened) {
            bd_shard_close(&shard);
            status = bd_inspection_open_shard(in, index, &shard, err);
            opened = index;
            in->shards_read++;
        }
        const int64_t end = in->manifest.shards[index].figures.rows;
        if (status == BD_OK)
            status =
                add_shard_rows(&in->statistics, &shard, from, min_rows(from + run, end), err);
    }
    bd_shard_close(&shard);
    return status;
}

static int64_t n_shards_with_rows(const bd_manifest *manifest)
{
    int64_t n = 0;
    for (size_t i = 0; i < manifest->n_shards; i++)
        n += manifest->shards[i].figures.rows > 0;
    return n;
}

bd_status bd_inspection_sample(bd_inspection *inspection, bd_error *err)
{
    bd_inspection *in = inspection;
    const bd_dataset_config *config = &in->manifest.config;
    const int64_t rows = in->manifest.totals.rows;
    const int64_t affordable = min_rows(BD_SAMPLED_TOKENS / config->seq_len, BD_SAMPLED_ROWS);
    const int64_t most_rows = affordable > 0 ? affordable : 1;
    // A compressed shard is decompressed as a whole when it is opened.
    const int64_t most_shards = config->codec == BD_SHARD_ZSTD ? 1 : BD_SAMPLED_SHARDS;
    BD_TRY(bd_statistics_init(&in->statistics, config, err));
    bd_status status;
    if (rows <= most_rows && n_shards_with_rows(&in->manifest) <= most_shards) {
        status = read_all(in, err);
    } else {
        const int64_t n_runs = min_rows(min_rows(most_rows, most_shards), rows);
        status = read_runs(in, n_runs, min_rows(most_rows, rows) / n_runs, err);
    }
    if (status == BD_OK)
        conclude_rows(in);
    return status;
}

// ---- All rows ------------------------------------------------------------------------------

// Statistics that no task uses at the moment: there are never more than threads.
typedef struct idle_statistics {
    bd_statistics statistics;
    struct idle_statistics *next;
} idle_statistics;

typedef struct scanning {
    bd_inspection *inspection;
    const bd_check *check;  // NULL for a shard alone
    bd_progress *progress;
    pthread_mutex_t lock;
    idle_statistics *idle;  // owned
} scanning;

static bd_status take_idle(scanning *s, idle_statistics **taken, bd_error *err)
{
    pthread_mutex_lock(&s->lock);
    *taken = s->idle;
    if (*taken)
        s->idle = (*taken)->next;
    pthread_mutex_unlock(&s->lock);
    if (*taken)
        return BD_OK;
    *taken = calloc(1, sizeof **taken);
    if (!*taken)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the statistics");
    const bd_status status =
        bd_statistics_init(&(*taken)->statistics, &s->inspection->manifest.config, err);
    if (status != BD_OK) {
        free(*taken);
        *taken = NULL;
    }
    return status;
}

static void put_idle(scanning *s, idle_statistics *item)
{
    pthread_mutex_lock(&s->lock);
    item->next = s->idle;
    s->idle = item;
    pthread_mutex_unlock(&s->lock);
}

// The figures that single rows give must be those that the shards state. Figures of documents in
// pieces are taken from the shards: bd_check_shard() has compared them.
static bd_status compare_with_manifest(const bd_inspection *in, bd_error *err)
{
    const bd_figures *rows = &in->statistics.figures;
    bd_figures counted = in->manifest.totals;
    counted.rows = rows->rows;
    counted.segments = rows->segments;
    counted.documents = rows->documents;
    counted.packed = rows->packed;
    counted.padding = rows->padding;
    counted.targets = rows->targets;
    counted.masked = rows->masked;
    counted.repeated = rows->repeated;
    counted.longest_segment = rows->longest_segment;
    counted.attention_pairs = rows->attention_pairs;
    memcpy(counted.document_lengths, rows->document_lengths, sizeof rows->document_lengths);
    memcpy(counted.segments_per_row, rows->segments_per_row, sizeof rows->segments_per_row);
    char where[256];
    if (!bd_figures_difference(&counted, &in->manifest.totals, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s': S5: the rows differ from the figures: %s",
                   in->path, where);
}

static void count_row(void *context, const bd_row *row)
{
    bd_statistics_add_row(context, row);
}

// Without a manifest: each row by itself.
static bd_status scan_shard_alone(const bd_inspection *in, bd_statistics *statistics,
                                  bd_error *err)
{
    bd_shard shard;
    BD_TRY(bd_inspection_open_shard(in, 0, &shard, err));
    const bd_status status =
        add_shard_rows(statistics, &shard, 0, shard.entry.figures.rows, err);
    bd_shard_close(&shard);
    return status;
}

static bd_status scan_shard(void *context, int64_t index, bd_error *err)
{
    scanning *s = context;
    const bd_inspection *in = s->inspection;
    idle_statistics *mine;
    bd_figures figures;
    BD_TRY(take_idle(s, &mine, err));
    const bd_check_options options = {.row = count_row, .context = &mine->statistics};
    const bd_status status =
        s->check ? bd_check_shard(s->check, (size_t)index, &options, &figures, err)
                 : scan_shard_alone(in, &mine->statistics, err);
    put_idle(s, mine);
    if (status == BD_OK)
        bd_progress_add(s->progress, (uint64_t)in->manifest.shards[index].figures.rows);
    return status;
}

// Adds up what the tasks have counted and frees it.
static void merge_all(scanning *s)
{
    while (s->idle) {
        idle_statistics *item = s->idle;
        s->idle = item->next;
        bd_statistics_merge(&s->inspection->statistics, &item->statistics);
        bd_statistics_release(&item->statistics);
        free(item);
    }
}

bd_status bd_inspection_scan(bd_inspection *inspection, int n_threads, bool quiet,
                             bd_error *err)
{
    bd_inspection *in = inspection;
    const bd_manifest *manifest = &in->manifest;
    bd_check check = {0};
    bd_threads *threads = NULL;
    scanning s = {.inspection = in, .check = in->is_shard ? NULL : &check};
    BD_TRY(bd_statistics_init(&in->statistics, &manifest->config, err));
    pthread_mutex_init(&s.lock, NULL);
    bd_status status = BD_OK;
    if (s.check)
        status = bd_check_init(&check, in->folder, manifest, err);
    if (status == BD_OK)
        status = bd_threads_new(&threads, n_threads, err);
    if (status == BD_OK) {
        s.progress = bd_progress_new(&(bd_progress_config){
            .label = "scanning",
            .unit = "rows",
            .total = (uint64_t)manifest->totals.rows,
            .quiet = quiet,
        });
        status = bd_threads_run(threads, scan_shard, &s, (int64_t)manifest->n_shards, err);
        bd_progress_free(s.progress);
    }
    bd_threads_free(threads);
    bd_check_release(&check);
    merge_all(&s);
    pthread_mutex_destroy(&s.lock);
    if (status == BD_OK)
        status = compare_with_manifest(in, err);
    in->rows_read = BD_ROWS_SCANNED;
    in->shards_read = (int64_t)manifest->n_shards;
    if (status == BD_OK)
        conclude_rows(in);
    return status;
}
