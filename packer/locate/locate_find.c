#include "packer/locate/locate_find.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/segment_index.h"
#include "common/dataset/shard.h"

// The occurrences that were found in one shard.
typedef struct shard_result {
    bd_found *found;  // [n], owned; in order, at most `limit`
    size_t n, capacity;
    bd_error *failure;  // owned; NULL if there is none
    bool done;
} shard_result;

typedef struct searching {
    const bd_search *search;
    shard_result *results;  // [n_shards], owned
    bd_progress *progress;
    pthread_mutex_t lock;  // over the two below, and `done` of the results
    size_t n_settled;      // shards before it are done
    size_t n_found;        // in those
    bool enough;           // what comes after cannot matter any more
} searching;

typedef struct shard_search {
    const bd_search *search;
    size_t index;
    bd_shard shard;
    shard_result *result;
    char *text;  // owned; of the document at hand, or of a part of it
    size_t n_text, text_capacity;
    bd_segment_index pieces;  // owned; of split documents
    size_t pieces_capacity;
} shard_search;

// ---- The tokens of a document --------------------------------------------------------------

// Walks over the tokens of the text, piece by piece, each token once.
typedef struct walk {
    const bd_shard *shard;
    const bd_indexed_segment *pieces;
    size_t n, piece;
    int64_t token;    // of the piece
    const void *ids;  // of the piece; NULL before its first token
} walk;

typedef struct walked {
    uint32_t id;
    int64_t row, token;  // where it lies
} walked;

static bool next_token(walk *w, walked *out)
{
    const bd_dataset_config *config = &w->shard->config;
    for (; w->piece < w->n; w->piece++, w->token = 0, w->ids = NULL) {
        const bd_indexed_segment *p = &w->pieces[w->piece];
        // The first token of a later piece is the last of the one before; that of the document
        // may be its BOS, and its last one is the separator.
        const bool skips = p->offset > 0 || config->bos != BD_NO_BOS;
        if (!w->ids)
            w->ids = bd_indexed_segment_ids(p, w->shard);
        if (w->token == 0 && skips)
            w->token = 1;
        if (w->token < p->n_tokens && p->offset + w->token < (int64_t)p->length - 1) {
            const int64_t t = w->token++;
            *out =
                (walked){bd_id_at(w->ids, bd_dataset_id_bytes(config), t), p->row, p->from + t};
            return true;
        }
    }
    return false;
}

// ---- One document --------------------------------------------------------------------------

// Keeps the earliest `limit`. Documents that are whole come in order.
static bd_status keep_found(shard_search *s, const bd_found *found, bd_error *err)
{
    shard_result *r = s->result;
    const bool full = r->n == (size_t)s->search->limit;
    if (full && bd_token_address_compare(&r->found[r->n - 1].address, &found->address) < 0)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&r->found, &r->capacity, r->n + 1, sizeof *r->found, err));
    size_t at = full ? r->n - 1 : r->n++;
    for (; at > 0 && bd_token_address_compare(&r->found[at - 1].address, &found->address) > 0;
         at--)
        r->found[at] = r->found[at - 1];
    r->found[at] = *found;
    return BD_OK;
}

// Where the gathered text begins: in the next token of the walk, after `n_skipped` of its bytes.
typedef struct text_start {
    walk at;
    size_t n_skipped;
} text_start;

static size_t token_bytes(const shard_search *s, uint32_t id)
{
    const bd_tokenizer *tokenizer = s->search->tokenizer;
    size_t n;
    tokenizer->kind->token_bytes(tokenizer, id, &n);
    return n;
}

// The tokens of bytes [begin, end) of the gathered text.
static bd_found covering_tokens(const shard_search *s, text_start start, size_t begin,
                                size_t end)
{
    bd_found found = {.n_tokens = 0};
    walked token;
    size_t at = 0;
    while (at < start.n_skipped + end && next_token(&start.at, &token)) {
        at += token_bytes(s, token.id);
        if (at <= start.n_skipped + begin)
            continue;
        if (found.n_tokens++ == 0)
            found.address = (bd_token_address){s->index, token.row, token.token};
    }
    return found;
}

