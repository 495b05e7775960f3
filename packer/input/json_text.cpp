#include "packer/input/json_text.h"

#include <simdjson.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "packer/input/records.h"

static_assert(BD_RECORD_PADDING >= simdjson::SIMDJSON_PADDING,
              "records are padded for simdjson");

// "a.b": field b of the object in field a.
struct field_path {
    std::string whole;  // for messages
    std::vector<std::string> names;

    explicit field_path(std::string_view path) : whole(path)
    {
        for (size_t dot; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1))
            names.emplace_back(path.substr(0, dot));
        names.emplace_back(path);
    }
};

struct bd_json_text {
    simdjson::dom::parser parser;
    bd_record_form form = BD_FORM_TEXT;
    std::vector<field_path> fields;
    bool takes_strings = false;
    bool has_shrunk_numbers = false;  // in the record that was parsed last
    std::vector<bd_turn> turns;       // of the record that was parsed last
    std::vector<std::string> calls;
    std::vector<bd_text_view> call_views;  // of `calls`
};

extern "C" bd_json_text *bd_json_text_new_turns(bd_record_form form, const char *const *fields)
{
    try {
        auto made = std::make_unique<bd_json_text>();
        made->form = form;
        for (int i = 0; i < (form == BD_FORM_COMPLETION ? 2 : 1); i++)
            made->fields.emplace_back(fields[i]);
        return made.release();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

extern "C" bd_json_text *bd_json_text_new(const char *path)
{
    return bd_json_text_new_turns(BD_FORM_TEXT, &path);
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
static bd_status find_field(const field_path &path, simdjson::dom::object object,
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
                   path.whole.c_str());
}

// Goes from the record to the field's value.
static bd_status walk(const field_path &path, simdjson::dom::element *element,
                      bd_json_problem *problem, bd_error *err)
{
    *problem = BD_JSON_NO_TEXT;
    for (const std::string &key : path.names) {
        simdjson::dom::object object;
        if (element->get_object().get(object) != simdjson::SUCCESS)
            return bd_fail(err, BD_ERR_FORMAT, "no field '%s': '%s' is not in an object",
                           path.whole.c_str(), key.c_str());
        BD_TRY(find_field(path, object, key, element, problem, err));
    }
    return BD_OK;
}

static bd_status get_string(const field_path &path, simdjson::dom::element element,
                            std::string_view *text, bd_error *err)
{
    if (element.get_string().get(*text) != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "the field '%s' is not a string",
                       path.whole.c_str());
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
static simdjson::error_code parse_any_numbers(bd_json_text *parser, const char *record,
                                              size_t size_bytes, simdjson::dom::element *root)
{
    const auto error = parser->parser.parse(record, size_bytes, false).get(*root);
    parser->has_shrunk_numbers = error == simdjson::NUMBER_ERROR;
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
    return parser->parser.parse(copy.get(), size_bytes, false).get(*root);
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

static bd_status parse_record(bd_json_text *parser, const char *record, size_t size_bytes,
                              simdjson::dom::element *root, bd_json_problem *problem,
                              bd_error *err)
{
    const auto error = parse_any_numbers(parser, record, size_bytes, root);
    *problem = problem_of(error, record, record + size_bytes);
    if (error == simdjson::MEMALLOC)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to parse a record of %zu bytes",
                       size_bytes);
    if (error != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "not valid JSON: %s",
                       simdjson::error_message(error));
    return BD_OK;
}

static bool has_field(simdjson::dom::object object, std::string_view key)
{
    for (const auto field : object)
        if (field.key == key)
            return true;
    return false;
}

// Adds to the message of a record without its text the option that reads what it has instead.
static bd_status hint_at_option(simdjson::dom::element root, bd_status status, bd_error *err)
{
    simdjson::dom::object object;
    if (root.get_object().get(object) != simdjson::SUCCESS)
        return status;
    if (has_field(object, "messages"))
        return bd_error_suffix(err, status, "'messages' is read by pack --chat-format");
    if (has_field(object, "prompt") && has_field(object, "completion"))
        return bd_error_suffix(err, status,
                               "'prompt' and 'completion' are read by pack --prompt-field "
                               "prompt --completion-field completion");
    return status;
}

extern "C" bd_status bd_json_text_extract(bd_json_text *parser, const char *record,
                                          size_t size_bytes, const char **text,
                                          size_t *text_bytes, bd_json_problem *problem,
                                          bd_error *err)
{
    simdjson::dom::element element;
    std::string_view found;
    BD_TRY(parse_record(parser, record, size_bytes, &element, problem, err));
    if (!parser->takes_strings || element.get_string().get(found) != simdjson::SUCCESS) {
        const simdjson::dom::element root = element;
        const bd_status status = walk(parser->fields[0], &element, problem, err);
        if (status != BD_OK)
            return *problem == BD_JSON_NO_TEXT ? hint_at_option(root, status, err) : status;
        BD_TRY(get_string(parser->fields[0], element, &found, err));
    }
    *text = found.data();
    *text_bytes = found.size();
    *problem = BD_JSON_FINE;
    return BD_OK;
}

// ---- Turns ---------------------------------------------------------------------------------

static bd_text_view view_of(std::string_view text)
{
    return {text.data(), text.size()};
}

// A place in a list, for messages: item 2 of the field 'messages' is "messages[2]".
struct list_item {
    const field_path &path;
    size_t index;
    simdjson::dom::object members;
};

// The member called `key`; *is_there is false if it is missing or null.
static bd_status find_member(const list_item &item, simdjson::dom::object members,
                             std::string_view key, simdjson::dom::element *found,
                             bool *is_there, bd_json_problem *problem, bd_error *err)
{
    int n = 0;
    *is_there = false;
    for (const auto member : members) {
        if (member.key == key) {
            *found = member.value;
            *is_there = !member.value.is_null();
            n++;
        }
    }
    if (n <= 1)
        return BD_OK;
    *problem = BD_JSON_OTHER;
    return bd_fail(err, BD_ERR_FORMAT, "'%s' occurs twice in %s[%zu]", key.data(),
                   item.path.whole.c_str(), item.index);
}

static bd_status fail_member(const list_item &item, const char *key, const char *what,
                             bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s' of %s[%zu] %s", key, item.path.whole.c_str(),
                   item.index, what);
}

// A string that has to be there unless `may_lack`; an empty one if it is not.
static bd_status get_text(const list_item &item, const char *key, bool may_lack,
                          bd_text_view *text, bd_json_problem *problem, bd_error *err)
{
    simdjson::dom::element value;
    std::string_view found("");
    bool is_there;
    BD_TRY(find_member(item, item.members, key, &value, &is_there, problem, err));
    if (!is_there && !may_lack)
        return fail_member(item, key, "is missing or null", err);
    if (is_there && value.get_string().get(found) != simdjson::SUCCESS)
        return fail_member(item, key,
                           std::strcmp(key, "content") == 0 && value.is_array()
                               ? "is not a string: join its parts into one text"
                               : "is not a string",
                           err);
    *text = view_of(found);
    return BD_OK;
}

// `train` is true or false, `weight`, as OpenAI calls it, 0 or 1.
static bd_status get_training(const list_item &item, bool is_needed, bd_turn_training *training,
                              bd_json_problem *problem, bd_error *err)
{
    simdjson::dom::element train, weight;
    bool has_train, has_weight, is_trained = false;
    double number;
    *training = BD_TURN_AS_ITS_ROLE;
    BD_TRY(find_member(item, item.members, "train", &train, &has_train, problem, err));
    if (is_needed && !has_train)
        return fail_member(item, "train", "is missing or null", err);
    if (has_train) {
        if (train.get_bool().get(is_trained) != simdjson::SUCCESS)
            return fail_member(item, "train", "is neither true nor false", err);
        *training = is_trained ? BD_TURN_TRAINED : BD_TURN_UNTRAINED;
    }
    if (is_needed)
        return BD_OK;
    BD_TRY(find_member(item, item.members, "weight", &weight, &has_weight, problem, err));
    if (!has_weight)
        return BD_OK;
    if (weight.get_double().get(number) != simdjson::SUCCESS || (number != 0 && number != 1))
        return fail_member(item, "weight", "is neither 0 nor 1", err);
    if (has_train && is_trained != (number == 1))
        return fail_member(item, "weight", "contradicts 'train'", err);
    *training = number == 1 ? BD_TURN_TRAINED : BD_TURN_UNTRAINED;
    return BD_OK;
}

// Writes the string as json.dumps(ensure_ascii=False) does.
static void write_string(std::string *out, std::string_view text)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    *out += '"';
    for (const char c : text) {
        const char *at = c ? std::strchr(escaped, c) : nullptr;
        char code[8];
        if (at) {
            *out += '\\';
            *out += letters[at - escaped];
        } else if (static_cast<unsigned char>(c) < ' ') {
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            *out += code;
        } else {
            *out += c;
        }
    }
    *out += '"';
}

// Writes the number as Python's repr() does: the fewest digits that mean it, and an exponent below
// 1e-4 and from 1e16 on.
static void write_double(std::string *out, double number)
{
    char text[40];
    int digits = 1;
    do
        std::snprintf(text, sizeof text, "%.*e", digits - 1, number);
    while (std::strtod(text, nullptr) != number && ++digits <= 17);
    const int exponent = std::atoi(std::strchr(text, 'e') + 1);
    if (number == 0 || (exponent >= -4 && exponent < 16)) {
        const int places = digits - 1 - exponent;
        std::snprintf(text, sizeof text, "%.*f", places > 1 ? places : 1, number);
    }
    *out += text;
}

static void write_json(std::string *out, simdjson::dom::element value)
{
    bool is_first = true;
    simdjson::dom::array list;
    simdjson::dom::object object;
    switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
        *out += '[';
        list = value.get_array().value_unsafe();
        for (const auto item : list) {
            *out += is_first ? "" : ", ";
            is_first = false;
            write_json(out, item);
        }
        *out += ']';
        break;
    case simdjson::dom::element_type::OBJECT:
        *out += '{';
        object = value.get_object().value_unsafe();
        for (const auto member : object) {
            *out += is_first ? "" : ", ";
            is_first = false;
            write_string(out, member.key);
            *out += ": ";
            write_json(out, member.value);
        }
        *out += '}';
        break;
    case simdjson::dom::element_type::STRING:
        write_string(out, value.get_string().value_unsafe());
        break;
    case simdjson::dom::element_type::INT64:
        *out += std::to_string(value.get_int64().value_unsafe());
        break;
    case simdjson::dom::element_type::UINT64:
        *out += std::to_string(value.get_uint64().value_unsafe());
        break;
    case simdjson::dom::element_type::DOUBLE:
        write_double(out, value.get_double().value_unsafe());
        break;
    case simdjson::dom::element_type::BOOL:
        *out += value.get_bool().value_unsafe() ? "true" : "false";
        break;
    case simdjson::dom::element_type::NULL_VALUE:
        *out += "null";
        break;
    }
}

