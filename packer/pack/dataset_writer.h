// dataset_writer.h - what is published around the shards of a dataset.
#ifndef BINDERY_PACKER_PACK_DATASET_WRITER_H
#define BINDERY_PACKER_PACK_DATASET_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"

// Publishes plan.json, tokenizer.json with the text `tokenizer`, and the tokenizer_config.json that
// goes with it, into `folder`. The digests of the first two go into *manifest, whose packing is
// known. A run that continues calls it too, so that files which were lost or changed are as they
// should be.
bd_status bd_dataset_publish_head(const char *folder, const bd_json *plan,
                                  const char *tokenizer, bd_manifest *manifest, bd_error *err);

// Sums up manifest->shards, takes copies of the n entries, and publishes the card and then the
// manifest. Before that it looks at everything once more that the dataset consists of: a file
// that is gone or has changed since is BD_ERR_IO, with its name, and there is no manifest.
// `held_out` is the manifest of the held-out dataset inside of this one, published before, or
// NULL. *card_kept: the card is somebody else's and stays as it is.
bd_status bd_dataset_publish_tail(const char *folder, bd_manifest *manifest,
                                  const bd_manifest *held_out,
                                  const bd_input_entry *const *entries, size_t n,
                                  bool *card_kept, bd_error *err);

#endif
