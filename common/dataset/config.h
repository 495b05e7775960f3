// config.h - how a dataset's rows were made: what every shard of it has in common.
#ifndef BINDERY_COMMON_DATASET_CONFIG_H
#define BINDERY_COMMON_DATASET_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/cli/human.h"

// What a dataset says as its `format`. Programs that do not know loss masks refuse "2.", so that
// they cannot take every token of a masked dataset for a target.
#define BD_FORMAT_VERSION        "1.2"
#define BD_MASKED_FORMAT_VERSION "2.0"

#define BD_STRATEGIES(X)                  \
    X(BD_STRATEGY_BEST_FIT, "best-fit")   \
    X(BD_STRATEGY_FIRST_FIT, "first-fit") \
    X(BD_STRATEGY_CONCAT, "concat")
BD_ENUM(bd_strategy, BD_STRATEGIES);

// The policy for a document that is longer than a row.
#define BD_LONG_POLICIES(X)         \
    X(BD_LONG_SPLIT, "split")       \
    X(BD_LONG_TRUNCATE, "truncate") \
    X(BD_LONG_DROP, "drop")         \
    X(BD_LONG_ERROR, "error")
BD_ENUM(bd_long_policy, BD_LONG_POLICIES);

// Which documents of the corpus a dataset holds: all of them, or one side of a holdout.
#define BD_PARTS(X)                 \
    X(BD_PART_ALL, "all")           \
    X(BD_PART_TRAINING, "training") \
    X(BD_PART_HELD_OUT, "held-out")
BD_ENUM(bd_part, BD_PARTS);

// How the buffers of a shard are stored.
#define BD_SHARD_CODECS(X) X(BD_SHARD_UNCOMPRESSED, "none") X(BD_SHARD_ZSTD, "zstd")
BD_ENUM(bd_shard_codec, BD_SHARD_CODECS);

enum {
    BD_MIN_SEQ_LEN = 2,  // one token could never have a target
    BD_MAX_SEQ_LEN = 1 << 30,
    BD_NO_BOS = -1,
    BD_NO_SHUFFLE = -1,
    BD_MILLION = 1000000,  // a holdout's share is counted in millionths
};

typedef struct bd_dataset_config {
    int64_t seq_len;     // tokens in a row
    int64_t vocab_size;  // ids are below it
    int64_t separator;
    int64_t bos;  // or BD_NO_BOS
    int64_t padding;
    int64_t batch_rows;  // rows in every record batch but the last
    bd_strategy strategy;
    bd_long_policy long_policy;
    int64_t max_documents;  // segments in a row; 0: no limit
    int64_t min_tokens;     // of text; documents with fewer are left out
    int64_t shuffle;        // seed of the order of documents in a unit, or BD_NO_SHUFFLE
    int64_t holdout;        // millionths of the documents that are held out; 0: none
    bd_part part;
    bd_shard_codec codec;
    bool loss_mask;      // rows say which tokens are trained; otherwise all are
    char tokenizer[64];  // its name
    bd_digest fingerprint;
} bd_dataset_config;

// The `format` of a dataset's shards, manifest and plan.
const char *bd_dataset_format(const bd_dataset_config *config);

// Bytes of a stored id: 2 if every id fits, else 4.
int bd_dataset_id_bytes(const bd_dataset_config *config);

// The tokenizer for people: its name, or "BPE of 50,257 ids" if it came from a file.
bd_formatted bd_dataset_tokenizer(const bd_dataset_config *config);

// About 4 MiB of ids, at least one row.
int64_t bd_dataset_default_batch_rows(const bd_dataset_config *config);

// The place of a document among those of its unit: by input and position, or by rank first if
// the documents are shuffled. The rank depends on the seed and the document's place alone, so
// that a row can be checked without the others.
typedef struct bd_document_place {
    uint64_t rank;
    uint64_t position;
    uint32_t input;
} bd_document_place;
bd_document_place bd_dataset_place(const bd_dataset_config *config, uint32_t input,
                                   uint64_t position);
// Less than, equal to or greater than 0, as for qsort().
int bd_document_place_compare(const bd_document_place *a, const bd_document_place *b);

bd_json *bd_dataset_config_to_json(const bd_dataset_config *config);

// Every number is checked against its range, ids against vocab_size.
bd_status bd_dataset_config_from_json(bd_dataset_config *config, const bd_json *json,
                                      bd_error *err);

// `json` is the object that holds "format" and "packing". A format of another major version is
// refused (BD_ERR_UNSUPPORTED), and so is one that contradicts `loss_mask` (BD_ERR_FORMAT).
bd_status bd_format_check(const bd_json *json, bd_error *err);

// Which slice of which input a shard holds; slice 0 of a group spans several inputs.
typedef struct bd_unit {
    int64_t input;     // index of its (first) input
    int64_t slice;     // 0, 1, …
    int64_t n_inputs;  // 1, or more for a group
    bool last;         // no slice of its input follows
} bd_unit;

bd_json *bd_unit_to_json(const bd_unit *unit);
bd_status bd_unit_from_json(bd_unit *unit, const bd_json *json, bd_error *err);

// "00012-00003.arrow" for slice 3 of input 12.
typedef struct bd_shard_name {
    char text[64];
} bd_shard_name;
bd_shard_name bd_unit_shard_name(const bd_unit *unit);

// The inverse, for names that end in `suffix` (".arrow"): false if `name` is not one of them. A
// name gives only the input and the slice of *unit.
bool bd_unit_from_name(bd_unit *unit, const char *name, const char *suffix);

#endif