static bd_status add_call(bd_json_text *parser, const list_item &item,
                          simdjson::dom::element element, bd_json_problem *problem,
                          bd_error *err)
{
    simdjson::dom::object call;
    simdjson::dom::element function, name, arguments;
    std::string_view name_text, arguments_text;
    bool has_function = false, has_name = false, has_arguments = false;
    if (element.get_object().get(call) != simdjson::SUCCESS)
        return fail_member(item, "tool_calls", "has an item that is not an object", err);
    BD_TRY(find_member(item, call, "function", &function, &has_function, problem, err));
    if (has_function && function.get_object().get(call) != simdjson::SUCCESS)
        return fail_member(item, "tool_calls", "has a function that is not an object", err);
    BD_TRY(find_member(item, call, "name", &name, &has_name, problem, err));
    BD_TRY(find_member(item, call, "arguments", &arguments, &has_arguments, problem, err));
    if (!has_name || name.get_string().get(name_text) != simdjson::SUCCESS || !has_arguments)
        return fail_member(item, "tool_calls", "has a call without a name or arguments", err);
    std::string text = "{\"name\": ";
    write_string(&text, name_text);
    text += ", \"arguments\": ";
    if (arguments.get_string().get(arguments_text) == simdjson::SUCCESS)
        text += arguments_text;
    else if (parser->has_shrunk_numbers)  // it may be among the arguments
        return fail_member(item, "tool_calls",
                           "cannot be written again: the record has a number of more than 64 "
                           "bits (give the arguments as a string)",
                           err);
    else
        write_json(&text, arguments);
    text += '}';
    parser->calls.push_back(std::move(text));
    return BD_OK;
}

