// shard_writer.h - a laid-out unit becomes a published shard.
#ifndef BINDERY_PACKER_SHARD_WRITER_H
#define BINDERY_PACKER_SHARD_WRITER_H

#include "common/error.h"
#include "common/manifest.h"
#include "packer/documents.h"
#include "packer/layout.h"

// Writes <folder>/<unit's name>.arrow and publishes it by rename. `figures` must be complete:
// they go into the file's metadata, before the rows. *entry is what the manifest will say.
// On failure nothing is left behind under the final name. Memory: one record batch.
bd_status bd_shard_write(const char *folder, const bd_unit *unit, const bd_documents *documents,
                         const bd_layout *layout, const bd_figures *figures,
                         bd_shard_entry *entry, bd_error *err);

#endif
