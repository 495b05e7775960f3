// pack_options.h - what `bindery pack` can be told: the settings, and the table of options that
// fills them.
#ifndef BINDERY_PACKER_PACK_PACK_OPTIONS_H
#define BINDERY_PACKER_PACK_PACK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cli/options.h"
#include "common/dataset/config.h"
#include "packer/input/input_options.h"

typedef struct bd_pack_options {
    const char *settings_file;  // read by the parser
    const char *out;
    int64_t seq_len;
    const char *tokenizer;
    bd_strategy strategy;
    bd_long_policy long_policy;
    int64_t max_documents, min_tokens, shuffle, limit;
    const char *holdout;
    bd_separator_mode separator;
    int64_t separator_id, bos, padding_id;
    const char *separator_token;
    int format;  // of bd_format_words
    bd_texts sources, include, exclude;
    bool allow_skipped;
    const char *text_field;
    const char *delimiter;
    bd_utf8_policy utf8_policy;
    bd_bad_policy bad_records;
    const char *max_bad;
    bd_special_tokens special_tokens;
    int64_t vocab_size, id_bytes;
    bd_shard_codec codec;
    int64_t unit_bytes, max_document_bytes;
    int64_t n_threads;
    int64_t rank, n_ranks;
    bool finish;
    bool overwrite, update;
    bool no_space_check;
    bool dry_run;
    bool json;
} bd_pack_options;

// Runs the command with these settings; returns the exit status.
int bd_pack_run(const bd_arguments *arguments);

#endif
