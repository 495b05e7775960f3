// rebuild.h - the documents of a shard, put together from their pieces.
#ifndef BINDERY_PACKER_PACK_REBUILD_H
#define BINDERY_PACKER_PACK_REBUILD_H

#include "common/base/error.h"
#include "common/dataset/shard.h"
#include "packer/pack/documents.h"

// Appends every document of the shard, each with its place, in the order of the input, whatever
// their order in the shard. Every row is checked; a document that lacks a part is
// BD_ERR_FORMAT. `documents` must be empty and have the shard's ids, BOS and separator. Its
// counts of text, BOS and separators become those of the shard, left-out documents included.
// If `documents` have loss masks and the shard has none, its documents are trained whole; those of
// one token, which can be no target, are left out.
bd_status bd_rebuild_documents(const bd_shard *shard, bd_documents *documents, bd_error *err);

#endif
