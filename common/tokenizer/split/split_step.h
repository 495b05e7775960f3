// split_step.h - the steps by which a tokenizer's file cuts text into words: each cuts the
// pieces of the one before.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_STEP_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_STEP_H

#include <stdbool.h>

typedef enum bd_pattern {
    BD_PATTERN_GPT2,    // GPT-2, OPT, GPT-NeoX
    BD_PATTERN_CL100K,  // GPT-4 as tiktoken cuts: white space at the end is one word
    BD_PATTERN_LLAMA3,  // Llama 3; GPT-4 in Hugging Face's files: "\n " at the end is two
    BD_PATTERN_O200K,   // GPT-4o
    BD_PATTERN_QWEN2,   // as Llama 3, each digit alone
    BD_PATTERN_DIGIT,   // each digit (\p{N}) alone, all else untouched; StarCoder's first step
    BD_PATTERN_OTHER,   // any other regular expression
} bd_pattern;

typedef struct bd_split_step {
    bd_pattern pattern;
    char *expression;  // of BD_PATTERN_OTHER, owned by the owner of the step; else NULL
} bd_split_step;

// Each piece becomes the matches of the pattern and the texts between them, each a piece of its
// own ("Isolated"); the known patterns leave nothing between.

// The pattern that `expression` is one of the known ways to write in Hugging Face's files
// (which mean Oniguruma's dialect), BD_PATTERN_OTHER if none.
bd_pattern bd_pattern_of_expression(const char *expression);

// The regular expression of a known pattern, as Hugging Face's files write it.
const char *bd_pattern_expression(bd_pattern pattern);

// The pattern with this name for .tiktoken files (gpt2, cl100k, o200k, llama3, …); false if
// there is none. bd_pattern_names() lists them for messages: "gpt2, cl100k, …".
bool bd_pattern_by_name(const char *name, bd_pattern *pattern);
const char *bd_pattern_names(void);

#endif
