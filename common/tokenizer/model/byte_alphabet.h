// byte_alphabet.h - how byte-level vocabularies write bytes as visible characters.
//
// A byte that Latin-1 prints stands for the character of its own number, the others for U+0100,
// U+0101, … in order: the space is U+0120, the newline U+010A.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_BYTE_ALPHABET_H
#define BINDERY_COMMON_TOKENIZER_MODEL_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>

enum { BD_MAX_SYMBOL_BYTES = 2 };  // of one character of the alphabet, in UTF-8

// Writes the character of every byte to `out`, which has room for BD_MAX_SYMBOL_BYTES times
// `size_bytes`. Returns the bytes written.
size_t bd_symbols_of_bytes(const char *bytes, size_t size_bytes, char *out);

// The way back; `out` has room for `size_bytes`, and may be `text`. False if `text` has a
// character that is not of the alphabet, or is not UTF-8.
bool bd_bytes_of_symbols(const char *text, size_t size_bytes, char *out, size_t *out_bytes);

#endif
