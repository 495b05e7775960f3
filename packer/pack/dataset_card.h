// dataset_card.h - README.md of a dataset: its figures, its columns and how to open it, and, for
// Hugging Face's `datasets`, which files are which split.
//
// It says what the manifest says, so that the same dataset has the same card, but is no part of
// it: a card is the user's to change. Ours ends with a line that has the checksum of everything
// above it; a card without that line, or with another text above it, is somebody else's, and is
// neither replaced nor removed.
#ifndef BINDERY_PACKER_PACK_DATASET_CARD_H
#define BINDERY_PACKER_PACK_DATASET_CARD_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"

#define BD_CARD_NAME "README.md"

// The message about a card that is not ours; %s is the folder of the dataset.
#define BD_CARD_KEPT "'%s/" BD_CARD_NAME "' is not as bindery wrote it and stays"

// Publishes the card of the dataset in `folder`. `manifest` has its totals; `held_out` is that
// of the held-out dataset inside it, or NULL. *kept becomes true if there is a card of somebody
// else, which stays.
bd_status bd_card_publish(const char *folder, const bd_manifest *manifest,
                          const bd_manifest *held_out, bool *kept, bd_error *err);

// Whether <folder>/README.md exists and is as we wrote it.
bool bd_card_is_ours(const char *folder);

#endif
