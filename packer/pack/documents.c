#include "packer/pack/documents.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

void bd_documents_init(bd_documents *documents, const bd_dataset_config *config,
                       bd_encoder *encoder)
{
    *documents = (bd_documents){.config = config, .encoder = encoder};
}

// Room for `n` more tokens in every column.
static bd_status reserve(bd_documents *documents, size_t n, bd_error *err)
{
    size_t needed;
    if (!bd_size_add(documents->n_tokens, n, &needed) || needed > INT64_MAX / 64)
        return bd_fail(err, BD_ERR_MEMORY, "too many tokens in one unit");
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const int bits = bd_token_bits(documents->config, c);
        if (bits > 0)
            BD_TRY(bd_array_reserve(&documents->columns[c], &documents->capacity_bytes[c],
                                    bd_column_bytes((int64_t)needed, bits), 1, err));
    }
    return BD_OK;
}

bd_status bd_documents_add_tokens(bd_documents *documents, const bd_row *row, int64_t from,
                                  int64_t n, bd_error *err)
{
    BD_TRY(reserve(documents, (size_t)n, err));
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        if (!row->columns[c])
            continue;
        const int64_t first = c == BD_COLUMN_loss_mask ? row->mask_bit + from : from;
        bd_column_copy(documents->columns[c], (int64_t)documents->n_tokens, row->columns[c],
                       first, n, bd_token_bits(documents->config, c));
    }
    documents->n_tokens += (size_t)n;
    return BD_OK;
}

