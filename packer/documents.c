#include "packer/documents.h"

#include <stdlib.h>

#include "common/array.h"
#include "common/size.h"

void bd_documents_init(bd_documents *documents, const bd_packing *packing,
                       const bd_tokenizer *tokenizer)
{
    *documents = (bd_documents){.packing = packing, .tokenizer = tokenizer};
}

// Appends ids at the width in which they will be stored: half the memory for small
// vocabularies.
static void append_ids(bd_documents *documents, const uint32_t *ids, size_t n)
{
    if (bd_packing_id_bytes(documents->packing) == 2) {
        uint16_t *to = (uint16_t *)documents->ids + documents->n_ids;
        for (size_t i = 0; i < n; i++)
            to[i] = (uint16_t)ids[i];
    } else {
        uint32_t *to = (uint32_t *)documents->ids + documents->n_ids;
        for (size_t i = 0; i < n; i++)
            to[i] = ids[i];
    }
    documents->n_ids += n;
}

bd_status bd_documents_append(bd_documents *documents, const char *text, size_t size_bytes,
                              uint32_t input, uint64_t position, bd_error *err)
{
    const bd_packing *packing = documents->packing;
    const bd_tokenizer_kind *kind = documents->tokenizer->kind;
    const size_t max_text = kind->max_ids(documents->tokenizer, size_bytes);
    size_t needed;
    if (!bd_size_add(max_text, 2, &needed) || !bd_size_add(documents->n_ids, needed, &needed))
        return bd_fail(err, BD_ERR_MEMORY, "too many tokens in one unit");
    BD_TRY(bd_array_reserve((void **)&documents->scratch, &documents->scratch_capacity,
                            max_text + 2, sizeof *documents->scratch, err));
    uint32_t *scratch = documents->scratch;
    size_t n = 0;
    if (packing->bos != BD_NO_BOS)
        scratch[n++] = (uint32_t)packing->bos;
    const size_t n_text = kind->encode(documents->tokenizer, text, size_bytes, scratch + n);
    n += n_text;
    scratch[n++] = (uint32_t)packing->separator;
    if (n > UINT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a document of %zu tokens is too long", n);

    BD_TRY(bd_array_reserve(&documents->ids, &documents->ids_capacity, documents->n_ids + n,
                            (size_t)bd_packing_id_bytes(packing), err));
    BD_TRY(bd_array_reserve((void **)&documents->items, &documents->capacity, documents->n + 1,
                            sizeof *documents->items, err));
    documents->items[documents->n++] = (bd_document){
        .begin = (int64_t)documents->n_ids,
        .position = position,
        .input = input,
        .length = (uint32_t)n,
    };
    append_ids(documents, scratch, n);
    documents->text += (int64_t)n_text;
    documents->bos += packing->bos != BD_NO_BOS;
    documents->separators++;
    return BD_OK;
}

void bd_documents_release(bd_documents *documents)
{
    free(documents->ids);
    free(documents->items);
    free(documents->scratch);
    *documents = (bd_documents){0};
}