// Members of a message that hold more of what was said. Leaving them out would change the text
// without a word, and no format says where they go.
static const char *const lost_members[] = {
    "reasoning_content", "reasoning", "thinking", "function_call",
    "refusal",           "audio",     "images"};

static bool is_empty(simdjson::dom::element value)
{
    std::string_view text;
    simdjson::dom::array list;
    bool flag;
    return value.is_null() ||
           (value.get_string().get(text) == simdjson::SUCCESS && text.empty()) ||
           (value.get_array().get(list) == simdjson::SUCCESS && list.size() == 0) ||
           (value.get_bool().get(flag) == simdjson::SUCCESS && !flag);
}

static bd_status add_message(bd_json_text *parser, const list_item &item,
                             bd_json_problem *problem, bd_error *err)
{
    bd_turn turn = {};
    simdjson::dom::element calls;
    simdjson::dom::array list;
    bool has_calls = false;
    for (const auto member : item.members)
        for (const char *lost : lost_members)
            if (member.key == lost && !is_empty(member.value))
                return fail_member(item, lost,
                                   "would be lost: put it into the content, or remove it", err);
    turn.first_call = parser->calls.size();
    BD_TRY(get_text(item, "role", false, &turn.role, problem, err));
    BD_TRY(find_member(item, item.members, "tool_calls", &calls, &has_calls, problem, err));
    if (has_calls) {
        if (calls.get_array().get(list) != simdjson::SUCCESS)
            return fail_member(item, "tool_calls", "is not a list", err);
        for (const auto call : list)
            BD_TRY(add_call(parser, item, call, problem, err));
    }
    turn.n_calls = parser->calls.size() - turn.first_call;
    BD_TRY(get_text(item, "content", turn.n_calls > 0, &turn.text, problem, err));
    BD_TRY(get_training(item, false, &turn.training, problem, err));
    parser->turns.push_back(turn);
    return BD_OK;
}

