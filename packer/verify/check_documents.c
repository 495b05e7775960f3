// How documents are checked without a table of all of them.
//
// S3 says that each document is in the shard once, and whole. Documents lie in rows in any order,
// and a shard may have millions, so a hash table of them would be as large as the shard. Instead:
//
//   1. Row by row, batches in parallel. A segment that is a whole document is counted at once, and
//      only its place (input, position) is kept, as a key of 64 bits or fewer (place_keys.h). A
//      piece of a longer document is kept with its offset and its first and last token.
//   2. At the end the pieces are sorted by place and offset. The pieces of one document are then
//      neighbours, and must follow each other without a gap: each begins with the last token of
//      the one before, up to the document's length. This document is counted, and its place joins
//      the others.
//   3. Each document is there once if no two of the places are equal. Where nothing was shuffled or
//      moved, the places rise already and one pass shows it; else they are sorted by their bits.
//
// Memory is 8 bytes for each segment, and the pieces, which are few. Every step is one pass or one
// sort over what the shard holds, so that it ends whatever the rows say.
#include "packer/verify/check_documents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

static bd_place_range range_of_places(const bd_shard *shard)
{
    bd_place_range range = BD_NO_PLACES;
    for (int64_t b = 0; b < bd_arrow_reader_n_batches(shard->reader); b++) {
        const bd_row_batch *batch = bd_arrow_reader_batch(shard->reader, b);
        const int32_t end = batch->segment_offsets[batch->n_rows];
        for (int32_t k = batch->segment_offsets[0]; k < end; k++)
            bd_place_range_add(&range, batch->segments.input[k], batch->segments.position[k]);
    }
    return range;
}

bd_status bd_check_documents_init(bd_check_documents *documents, const bd_shard *shard,
                                  bd_error *err)
{
    const bd_place_range range = range_of_places(shard);
    *documents = (bd_check_documents){
        .shard = shard,
        .keys = bd_place_keys_of(&range),
        .n_batches = bd_arrow_reader_n_batches(shard->reader),
    };
    documents->too_far_apart = documents->keys.n_bits > 64;
    if (documents->too_far_apart)
        documents->keys = (bd_place_keys){0};  // perhaps a row shows what is wrong
    size_t n;
    BD_TRY(bd_segment_index_count(shard, &n, err));
    documents->places = malloc((n + 1) * sizeof *documents->places);
    documents->batches = calloc((size_t)documents->n_batches + 1, sizeof *documents->batches);
    if (!documents->places || !documents->batches) {
        bd_check_documents_release(documents);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu segments", n);
    }
    uint64_t *next = documents->places;
    for (int64_t b = 0; b < documents->n_batches; b++) {
        documents->batches[b].places = next;
        next += bd_row_batch_n_segments(bd_arrow_reader_batch(shard->reader, b));
    }
    return BD_OK;
}

void bd_check_documents_release(bd_check_documents *documents)
{
    for (int64_t b = 0; documents->batches && b < documents->n_batches; b++)
        bd_segment_index_release(&documents->batches[b].pieces);
    free(documents->batches);
    free(documents->places);
    *documents = (bd_check_documents){0};
}

// ---- Rows -----------------------------------------------------------------------------------

// Counts a document of `length` tokens, of which `n_pieces` cover the first `covered`. Returns
// the rule that it breaks, or NULL.
static const char *count_document(const bd_dataset_config *config, int64_t length,
                                  int64_t covered, size_t n_pieces, bd_figures *figures)
{
    const bool has_bos = config->bos != BD_NO_BOS;
    const bool truncated = config->long_policy == BD_LONG_TRUNCATE && length > config->seq_len;
    if (covered != (truncated ? config->seq_len : length))
        return "S3: a document's last piece is missing";
    if (length - 1 - has_bos < config->min_tokens)
        return "S7: a document has fewer than min_tokens";
    bd_figures_count_document(figures, length);
    figures->empty_documents += length == 1 + has_bos;
    figures->split_documents += n_pieces > 1;
    figures->truncated_documents += truncated;
    figures->truncated += length - covered;
    figures->text += length;  // BOS and separators are subtracted when all is counted
    return NULL;
}

bd_status bd_check_documents_add(bd_check_documents *documents, int64_t batch,
                                 const bd_row *row, uint32_t index, int64_t k,
                                 bd_figures *figures, bd_error *err)
{
    const bd_shard *shard = documents->shard;
    bd_batch_documents *to = &documents->batches[batch];
    const int64_t length = row->segments.length[k];
    const bool is_whole =
        row->segments.offset[k] == 0 && row->bounds[k + 1] - row->bounds[k] == length;
    if (!is_whole) {
        bd_segment_index *pieces = &to->pieces;
        BD_TRY(bd_array_reserve((void **)&pieces->items, &to->pieces_capacity, pieces->n + 1,
                                sizeof *pieces->items, err));
        pieces->items[pieces->n++] = bd_indexed_segment_of_row(row, &shard->config, index, k);
        return BD_OK;
    }
    to->places[to->n_places++] =
        bd_place_key(&documents->keys, row->segments.input[k], row->segments.position[k]);
    const char *broken = count_document(&shard->config, length, length, 1, figures);
    return broken ? bd_shard_fail_row(shard, index, broken, err) : BD_OK;
}

