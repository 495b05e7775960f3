#include "common/dataset/segment_index.h"

#include <stdlib.h>

#include "common/dataset/place_keys.h"

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

// Room for all of them.
static bd_status make_room(bd_found_segments *segments, const bd_shard *shard, bd_error *err)
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

static bd_status gather_rows(bd_found_segments *segments, const bd_shard *shard,
                             bd_hasher *hasher, bd_error *err)
{
    bd_found_segment *next = segments->items;
    for (int64_t r = 0; r < shard->entry.figures.rows; r++) {
        bd_row row;
        BD_TRY(bd_shard_row(shard, r, hasher, &row, err));
        for (int64_t k = 0; k < row.n_segments; k++)
            *next++ = bd_found_segment_of_row(&row, &shard->packing, (uint32_t)r, k);
    }
    return bd_found_segments_sort(segments, err);
}

bd_status bd_found_segments_gather(bd_found_segments *segments, const bd_shard *shard,
                                   bd_error *err)
{
    BD_TRY(make_room(segments, shard, err));
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

static int compare(const void *left, const void *right)
{
    const bd_found_segment *a = left, *b = right;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bool is_sorted(const bd_found_segments *segments)
{
    for (size_t i = 1; i < segments->n; i++)
        if (compare(&segments->items[i - 1], &segments->items[i]) > 0)
            return false;
    return true;
}

// Puts segment order[i] at place i, cycle by cycle. `order` is spent by it.
static void rearrange(bd_found_segments *segments, uint64_t *order)
{
    bd_found_segment *items = segments->items;
    for (size_t i = 0; i < segments->n; i++) {
        const bd_found_segment first = items[i];
        size_t to = i;
        while (order[to] != i) {
            const size_t from = order[to];
            items[to] = items[from];
            order[to] = to;
            to = from;
        }
        items[to] = first;
        order[to] = to;
    }
}

static bd_place_keys keys_of(const bd_found_segments *segments)
{
    bd_place_range range = BD_NO_PLACES;
    for (size_t i = 0; i < segments->n; i++)
        bd_place_range_add(&range, segments->items[i].input, segments->items[i].position);
    return bd_place_keys_of(&range);
}

// What is sorted is key and index in one number.
static bd_status sort_by_place(bd_found_segments *segments, const bd_place_keys *keys,
                               bd_error *err)
{
    const size_t n = segments->n;
    const int index_bits = 64 - keys->n_bits;
    uint64_t *const pair = malloc(2 * n * sizeof *pair);
    if (!pair)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu segments", n);
    for (size_t i = 0; i < n; i++) {
        const bd_found_segment *segment = &segments->items[i];
        pair[i] = bd_place_key(keys, segment->input, segment->position) << index_bits | i;
    }
    uint64_t *order = bd_sort_by_bits(pair, pair + n, n, index_bits, keys->n_bits);
    for (size_t i = 0; i < n; i++)
        order[i] &= (UINT64_C(1) << index_bits) - 1;
    rearrange(segments, order);
    free(pair);
    return BD_OK;
}

// The pieces of a document, which lie in any order, are few as a rule.
static void sort_pieces(bd_found_segments *segments)
{
    for (size_t i = 0, end; i < segments->n; i = end) {
        end = bd_found_segments_document_end(segments, i);
        const bd_found_segments pieces = {segments->items + i, end - i};
        if (!is_sorted(&pieces))
            qsort(pieces.items, pieces.n, sizeof *pieces.items, compare);
    }
}

bd_status bd_found_segments_sort(bd_found_segments *segments, bd_error *err)
{
    if (is_sorted(segments))
        return BD_OK;
    const bd_place_keys keys = keys_of(segments);
    const bool fits =
        keys.n_bits > 0 && keys.n_bits < 64 && segments->n >> (64 - keys.n_bits) == 0;
    if (!fits) {  // one document, or places that no corpus has
        qsort(segments->items, segments->n, sizeof *segments->items, compare);
        return BD_OK;
    }
    BD_TRY(sort_by_place(segments, &keys, err));
    sort_pieces(segments);
    return BD_OK;
}
