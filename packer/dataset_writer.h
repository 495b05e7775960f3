// dataset_writer.h - what is published around the shards of a dataset.
#ifndef BINDERY_PACKER_DATASET_WRITER_H
#define BINDERY_PACKER_DATASET_WRITER_H

#include <stddef.h>

#include "common/error.h"
#include "common/json.h"
#include "common/manifest.h"

// Publishes plan.json and tokenizer.json into `folder`, the latter with the text `tokenizer`;
// their digests go into *manifest. Also when a run is continued: whatever became of the files,
// they are then as they should be.
bd_status bd_dataset_publish_head(const char *folder, const bd_json *plan,
                                  const char *tokenizer, bd_manifest *manifest, bd_error *err);

// Sums up manifest->shards, takes copies of the n entries, and publishes the manifest.
bd_status bd_dataset_publish_manifest(const char *folder, bd_manifest *manifest,
                                      const bd_input_entry *const *entries, size_t n,
                                      bd_error *err);

#endif
