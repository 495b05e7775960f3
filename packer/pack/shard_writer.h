// shard_writer.h - a laid-out unit becomes a published shard.
#ifndef BINDERY_PACKER_PACK_SHARD_WRITER_H
#define BINDERY_PACKER_PACK_SHARD_WRITER_H

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "packer/pack/documents.h"
#include "packer/pack/layout.h"

// Writes <folder>/<unit's name>.arrow and publishes it by rename. The entry's unit, records and
// figures must be complete, because they go into the file's metadata, before the rows. Size and
// digest of the file are filled in. On failure nothing is left behind under the final name.
// Memory: one record batch.
bd_status bd_shard_write(const char *folder, const bd_documents *documents,
                         const bd_layout *layout, bd_shard_entry *entry, bd_error *err);

#endif
