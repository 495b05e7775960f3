#include "packer/inspect/difference.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "packer/inspect/document_hashes.h"

// ---- Manifests -----------------------------------------------------------------------------

// Takes over the references to both.
static bool is_same_json(bd_json *a, bd_json *b)
{
    char where[256];
    const bool same = !bd_json_difference(a, b, where, sizeof where);
    bd_json_free(a);
    bd_json_free(b);
    return same;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

// The names of the inputs in order; malloc'd, NULL when out of memory.
static const char **sorted_names(const bd_manifest *manifest)
{
    const char **names = calloc(manifest->n_inputs + 1, sizeof *names);
    for (size_t i = 0; names && i < manifest->n_inputs; i++)
        names[i] = manifest->inputs[i].name;
    if (names && manifest->n_inputs > 0)
        qsort(names, manifest->n_inputs, sizeof *names, compare_names);
    return names;
}

static bd_status compare_inputs(bd_difference *d, const bd_manifest *a, const bd_manifest *b,
                                bd_error *err)
{
    const char **in_a = sorted_names(a), **in_b = sorted_names(b);
    const bd_status status =
        in_a && in_b ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    for (size_t i = 0, k = 0; status == BD_OK && (i < a->n_inputs || k < b->n_inputs);) {
        const int order = i == a->n_inputs   ? 1
                          : k == b->n_inputs ? -1
                                             : strcmp(in_a[i], in_b[k]);
        d->inputs_only[0] += order < 0;
        d->inputs_only[1] += order > 0;
        d->inputs_in_both += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    free(in_a);
    free(in_b);
    return status;
}

// Names are compared in their order here: shards refer to inputs by number.
static bool have_same_files(const bd_manifest *a, const bd_manifest *b)
{
    if (a->n_shards != b->n_shards || a->n_inputs != b->n_inputs)
        return false;
    for (size_t i = 0; i < a->n_inputs; i++)
        if (strcmp(a->inputs[i].name, b->inputs[i].name) != 0)
            return false;
    for (size_t i = 0; i < a->n_shards; i++)
        if (strcmp(a->shards[i].digest.hex, b->shards[i].digest.hex) != 0)
            return false;
    return true;
}

// ---- Documents -----------------------------------------------------------------------------

// All documents of one dataset: pairs of place and tokens, and a sum over them that does not
// depend on their order.
typedef struct document_set {
    const bd_inspection *inspection;
    int64_t *first_number;  // [n_shards + 1], owned
    bd_pair *pairs;         // [documents], owned; NULL: only the sum
    pthread_mutex_t lock;   // of the sum
    uint64_t sum[2];
    bd_progress *progress;
} document_set;

typedef struct shard_set {
    document_set *all;
    int64_t first_number;
    uint64_t sum[2];
} shard_set;

static bd_status add_document(void *context, const bd_hashed_document *document, bd_error *err)
{
    shard_set *s = context;
    const bd_manifest *manifest = &s->all->inspection->manifest;
    if (document->input >= manifest->n_inputs)
        return bd_fail(err, BD_ERR_FORMAT,
                       "S2: a document is of input %u, the manifest lists %zu", document->input,
                       manifest->n_inputs);
    const char *name = manifest->inputs[document->input].name;
    const bd_pair pair = {.high = bd_hash64(name, strlen(name), document->position),
                          .low = document->hash};
    if (s->all->pairs)
        s->all->pairs[s->first_number + document->number] = pair;
    for (uint64_t i = 0; i < 2; i++)
        s->sum[i] += bd_hash64(&pair, sizeof pair, i);
    return BD_OK;
}

static bd_status add_shard(void *context, int64_t index, bd_error *err)
{
    document_set *all = context;
    bd_shard shard;
    BD_TRY(bd_inspection_open_shard(all->inspection, (size_t)index, &shard, err));
    shard_set s = {.all = all, .first_number = all->first_number[index]};
    const bd_status status = bd_document_hashes_visit(&shard, add_document, &s, err);
    pthread_mutex_lock(&all->lock);
    all->sum[0] += s.sum[0];
    all->sum[1] += s.sum[1];
    pthread_mutex_unlock(&all->lock);
    bd_progress_add(all->progress, (uint64_t)shard.entry.figures.rows);
    bd_shard_close(&shard);
    return status;
}

static void release_set(document_set *set)
{
    free(set->first_number);
    free(set->pairs);
    pthread_mutex_destroy(&set->lock);
}

static bd_status fill_set(document_set *set, const bd_inspection *in, bool counted,
                          bd_threads *threads, bool quiet, bd_error *err)
{
    const bd_manifest *manifest = &in->manifest;
    set->inspection = in;
    set->first_number = calloc(manifest->n_shards + 1, sizeof *set->first_number);
    if (counted)
        set->pairs = calloc((size_t)manifest->totals.documents + 1, sizeof *set->pairs);
    if (!set->first_number || (counted && !set->pairs))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the documents");
    for (size_t i = 0; i < manifest->n_shards; i++)
        set->first_number[i + 1] = set->first_number[i] + manifest->shards[i].figures.documents;
    set->progress = bd_progress_new(&(bd_progress_config){
        .label = "comparing",
        .unit = "rows",
        .total = (uint64_t)manifest->totals.rows,
        .quiet = quiet,
    });
    const bd_status status =
        bd_threads_run(threads, add_shard, set, (int64_t)manifest->n_shards, err);
    bd_progress_free(set->progress);
    return status;
}

// How many of the pairs from `i` on have the same place.
static size_t run_length(const bd_pair *pairs, size_t n, size_t i)
{
    size_t end = i;
    while (end < n && pairs[end].high == pairs[i].high)
        end++;
    return end - i;
}

// Documents of one place; inputs of the same name may give it several.
static void compare_documents_at(bd_difference *d, const bd_pair *a, size_t n_a,
                                 const bd_pair *b, size_t n_b)
{
    const size_t paired = n_a < n_b ? n_a : n_b;
    size_t same = 0;
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        const uint64_t left = a[i].low, right = b[k].low;
        same += left == right;
        i += left <= right;
        k += left >= right;
    }
    d->documents_in_both += (int64_t)same;
    d->documents_changed += (int64_t)(paired - same);
    d->documents_only[0] += (int64_t)(n_a - paired);
    d->documents_only[1] += (int64_t)(n_b - paired);
}

static void count_documents(bd_difference *d, document_set sets[2])
{
    const size_t n[2] = {(size_t)sets[0].inspection->manifest.totals.documents,
                         (size_t)sets[1].inspection->manifest.totals.documents};
    const bd_pair *a = sets[0].pairs, *b = sets[1].pairs;
    bd_pairs_sort(sets[0].pairs, n[0]);
    bd_pairs_sort(sets[1].pairs, n[1]);
    for (size_t i = 0, k = 0; i < n[0] || k < n[1];) {
        const bool a_is_first = k == n[1] || (i < n[0] && a[i].high <= b[k].high);
        const bool b_is_first = i == n[0] || (k < n[1] && b[k].high <= a[i].high);
        const size_t n_a = a_is_first ? run_length(a, n[0], i) : 0;
        const size_t n_b = b_is_first ? run_length(b, n[1], k) : 0;
        compare_documents_at(d, a + i, n_a, b + k, n_b);
        i += n_a;
        k += n_b;
    }
}

static bd_status compare_documents(bd_difference *d, const bd_inspection *both[2],
                                   int64_t memory_bytes, int n_threads, bool quiet,
                                   bd_error *err)
{
    document_set sets[2] = {{.lock = PTHREAD_MUTEX_INITIALIZER},
                            {.lock = PTHREAD_MUTEX_INITIALIZER}};
    const int64_t n = both[0]->manifest.totals.documents + both[1]->manifest.totals.documents;
    bd_threads *threads = NULL;
    d->counted = n <= memory_bytes / (int64_t)sizeof(bd_pair);
    bd_status status = bd_threads_new(&threads, n_threads, err);
    for (int i = 0; status == BD_OK && i < 2; i++)
        status = fill_set(&sets[i], both[i], d->counted, threads, quiet, err);
    bd_threads_free(threads);
    if (status == BD_OK) {
        d->documents_are_same =
            both[0]->manifest.totals.documents == both[1]->manifest.totals.documents &&
            memcmp(sets[0].sum, sets[1].sum, sizeof sets[0].sum) == 0;
        if (d->counted)
            count_documents(d, sets);
    }
    release_set(&sets[0]);
    release_set(&sets[1]);
    return status;
}

// ---- All of it -----------------------------------------------------------------------------

bd_status bd_difference_find(bd_difference *difference, const bd_inspection *a,
                             const bd_inspection *b, int64_t memory_bytes, int n_threads,
                             bool quiet, bd_error *err)
{
    bd_difference *d = difference;
    const bd_inspection *both[2] = {a, b};
    *d = (bd_difference){0};
    for (int i = 0; i < 2; i++)
        if (both[i]->is_shard)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "cannot compare '%s': it is a shard alone, not a dataset",
                           both[i]->path);
    d->config_is_same = is_same_json(bd_dataset_config_to_json(&a->manifest.config),
                                     bd_dataset_config_to_json(&b->manifest.config));
    d->figures_are_same = is_same_json(bd_figures_to_json(&a->manifest.totals, true),
                                       bd_figures_to_json(&b->manifest.totals, true));
    BD_TRY(compare_inputs(d, &a->manifest, &b->manifest, err));
    d->files_are_same = have_same_files(&a->manifest, &b->manifest);
    if (!d->files_are_same)
        return compare_documents(d, both, memory_bytes, n_threads, quiet, err);
    d->documents_are_same = d->counted = true;
    d->documents_in_both = a->manifest.totals.documents;
    return BD_OK;
}

bool bd_difference_is_none(const bd_difference *difference)
{
    const bd_difference *d = difference;
    return d->config_is_same && d->figures_are_same && d->documents_are_same &&
           d->inputs_only[0] == 0 && d->inputs_only[1] == 0;
}
