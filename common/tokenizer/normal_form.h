// normal_form.h - text in Unicode's normal form C, and which characters words are made of.
#ifndef BINDERY_COMMON_TOKENIZER_NORMAL_FORM_H
#define BINDERY_COMMON_TOKENIZER_NORMAL_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// Whether `text` surely is in normal form C already. The test is quick and may give false for
// text that is.
bool bd_is_normal_form(const char *text, size_t size_bytes);

// *out_text is malloc'd, the caller's to free; at most 3 times as long. Bytes that are not
// UTF-8 stay as they are.
bd_status bd_normal_form(const char *text, size_t size_bytes, char **out_text,
                         size_t *out_bytes, bd_error *err);

// Whether regular expressions' \w matches it: letters, marks, digits, connectors and joiners.
bool bd_is_word_character(int32_t code_point);

#endif
