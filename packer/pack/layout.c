#include "packer/pack/layout.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "packer/pack/fit.h"

// Pieces in input order, as they are cut.
typedef struct cutting {
    bd_layout *layout;
    size_t capacity;
    int64_t seq_len;
    // For concat, which places while it cuts:
    int64_t max_documents;  // segments in a row
    int64_t room, places;   // free tokens and segments of the row that is being filled
    size_t row_capacity;
} cutting;

static bd_status add_piece(cutting *c, size_t document, int64_t offset, int64_t length,
                           bd_error *err)
{
    bd_layout *layout = c->layout;
    BD_TRY(bd_array_reserve((void **)&layout->pieces, &c->capacity,
                            (size_t)layout->n_pieces + 1, sizeof *layout->pieces, err));
    layout->pieces[layout->n_pieces++] =
        (bd_piece){(uint32_t)document, (uint32_t)offset, (int32_t)length};
    return BD_OK;
}

// How much of a document of `length` tokens is to be placed; 0 if it is dropped.
static bd_status apply_policy(bd_layout *layout, const bd_dataset_config *config,
                              int64_t length, int64_t *kept, bd_error *err)
{
    *kept = length;
    if (length <= config->seq_len)
        return BD_OK;
    switch (config->long_policy) {
    case BD_LONG_SPLIT:
        break;
    case BD_LONG_TRUNCATE:
        *kept = config->seq_len;
        layout->truncated += length - *kept;
        layout->truncated_documents++;
        break;
    case BD_LONG_DROP:
        *kept = 0;
        layout->dropped += length;
        layout->dropped_documents++;
        break;
    case BD_LONG_ERROR:
        return bd_fail(err, BD_ERR_ARGUMENT, "a document of %lld tokens is longer than a row",
                       (long long)length);
    }
    return BD_OK;
}

// ---- best-fit and first-fit: cut first, then place -------------------------------------

static bd_status cut_for_fit(cutting *c, size_t document, int64_t kept, bd_error *err)
{
    int64_t offset = 0;
    for (;;) {
        const int64_t left = kept - offset;
        const int64_t length = left < c->seq_len ? left : c->seq_len;
        BD_TRY(add_piece(c, document, offset, length, err));
        if (offset + length == kept)
            return BD_OK;
        offset += length - 1;  // the next piece begins with this one's last token
    }
}

// Sorts the pieces by their rows, keeping input order within a row: a counting sort.
static bd_status group_by_row(bd_layout *layout, const int32_t *row_of, bd_error *err)
{
    const size_t n = (size_t)layout->n_pieces, n_rows = (size_t)layout->n_rows;
    bd_piece *grouped = malloc((n + 1) * sizeof *grouped);
    int64_t *begins = calloc(n_rows + 2, sizeof *begins);
    if (!grouped || !begins) {
        free(grouped);
        free(begins);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu pieces", n);
    }
    // begins[r + 2] counts, then begins[r + 1] is where row r's next piece goes, and in the end
    // begins[r + 1] is where row r + 1 begins.
    for (size_t i = 0; i < n; i++)
        begins[row_of[i] + 2]++;
    for (size_t r = 2; r < n_rows + 2; r++)
        begins[r] += begins[r - 1];
    for (size_t i = 0; i < n; i++)
        grouped[begins[row_of[i] + 1]++] = layout->pieces[i];
    free(layout->pieces);
    layout->pieces = grouped;
    layout->row_begins = begins;
    return BD_OK;
}

static bd_status place(bd_layout *layout, const bd_dataset_config *config, bd_error *err)
{
    const bool best = config->strategy == BD_STRATEGY_BEST_FIT;
    const size_t n = (size_t)layout->n_pieces;
    int32_t *lengths = malloc((n + 1) * sizeof *lengths);
    int32_t *row_of = malloc((n + 1) * sizeof *row_of);
    int32_t n_rows = 0;
    bd_status status;
    if (!lengths || !row_of) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu pieces", n);
        goto done;
    }
    for (size_t i = 0; i < n; i++)
        lengths[i] = layout->pieces[i].length;
    status = (best ? bd_fit_best : bd_fit_first)(lengths, (int64_t)n, (int32_t)config->seq_len,
                                                 (int32_t)config->max_documents, row_of,
                                                 &n_rows, err);
    if (status != BD_OK)
        goto done;
    layout->n_rows = n_rows;
    status = group_by_row(layout, row_of, err);
done:
    free(lengths);
    free(row_of);
    return status;
}

// ---- concat: place while cutting ------------------------------------------------------

static bd_status begin_row(cutting *c, bd_error *err)
{
    bd_layout *layout = c->layout;
    BD_TRY(bd_array_reserve((void **)&layout->row_begins, &c->row_capacity,
                            (size_t)layout->n_rows + 2, sizeof *layout->row_begins, err));
    layout->row_begins[layout->n_rows++] = layout->n_pieces;
    c->room = c->seq_len;
    c->places = c->max_documents;
    return BD_OK;
}

static bd_status concatenate(cutting *c, size_t document, int64_t kept, bd_error *err)
{
    int64_t offset = 0;
    for (;;) {
        const int64_t left = kept - offset;
        // A piece of one token would predict nothing: that token of the row becomes padding.
        if (c->room == 0 || c->places == 0 || (c->room == 1 && left > 1))
            BD_TRY(begin_row(c, err));
        const int64_t length = left < c->room ? left : c->room;
        BD_TRY(add_piece(c, document, offset, length, err));
        c->room -= length;
        c->places--;
        if (offset + length == kept)
            return BD_OK;
        offset += length - 1;
    }
}

// ---- all -----------------------------------------------------------------------------

bd_status bd_layout_make(bd_layout *layout, const uint32_t *lengths, size_t n,
                         const bd_dataset_config *config, bd_error *err)
{
    *layout = (bd_layout){0};
    cutting c = {.layout = layout,
                 .seq_len = config->seq_len,
                 .max_documents =
                     config->max_documents > 0 ? config->max_documents : INT64_MAX};
    const bool fit = config->strategy != BD_STRATEGY_CONCAT;
    bd_status status = BD_OK;
    if (n > INT32_MAX)  // a piece's document has 32 bits
        return bd_fail(err, BD_ERR_UNSUPPORTED, "%zu documents are too many for one unit", n);
    for (size_t d = 0; status == BD_OK && d < n; d++) {
        const int64_t n_before = layout->n_pieces;
        int64_t kept;
        status = apply_policy(layout, config, lengths[d], &kept, err);
        if (status != BD_OK || kept == 0)
            continue;
        status = fit ? cut_for_fit(&c, d, kept, err) : concatenate(&c, d, kept, err);
        layout->split_documents += layout->n_pieces - n_before > 1;
    }
    if (status == BD_OK && fit)
        status = place(layout, config, err);
    if (status == BD_OK && !fit)
        status = bd_array_reserve((void **)&layout->row_begins, &c.row_capacity,
                                  (size_t)layout->n_rows + 1, sizeof *layout->row_begins, err);
    if (status != BD_OK) {
        bd_layout_release(layout);
        return status;
    }
    layout->row_begins[layout->n_rows] = layout->n_pieces;
    return BD_OK;
}

void bd_layout_release(bd_layout *layout)
{
    free(layout->pieces);
    free(layout->row_begins);
    *layout = (bd_layout){0};
}
