// rebuild.h - the documents of a shard, put together from their pieces.
#ifndef BINDERY_PACKER_PACK_REBUILD_H
#define BINDERY_PACKER_PACK_REBUILD_H

#include "common/base/error.h"
#include "common/dataset/shard.h"
#include "packer/pack/documents.h"

// Appends every document of the shard, each with its place, in the order of the input whatever
// the order in the shard. Every row is checked, and so is that the pieces of a document make a
// whole: a document of which a part is missing is BD_ERR_FORMAT. `documents` must be empty,
// with a packing of the shard's ids. Its counts of text, BOS and separators become those of the
// shard, left-out documents included.
bd_status bd_rebuild_documents(const bd_shard *shard, bd_documents *documents, bd_error *err);

#endif
