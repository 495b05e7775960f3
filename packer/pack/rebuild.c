#include "packer/pack/rebuild.h"

#include <inttypes.h>

#include "common/dataset/segment_index.h"

static bd_status fail_document(const bd_shard *shard, const bd_indexed_segment *piece,
                               bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT,
                   "'%s': S3: the pieces of the document at input %u, position %" PRIu64
                   " do not make a whole",
                   shard->path, piece->input, piece->position);
}

// Appends the document whose pieces are [first, end).
static bd_status join_pieces(bd_documents *documents, const bd_shard *shard,
                             const bd_indexed_segment *first, const bd_indexed_segment *end,
                             bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(&shard->config);
    int64_t n = 0;
    for (const bd_indexed_segment *piece = first; piece < end; piece++) {
        const bd_row row = bd_shard_unchecked_row(shard, piece->row);
        const int64_t skipped = piece > first;  // the token that is repeated as context
        const int64_t last = (int64_t)documents->n_tokens - 1;
        const bool follows =
            piece->length == first->length && piece->offset + skipped == n &&
            (skipped == 0 || bd_id_at(documents->ids, id_bytes, last) == piece->first_id);
        if (!follows)
            return fail_document(shard, piece, err);
        BD_TRY(bd_documents_add_tokens(documents, &row, piece->from + skipped,
                                       piece->n_tokens - skipped, err));
        n += piece->n_tokens - skipped;
    }
    if (n != first->length || n < 1 + (shard->config.bos != BD_NO_BOS))
        return fail_document(shard, first, err);
    BD_TRY(bd_documents_end_document(documents, first->input, first->position, err));
    if (!documents->config->loss_mask || shard->config.loss_mask)
        return BD_OK;
    const int64_t begin = documents->items[documents->n - 1].begin;
    bd_bits_fill(documents->loss_mask, begin, begin + n, true);
    bd_bits_fill(documents->loss_mask, begin, begin + 1, false);
    if (n == 1)
        bd_documents_remove_last(documents);
    return BD_OK;
}

bd_status bd_rebuild_documents(const bd_shard *shard, bd_documents *documents, bd_error *err)
{
    bd_segment_index pieces;
    bd_status status = bd_segment_index_build(&pieces, shard, err);
    for (size_t i = 0, end; status == BD_OK && i < pieces.n; i = end) {
        end = bd_segment_index_document_end(&pieces, i);
        status = join_pieces(documents, shard, pieces.items + i, pieces.items + end, err);
    }
    bd_segment_index_release(&pieces);
    documents->text = shard->entry.figures.text;
    documents->bos = shard->entry.figures.bos;
    documents->separators = shard->entry.figures.separators;
    return status;
}
