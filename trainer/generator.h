// generator.h - a document that a model writes token by token.
#ifndef BINDERY_TRAINER_GENERATOR_H
#define BINDERY_TRAINER_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "trainer/model/model.h"
#include "trainer/weights/run.h"

// How the next token is drawn, see sampling.h.
typedef struct bd_drawing {
    double temperature;
    int64_t top_k;
} bd_drawing;

// Memory: logits of max_tokens tokens, touched as far as the document gets.
typedef struct bd_generator {
    bd_model *model;                    // borrowed
    const bd_run_tokenizer *tokenizer;  // borrowed
    int64_t max_tokens;                 // what positions and the model's buffers allow
    uint32_t *ids;                      // [max_tokens], owned
    int64_t n;                          // tokens so far
    float *logits;                      // [max_tokens][n_vocabulary], owned
    double *scratch;                    // [n_vocabulary], owned
    char *text;                         // that was not taken yet, owned; not ended by a NUL
    size_t n_text, text_capacity;
} bd_generator;

// The model's buffers must have room for one row; its weights are used as they are at each
// token. Release what comes out, also after a failure.
bd_status bd_generator_init(bd_generator *generator, bd_model *model,
                            const bd_run_tokenizer *tokenizer, bd_error *err);
void bd_generator_release(bd_generator *generator);  // safe on an empty struct and safe twice

// A new document that begins with `prompt`, which becomes its text. BD_ERR_ARGUMENT if the
// prompt has no token, or leaves no room for one.
bd_status bd_generator_begin(bd_generator *generator, const char *prompt, bd_error *err);

// Draws the next token, one that the tokenizer knows, and adds its text; *ended if that is the
// document's end, or if there is no more room.
bd_status bd_generator_next(bd_generator *generator, bd_drawing drawing, bd_random *random,
                            bool *ended, bd_error *err);

// The first n bytes of the text are no longer needed.
void bd_generator_take(bd_generator *generator, size_t n);

#endif