// ---- Pieces --------------------------------------------------------------------------------

// S3 for the pieces of one document, which are in order: each continues the one before. Counts
// the document.
static bd_status check_pieces(const bd_shard *shard, const bd_indexed_segment *pieces, size_t n,
                              bd_figures *figures, bd_error *err)
{
    int64_t covered = 0;  // tokens of the document up to the end of the last piece
    for (size_t i = 0; i < n; i++) {
        const bool first = i == 0;
        const char *broken = NULL;
        if (pieces[i].length != pieces[0].length)
            broken = "S3: pieces disagree on their document's length";
        else if (pieces[i].offset != (first ? 0 : covered - 1))  // it repeats one token
            broken = "S3: a piece does not begin where the one before it ends";
        else if (!first && pieces[i].first_id != pieces[i - 1].last_id)
            broken = "S3: a piece does not repeat the last token of the one before it";
        if (broken)
            return bd_shard_fail_row(shard, pieces[i].row, broken, err);
        covered = pieces[i].offset + (int64_t)pieces[i].n_tokens;
    }
    const char *broken = count_document(&shard->config, pieces[0].length, covered, n, figures);
    return broken ? bd_shard_fail_row(shard, pieces[n - 1].row, broken, err) : BD_OK;
}

// Step 2: the pieces of all batches, sorted. Adds the places of their documents to the
// *n_places.
static bd_status check_split_documents(bd_check_documents *documents, size_t *n_places,
                                       bd_figures *figures, bd_error *err)
{
    size_t n = 0;
    for (int64_t b = 0; b < documents->n_batches; b++)
        n += documents->batches[b].pieces.n;
    bd_segment_index all = {malloc((n + 1) * sizeof *all.items), 0};
    if (!all.items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu pieces", n);
    for (int64_t b = 0; b < documents->n_batches; b++) {
        bd_segment_index *pieces = &documents->batches[b].pieces;
        if (pieces->n > 0)
            memcpy(all.items + all.n, pieces->items, pieces->n * sizeof *pieces->items);
        all.n += pieces->n;
        bd_segment_index_release(pieces);
    }
    bd_status status = bd_segment_index_sort(&all, err);
    for (size_t i = 0, end; status == BD_OK && i < all.n; i = end) {
        const bd_indexed_segment *first = &all.items[i];
        end = bd_segment_index_document_end(&all, i);
        status = check_pieces(documents->shard, first, end - i, figures, err);
        documents->places[(*n_places)++] =
            bd_place_key(&documents->keys, first->input, first->position);
    }
    bd_segment_index_release(&all);
    return status;
}

// ---- Places --------------------------------------------------------------------------------

// Finds the row that has the document of this place for the second time, to name it.
static bd_status fail_twice(const bd_check_documents *documents, uint64_t place, bd_error *err)
{
    const bd_shard *shard = documents->shard;
    int n_found = 0;
    for (int64_t r = 0; r < shard->entry.figures.rows; r++) {
        const bd_row row = bd_shard_unchecked_row(shard, r);
        for (int64_t k = 0; k < row.n_segments; k++) {
            const bool is_begin = row.segments.offset[k] == 0;
            n_found +=
                is_begin && place == bd_place_key(&documents->keys, row.segments.input[k],
                                                  row.segments.position[k]);
            if (n_found == 2)
                return bd_shard_fail_row(shard, r, "S3: a document is there twice", err);
        }
    }
    return bd_fail(err, BD_ERR_FORMAT, "'%s' changed while it was read", shard->path);
}

static bool are_rising(const uint64_t *places, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (places[i - 1] >= places[i])
            return false;
    return true;
}

// Step 3: no two of the first n places are equal.
static bd_status check_places(const bd_check_documents *documents, size_t n, bd_error *err)
{
    if (are_rising(documents->places, n))
        return BD_OK;
    uint64_t *spare = malloc(n * sizeof *spare);
    if (!spare)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu places", n);
    const uint64_t *sorted =
        bd_sort_by_bits(documents->places, spare, n, 0, documents->keys.n_bits);
    bd_status status = BD_OK;
    for (size_t i = 1; status == BD_OK && i < n; i++)
        if (sorted[i - 1] == sorted[i])
            status = fail_twice(documents, sorted[i], err);
    free(spare);
    return status;
}

bd_status bd_check_documents_end(bd_check_documents *documents, bd_figures *figures,
                                 bd_error *err)
{
    size_t n_places = 0;
    if (documents->too_far_apart)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'%s' has documents too far apart to be compared",
                       documents->shard->path);
    // Each batch has left room after its whole documents: the places move to the front, and the
    // room at the end has a place for every document in pieces.
    for (int64_t b = 0; b < documents->n_batches; b++) {
        const bd_batch_documents *batch = &documents->batches[b];
        memmove(documents->places + n_places, batch->places,
                batch->n_places * sizeof *batch->places);
        n_places += batch->n_places;
    }
    BD_TRY(check_split_documents(documents, &n_places, figures, err));
    return check_places(documents, n_places, err);
}
