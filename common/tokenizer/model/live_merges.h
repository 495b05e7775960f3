// live_merges.h - which merges can ever happen, and which tokens merging makes.
//
// When two neighbours become the token P somewhere in a word, every merge before happened
// either inside P's bytes or outside of them, and none across their ends. So inside of them the
// same merges happened as if P's bytes were a word of their own, and the two neighbours are
// those that the last merge of that word joins. Therefore:
//   a merge that is not the last one of its own product's bytes never happens anywhere;
//   leaving such merges out changes no word, and leaves at most one for each product;
//   where any two neighbours merge whose bytes are a token, the lowest rank first (tiktoken),
//   one pair for each token is enough.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_LIVE_MERGES_H
#define BINDERY_COMMON_TOKENIZER_MODEL_LIVE_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/model/vocabulary.h"

// In both, every byte must be a token. *reached, [tokens->n_ids], is the caller's to free and
// tells whether merging the bytes of a token makes the token itself. On failure the results are
// NULL. The time is near-linear in the bytes of the tokens; with ranks that no training makes
// it is at most that many times the longest token.

// Removes the merges that never happen from `merges`, which are in the order of their ranks. A
// pair that is there twice is BD_ERR_FORMAT.
bd_status bd_live_merges_keep(const bd_vocabulary *tokens, bd_merge *merges, size_t *n_merges,
                              bool **reached, bd_error *err);

// The merges of a vocabulary whose ids are its ranks; *merges is the caller's to free.
bd_status bd_live_merges_of_ranks(const bd_vocabulary *tokens, bd_merge **merges,
                                  size_t *n_merges, bool **reached, bd_error *err);

#endif
