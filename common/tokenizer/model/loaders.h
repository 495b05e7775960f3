// loaders.h - one loader for each format of tokenizer files. Each fills the parts, which the
// caller then assembles and in any case releases.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_LOADERS_H
#define BINDERY_COMMON_TOKENIZER_MODEL_LOADERS_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/json_reader.h"
#include "common/tokenizer/model/model_parts.h"

// A tokenizer.json. Messages do not name the file.
bd_status bd_load_json(bd_model_parts *parts, const char *text, size_t size_bytes,
                       bd_error *err);

// An object of entries and their ids: "vocab" of a tokenizer.json, or a whole vocab.json.
bd_status bd_load_vocabulary(bd_model_parts *parts, bd_json_reader *reader, bd_error *err);

// A tokenizer.json's "normalizer", "pre_tokenizer", "post_processor" and "decoder", members of
// `document`; what is missing counts as null.
bd_status bd_load_pipeline(bd_model_parts *parts, const bd_json *document, bd_error *err);

// BD_ERR_UNSUPPORTED: "'<key>' is <value>, which is not supported".
bd_status bd_not_supported(const char *key, const bd_json *value, bd_error *err);

// A vocab.json and the merges.txt that goes with it. Messages name the file. `folder` is where
// special_tokens_map.json and added_tokens.json may be.
bd_status bd_load_merges(bd_model_parts *parts, const char *folder, const char *vocabulary_path,
                         const char *merges_path, bd_error *err);

// A .tiktoken file, and the name of its pattern, which must be one of bd_pattern_by_name().
bd_status bd_load_tiktoken(bd_model_parts *parts, const char *text, size_t size_bytes,
                           const char *pattern_name, bd_error *err);

#endif
