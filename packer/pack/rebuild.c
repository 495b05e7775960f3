#include "packer/pack/rebuild.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/array.h"
#include "common/dataset/segment_index.h"

typedef struct rebuilding {
    const bd_shard *shard;
    bd_documents *documents;
    bd_found_segments pieces;  // owned
    uint32_t *ids;             // owned; of the document at hand
    size_t ids_capacity;
} rebuilding;

static bd_status fail_document(const rebuilding *r, const bd_found_segment *piece,
                               bd_error *err)
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
    const bd_found_segment *first = &r->pieces.items[begin];
    const size_t has_bos = packing->bos != BD_NO_BOS;
    size_t most = 0;  // not the length, which may lie
    for (size_t i = begin; i < end; i++)
        most += (size_t)r->pieces.items[i].n_tokens;
    BD_TRY(bd_array_reserve((void **)&r->ids, &r->ids_capacity, most, sizeof *r->ids, err));
    int64_t n = 0;
    for (size_t i = begin; i < end; i++) {
        const bd_found_segment *piece = &r->pieces.items[i];
        const void *ids = bd_found_segment_ids(piece, r->shard);
        const int64_t skipped = i > begin;  // the token that is repeated as context
        const bool follows = piece->length == first->length && piece->offset + skipped == n &&
                             (skipped == 0 || r->ids[n - 1] == piece->first_id);
        if (!follows)
            return fail_document(r, piece, err);
        for (int64_t t = skipped; t < piece->n_tokens; t++)
            r->ids[n++] = bd_id_at(ids, id_bytes, t);
    }
    if (n != first->length || (size_t)n < has_bos + 1)
        return fail_document(r, first, err);
    return bd_documents_append_ids(r->documents, r->ids + has_bos, (size_t)n - has_bos - 1,
                                   first->input, first->position, err);
}

bd_status bd_rebuild_documents(const bd_shard *shard, bd_documents *documents, bd_error *err)
{
    rebuilding r = {.shard = shard, .documents = documents};
    bd_status status = bd_found_segments_gather(&r.pieces, shard, err);
    for (size_t i = 0, end; status == BD_OK && i < r.pieces.n; i = end) {
        end = bd_found_segments_document_end(&r.pieces, i);
        status = join_pieces(&r, i, end, err);
    }
    bd_found_segments_release(&r.pieces);
    free(r.ids);
    documents->text = shard->entry.figures.text;
    documents->bos = shard->entry.figures.bos;
    documents->separators = shard->entry.figures.separators;
    return status;
}
