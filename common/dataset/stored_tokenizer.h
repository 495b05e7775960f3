// stored_tokenizer.h - the tokenizer that a dataset was packed with.
#ifndef BINDERY_COMMON_DATASET_STORED_TOKENIZER_H
#define BINDERY_COMMON_DATASET_STORED_TOKENIZER_H

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/dataset/config.h"
#include "common/tokenizer/tokenizer.h"

// Opens it for a dataset, or a shard, in `folder` (bd_tokenizer_open_stored()), and makes sure
// that its ids mean what they meant when it was packed: another fingerprint is BD_ERR_FORMAT.
// Close it with bd_tokenizer_close(). On failure *tokenizer is NULL.
bd_status bd_stored_tokenizer_open(const bd_tokenizer **tokenizer, const char *folder,
                                   const bd_dataset_config *config, bd_error *err);

// Its file's text, which must have the digest that the manifest gives (BD_ERR_FORMAT if not).
// *text is malloc'd, ends with a NUL, and is the caller's to free. A file with a NUL in it is
// BD_ERR_FORMAT.
bd_status bd_stored_tokenizer_read(const char *folder, const bd_digest *digest, char **text,
                                   bd_error *err);

#endif