bd_status bd_documents_end_document(bd_documents *documents, uint32_t input, uint64_t position,
                                    bd_error *err)
{
    const bd_document *last = documents->n > 0 ? &documents->items[documents->n - 1] : NULL;
    const int64_t begin = last ? last->begin + last->length : 0;
    const size_t n = documents->n_tokens - (size_t)begin;
    if (n > UINT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a document of %zu tokens is too long", n);
    BD_TRY(bd_array_reserve((void **)&documents->items, &documents->capacity, documents->n + 1,
                            sizeof *documents->items, err));
    documents->items[documents->n++] = (bd_document){
        .begin = begin, .position = position, .input = input, .length = (uint32_t)n};
    return BD_OK;
}

// Makes room in the scratch for `n_text` ids between BOS and separator; *text is where they go.
static bd_status begin_scratch(bd_documents *documents, size_t n_text, uint32_t **text,
                               bd_error *err)
{
    size_t needed;
    *text = NULL;
    if (!bd_size_add(n_text, 2, &needed))
        return bd_fail(err, BD_ERR_MEMORY, "too many tokens in one unit");
    BD_TRY(bd_array_reserve((void **)&documents->scratch, &documents->scratch_capacity, needed,
                            sizeof *documents->scratch, err));
    *text = documents->scratch + (documents->config->bos != BD_NO_BOS);
    return BD_OK;
}

// Writes the mask of a document of `n` tokens that are about to be appended, of which `n_text`,
// before the separator, are text.
static void append_mask(bd_documents *documents, const uint8_t *trained, size_t n_text,
                        bool end_trained, size_t n)
{
    const int64_t begin = (int64_t)documents->n_tokens, end = begin + (int64_t)n - 1;
    const int64_t text = end - (int64_t)n_text;
    if (!trained) {
        bd_bits_fill(documents->loss_mask, begin, end + 1, true);
    } else {
        bd_bits_fill(documents->loss_mask, begin, text, false);
        for (size_t i = 0; i < n_text; i += 8) {  // a byte of the mask from each 8 of the text
            const size_t n_bits = n_text - i < 8 ? n_text - i : 8;
            unsigned bits = 0;
            for (size_t k = 0; k < n_bits; k++)
                bits |= (unsigned)(trained[i + k] != 0) << k;
            const uint8_t byte = (uint8_t)bits;
            bd_bits_copy(documents->loss_mask, text + (int64_t)i, &byte, 0, (int64_t)n_bits);
        }
        bd_bits_fill(documents->loss_mask, end, end + 1, end_trained);
    }
    bd_bits_fill(documents->loss_mask, begin, begin + 1, false);
}

// Makes a document of the scratch, in which `n_text` ids are in place now. For the mask see
// bd_documents_append_ids().
static bd_status append_scratch(bd_documents *documents, const uint8_t *trained, size_t n_text,
                                bool end_trained, uint32_t input, uint64_t position,
                                bd_error *err)
{
    const bd_dataset_config *config = documents->config;
    const bool has_bos = config->bos != BD_NO_BOS;
    const size_t n = n_text + has_bos + 1;
    uint32_t *ids = documents->scratch;
    BD_TRY(reserve(documents, n, err));
    if (has_bos)
        ids[0] = (uint32_t)config->bos;
    ids[n - 1] = (uint32_t)config->separator;
    if (bd_dataset_id_bytes(config) == 2) {
        uint16_t *to = (uint16_t *)documents->ids + documents->n_tokens;
        for (size_t i = 0; i < n; i++)
            to[i] = (uint16_t)ids[i];
    } else {
        memcpy((uint32_t *)documents->ids + documents->n_tokens, ids, n * sizeof *ids);
    }
    if (config->loss_mask)
        append_mask(documents, trained, n_text, end_trained, n);
    documents->n_tokens += n;
    documents->text += (int64_t)n_text;
    documents->bos += has_bos;
    documents->separators++;
    return bd_documents_end_document(documents, input, position, err);
}

bd_status bd_documents_append(bd_documents *documents, const char *text, size_t size_bytes,
                              uint32_t input, uint64_t position, bd_error *err)
{
    const bd_tokenizer *tokenizer = documents->encoder->tokenizer;
    const size_t most = tokenizer->kind->max_ids(tokenizer, size_bytes);
    uint32_t *ids;
    size_t n;
    BD_TRY(begin_scratch(documents, most, &ids, err));
    BD_TRY(bd_encode(documents->encoder, text, size_bytes, ids, &n, err));
    return append_scratch(documents, NULL, n, true, input, position, err);
}

bd_status bd_documents_append_ids(bd_documents *documents, const uint32_t *ids,
                                  const uint8_t *trained, size_t n, bool end_trained,
                                  uint32_t input, uint64_t position, bd_error *err)
{
    uint32_t *to;
    BD_TRY(begin_scratch(documents, n, &to, err));
    if (n > 0)
        memcpy(to, ids, n * sizeof *ids);
    return append_scratch(documents, trained, n, end_trained, input, position, err);
}

bool bd_documents_has_target(const bd_documents *documents, size_t index)
{
    const bd_document *document = &documents->items[index];
    return bd_bits_count(documents->loss_mask, document->begin + 1,
                         document->begin + document->length) > 0;
}

void bd_documents_clear(bd_documents *documents)
{
    documents->n = documents->n_tokens = 0;
    documents->text = documents->bos = documents->separators = 0;
}

bd_document bd_documents_remove_last(bd_documents *documents)
{
    const bd_document removed = documents->items[--documents->n];
    documents->n_tokens = (size_t)removed.begin;
    return removed;
}

typedef struct placed_document {
    bd_document_place place;
    bd_document document;
} placed_document;

static int compare_places(const void *a, const void *b)
{
    return bd_document_place_compare(&((const placed_document *)a)->place,
                                     &((const placed_document *)b)->place);
}

bd_status bd_documents_sort(bd_documents *documents, bd_error *err)
{
    const size_t n = documents->n;
    placed_document *placed = malloc((n + 1) * sizeof *placed);
    if (!placed)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to sort %zu documents", n);
    for (size_t d = 0; d < n; d++) {
        const bd_document *document = &documents->items[d];
        placed[d] = (placed_document){
            bd_dataset_place(documents->config, document->input, document->position),
            *document};
    }
    qsort(placed, n, sizeof *placed, compare_places);
    for (size_t d = 0; d < n; d++)
        documents->items[d] = placed[d].document;
    free(placed);
    return BD_OK;
}

void bd_documents_release(bd_documents *documents)
{
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        free(documents->columns[c]);
    free(documents->items);
    free(documents->scratch);
    *documents = (bd_documents){0};
}
