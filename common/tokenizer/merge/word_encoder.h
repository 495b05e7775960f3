// word_encoder.h - words to ids, for one thread: words that it has met are looked up, all
// others are merged.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_WORD_ENCODER_H
#define BINDERY_COMMON_TOKENIZER_MERGE_WORD_ENCODER_H

#include "common/tokenizer/merge/bpe_tables.h"
#include "common/tokenizer/merge/long_words.h"
#include "common/tokenizer/merge/merge_word.h"
#include "common/tokenizer/merge/word_cache.h"
#include "common/tokenizer/merge/word_lookup.h"

enum { BD_SPARE_IDS = BD_WIDE_IDS };  // room behind the last id that may be written to

typedef struct bd_word_encoder {
    const bd_bpe_tables *tables;         // borrowed
    const bd_word_lookup_kind *looking;  // all three may be changed after init
    bd_merge_function *merging;
    bd_cuts_function *cutting;
    bd_word_lookup lookup;
    bd_word_cache cache;
    bd_long_words long_words;
    bd_merge_memory merge_memory;
} bd_word_encoder;

// The tables must outlive it. On failure *encoder is empty. It takes 69 MiB, whatever the words
// are.
bd_status bd_word_encoder_init(bd_word_encoder *encoder, const bd_bpe_tables *tables,
                               bd_error *err);
void bd_word_encoder_release(bd_word_encoder *encoder);  // safe on an empty one, safe twice

// Writes the ids of the words to `ids`, which has room for one for each byte and BD_SPARE_IDS
// more. Returns the place for the next ones. After a signal was noted (interrupt.h) the ids are
// not valid, because long words are left half done.
uint32_t *bd_word_encoder_encode(bd_word_encoder *encoder, const bd_word_batch *batch,
                                 uint32_t *ids);

#endif
