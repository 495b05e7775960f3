// json_mutator.h - most mutations change one number of a JSON text, because mutating plain
// bytes usually breaks the text.
#ifndef BINDERY_TESTS_FUZZ_JSON_MUTATOR_H
#define BINDERY_TESTS_FUZZ_JSON_MUTATOR_H

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

// Finds the first number at or after `from`, or else the first of all.
static inline size_t find_digit(const uint8_t *data, size_t size, size_t from)
{
    for (size_t i = 0; i < size; i++) {
        const size_t at = (from + i) % size;
        if (isdigit(data[at]) && (at == 0 || !isalnum(data[at - 1])))
            return at;
    }
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static const char *const numbers[] = {
        "0",  "1",          "2",          "-1",
        "3",  "1.0",        "2147483647", "2147483648",
        "16", "4294967296", "1073741824", "576460752303423487",
        "65", "65536",      "null",       "9223372036854775807"};
    const size_t begin = size > 0 ? find_digit(data, size, seed / 128 % size) : 0;
    if (seed % 8 == 0 || begin == size)
        return LLVMFuzzerMutate(data, size, max_size);
    const char *number = numbers[seed / 8 % 16];
    size_t end = begin;
    while (end < size && isdigit(data[end]))
        end++;
    const size_t n = strlen(number), rest = size - end;
    if (begin + n + rest > max_size)
        return LLVMFuzzerMutate(data, size, max_size);
    memmove(data + begin + n, data + end, rest);
    memcpy(data + begin, number, n);
    return begin + n + rest;
}

#endif
