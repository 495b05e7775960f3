// splitter.h - cuts text into the words that BPE works on.
//
// Any bytes are accepted: a byte that is not part of a valid UTF-8 sequence is a character of
// its own, neither letter nor number nor white space. The words are never empty, and end to
// end they are the text.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLITTER_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLITTER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/split/split_step.h"

typedef struct bd_splitter bd_splitter;  // immutable, for any number of threads

// A bad expression is BD_ERR_FORMAT and says where. No steps: the text is one word.
bd_status bd_splitter_new(const bd_split_step *steps, size_t n_steps, bd_splitter **splitter,
                          bd_error *err);
void bd_splitter_free(bd_splitter *splitter);  // safe on NULL

typedef struct bd_word_reader bd_word_reader;  // one thread's way through one text

bd_status bd_word_reader_new(const bd_splitter *splitter, bd_word_reader **reader,
                             bd_error *err);
void bd_word_reader_free(bd_word_reader *reader);  // safe on NULL

// Starts on `text`, which must stay until its last word was read. Texts of 4 GiB or more are
// BD_ERR_UNSUPPORTED.
bd_status bd_word_reader_begin(bd_word_reader *reader, const char *text, size_t size_bytes,
                               bd_error *err);

// Begins a document of `size_bytes`, whose texts come next: its expressions have a limit over
// all of them (bd_finder_allow()). Without this call each text is a document.
void bd_word_reader_begin_document(bd_word_reader *reader, size_t size_bytes);

// The ends of the next words, at most `capacity` (at least 64), as offsets into the text; *n is
// 0 after the last. Never reads outside the text. An expression that works for too long is
// BD_ERR_LIMIT and is named; a signal that was noted is BD_ERR_INTERRUPTED.
bd_status bd_word_reader_next(bd_word_reader *reader, uint32_t *ends, size_t capacity,
                              size_t *n, bd_error *err);

#endif
