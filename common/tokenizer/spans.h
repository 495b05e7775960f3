// spans.h - a text in spans, some of which are trained, to ids of which it is known whether they
// are.
//
//   spans    [<|im_start|>] "user\n" "Hi" [<|im_end|>] … "assistant\n" | "Hello" [<|im_end|>] | "\n"
//   trained        0           0      0         0             0             1          1         0
//
// Neighbouring texts that are trained alike are tokenised as one text, as if they had never been
// apart. No token spans a border between trained and untrained text, or a special token.
#ifndef BINDERY_COMMON_TOKENIZER_SPANS_H
#define BINDERY_COMMON_TOKENIZER_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/tokenizer.h"

enum { BD_SPAN_IS_TEXT = -1 };

typedef struct bd_span {
    const char *text;  // borrowed
    size_t size_bytes;
    int64_t token;  // its id, if it is a special token, which has no text; or BD_SPAN_IS_TEXT
    bool trained;
} bd_span;

// Spans that are collected one by one. Initialize it with zero.
typedef struct bd_spans {
    bd_span *items;  // [n], owned
    size_t n, capacity;
} bd_spans;

bd_status bd_spans_add_text(bd_spans *spans, const char *text, size_t size_bytes, bool trained,
                            bd_error *err);
bd_status bd_spans_add_token(bd_spans *spans, uint32_t id, bool trained, bd_error *err);
void bd_spans_release(bd_spans *spans);  // safe on an empty struct and safe twice

// The ids of spans. Initialize it with zero; it keeps its memory from text to text.
typedef struct bd_span_ids {
    uint32_t *ids;     // [n], owned
    uint8_t *trained;  // [n], owned; 0 or 1
    size_t n;
    size_t ids_capacity, trained_capacity;
    char *text;  // owned; where neighbouring texts are joined
    size_t text_capacity;
} bd_span_ids;

// Special tokens that a text spells out are what the encoder says (tokenizer.h).
bd_status bd_spans_encode(const bd_spans *spans, bd_encoder *encoder, bd_span_ids *result,
                          bd_error *err);
void bd_span_ids_release(bd_span_ids *result);  // safe on an empty struct and safe twice

#endif
