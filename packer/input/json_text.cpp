#include "packer/input/json_text.h"

#include <simdjson.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "packer/input/records.h"

static_assert(BD_RECORD_PADDING >= simdjson::SIMDJSON_PADDING,
              "records are padded for simdjson");

struct bd_json_text {
    simdjson::dom::parser parser;
    std::string whole_path;  // for messages
    std::vector<std::string> path;
    bool takes_strings = false;
};

extern "C" bd_json_text *bd_json_text_new(const char *path)
{
    try {
        auto made = std::make_unique<bd_json_text>();
        made->whole_path = path;
        std::string_view rest(path);
        for (size_t dot; (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1))
            made->path.emplace_back(rest.substr(0, dot));
        made->path.emplace_back(rest);
        return made.release();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

extern "C" void bd_json_text_free(bd_json_text *parser)
{
    delete parser;
}

extern "C" void bd_json_text_take_strings(bd_json_text *parser, bool take)
{
    parser->takes_strings = take;
}

// A key that occurs twice has no one meaning (parsers differ in which they take), so it is
// refused rather than guessed.
static bd_status find_field(const bd_json_text *parser, simdjson::dom::object object,
                            std::string_view key, simdjson::dom::element *found,
                            bd_json_problem *problem, bd_error *err)
{
    int n = 0;
    for (const auto field : object) {
        if (field.key == key) {
            *found = field.value;
            n++;
        }
    }
    if (n == 1)
        return BD_OK;
    *problem = n == 0 ? BD_JSON_NO_TEXT : BD_JSON_OTHER;
    return bd_fail(err, BD_ERR_FORMAT, n == 0 ? "no field '%s'" : "the field '%s' occurs twice",
                   parser->whole_path.c_str());
}

static bd_status walk(const bd_json_text *parser, simdjson::dom::element element,
                      std::string_view *text, bd_json_problem *problem, bd_error *err)
{
    *problem = BD_JSON_NO_TEXT;
    if (parser->takes_strings && element.get_string().get(*text) == simdjson::SUCCESS)
        return BD_OK;
    for (const std::string &key : parser->path) {
        simdjson::dom::object object;
        if (element.get_object().get(object) != simdjson::SUCCESS)
            return bd_fail(err, BD_ERR_FORMAT, "no field '%s': '%s' is not in an object",
                           parser->whole_path.c_str(), key.c_str());
        BD_TRY(find_field(parser, object, key, &element, problem, err));
    }
    if (element.get_string().get(*text) != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "the field '%s' is not a string",
                       parser->whole_path.c_str());
    return BD_OK;
}

// The value of the four digits after "\u" at s, or -1.
static int escaped_unit(const char *s, const char *end)
{
    if (end - s < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    int value = 0;
    for (int i = 2; i < 6; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

// The first escape of half a character from `s` on, `end` if there is none.
static const char *find_half(const char *s, const char *end)
{
    while (s < end) {
        if (*s != '\\') {
            s++;
            continue;
        }
        const int unit = escaped_unit(s, end);
        if (unit < 0) {
            s += 2;  // another escape: its second character is not the start of one
            continue;
        }
        const int next = escaped_unit(s + 6, end);
        const bool high = unit >= 0xD800 && unit < 0xDC00,
                   low = unit >= 0xDC00 && unit < 0xE000;
        const bool pair = high && next >= 0xDC00 && next < 0xE000;
        if ((high || low) && !pair)
            return s;
        s += pair ? 12 : 6;
    }
    return end;
}

static bool between_tokens(char c)
{
    return c != '\0' && std::strchr(" \t\n\r,:[]{}\"", c);
}

static const char *skip_digits(const char *s, const char *end)
{
    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return s;
}

// Whether all of [s, end) is one number by the grammar of JSON, whatever its size.
static bool is_number(const char *s, const char *end)
{
    s += s < end && *s == '-';
    const char *digits = s;
    s = skip_digits(s, end);
    if (s == digits || (*digits == '0' && s > digits + 1))
        return false;
    if (s < end && *s == '.') {
        digits = ++s;
        s = skip_digits(s, end);
        if (s == digits)
            return false;
    }
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        s += s < end && (*s == '-' || *s == '+');
        digits = s;
        s = skip_digits(s, end);
        if (s == digits)
            return false;
    }
    return s == end;
}

// The end of the string whose opening quote is at `s`.
static char *skip_string(char *s, const char *end)
{
    for (s++; s < end && *s != '"'; s++)
        s += *s == '\\' && end - s > 1;
    return s < end ? s + 1 : s;
}

// Makes every number a 0, followed by spaces for the rest of its digits. A number is never what
// is asked for, and a token stays a token, so that the record is JSON exactly if it was.
static void shrink_numbers(char *s, const char *end)
{
    while (s < end) {
        if (*s == '"') {
            s = skip_string(s, end);
        } else if (between_tokens(*s)) {
            s++;
        } else {
            char *token = s;
            while (s < end && !between_tokens(*s))
                s++;
            if (is_number(token, s)) {
                std::memset(token, ' ', s - token);
                *token = '0';
            }
        }
    }
}

// The last argument of parse(): the record is padded, so simdjson need not copy it.
static simdjson::error_code parse_any_numbers(simdjson::dom::parser *parser, const char *record,
                                              size_t size_bytes, simdjson::dom::element *root)
{
    const auto error = parser->parse(record, size_bytes, false).get(*root);
    if (error != simdjson::NUMBER_ERROR)
        return error;
    // JSON sets no limit to a number, simdjson does, and says the same of one that is too large
    // and one that is malformed. Only the latter is left in a copy without large numbers.
    std::unique_ptr<char[]> copy(new (std::nothrow) char[size_bytes + BD_RECORD_PADDING]);
    if (!copy)
        return simdjson::MEMALLOC;
    std::memcpy(copy.get(), record, size_bytes);
    std::memset(copy.get() + size_bytes, 0, BD_RECORD_PADDING);
    shrink_numbers(copy.get(), copy.get() + size_bytes);
    // The copy may go: the parser keeps the strings.
    return parser->parse(copy.get(), size_bytes, false).get(*root);
}

static bd_json_problem problem_of(simdjson::error_code error, const char *record,
                                  const char *end)
{
    if (error == simdjson::UTF8_ERROR)
        return BD_JSON_BAD_UTF8;
    // simdjson says the same of every escape that it cannot take.
    if (error == simdjson::STRING_ERROR && find_half(record, end) < end)
        return BD_JSON_BAD_SURROGATE;
    return BD_JSON_OTHER;
}

extern "C" bd_status bd_json_text_extract(bd_json_text *parser, const char *record,
                                          size_t size_bytes, const char **text,
                                          size_t *text_bytes, bd_json_problem *problem,
                                          bd_error *err)
{
    simdjson::dom::element root;
    const auto error = parse_any_numbers(&parser->parser, record, size_bytes, &root);
    *problem = problem_of(error, record, record + size_bytes);
    if (error == simdjson::MEMALLOC)
        return bd_fail(err, BD_ERR_MEMORY,
                       "no memory to parse_any_numbers a record of %zu bytes", size_bytes);
    if (error != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "not valid JSON: %s",
                       simdjson::error_message(error));
    std::string_view found;
    BD_TRY(walk(parser, root, &found, problem, err));
    *text = found.data();
    *text_bytes = found.size();
    *problem = BD_JSON_FINE;
    return BD_OK;
}

extern "C" void bd_json_replace_surrogates(char *record, size_t size_bytes)
{
    const char *end = record + size_bytes;
    for (const char *half = record; (half = find_half(half, end)) < end; half += 6)
        std::memcpy(record + (half - record), "\\ufffd", 6);
}
