#include "common/dataset/segment_index.h"

#include <stdlib.h>

#include "common/dataset/place_keys.h"

// ---- Building ------------------------------------------------------------------------------

bd_status bd_segment_index_count(const bd_shard *shard, size_t *n, bd_error *err)
{
    *n = 0;
    for (int64_t i = 0; i < bd_arrow_reader_n_batches(shard->reader); i++)
        *n += bd_row_batch_n_segments(bd_arrow_reader_batch(shard->reader, i));
    if (*n > UINT32_MAX || shard->entry.figures.rows > UINT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'%s' has more segments than can be sorted",
                       shard->path);
    return BD_OK;
}

bd_indexed_segment bd_indexed_segment_of_row(const bd_row *row, const bd_dataset_config *config,
                                             uint32_t index, int64_t k)
{
    const int id_bytes = bd_dataset_id_bytes(config);
    const int32_t from = row->bounds[k], to = row->bounds[k + 1];
    return (bd_indexed_segment){
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

bd_status bd_segment_index_build(bd_segment_index *index, const bd_shard *shard, bd_error *err)
{
    size_t n_all, n = 0;
    *index = (bd_segment_index){0};
    BD_TRY(bd_segment_index_count(shard, &n_all, err));
    bd_hasher *hasher = bd_hasher_new();
    *index = (bd_segment_index){malloc((n_all + 1) * sizeof *index->items), n_all};
    bd_status status = hasher && index->items
                           ? BD_OK
                           : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu segments", n_all);
    for (int64_t r = 0; status == BD_OK && r < shard->entry.figures.rows; r++) {
        bd_row row;
        status = bd_shard_row(shard, r, hasher, &row, err);
        for (int64_t k = 0; status == BD_OK && k < row.n_segments; k++)
            index->items[n++] = bd_indexed_segment_of_row(&row, &shard->config, (uint32_t)r, k);
    }
    if (status == BD_OK)
        status = bd_segment_index_sort(index, err);
    bd_hasher_free(hasher);
    if (status != BD_OK)
        bd_segment_index_release(index);
    return status;
}

void bd_segment_index_release(bd_segment_index *index)
{
    free(index->items);
    *index = (bd_segment_index){0};
}

const void *bd_indexed_segment_ids(const bd_indexed_segment *segment, const bd_shard *shard)
{
    const bd_row row = bd_shard_unchecked_row(shard, segment->row);
    return bd_column_at(row.ids, segment->from, 8 * bd_dataset_id_bytes(&shard->config));
}

size_t bd_segment_index_document_end(const bd_segment_index *index, size_t begin)
{
    size_t end = begin + 1;
    while (end < index->n && bd_same_document(&index->items[begin], &index->items[end]))
        end++;
    return end;
}

// ---- Sorting -------------------------------------------------------------------------------

static int compare_segments(const void *left, const void *right)
{
    const bd_indexed_segment *a = left, *b = right;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bool is_sorted(const bd_indexed_segment *items, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (compare_segments(&items[i - 1], &items[i]) > 0)
            return false;
    return true;
}

// Moves item order[i] to place i, for every i: along each cycle of the permutation, so that one
// item is set aside and every other moves once. Afterwards `order` is the identity.
static void permute(bd_indexed_segment *items, size_t n, uint64_t *order)
{
    for (size_t i = 0; i < n; i++) {
        const bd_indexed_segment first = items[i];
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

bd_status bd_segment_index_sort(bd_segment_index *index, bd_error *err)
{
    bd_indexed_segment *const items = index->items;
    const size_t n = index->n;
    if (is_sorted(items, n))
        return BD_OK;
    bd_place_range range = BD_NO_PLACES;
    for (size_t i = 0; i < n; i++)
        bd_place_range_add(&range, items[i].input, items[i].position);
    const bd_place_keys keys = bd_place_keys_of(&range);
    const int index_bits = 64 - keys.n_bits;
    if (keys.n_bits == 0 || keys.n_bits >= 64 || n >> index_bits != 0) {
        qsort(items, n, sizeof *items, compare_segments);  // one document, or impossible places
        return BD_OK;
    }
    uint64_t *const numbers = malloc(2 * n * sizeof *numbers);
    if (!numbers)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu segments", n);
    for (size_t i = 0; i < n; i++)
        numbers[i] = bd_place_key(&keys, items[i].input, items[i].position) << index_bits | i;
    uint64_t *order = bd_sort_by_bits(numbers, numbers + n, n, index_bits, keys.n_bits);
    for (size_t i = 0; i < n; i++)
        order[i] &= (UINT64_C(1) << index_bits) - 1;
    permute(items, n, order);
    free(numbers);
    for (size_t i = 0, end; i < n; i = end) {  // the pieces of a document lie in any order
        end = bd_segment_index_document_end(index, i);
        if (!is_sorted(items + i, end - i))
            qsort(items + i, end - i, sizeof *items, compare_segments);
    }
    return BD_OK;
}