static bd_status add_segment(bd_json_text *parser, const list_item &item,
                             bd_json_problem *problem, bd_error *err)
{
    bd_turn turn = {};
    simdjson::dom::element value;
    bool has_text, has_token;
    BD_TRY(find_member(item, item.members, "text", &value, &has_text, problem, err));
    BD_TRY(find_member(item, item.members, "token", &value, &has_token, problem, err));
    if (has_text == has_token)
        return bd_fail(err, BD_ERR_FORMAT, "%s[%zu] has %s", item.path.whole.c_str(),
                       item.index,
                       has_text ? "both a text and a token" : "neither a text nor a token");
    turn.is_token = has_token;
    BD_TRY(get_text(item, has_token ? "token" : "text", false, &turn.text, problem, err));
    BD_TRY(get_training(item, true, &turn.training, problem, err));
    parser->turns.push_back(turn);
    return BD_OK;
}

static bd_status add_list(bd_json_text *parser, simdjson::dom::element element,
                          bd_json_problem *problem, bd_error *err)
{
    const field_path &path = parser->fields[0];
    simdjson::dom::array list;
    if (element.get_array().get(list) != simdjson::SUCCESS)
        return bd_fail(err, BD_ERR_FORMAT, "the field '%s' is not a list", path.whole.c_str());
    size_t index = 0;
    *problem = BD_JSON_BAD_TURN;
    for (const auto value : list) {
        list_item item = {path, index++, {}};
        if (value.get_object().get(item.members) != simdjson::SUCCESS)
            return bd_fail(err, BD_ERR_FORMAT, "%s[%zu] is not an object", path.whole.c_str(),
                           item.index);
        BD_TRY(parser->form == BD_FORM_MESSAGES ? add_message(parser, item, problem, err)
                                                : add_segment(parser, item, problem, err));
    }
    if (index == 0)
        return bd_fail(err, BD_ERR_FORMAT, "the field '%s' is an empty list",
                       path.whole.c_str());
    return BD_OK;
}

static bd_status add_turns(bd_json_text *parser, simdjson::dom::element root, bool is_row,
                           bd_json_problem *problem, bd_error *err)
{
    for (size_t i = 0; i < parser->fields.size(); i++) {
        const field_path &path = parser->fields[i];
        simdjson::dom::element element = root;
        std::string_view text;
        *problem = BD_JSON_NO_TEXT;
        if (is_row)
            element = root.at(i).value();
        else
            BD_TRY(walk(path, &element, problem, err));
        if (parser->form != BD_FORM_COMPLETION)
            return add_list(parser, element, problem, err);
        BD_TRY(get_string(path, element, &text, err));
        bd_turn turn = {};
        turn.text = view_of(text);
        turn.training = i == 0 ? BD_TURN_UNTRAINED : BD_TURN_TRAINED;
        parser->turns.push_back(turn);
    }
    return BD_OK;
}

extern "C" bd_status bd_json_text_extract_turns(bd_json_text *parser, const char *record,
                                                size_t size_bytes, bool is_row, bd_turns *turns,
                                                bd_json_problem *problem, bd_error *err)
{
    try {
        simdjson::dom::element root;
        parser->turns.clear();
        parser->calls.clear();
        parser->call_views.clear();
        BD_TRY(parse_record(parser, record, size_bytes, &root, problem, err));
        BD_TRY(add_turns(parser, root, is_row, problem, err));
        for (const std::string &call : parser->calls)
            parser->call_views.push_back(view_of(call));
    } catch (const std::bad_alloc &) {
        *problem = BD_JSON_OTHER;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the turns of a record");
    }
    *turns = {parser->turns.data(), parser->turns.size(), parser->call_views.data()};
    *problem = BD_JSON_FINE;
    return BD_OK;
}

extern "C" void bd_json_replace_surrogates(char *record, size_t size_bytes)
{
    const char *end = record + size_bytes;
    for (const char *half = record; (half = find_half(half, end)) < end; half += 6)
        std::memcpy(record + (half - record), "\\ufffd", 6);
}
