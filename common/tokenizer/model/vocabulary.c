#include "common/tokenizer/model/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/checksum.h"
#include "common/base/memory.h"
#include "common/tokenizer/model/bpe_model.h"

enum { FIRST_SLOTS = 1024 };

static uint64_t hash_of(const bd_vocabulary *vocabulary, const char *bytes, size_t size_bytes)
{
    return bd_hash64(bytes, size_bytes, vocabulary->seed);
}

// Where the token is, or the free slot where it would be. The low bits of the hash choose the
// slot, the high ones are kept in it.
static bd_token_slot *slot_of(const bd_vocabulary *vocabulary, uint64_t hash, const char *bytes,
                              size_t size_bytes)
{
    for (size_t i = hash & vocabulary->slot_mask;; i = (i + 1) & vocabulary->slot_mask) {
        bd_token_slot *slot = &vocabulary->slots[i];
        if (slot->id_plus_1 == 0)
            return slot;
        if (slot->hash != (uint32_t)(hash >> 32))
            continue;
        const bd_token_span span = vocabulary->spans[slot->id_plus_1 - 1];
        if (span.size_bytes == size_bytes &&
            memcmp(vocabulary->bytes + span.begin, bytes, size_bytes) == 0)
            return slot;
    }
}

static void index_all(bd_vocabulary *vocabulary)
{
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        const bd_token_span span = vocabulary->spans[id];
        if (span.size_bytes == 0)
            continue;
        const char *bytes = vocabulary->bytes + span.begin;
        const uint64_t hash = hash_of(vocabulary, bytes, span.size_bytes);
        *slot_of(vocabulary, hash, bytes, span.size_bytes) =
            (bd_token_slot){(uint32_t)(hash >> 32), id + 1};
    }
}

// Keeps a quarter of the slots free.
static bd_status reserve_slots(bd_vocabulary *vocabulary, bd_error *err)
{
    const size_t n_slots = vocabulary->slots ? vocabulary->slot_mask + 1 : 0;
    if (vocabulary->n_tokens + 1 <= n_slots / 4 * 3)
        return BD_OK;
    const size_t wanted = n_slots ? n_slots * 4 : FIRST_SLOTS;
    bd_token_slot *slots = calloc(wanted, sizeof *slots);
    if (!slots)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a table of %zu tokens", wanted);
    if (n_slots == 0 && getentropy(&vocabulary->seed, sizeof vocabulary->seed) != 0)
        vocabulary->seed = (uintptr_t)slots;
    free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->slot_mask = wanted - 1;
    index_all(vocabulary);
    return BD_OK;
}

static bd_status reserve_id(bd_vocabulary *vocabulary, uint32_t id, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&vocabulary->spans, &vocabulary->span_capacity,
                            (size_t)id + 1, sizeof *vocabulary->spans, err));
    for (; vocabulary->n_ids <= id; vocabulary->n_ids++)
        vocabulary->spans[vocabulary->n_ids] = (bd_token_span){0};
    return BD_OK;
}

static bd_status check_new(const bd_vocabulary *vocabulary, int64_t id, size_t size_bytes,
                           bd_error *err)
{
    if (id < 0 || id >= BD_MAX_VOCABULARY)
        return bd_fail(err, BD_ERR_FORMAT, "id %" PRId64 " is not one from 0 to %d", id,
                       BD_MAX_VOCABULARY - 1);
    if (size_bytes == 0)
        return bd_fail(err, BD_ERR_FORMAT, "the token with id %" PRId64 " is empty", id);
    if (size_bytes > BD_MAX_TOKEN_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "the token with id %" PRId64 " has %zu bytes", id,
                       size_bytes);
    if (size_bytes > BD_MAX_VOCABULARY_BYTES - vocabulary->n_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "the tokens have more than %d bytes",
                       BD_MAX_VOCABULARY_BYTES);
    if (bd_vocabulary_has(vocabulary, (uint32_t)id))
        return bd_fail(err, BD_ERR_FORMAT, "id %" PRId64 " is used twice", id);
    return BD_OK;
}

bd_status bd_vocabulary_add(bd_vocabulary *vocabulary, int64_t id, const char *bytes,
                            size_t size_bytes, bd_error *err)
{
    BD_TRY(check_new(vocabulary, id, size_bytes, err));
    BD_TRY(reserve_slots(vocabulary, err));
    const uint64_t hash = hash_of(vocabulary, bytes, size_bytes);
    bd_token_slot *slot = slot_of(vocabulary, hash, bytes, size_bytes);
    if (slot->id_plus_1)
        return bd_fail(err, BD_ERR_FORMAT, "ids %u and %" PRId64 " have the same token",
                       slot->id_plus_1 - 1, id);
    BD_TRY(reserve_id(vocabulary, (uint32_t)id, err));
    BD_TRY(bd_array_reserve((void **)&vocabulary->bytes, &vocabulary->byte_capacity,
                            vocabulary->n_bytes + size_bytes, 1, err));
    memcpy(vocabulary->bytes + vocabulary->n_bytes, bytes, size_bytes);
    vocabulary->spans[id] =
        (bd_token_span){(uint32_t)vocabulary->n_bytes, (uint32_t)size_bytes};
    vocabulary->n_bytes += size_bytes;
    vocabulary->n_tokens++;
    *slot = (bd_token_slot){(uint32_t)(hash >> 32), (uint32_t)id + 1};
    return BD_OK;
}

bool bd_vocabulary_find(const bd_vocabulary *vocabulary, const char *bytes, size_t size_bytes,
                        uint32_t *id)
{
    if (!vocabulary->slots)
        return false;
    const uint64_t hash = hash_of(vocabulary, bytes, size_bytes);
    const bd_token_slot *slot = slot_of(vocabulary, hash, bytes, size_bytes);
    if (slot->id_plus_1 == 0)
        return false;
    *id = slot->id_plus_1 - 1;
    return true;
}

bool bd_vocabulary_has(const bd_vocabulary *vocabulary, uint32_t id)
{
    return id < vocabulary->n_ids && vocabulary->spans[id].size_bytes > 0;
}

const char *bd_vocabulary_bytes(const bd_vocabulary *vocabulary, uint32_t id,
                                size_t *size_bytes)
{
    const bd_token_span span = vocabulary->spans[id];
    *size_bytes = span.size_bytes;
    return vocabulary->bytes + span.begin;
}

void bd_vocabulary_release(bd_vocabulary *vocabulary)
{
    free(vocabulary->spans);
    free(vocabulary->bytes);
    free(vocabulary->slots);
    *vocabulary = (bd_vocabulary){0};
}
