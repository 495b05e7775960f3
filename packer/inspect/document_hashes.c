#include "packer/inspect/document_hashes.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/dataset/shard.h"

// A piece and where its tokens lie; rows are borrowed from the shard, which stays open.
typedef struct found_piece {
    uint64_t position;
    const void *ids;  // of its row
    int64_t row;
    int64_t number;  // of its document; of its first piece alone
    int32_t from, n_tokens;
    uint32_t input, offset, length;
} found_piece;

typedef struct visiting {
    const bd_shard *shard;
    bd_hashed_document_visit visit;
    void *context;
    bd_hasher *hasher;    // owned
    found_piece *pieces;  // owned
    size_t n, capacity;
    int64_t n_documents;  // that begin in the rows so far
} visiting;

static void hash_tokens(bd_hasher *hasher, const found_piece *piece, int64_t skipped,
                        int id_bytes)
{
    bd_hasher_add(hasher, (const char *)piece->ids + (piece->from + skipped) * id_bytes,
                  (size_t)((piece->n_tokens - skipped) * id_bytes));
}

static bd_status visit_whole(visiting *v, const found_piece *piece, bd_error *err)
{
    hash_tokens(v->hasher, piece, 0, bd_dataset_id_bytes(&v->shard->config));
    const bd_hashed_document document = {
        .hash = bd_hasher_take64(v->hasher),
        .position = piece->position,
        .number = piece->number,
        .row = piece->row,
        .n_tokens = piece->n_tokens,
        .input = piece->input,
    };
    return v->visit(v->context, &document, err);
}

static bd_status visit_segments(visiting *v, int64_t index, const bd_row *row, bd_error *err)
{
    for (int64_t k = 0; k < row->n_segments; k++) {
        const found_piece piece = {
            .position = row->segments.position[k],
            .ids = row->ids,
            .row = index,
            .number = v->n_documents,
            .from = row->bounds[k],
            .n_tokens = row->bounds[k + 1] - row->bounds[k],
            .input = row->segments.input[k],
            .offset = row->segments.offset[k],
            .length = row->segments.length[k],
        };
        v->n_documents += piece.offset == 0;
        if (v->n_documents > v->shard->entry.figures.documents)
            return bd_fail(err, BD_ERR_FORMAT,
                           "'%s': S5: it has more than the %" PRId64
                           " documents that its metadata says",
                           v->shard->path, v->shard->entry.figures.documents);
        if ((uint32_t)piece.n_tokens == piece.length) {
            BD_TRY(visit_whole(v, &piece, err));
            continue;
        }
        BD_TRY(bd_array_reserve((void **)&v->pieces, &v->capacity, v->n + 1, sizeof *v->pieces,
                                err));
        v->pieces[v->n++] = piece;
    }
    return BD_OK;
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

// The pieces of one document, in order.
static bd_status visit_pieces(visiting *v, const found_piece *pieces, size_t n, bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(&v->shard->config);
    bd_hashed_document document = {
        .position = pieces[0].position,
        .number = pieces[0].number,
        .row = pieces[0].row,
        .input = pieces[0].input,
    };
    for (size_t i = 0; i < n; i++) {
        const int64_t skipped = i > 0;  // the token that is repeated as context
        if (pieces[i].offset + skipped != document.n_tokens)
            return bd_shard_fail_row(v->shard, pieces[i].row,
                                     "S3: a piece does not begin where the one before it ends",
                                     err);
        hash_tokens(v->hasher, &pieces[i], skipped, id_bytes);
        document.n_tokens += pieces[i].n_tokens - skipped;
    }
    document.hash = bd_hasher_take64(v->hasher);
    return v->visit(v->context, &document, err);
}

// The pieces of a document lie in rows anywhere.
static void give_back_all(visiting *v)
{
    for (int64_t b = 0; b < bd_arrow_reader_n_batches(v->shard->reader); b++)
        bd_shard_forget_batch(v->shard, b);
}

static bd_status visit_split(visiting *v, bd_error *err)
{
    enum { MOST_PIECES = 1 << 9 };  // between two times that pages are given back
    size_t given_back = 0;
    if (v->n > 0)
        qsort(v->pieces, v->n, sizeof *v->pieces, compare_pieces);
    for (size_t i = 0, end; i < v->n; i = end) {
        const found_piece *first = &v->pieces[i];
        for (end = i + 1; end < v->n && v->pieces[end].input == first->input &&
                          v->pieces[end].position == first->position;)
            end++;
        BD_TRY(visit_pieces(v, first, end - i, err));
        if (end - given_back >= MOST_PIECES) {
            give_back_all(v);
            given_back = end;
        }
    }
    return BD_OK;
}

static bd_status visit_rows(visiting *v, bd_error *err)
{
    const bd_figures *claimed = &v->shard->entry.figures;
    const int64_t batch_rows = v->shard->config.batch_rows;
    for (int64_t r = 0; r < claimed->rows; r++) {
        bd_row row;
        BD_TRY(bd_shard_row(v->shard, r, v->hasher, &row, err));
        BD_TRY(visit_segments(v, r, &row, err));
        if ((r + 1) % batch_rows == 0)
            bd_shard_forget_batch(v->shard, r / batch_rows);
    }
    if (v->n_documents != claimed->documents)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': S5: it has %" PRId64 " documents, its metadata says %" PRId64,
                       v->shard->path, v->n_documents, claimed->documents);
    return visit_split(v, err);
}

bd_status bd_document_hashes_visit(const bd_shard *shard, bd_hashed_document_visit visit,
                                   void *context, bd_error *err)
{
    visiting v = {.shard = shard, .visit = visit, .context = context};
    v.hasher = bd_hasher_new();
    if (!v.hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    const bd_status status = visit_rows(&v, err);
    bd_hasher_free(v.hasher);
    free(v.pieces);
    return status;
}
