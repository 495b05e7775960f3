// unicode_class.h - the classes of characters that the patterns of tokenizers distinguish,
// looked up from UTF-8.
//
// A two-stage table: the code point without its last six bits finds a block of 64 classes, the
// last six bits the class in it. Those six bits are the last byte of a UTF-8 sequence, so no
// code point has to be put together.
//
// The data is of Unicode 16.0.0, the version of tiktoken 0.14 and of Hugging Face's tokenizers
// 0.23 (by Oniguruma); both agree on every code point. The one exception there is the
// pre-tokenizer Digits, which asks Rust's standard library: in 0.23 also U+11DE0-11DE9 and
// U+16FF4-16FF6, numbers since Unicode 17, stand alone.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_UNICODE_CLASS_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_UNICODE_CLASS_H

#include <stddef.h>
#include <stdint.h>

// Bits of a class. No letter is a number, a mark or white; a character of no class has 0.
enum {
    BD_LETTER = 1,      // \p{L}
    BD_NUMBER = 2,      // \p{N}
    BD_WHITE = 4,       // \s, the property White_Space
    BD_LINE_BREAK = 8,  // CR and LF
    BD_UPPER = 16,      // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]: may begin a word of o200k
    BD_LOWER = 32,      // [\p{Ll}\p{Lm}\p{Lo}\p{M}]: may end it
    BD_MARK = 64,       // \p{M}
};

extern const uint16_t bd_unicode_blocks[0x110000 / 64];
extern const uint8_t bd_unicode_classes[][64];

typedef struct bd_character {
    uint32_t length;   // bytes
    uint32_t classes;  // bits as above
} bd_character;

static inline bd_character bd_character_of(uint32_t length, uint32_t block, uint8_t last)
{
    return (bd_character){length, bd_unicode_classes[bd_unicode_blocks[block]][last & 0x3F]};
}

// The character of two bytes or more at s, where n bytes are left. A byte that begins no valid
// sequence is a character of no class.
static inline bd_character bd_long_character_at(const uint8_t *s, size_t n)
{
    const bd_character broken = {1, 0};
    const uint32_t lead = s[0];
    if (lead < 0xC2 || lead > 0xF4 || n < 2 || (s[1] & 0xC0) != 0x80)
        return broken;
    if (lead < 0xE0)
        return bd_character_of(2, lead & 0x1F, s[1]);
    if (n < 3 || (s[2] & 0xC0) != 0x80)
        return broken;
    const uint32_t two = (lead & 0x0F) << 6 | (s[1] & 0x3F);
    if (lead < 0xF0)  // neither an overlong form nor a surrogate
        return two < 0x800 >> 6 || two >> 5 == 0xD800 >> 11 ? broken
                                                            : bd_character_of(3, two, s[2]);
    const uint32_t three = two << 6 | (s[2] & 0x3F);
    if (n < 4 || (s[3] & 0xC0) != 0x80 || three < 0x10000 >> 6 || three >= 0x110000 >> 6)
        return broken;
    return bd_character_of(4, three, s[3]);
}

// The character at s, where n >= 1 bytes are left.
static inline bd_character bd_character_at(const uint8_t *s, size_t n)
{
    if (s[0] < 0x80)
        return (bd_character){1, bd_unicode_classes[s[0] >> 6][s[0] & 0x3F]};
    return bd_long_character_at(s, n);
}

#endif
