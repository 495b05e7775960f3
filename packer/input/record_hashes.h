// record_hashes.h - two checksums over the records of a unit: one over what they are, one over
// where they lie. A unit of which both are as they were would become the same shard again.
#ifndef BINDERY_PACKER_INPUT_RECORD_HASHES_H
#define BINDERY_PACKER_INPUT_RECORD_HASHES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "packer/input/records.h"

typedef struct bd_record_digests {
    bd_digest records, positions;  // as schemas/shard-v1.md defines them
} bd_record_digests;

typedef struct bd_record_hashes bd_record_hashes;

bd_record_hashes *bd_record_hashes_new(void);          // NULL when out of memory
void bd_record_hashes_free(bd_record_hashes *hashes);  // safe on NULL

// The unit's first input. Needed only where a unit may have several.
void bd_record_hashes_begin(bd_record_hashes *hashes, int64_t first_input);

// Adds the next record, one of input `input`.
void bd_record_hashes_add(bd_record_hashes *hashes, int64_t input, const bd_record *record);

// The result so far; the hashes are then as new.
bd_record_digests bd_record_hashes_take(bd_record_hashes *hashes);

// Whether both are there and the same.
bool bd_record_digests_equal(const bd_record_digests *a, const bd_record_digests *b);

#endif