// Searches the bytes that were gathered.
static bd_status look(shard_search *s, text_start start, bool *found, bd_error *err)
{
    const char *at =
        s->n_text > 0 ? memmem(s->text, s->n_text, s->search->text, s->search->n_bytes) : NULL;
    *found = at;
    if (!at)
        return BD_OK;
    const size_t offset = (size_t)(at - s->text);
    const bd_found where = covering_tokens(s, start, offset, offset + s->search->n_bytes);
    return keep_found(s, &where, err);
}

// This many bytes are gathered before they are searched, since tokens and documents may be long.
enum { GATHERED_BYTES = 1 << 20 };

static bool is_much(const shard_search *s)
{
    return s->n_text > GATHERED_BYTES && s->n_text > 2 * s->search->n_bytes;
}

// Forgets the bytes that were searched, except an end in which an occurrence may begin.
static void forget(shard_search *s, text_start *start)
{
    const size_t kept = s->search->n_bytes - 1, n = s->n_text - kept;
    walk next = start->at;
    walked token;
    start->n_skipped += n;
    while (next_token(&next, &token)) {
        const size_t n_bytes = token_bytes(s, token.id);
        if (start->n_skipped < n_bytes)
            break;
        start->n_skipped -= n_bytes;
        start->at = next;
    }
    memmove(s->text, s->text + n, kept);
    s->n_text = kept;
}

static bd_status search_document(shard_search *s, const bd_indexed_segment *pieces, size_t n,
                                 bd_error *err)
{
    const bd_tokenizer *tokenizer = s->search->tokenizer;
    walk w = {.shard = &s->shard, .pieces = pieces, .n = n};
    text_start start = {.at = w};
    walked token;
    bool found = false;
    s->n_text = 0;
    while (next_token(&w, &token)) {
        size_t n_bytes;
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, token.id, &n_bytes);
        if (bytes) {
            // The interrupt is checked here as well: this runs once for each token of the dataset.
            if (n_bytes > s->text_capacity - s->n_text)
                BD_TRY(bd_array_reserve((void **)&s->text, &s->text_capacity,
                                        s->n_text + n_bytes, 1, err));
            for (size_t k = 0; k < n_bytes; k++)
                s->text[s->n_text++] = bytes[k];
            if (!is_much(s))
                continue;
        }
        BD_TRY(look(s, start, &found, err));
        if (found)
            return BD_OK;
        if (bytes) {
            forget(s, &start);
            BD_TRY(bd_interrupt_check(err));
        } else {
            s->n_text = 0;
            start = (text_start){.at = w};
        }
    }
    return look(s, start, &found, err);
}

// ---- One shard -----------------------------------------------------------------------------

static bd_status search_row(shard_search *s, int64_t index, const bd_row *row, bd_error *err)
{
    bd_segment_index *pieces = &s->pieces;
    for (int64_t k = 0; k < row->n_segments; k++) {
        const bd_indexed_segment p =
            bd_indexed_segment_of_row(row, &s->shard.config, (uint32_t)index, k);
        const bool is_whole = (uint32_t)p.n_tokens == p.length;
        if (!is_whole) {
            BD_TRY(bd_array_reserve((void **)&pieces->items, &s->pieces_capacity, pieces->n + 1,
                                    sizeof *pieces->items, err));
            pieces->items[pieces->n++] = p;
        } else if (s->result->n < (size_t)s->search->limit) {
            BD_TRY(search_document(s, &p, 1, err));
        }
    }
    return BD_OK;
}

static bd_status search_split(shard_search *s, bd_error *err)
{
    BD_TRY(bd_segment_index_sort(&s->pieces, err));
    for (size_t i = 0, end; i < s->pieces.n; i = end) {
        end = bd_segment_index_document_end(&s->pieces, i);
        BD_TRY(search_document(s, &s->pieces.items[i], end - i, err));
    }
    return BD_OK;
}

