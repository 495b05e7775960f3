// random_vocabulary.h - vocabularies for tests of merging: few letters, so that everything
// overlaps, and merging by the plain rule to compare with.
#ifndef BINDERY_TESTS_UNIT_COMMON_TOKENIZER_RANDOM_VOCABULARY_H
#define BINDERY_TESTS_UNIT_COMMON_TOKENIZER_RANDOM_VOCABULARY_H

#include "common/tokenizer/model/bpe_model.h"

// Makes a model with about `n_merges` live merges over the first `n_letters` letters; its ids
// are in random order. The same seed gives the same model. Release with
// random_vocabulary_release().
bd_bpe_model random_vocabulary(uint64_t seed, int n_letters, size_t n_merges);
void random_vocabulary_release(bd_bpe_model *model);

// Merges by definition: of all pairs the one with the lowest rank, leftmost, until no pair
// merges. Returns the number of ids.
size_t plain_merge(const bd_bpe_model *model, const char *word, size_t n, uint32_t *ids);

#endif
