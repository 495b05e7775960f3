// generator.h - generates a document token by token.
#ifndef BINDERY_TRAINER_GENERATOR_H
#define BINDERY_TRAINER_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "trainer/model/model.h"
#include "trainer/weights/run.h"

// See bd_sample_token().
typedef struct bd_drawing {
    double temperature;
    int64_t top_k;
} bd_drawing;

// Memory: logits of max_tokens tokens; the system provides it as the document grows.
typedef struct bd_generator {
    bd_model *model;                    // borrowed
    const bd_run_tokenizer *tokenizer;  // borrowed
    int64_t max_tokens;                 // what positions and the model's buffers allow
    uint32_t *ids;                      // [max_tokens], owned
    int64_t n;                          // tokens so far
    float *logits;                      // [max_tokens][n_vocabulary], owned
    double *scratch;                    // [n_vocabulary], owned
    char *text;                         // not taken yet, owned; not ended by a NUL
    size_t n_text, text_capacity;
} bd_generator;

// The model's buffers must have room for one row. Each token is computed with the weights that
// the model has by then. Release the generator also after a failure.
bd_status bd_generator_init(bd_generator *generator, bd_model *model,
                            const bd_run_tokenizer *tokenizer, bd_error *err);
void bd_generator_release(bd_generator *generator);  // safe on an empty struct and safe twice

// Begins a new document with `prompt`, which becomes its text. BD_ERR_ARGUMENT if the prompt has
// no token, or leaves no room for one.
bd_status bd_generator_begin(bd_generator *generator, const char *prompt, bd_error *err);

// Draws the next token, one that the tokenizer knows, and appends its text. *ended becomes true
// if the token ends the document, or if there is no more room.
bd_status bd_generator_next(bd_generator *generator, bd_drawing drawing, bd_random *random,
                            bool *ended, bd_error *err);

// Removes the first n bytes of the text.
void bd_generator_take(bd_generator *generator, size_t n);

#endif
