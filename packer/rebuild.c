#include "packer/rebuild.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"

// A piece and where its tokens lie; rows are borrowed from the shard, which stays open.
typedef struct found_piece {
    uint64_t position;
    const void *ids;  // of its row
    int32_t from, n_tokens;
    uint32_t input, offset, length;
} found_piece;

typedef struct rebuilding {
    const bd_shard *shard;
    bd_documents *documents;
    found_piece *pieces;  // owned
    size_t n, capacity;
    uint32_t *ids;  // owned; of the document at hand
    size_t ids_capacity;
} rebuilding;

static bd_status find_pieces(rebuilding *r, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = BD_OK;
    for (int64_t i = 0; status == BD_OK && i < r->shard->entry.figures.rows; i++) {
        bd_row row;
        status = bd_shard_row(r->shard, i, hasher, &row, err);
        if (status == BD_OK)
            status = bd_array_reserve((void **)&r->pieces, &r->capacity,
                                      r->n + (size_t)row.n_segments, sizeof *r->pieces, err);
        for (int64_t k = 0; status == BD_OK && k < row.n_segments; k++)
            r->pieces[r->n++] = (found_piece){
                .position = row.segments.position[k],
                .ids = row.ids,
                .from = row.bounds[k],
                .n_tokens = row.bounds[k + 1] - row.bounds[k],
                .input = row.segments.input[k],
                .offset = row.segments.offset[k],
                .length = row.segments.length[k],
            };
    }
    bd_hasher_free(hasher);
    return status;
}

static int compare_pieces(const void *left, const void *right)
{
    const found_piece *a = left, *b = right;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bool same_document(const found_piece *a, const found_piece *b)
{
    return a->input == b->input && a->position == b->position;
}

static bd_status fail_document(const rebuilding *r, const found_piece *piece, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT,
                   "'%s': S3: the pieces of the document at input %u, position %" PRIu64
                   " do not make a whole",
                   r->shard->path, piece->input, piece->position);
}

// Gathers the tokens of the pieces [begin, end) and appends them as a document. BOS and
// separator are taken off: appending adds them.
static bd_status join_pieces(rebuilding *r, size_t begin, size_t end, bd_error *err)
{
    const bd_packing *packing = &r->shard->packing;
    const int id_bytes = bd_packing_id_bytes(packing);
    const found_piece *first = &r->pieces[begin];
    const size_t has_bos = packing->bos != BD_NO_BOS;
    size_t most = 0;  // not the length, which may lie
    for (size_t i = begin; i < end; i++)
        most += (size_t)r->pieces[i].n_tokens;
    BD_TRY(bd_array_reserve((void **)&r->ids, &r->ids_capacity, most, sizeof *r->ids, err));
    int64_t n = 0;
    for (size_t i = begin; i < end; i++) {
        const found_piece *piece = &r->pieces[i];
        const int64_t skipped = i > begin;  // the token that is repeated as context
        const bool follows =
            piece->length == first->length && piece->offset + skipped == n &&
            (skipped == 0 || r->ids[n - 1] == bd_id_at(piece->ids, id_bytes, piece->from));
        if (!follows)
            return fail_document(r, piece, err);
        for (int64_t t = skipped; t < piece->n_tokens; t++)
            r->ids[n++] = bd_id_at(piece->ids, id_bytes, piece->from + t);
    }
    if (n != first->length || (size_t)n < has_bos + 1)
        return fail_document(r, first, err);
    return bd_documents_append_ids(r->documents, r->ids + has_bos, (size_t)n - has_bos - 1,
                                   first->input, first->position, err);
}

bd_status bd_rebuild_documents(const bd_shard *shard, bd_documents *documents, bd_error *err)
{
    rebuilding r = {.shard = shard, .documents = documents};
    bd_status status = find_pieces(&r, err);
    if (status == BD_OK && r.n > 0)
        qsort(r.pieces, r.n, sizeof *r.pieces, compare_pieces);
    for (size_t i = 0, end; status == BD_OK && i < r.n; i = end) {
        for (end = i + 1; end < r.n && same_document(&r.pieces[end], &r.pieces[i]);)
            end++;
        status = join_pieces(&r, i, end, err);
    }
    free(r.pieces);
    free(r.ids);
    documents->text = shard->entry.figures.text;
    documents->bos = shard->entry.figures.bos;
    documents->separators = shard->entry.figures.separators;
    return status;
}
