// generator.h - continues prompts token by token, many of them side by side.
//
// The decoder has slots for up to BD_DECODER_TOKENS documents, which go through its layers
// together; more would be no faster. If memory is short, it has fewer. Documents take slots in
// their order, each when an earlier one has ended.
#ifndef BINDERY_TRAINER_GENERATOR_H
#define BINDERY_TRAINER_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/chat/chat_format.h"
#include "common/cli/options.h"
#include "trainer/model/decoder.h"
#include "trainer/sampling.h"
#include "trainer/weights/run.h"

// Why a document has ended.
#define BD_ENDINGS(X)                                                             \
    X(BD_ENDING_NONE, "none")           /* it has not */                          \
    X(BD_ENDING_SEPARATOR, "end")       /* the model ended the document */        \
    X(BD_ENDING_TURN, "turn")           /* the model ended its turn of a chat */  \
    X(BD_ENDING_STOP, "stop")           /* its text contains a text to stop at */ \
    X(BD_ENDING_TOKENS, "tokens")       /* as many tokens as were asked for */    \
    X(BD_ENDING_POSITIONS, "positions") /* the model has no more positions */
BD_ENUM(bd_ending, BD_ENDINGS);

// One prompt and what follows it.
typedef struct bd_continuation {
    uint32_t *ids;     // [n_prompt], owned: the prompt's, with BOS before them, if there is one
    int64_t n_prompt;  // tokens
    int64_t n_drawn;   // tokens since
    uint32_t last;     // of these
    char *text;        // owned; not ended by a NUL
    size_t n_text, text_capacity;
    size_t n_prompt_text;  // bytes of the text that are the prompt's
    size_t n_certain;  // bytes that stay whatever comes: later ones may begin a text to stop at
    bd_random random;
    bd_ending ending;
} bd_continuation;

typedef struct bd_generator_options {
    bd_type type;
    bool borrows;        // the weights: see bd_decoder_options
    int64_t max_tokens;  // to draw for each prompt
    bd_drawing drawing;
    uint64_t seed;
    // A document ends when its new text contains one of these, which is left out. None is empty.
    bd_texts stops;
    // If not NULL, a prompt is a user's turn of a chat, and what follows it an assistant's, at
    // whose end the document ends. Borrowed; its tokens are those of the tokenizer.
    const bd_chat_format *chat;
    const char *system;  // the chat's system message; NULL: the format's own, if it has one
} bd_generator_options;

typedef struct bd_generator {
    bd_generator_options options;
    const bd_run_tokenizer *tokenizer;  // borrowed
    bd_turn_end turn_end;               // of the chat; owned
    bd_decoder decoder;
    bd_continuation *documents;  // [n_documents], owned
    size_t n_documents;
    size_t n_begun;         // documents that have got a slot so far
    size_t refused;         // the prompt that init refused; n_documents: none
    size_t n_slots;         // of the decoder
    size_t *in_slot;        // [n_slots], owned: the document, or n_documents if there is none
    bd_new_tokens *tokens;  // [n_slots], owned
    float *logits;          // [n_slots][n_vocabulary], owned
    double *scratch;        // [n_vocabulary], owned
} bd_generator;

// Encodes `prompts` [n] and makes a decoder for them, which still needs its weights. A prompt that
// has no token, or leaves no room for one, is BD_ERR_ARGUMENT; `refused` tells the caller which, to
// name it in the message. Tokenizer, parameters and what the options point to must outlive the
// generator. Release it also after a failure.
bd_status bd_generator_init(bd_generator *generator, bd_backend *backend,
                            const bd_parameters *parameters, const bd_run_tokenizer *tokenizer,
                            const char *const *prompts, size_t n,
                            const bd_generator_options *options, bd_error *err);
void bd_generator_release(bd_generator *generator);  // safe on an empty struct and safe twice

// Begins all documents anew: each has the text of its prompt. What document i draws depends on
// the seed and i, not on the others.
bd_status bd_generator_begin(bd_generator *generator, bd_error *err);

// A copy of the document's text without its prompt, malloc'd, with a NUL at its end and nowhere
// else: others become 0xff. NULL if there is no memory.
char *bd_continuation_text(const bd_continuation *document);

// Gives free slots to documents that wait. Then draws one more token, one that the tokenizer
// knows, for every document that has a slot. *ended becomes true if all documents have ended.
bd_status bd_generator_step(bd_generator *generator, bool *ended, bd_error *err);

#endif
