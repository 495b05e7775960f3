#include "packer/found_segments.h"

#include <stdlib.h>
#include <string.h>

// More would sort into more places at a time than the caches and the TLB like.
enum { MAX_DIGIT_BITS = 11 };

// ---- Gathering -----------------------------------------------------------------------------

bd_status bd_found_segments_count(const bd_shard *shard, size_t *n, bd_error *err)
{
    *n = 0;
    for (int64_t i = 0; i < bd_arrow_reader_n_batches(shard->reader); i++)
        *n += bd_row_batch_n_segments(bd_arrow_reader_batch(shard->reader, i));
    if (*n > UINT32_MAX || shard->entry.figures.rows > UINT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'%s' has more segments than can be sorted",
                       shard->path);
    return BD_OK;
}

bd_status bd_found_segments_init(bd_found_segments *segments, const bd_shard *shard,
                                 bd_error *err)
{
    size_t n;
    *segments = (bd_found_segments){0};
    BD_TRY(bd_found_segments_count(shard, &n, err));
    segments->items = malloc((n + 1) * sizeof *segments->items);
    if (!segments->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu segments", n);
    segments->n = n;
    return BD_OK;
}

bd_found_segment bd_found_segment_of_row(const bd_row *row, const bd_packing *packing,
                                         uint32_t index, int64_t k)
{
    const int id_bytes = bd_packing_id_bytes(packing);
    const int32_t from = row->bounds[k], to = row->bounds[k + 1];
    return (bd_found_segment){
        .position = row->segments.position[k],
        .input = row->segments.input[k],
        .offset = row->segments.offset[k],
        .length = row->segments.length[k],
        .row = index,
        .from = from,
        .n_tokens = to - from,
        .first_id = bd_id_at(row->ids, id_bytes, from),
        .last_id = bd_id_at(row->ids, id_bytes, to - 1),
    };
}

void bd_found_segments_of_row(const bd_row *row, const bd_packing *packing, uint32_t index,
                              bd_found_segment *items)
{
    for (int64_t k = 0; k < row->n_segments; k++)
        items[k] = bd_found_segment_of_row(row, packing, index, k);
}

static bd_status gather_rows(bd_found_segments *segments, const bd_shard *shard,
                             bd_hasher *hasher, bd_error *err)
{
    bd_found_segment *next = segments->items;
    for (int64_t r = 0; r < shard->entry.figures.rows; r++) {
        bd_row row;
        BD_TRY(bd_shard_row(shard, r, hasher, &row, err));
        bd_found_segments_of_row(&row, &shard->packing, (uint32_t)r, next);
        next += row.n_segments;
    }
    return bd_found_segments_sort(segments, err);
}

bd_status bd_found_segments_gather(bd_found_segments *segments, const bd_shard *shard,
                                   bd_error *err)
{
    BD_TRY(bd_found_segments_init(segments, shard, err));
    bd_hasher *hasher = bd_hasher_new();
    const bd_status status = hasher ? gather_rows(segments, shard, hasher, err)
                                    : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_hasher_free(hasher);
    if (status != BD_OK)
        bd_found_segments_release(segments);
    return status;
}

void bd_found_segments_release(bd_found_segments *segments)
{
    free(segments->items);
    *segments = (bd_found_segments){0};
}

const void *bd_found_segment_ids(const bd_found_segment *segment, const bd_shard *shard)
{
    const bd_packing *packing = &shard->packing;
    const bd_row_batch *batch =
        bd_arrow_reader_batch(shard->reader, segment->row / packing->batch_rows);
    const bd_row row = bd_row_of_batch(batch, packing, segment->row % packing->batch_rows);
    return (const char *)row.ids + (int64_t)segment->from * bd_packing_id_bytes(packing);
}

size_t bd_found_segments_document_end(const bd_found_segments *segments, size_t begin)
{
    size_t end = begin + 1;
    while (end < segments->n &&
           bd_found_segments_same(&segments->items[begin], &segments->items[end]))
        end++;
    return end;
}

// ---- Sorting -------------------------------------------------------------------------------

static int compare_offsets(const void *left, const void *right)
{
    const bd_found_segment *a = left, *b = right;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int compare(const bd_found_segment *a, const bd_found_segment *b)
{
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return compare_offsets(a, b);
}

static bool is_sorted(const bd_found_segments *segments)
{
    for (size_t i = 1; i < segments->n; i++)
        if (compare(&segments->items[i - 1], &segments->items[i]) > 0)
            return false;
    return true;
}

// What is moved around while sorting: less than the segment itself.
typedef struct sort_item {
    uint64_t position;
    uint32_t input;
    uint32_t index;  // of the segment
} sort_item;

// Two arrays of n; each digit moves all from `items` to `spare` and swaps them.
typedef struct sorting {
    sort_item *items, *spare;
    size_t n;
} sorting;

// One of the numbers that are sorted by, without what all segments have in common.
typedef struct sort_key {
    bool is_input;  // else the position
    uint64_t least, most;
} sort_key;

static uint64_t key_of(const sort_item *item, const sort_key *key)
{
    return (key->is_input ? item->input : item->position) - key->least;
}

static sort_key make_key(const sorting *s, bool is_input)
{
    sort_key key = {.is_input = is_input}, range = {.least = UINT64_MAX};
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t value = key_of(&s->items[i], &key);
        range.least = value < range.least ? value : range.least;
        range.most = value > range.most ? value : range.most;
    }
    return (sort_key){is_input, range.least, range.most};
}

// Brings all into the order of the digit of `n_bits` at `shift`, and keeps the order of those
// that share it.
static void sort_by_digit(sorting *s, const sort_key *key, int shift, int n_bits)
{
    const uint64_t mask = (UINT64_C(1) << n_bits) - 1;
    size_t next[1 << MAX_DIGIT_BITS] = {0}, before = 0;
    sort_item *from = s->items, *to = s->spare;
    for (size_t i = 0; i < s->n; i++)
        next[key_of(&from[i], key) >> shift & mask]++;
    for (uint64_t d = 0; d <= mask; d++) {
        const size_t n = next[d];
        next[d] = before;
        before += n;
    }
    for (size_t i = 0; i < s->n; i++)
        to[next[key_of(&from[i], key) >> shift & mask]++] = from[i];
    s->items = to;
    s->spare = from;
}

// From the least digit to the greatest: as few as there can be, and those of one size.
static void sort_by(sorting *s, bool is_input)
{
    const sort_key key = make_key(s, is_input);
    const uint64_t range = key.most - key.least;
    if (range == 0)
        return;
    const int n_bits = 64 - __builtin_clzll(range);
    const int n_digits = (n_bits + MAX_DIGIT_BITS - 1) / MAX_DIGIT_BITS;
    const int digit_bits = (n_bits + n_digits - 1) / n_digits;
    for (int shift = 0; shift < n_bits; shift += digit_bits)
        sort_by_digit(s, &key, shift, digit_bits);
}

// Puts the segments into the order of `items`.
static bd_status rearrange(bd_found_segments *segments, const sort_item *items, bd_error *err)
{
    bd_found_segment *sorted = malloc(segments->n * sizeof *sorted);
    if (!sorted)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu segments", segments->n);
    for (size_t i = 0; i < segments->n; i++)
        sorted[i] = segments->items[items[i].index];
    free(segments->items);
    segments->items = sorted;
    return BD_OK;
}

static bd_status sort_by_place(bd_found_segments *segments, bd_error *err)
{
    const size_t n = segments->n;
    sorting s = {malloc(n * sizeof *s.items), malloc(n * sizeof *s.spare), n};
    bd_status status = BD_OK;
    if (s.items && s.spare) {
        for (size_t i = 0; i < n; i++)
            s.items[i] =
                (sort_item){segments->items[i].position, segments->items[i].input, (uint32_t)i};
        sort_by(&s, false);
        sort_by(&s, true);
    } else {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu segments", n);
    }
    free(s.spare);
    if (status == BD_OK)
        status = rearrange(segments, s.items, err);
    free(s.items);
    return status;
}

// The pieces of a document, which lie in any order, are few as a rule.
static void sort_pieces(bd_found_segments *segments)
{
    for (size_t i = 0, end; i < segments->n; i = end) {
        end = bd_found_segments_document_end(segments, i);
        const bd_found_segments pieces = {segments->items + i, end - i};
        if (!is_sorted(&pieces))
            qsort(pieces.items, pieces.n, sizeof *pieces.items, compare_offsets);
    }
}

bd_status bd_found_segments_sort(bd_found_segments *segments, bd_error *err)
{
    if (is_sorted(segments))
        return BD_OK;
    BD_TRY(sort_by_place(segments, err));
    sort_pieces(segments);
    return BD_OK;
}
