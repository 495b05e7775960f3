#include "packer/json_text.h"

#include <simdjson.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "packer/records.h"

static_assert(BD_RECORD_PADDING >= simdjson::SIMDJSON_PADDING,
              "records are padded for simdjson");

struct bd_json_text {
    simdjson::dom::parser parser;
    std::string whole_path;  // for messages
    std::vector<std::string> path;
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

// A key that occurs twice has no one meaning (parsers differ in which they take), so it is
// refused rather than guessed.
static bd_status find_field(const bd_json_text *parser, simdjson::dom::object object,
                            std::string_view key, simdjson::dom::element *found, bd_error *err)
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
    return bd_fail(err, BD_ERR_FORMAT, n == 0 ? "no field '%s'" : "the field '%s' occurs twice",
                   parser->whole_path.c_str());
}

static bd_status walk(const bd_json_text *parser, simdjson::dom::element element,
                      std::string_view *text, bd_error *err)
{
    for (const std::string &key : parser->path) {
        simdjson::dom::object object;
        if (element.get_object().get(object) != simdjson::SUCCESS)
            return bd_fail(err, BD_ERR_FORMAT, "no field '%s': '%s' is not in an object",
                           parser->whole_path.c_str(), key.c_str());
        BD_TRY(find_field(parser, object, key, &element, err));
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
    // The last argument: the record is padded, so simdjson need not copy it.
    const auto error = parser->parser.parse(record, size_bytes, false).get(root);
    *problem = problem_of(error, record, record + size_bytes);
    if (error == simdjson::MEMALLOC)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to parse a record of %zu bytes",
                       size_bytes);
    if (error != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "not valid JSON: %s",
                       simdjson::error_message(error));
    std::string_view found;
    BD_TRY(walk(parser, root, &found, err));
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
