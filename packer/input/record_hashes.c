#include "packer/input/record_hashes.h"

#include <stdlib.h>
#include <string.h>

enum { NO_INPUT = -1 };

struct bd_record_hashes {
    bd_hasher *records, *positions;  // owned
    int64_t input;                   // of the last record, or NO_INPUT
};

// Values that no size and no position has: they stand for a record without one.
static const uint64_t no_value = UINT64_MAX, too_large = UINT64_MAX - 1;
static const uint64_t next_input = UINT64_MAX, headless = UINT64_MAX - 1;

bd_record_hashes *bd_record_hashes_new(void)
{
    bd_record_hashes *hashes = calloc(1, sizeof *hashes);
    if (!hashes)
        return NULL;
    hashes->input = NO_INPUT;
    hashes->records = bd_hasher_new();
    hashes->positions = bd_hasher_new();
    if (hashes->records && hashes->positions)
        return hashes;
    bd_record_hashes_free(hashes);
    return NULL;
}

void bd_record_hashes_free(bd_record_hashes *hashes)
{
    if (!hashes)
        return;
    bd_hasher_free(hashes->records);
    bd_hasher_free(hashes->positions);
    free(hashes);
}

void bd_record_hashes_begin(bd_record_hashes *hashes, int64_t first_input)
{
    hashes->input = first_input;
}

void bd_record_hashes_add(bd_record_hashes *hashes, int64_t input, const bd_record *record)
{
    const bool has_bytes = record->bad == BD_BAD_NONE;
    if (has_bytes && record->size_bytes > 0)
        bd_hasher_add(hashes->records, record->data, record->size_bytes);
    const uint64_t without_bytes = record->bad == BD_BAD_MISSING_TEXT ? no_value : too_large;
    bd_hasher_add_number(hashes->records, has_bytes ? record->size_bytes : without_bytes);
    if (has_bytes && record->trained) {
        bd_hasher_add(hashes->records, record->trained, record->n_trained);
        bd_hasher_add_number(hashes->records, record->n_trained);
    }
    // Without this, an empty file before the record would hash as one after it.
    for (int64_t i = hashes->input; i != NO_INPUT && i < input; i++)
        bd_hasher_add_number(hashes->positions, next_input);
    hashes->input = input;
    bd_hasher_add_number(hashes->positions,
                         record->headless ? headless : (uint64_t)record->position);
}

bd_record_digests bd_record_hashes_take(bd_record_hashes *hashes)
{
    hashes->input = NO_INPUT;
    return (bd_record_digests){.records = bd_hasher_take128(hashes->records),
                               .positions = bd_hasher_take128(hashes->positions)};
}

bool bd_record_digests_equal(const bd_record_digests *a, const bd_record_digests *b)
{
    return a->records.hex[0] != '\0' && a->positions.hex[0] != '\0' &&
           strcmp(a->records.hex, b->records.hex) == 0 &&
           strcmp(a->positions.hex, b->positions.hex) == 0;
}
