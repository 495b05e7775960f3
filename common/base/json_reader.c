#include "common/base/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/utf8.h"

void bd_json_reader_init(bd_json_reader *reader, const char *text, size_t size_bytes)
{
    *reader = (bd_json_reader){.text = text, .size_bytes = size_bytes};
}

void bd_json_reader_release(bd_json_reader *reader)
{
    free(reader->unescaped);
    reader->unescaped = NULL;
    reader->capacity = 0;
}

static bd_status fail_unexpected(const bd_json_reader *reader, const char *wanted,
                                 bd_error *err)
{
    if (reader->at >= reader->size_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "it ends where %s is expected", wanted);
    return bd_fail(err, BD_ERR_FORMAT, "byte %zu: %s is expected", reader->at, wanted);
}

char bd_json_reader_peek(bd_json_reader *reader)
{
    while (reader->at < reader->size_bytes) {
        const char c = reader->text[reader->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        reader->at++;
    }
    return '\0';
}

bd_status bd_json_reader_enter(bd_json_reader *reader, char bracket, bd_error *err)
{
    if (bd_json_reader_peek(reader) != bracket)
        return fail_unexpected(reader, bracket == '{' ? "an object" : "an array", err);
    reader->at++;
    reader->first = true;
    return BD_OK;
}

bd_status bd_json_reader_more(bd_json_reader *reader, char bracket, bool *more, bd_error *err)
{
    const char next = bd_json_reader_peek(reader);
    *more = next != bracket;
    if (*more && !reader->first && next != ',')
        return fail_unexpected(reader, bracket == '}' ? "',' or '}'" : "',' or ']'", err);
    if (!*more || !reader->first)
        reader->at++;
    reader->first = false;
    return BD_OK;
}

// ---- Strings ----------------------------------------------------------------------

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The four digits after "\u" at `at`; -1 if they are not there.
static int32_t code_unit(const bd_json_reader *reader, size_t at)
{
    int32_t unit = 0;
    if (reader->size_bytes - at < 6 || reader->text[at] != '\\' || reader->text[at + 1] != 'u')
        return -1;
    for (size_t i = at + 2; i < at + 6; i++) {
        const int digit = hex_digit(reader->text[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

// The escape at *at; returns the bytes written, 0 if it is none.
static size_t put_escape(const bd_json_reader *reader, size_t *at, char *out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char letter = reader->size_bytes - *at < 2 ? '\0' : reader->text[*at + 1];
    const char *plain = letter ? strchr(letters, letter) : NULL;
    if (plain) {
        *at += 2;
        *out = meanings[plain - letters];
        return 1;
    }
    int32_t code = code_unit(reader, *at);
    if (code >= 0xD800 && code < 0xDC00) {
        const int32_t low = code_unit(reader, *at + 6);
        if (low < 0xDC00 || low >= 0xE000)
            return 0;
        code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
        *at += 6;
    }
    if (code < 0 || (code >= 0xDC00 && code < 0xE000))
        return 0;
    *at += 6;
    return bd_utf8_put(out, code);
}

// The string from `begin`, after its quote, to `end`, where its closing quote is.
static bd_status unescape(bd_json_reader *reader, size_t begin, size_t end, size_t *size_bytes,
                          bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&reader->unescaped, &reader->capacity, end - begin + 1, 1,
                            err));
    size_t n = 0;
    for (size_t at = begin; at < end;) {
        if (reader->text[at] != '\\') {
            reader->unescaped[n++] = reader->text[at++];
            continue;
        }
        const size_t added = put_escape(reader, &at, reader->unescaped + n);
        if (added == 0)
            return bd_fail(err, BD_ERR_FORMAT, "byte %zu: not a valid escape", at);
        n += added;
    }
    *size_bytes = n;
    return BD_OK;
}

// Moves behind the closing quote of the string that begins here.
static bd_status pass_string(bd_json_reader *reader, bool *escapes, bool *ascii, bd_error *err)
{
    unsigned char all = 0;
    *escapes = *ascii = false;
    for (size_t at = reader->at + 1; at < reader->size_bytes; at++) {
        const unsigned char c = (unsigned char)reader->text[at];
        all |= c;
        if (c == '"') {
            reader->at = at + 1;
            *ascii = all < 0x80;
            return BD_OK;
        }
        if (c < 0x20)
            return bd_fail(err, BD_ERR_FORMAT, "byte %zu: a control character in a string", at);
        if (c == '\\') {
            *escapes = true;
            at++;
        }
    }
    return bd_fail(err, BD_ERR_FORMAT, "it ends inside a string");
}

bd_status bd_json_reader_string(bd_json_reader *reader, const char **string, size_t *size_bytes,
                                bd_error *err)
{
    if (bd_json_reader_peek(reader) != '"')
        return fail_unexpected(reader, "a string", err);
    const size_t begin = reader->at + 1;
    bool escapes, ascii;
    BD_TRY(pass_string(reader, &escapes, &ascii, err));
    const size_t end = reader->at - 1;
    if (!ascii) {
        const size_t valid = bd_utf8_valid_prefix(reader->text + begin, end - begin);
        if (valid < end - begin)
            return bd_fail(err, BD_ERR_FORMAT, "byte %zu: not valid UTF-8", begin + valid);
    }
    *string = reader->text + begin;
    *size_bytes = end - begin;
    if (escapes) {
        BD_TRY(unescape(reader, begin, end, size_bytes, err));
        *string = reader->unescaped;
    }
    return BD_OK;
}

bd_status bd_json_reader_key(bd_json_reader *reader, const char **key, size_t *size_bytes,
                             bd_error *err)
{
    BD_TRY(bd_json_reader_string(reader, key, size_bytes, err));
    if (bd_json_reader_peek(reader) != ':')
        return fail_unexpected(reader, "':'", err);
    reader->at++;
    return BD_OK;
}

// ---- Other values -----------------------------------------------------------------

bd_status bd_json_reader_integer(bd_json_reader *reader, int64_t *value, bd_error *err)
{
    const bool negative = bd_json_reader_peek(reader) == '-';
    const size_t begin = reader->at, digits = begin + negative;
    size_t at = digits;
    *value = 0;
    bool fits = true;
    for (; at < reader->size_bytes && reader->text[at] >= '0' && reader->text[at] <= '9';
         at++) {
        const int digit = reader->text[at] - '0';
        fits = fits && bd_int64_mul(*value, 10, value) &&
               bd_int64_add(*value, negative ? -digit : digit, value);
    }
    const char next = at < reader->size_bytes ? reader->text[at] : '\0';
    const bool is_real = next == '.' || next == 'e' || next == 'E';
    const bool leading_zero = at - digits > 1 && reader->text[digits] == '0';
    if (at == digits || is_real || leading_zero || !fits)
        return fail_unexpected(reader, "an integer of 64 bits", err);
    reader->at = at;
    return BD_OK;
}

bd_status bd_json_reader_skip(bd_json_reader *reader, bd_error *err)
{
    // Brackets and quotes alone tell where the value ends.
    size_t depth = 0;
    bool escapes, ascii;
    do {
        const char c = bd_json_reader_peek(reader);
        if (c == '\0')
            return fail_unexpected(reader, "a value", err);
        if (c == '"') {
            BD_TRY(pass_string(reader, &escapes, &ascii, err));
            continue;
        }
        if (c == '}' || c == ']') {
            if (depth == 0)
                return fail_unexpected(reader, "a value", err);
            depth--;
        } else if (c == '{' || c == '[') {
            depth++;
        }
        reader->at++;
        if (depth == 0 && c != '}' && c != ']') {  // a number or a word
            while (reader->at < reader->size_bytes &&
                   !strchr(",}] \n\r\t", reader->text[reader->at]))
                reader->at++;
        }
    } while (depth > 0);
    return BD_OK;
}

bd_status bd_json_reader_value(bd_json_reader *reader, size_t max_bytes, bd_json **value,
                               bd_error *err)
{
    *value = NULL;
    bd_json_reader_peek(reader);
    const size_t begin = reader->at;
    BD_TRY(bd_json_reader_skip(reader, err));
    const size_t n = reader->at - begin;
    if (n > max_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "byte %zu: more than %zu bytes", begin, max_bytes);
    // The value is put in brackets, because the parser takes only an array or object as a
    // document.
    char *document = malloc(n + 2);
    if (!document)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of JSON", n);
    document[0] = '[';
    memcpy(document + 1, reader->text + begin, n);
    document[n + 1] = ']';
    bd_json *array;
    bd_status status = bd_json_parse(document, n + 2, &array, err);
    free(document);
    if (status == BD_OK && bd_json_length(array) != 1)
        status = bd_fail(err, BD_ERR_FORMAT, "not one value");
    if (status == BD_OK)
        *value = bd_json_share(bd_json_at(array, 0));
    bd_json_free(array);
    return status == BD_OK ? BD_OK
                           : bd_error_prefix(err, status, "the value at byte %zu", begin);
}

bd_status bd_json_reader_end(bd_json_reader *reader, bd_error *err)
{
    bd_json_reader_peek(reader);
    if (reader->at < reader->size_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "byte %zu: something follows the document",
                       reader->at);
    return BD_OK;
}
