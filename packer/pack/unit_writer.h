// unit_writer.h - the documents of a unit become its shard: ordered, laid out, counted,
// written.
#ifndef BINDERY_PACKER_PACK_UNIT_WRITER_H
#define BINDERY_PACKER_PACK_UNIT_WRITER_H

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "packer/pack/documents.h"

// Publishes <folder>/<unit's name>.arrow. The caller fills in the entry's unit and records, and
// the figures that only reading the inputs can tell (bd_figures_take_left_out()); the others
// are filled in here. The documents are sorted by their places. Fails if the ledger does not
// add up. Memory: 70 bytes per segment and one record batch.
bd_status bd_unit_write(const char *folder, bd_documents *documents, bd_shard_entry *entry,
                        bd_error *err);

#endif
