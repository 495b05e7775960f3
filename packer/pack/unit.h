// unit.h - one unit from its records to its shard. Units are independent of each other.
//
//   bd_unit_packer *packer;
//   bd_unit_packer_new(&packer, job, &err);
//   bd_unit_packer_add(packer, input, &record, &err);      // each record, in order
//   bd_unit_packer_finish(packer, &unit, &packed, &err);   // writes and publishes
//   ...                                                    // the next unit
#ifndef BINDERY_PACKER_PACK_UNIT_H
#define BINDERY_PACKER_PACK_UNIT_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "packer/input/bad_records.h"
#include "packer/input/record_hashes.h"
#include "packer/input/records.h"
#include "packer/pack/documents.h"
#include "packer/pack/job.h"

// The shards that a unit became.
typedef struct bd_packed_unit {
    bd_shard_entry shard;
    bd_shard_entry held_out;  // of the held-out dataset, if there is one
} bd_packed_unit;

typedef struct bd_unit_packer bd_unit_packer;

// Memory: 2 or 4 bytes per token, 70 per segment, 20 per byte of the largest record, one record
// batch, and an encoder (tokenizer.h) once there is text. Free with bd_unit_packer_free().
bd_status bd_unit_packer_new(bd_unit_packer **packer, const bd_pack_job *job, bd_error *err);

// Names the unit's first input, before its records are added. Needed only where a unit may have
// several.
void bd_unit_packer_begin(bd_unit_packer *packer, int64_t first_input);

// Adds a record of input `index`. A bad one is an error that names the file and the line or
// byte; or it is counted and left out, if the job's reading says so.
bd_status bd_unit_packer_add(bd_unit_packer *packer, int64_t index, const bd_record *record,
                             bd_error *err);

// Documents that were read so far: the records that were not bad.
int64_t bd_unit_packer_n_documents(const bd_unit_packer *packer);

// The first bad ones among the records that were added. Borrowed until the packer is cleared.
const bd_bad_places *bd_unit_packer_bad_places(const bd_unit_packer *packer);

// The documents that the records became, for callers that compare or count instead of packing.
typedef struct bd_unit_contents {
    const bd_documents *documents;  // those of the part, in input order, before --long
    const bd_figures *left_out;     // what only reading can tell, but for --long: unit_writer.h
    bd_record_digests digests;
} bd_unit_contents;

// The contents of the dataset that is asked for, or of the held-out one. Borrowed until the
// packer is cleared, which must come next.
bd_unit_contents bd_unit_packer_contents(bd_unit_packer *packer, bool held_out);

// Forgets all records and keeps the memory, as bd_unit_packer_finish() does.
void bd_unit_packer_clear(bd_unit_packer *packer);

// Lays out, writes and publishes. Fails if the ledger does not add up. Afterwards the packer is
// as new, but keeps its memory: fresh pages for every unit would take as long as packing.
bd_status bd_unit_packer_finish(bd_unit_packer *packer, const bd_unit *unit,
                                bd_packed_unit *packed, bd_error *err);

void bd_unit_packer_free(bd_unit_packer *packer);  // safe on NULL

#endif