static bd_status search_rows(shard_search *s, searching *all, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = BD_OK;
    for (int64_t r = 0; status == BD_OK && r < s->shard.entry.figures.rows; r++) {
        bd_row row;
        status = bd_interrupt_check(err);
        if (status == BD_OK)
            status = bd_shard_row(&s->shard, r, hasher, &row, err);
        if (status == BD_OK)
            status = search_row(s, r, &row, err);
        bd_progress_add(all->progress, 1);
    }
    bd_hasher_free(hasher);
    return status == BD_OK ? search_split(s, err) : status;
}

static bd_status search_shard(searching *all, size_t index, bd_error *err)
{
    const bd_search *search = all->search;
    shard_search s = {.search = search, .index = index, .result = &all->results[index]};
    BD_TRY(bd_shard_open_entry(&s.shard, search->folder, search->manifest, index, err));
    size_t n_segments;
    bd_status status = bd_segment_index_count(&s.shard, &n_segments, err);
    if (status == BD_OK)
        status = search_rows(&s, all, err);
    bd_shard_close(&s.shard);
    free(s.text);
    bd_segment_index_release(&s.pieces);
    return status;
}

// ---- All shards ----------------------------------------------------------------------------

// Shards are settled in order, so that which of them are read makes no difference.
static void settle(searching *all, size_t index)
{
    pthread_mutex_lock(&all->lock);
    all->results[index].done = true;
    while (all->n_settled < all->search->manifest->n_shards && !all->enough &&
           all->results[all->n_settled].done) {
        const shard_result *r = &all->results[all->n_settled++];
        all->n_found += r->n;
        all->enough = r->failure || all->n_found >= (size_t)all->search->limit;
    }
    pthread_mutex_unlock(&all->lock);
}

static bool found_enough(searching *all)
{
    pthread_mutex_lock(&all->lock);
    const bool enough = all->enough;
    pthread_mutex_unlock(&all->lock);
    return enough;
}

static bd_status run_search(void *context, int64_t index, bd_error *err)
{
    searching *all = context;
    bd_error failure;
    if (found_enough(all))
        return BD_OK;
    if (search_shard(all, (size_t)index, &failure) != BD_OK) {
        bd_error *kept = malloc(sizeof *kept);
        if (!kept)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a message");
        *kept = failure;
        all->results[index].failure = kept;
    }
    settle(all, (size_t)index);
    return BD_OK;
}

static bd_status join_results(const searching *all, bd_found **found, size_t *n, bd_error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < all->search->manifest->n_shards; i++) {
        const shard_result *r = &all->results[i];
        if (r->failure)
            return bd_fail(err, r->failure->status, "%s", r->failure->message);
        for (size_t k = 0; k < r->n; k++) {
            if (*n == (size_t)all->search->limit)
                return BD_OK;
            BD_TRY(bd_array_reserve((void **)found, &capacity, *n + 1, sizeof **found, err));
            (*found)[(*n)++] = r->found[k];
        }
        if (*n == (size_t)all->search->limit)
            return BD_OK;
    }
    return BD_OK;
}

bd_status bd_search_run(const bd_search *search, bd_found **found, size_t *n_found,
                        bd_error *err)
{
    const bd_manifest *manifest = search->manifest;
    searching all = {.search = search, .lock = PTHREAD_MUTEX_INITIALIZER};
    bd_threads *threads = NULL;
    *found = NULL;
    *n_found = 0;
    all.results = calloc(manifest->n_shards + 1, sizeof *all.results);
    bd_status status = all.results ? bd_threads_new(&threads, search->n_threads, err)
                                   : bd_fail(err, BD_ERR_MEMORY, "no memory for the search");
    if (status == BD_OK) {
        all.progress =
            bd_progress_new(&(bd_progress_config){.label = "searching",
                                                  .unit = "rows",
                                                  .total = (uint64_t)manifest->totals.rows,
                                                  .quiet = search->quiet});
        status = bd_threads_run(threads, run_search, &all, (int64_t)manifest->n_shards, err);
        bd_progress_free(all.progress);
    }
    if (status == BD_OK)
        status = join_results(&all, found, n_found, err);
    bd_threads_free(threads);
    for (size_t i = 0; all.results && i < manifest->n_shards; i++) {
        free(all.results[i].found);
        free(all.results[i].failure);
    }
    free(all.results);
    return status;
}
