#include "common/tokenizer/model/byte_alphabet.h"

#include "common/base/utf8.h"

// The bytes that do not stand for themselves, in their order: 0 to 0x20, 0x7F to 0xA0, 0xAD.
enum {
    FIRST_OTHER = 0x100,
    AFTER_SPACE = FIRST_OTHER + 0x21,
    SOFT_HYPHEN = AFTER_SPACE + 0xA1 - 0x7F,
    END = SOFT_HYPHEN + 1,
};

static unsigned code_of_byte(unsigned char byte)
{
    if (byte <= 0x20)
        return FIRST_OTHER + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return AFTER_SPACE + byte - 0x7F;
    return byte == 0xAD ? SOFT_HYPHEN : byte;
}

// -1 if the character is not of the alphabet.
static int byte_of_code(unsigned code)
{
    if (code < FIRST_OTHER)
        return code_of_byte((unsigned char)code) == code ? (int)code : -1;
    if (code < AFTER_SPACE)
        return (int)code - FIRST_OTHER;
    if (code < SOFT_HYPHEN)
        return (int)code - AFTER_SPACE + 0x7F;
    return code == SOFT_HYPHEN ? 0xAD : -1;
}

size_t bd_symbols_of_bytes(const char *bytes, size_t size_bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < size_bytes; i++)
        n += bd_utf8_put(out + n, (int32_t)code_of_byte((unsigned char)bytes[i]));
    return n;
}

bool bd_bytes_of_symbols(const char *text, size_t size_bytes, char *out, size_t *out_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        unsigned code = (unsigned char)text[i];
        if (code >= 0x80) {
            // 0xC2 is the least lead byte that is not overlong; nothing is beyond two bytes.
            if (code < 0xC2 || code >= 0xC0 + (END + 0x3F) / 0x40 || i + 1 == size_bytes ||
                ((unsigned char)text[i + 1] & 0xC0) != 0x80)
                return false;
            code = (code & 0x1F) << 6 | ((unsigned char)text[++i] & 0x3F);
        }
        const int byte = byte_of_code(code);
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
    }
    *out_bytes = n;
    return true;
}
