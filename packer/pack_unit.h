// pack_unit.h - one unit from its records to its shard. Units are independent of each other.
#ifndef BINDERY_PACKER_PACK_UNIT_H
#define BINDERY_PACKER_PACK_UNIT_H

#include <stdint.h>

#include "common/error.h"
#include "common/manifest.h"
#include "common/packing.h"
#include "common/progress.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/inputs.h"

// What to do with text that is not UTF-8.
typedef enum bd_utf8_policy {
    BD_UTF8_ERROR,
    BD_UTF8_KEEP,     // the bytes as they are; JSON cannot have this
    BD_UTF8_REPLACE,  // by U+FFFD
} bd_utf8_policy;

extern const char *const bd_utf8_policy_words[];  // in the order of the enum, ended by NULL

// How the corpus is read and packed: what every unit of a run has in common.
typedef struct bd_pack_job {
    bd_packing packing;
    const bd_tokenizer *tokenizer;  // borrowed
    const bd_inputs *inputs;        // borrowed
    const char *text_field;         // of JSON records; borrowed
    const char *delimiter;  // line between documents in text; NULL: a file is a document
    bd_utf8_policy utf8_policy;
    int64_t unit_bytes;
    int64_t max_document_bytes;
    const char *folder;     // where the dataset goes; borrowed
    bd_progress *progress;  // counts bytes of the inputs; may be NULL
} bd_pack_job;

// Reads, tokenises, lays out, writes and publishes one unit. Memory: 2 or 4 bytes per token, 70
// per segment, 20 per byte of the largest record, and one record batch. Fails if the ledger
// does not add up. A bad record is an error that names the file and the line or byte.
bd_status bd_pack_unit(const bd_pack_job *job, const bd_unit *unit, bd_shard_entry *entry,
                       bd_error *err);

#endif
