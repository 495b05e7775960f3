#include "packer/pack/unit_writer.h"

#include <stdlib.h>

#include "common/dataset/row.h"
#include "packer/pack/layout.h"
#include "packer/pack/shard_writer.h"

static void count_piece(bd_figures *figures, const bd_documents *documents,
                        const bd_piece *piece)
{
    const bd_dataset_config *config = documents->config;
    const bd_document *document = &documents->items[piece->document];
    const int64_t empty_length = 1 + (config->bos != BD_NO_BOS);
    const int32_t bounds[] = {0, piece->length};
    bd_row row = {.n_bounds = 2,  // with the piece as its only segment
                  .bounds = bounds,
                  .n_segments = 1,
                  .segments = {.offset = &piece->offset, .length = &document->length}};
    const int64_t first = document->begin + piece->offset;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        row.columns[c] = bd_column_at(documents->columns[c], first, bd_token_bits(config, c));
    row.mask_bit = (int32_t)(first % 8);
    bd_figures_count_segment(figures, piece->offset, piece->length, bd_row_targets(&row, 0));
    figures->separator_collisions += bd_separator_collisions(&row, config, 0);
    if (piece->offset == 0) {
        bd_figures_count_document(figures, document->length);
        figures->empty_documents += document->length == empty_length;
    }
}

// Counts the input's side of the ledger from the documents and the policy for long ones, and
// the rows' side from the layout.
static void count_figures(bd_figures *figures, const bd_documents *documents,
                          const bd_layout *layout)
{
    figures->text = documents->text;
    figures->bos = documents->bos;
    figures->separators = documents->separators;
    figures->truncated = layout->truncated;
    figures->truncated_documents = layout->truncated_documents;
    figures->split_documents = layout->split_documents;
    figures->dropped += layout->dropped;
    figures->dropped_documents += layout->dropped_documents;
    for (int64_t row = 0; row < layout->n_rows; row++) {
        int64_t used = 0;
        for (int64_t p = layout->row_begins[row]; p < layout->row_begins[row + 1]; p++) {
            count_piece(figures, documents, &layout->pieces[p]);
            used += layout->pieces[p].length;
        }
        bd_figures_count_row(figures, documents->config->seq_len, used,
                             layout->row_begins[row + 1] - layout->row_begins[row]);
    }
}

bd_status bd_unit_write(const char *folder, bd_documents *documents, bd_shard_entry *entry,
                        bd_error *err)
{
    bd_layout layout = {0};
    if (documents->config->shuffle != BD_NO_SHUFFLE)  // they come in the input's order
        BD_TRY(bd_documents_sort(documents, err));
    uint32_t *lengths = malloc((documents->n + 1) * sizeof *lengths);
    if (!lengths)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu documents", documents->n);
    for (size_t d = 0; d < documents->n; d++)
        lengths[d] = documents->items[d].length;
    bd_status status = bd_layout_make(&layout, lengths, documents->n, documents->config, err);
    free(lengths);
    if (status == BD_OK) {
        count_figures(&entry->figures, documents, &layout);
        status = bd_figures_check_ledger(&entry->figures, documents->config->seq_len, err);
    }
    if (status == BD_OK)
        status = bd_shard_write(folder, documents, &layout, entry, err);
    bd_layout_release(&layout);
    return status;
}
