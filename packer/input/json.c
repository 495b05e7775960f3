// A JSON array: each of its elements is a document, an object with the text in a field or the
// text itself as a string. The array is never in memory as a whole, only the element at hand.
//
// Here an element is told from the next by its brackets and quotes alone; whether it is JSON is
// found out when its text is taken. Around the elements everything must be right.
#include <stdlib.h>
#include <string.h>

#include "packer/input/json_text.h"
#include "packer/input/scanner.h"

typedef enum json_place {
    BEFORE_ARRAY,
    BEFORE_FIRST,
    BEFORE_ELEMENT,
    AFTER_ELEMENT,
    AFTER_ARRAY
} json_place;

typedef struct json_source {
    bd_scanner scanner;  // first: see scanner.h
    json_place place;
} json_source;

static bool is_json_space(int c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Goes to the first byte of the next element; *found is false at the end of the text.
static bd_status find_element(json_source *json, bool *found, bd_error *err)
{
    bd_scanner *s = &json->scanner;
    for (;; s->at++) {
        int c;
        BD_TRY(bd_scanner_peek(s, &c, err));
        if (is_json_space(c))
            continue;
        switch (json->place) {
        case BEFORE_ARRAY:
            if (c != '[')
                return bd_scanner_fail(s, "not a JSON array; see --format", err);
            json->place = BEFORE_FIRST;
            continue;
        case AFTER_ELEMENT:
            if (c != ',' && c != ']' && c != BD_SCAN_END)
                return bd_scanner_fail(s, "neither ',' nor ']' after an element of the array",
                                       err);
            if (c == BD_SCAN_END)
                break;
            json->place = c == ',' ? BEFORE_ELEMENT : AFTER_ARRAY;
            continue;
        case AFTER_ARRAY:
            *found = false;
            return c == BD_SCAN_END
                       ? BD_OK
                       : bd_scanner_fail(s, "something after the array's end", err);
        case BEFORE_FIRST:
        case BEFORE_ELEMENT:
            if (c == ']' && json->place == BEFORE_FIRST) {
                json->place = AFTER_ARRAY;
                continue;
            }
            if (c == ',' || c == ']')
                return bd_scanner_fail(s, "no element before this ',' or ']' of the array",
                                       err);
            *found = c != BD_SCAN_END;
            if (*found)
                return BD_OK;
        }
        return bd_scanner_fail(s, "the file ends before its array does", err);
    }
}

// Keeps the bytes of the element that begins here, and stops after them.
static bd_status read_array_element(json_source *json, bd_error *err)
{
    bd_scanner *s = &json->scanner;
    int64_t depth = 0;
    bool in_string = false, is_escaped = false, ended = false;
    bd_scanner_forget(s);
    while (!ended) {
        int c;
        BD_TRY(bd_scanner_peek(s, &c, err));
        if (c == BD_SCAN_END && (depth > 0 || in_string))
            return bd_scanner_fail(s, "the file ends inside an element of its array", err);
        const size_t begin = s->at;
        ended = c == BD_SCAN_END;
        while (s->at < s->n && !ended) {
            c = (unsigned char)s->chunk[s->at];
            const bool is_open = c == '{' || c == '[', is_close = c == '}' || c == ']';
            if (depth == 0 && !in_string && (c == ',' || is_close || is_json_space(c))) {
                ended = true;  // of a number or a word, which only what follows it ends
                break;
            }
            s->at++;
            if (is_escaped)
                is_escaped = false;
            else if (in_string && c == '\\')
                is_escaped = true;
            else if (c == '"')
                in_string = !in_string;
            else if (!in_string)
                depth += is_open - is_close;
            ended = depth == 0 && !in_string && (is_close || c == '"');
        }
        BD_TRY(bd_scanner_keep(s, s->chunk + begin, s->at - begin, err));
    }
    return BD_OK;
}

static bd_status next_element(void *source, int64_t end, bd_record *record, bool *found,
                              bd_error *err)
{
    json_source *json = source;
    BD_TRY(find_element(json, found, err));
    const int64_t position = bd_scanner_position(&json->scanner);
    if (!*found || position >= end) {
        *found = false;
        return BD_OK;
    }
    BD_TRY(read_array_element(json, err));
    json->place = AFTER_ELEMENT;
    *record = bd_scanner_record(&json->scanner, position);
    return BD_OK;
}

static bd_status open_json(void **source, const bd_input *input,
                           const bd_input_options *options, bd_error *err)
{
    json_source *json = *source = calloc(1, sizeof *json);
    return json ? bd_scanner_open(&json->scanner, input, options->max_document_bytes, err)
                : bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
}

// Whether the first element has the text. If it cannot be read, reading says why.
static bd_status has_text(const bd_input *input, const bd_input_options *options, bool *yes,
                          bd_error *err)
{
    void *source = NULL;
    bd_json_text *parser = options->form == BD_FORM_TEXT
                               ? bd_json_text_new(options->text_field)
                               : bd_json_text_new_turns(options->form, options->fields);
    bd_record record;
    bool found = false;
    bd_json_problem problem = BD_JSON_FINE;
    const char *text;
    size_t n;
    bd_turns turns;
    bd_status status = parser
                           ? open_json(&source, input, options, err)
                           : bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    if (status == BD_OK)
        status = next_element(source, INT64_MAX, &record, &found, err);
    if (status == BD_OK && found && record.bad == BD_BAD_NONE &&
        options->form != BD_FORM_TEXT) {
        bd_json_text_extract_turns(parser, record.data, record.size_bytes, false, &turns,
                                   &problem, NULL);
    } else if (status == BD_OK && found && record.bad == BD_BAD_NONE) {
        bd_json_text_take_strings(parser, true);
        bd_json_text_extract(parser, record.data, record.size_bytes, &text, &n, &problem, NULL);
    }
    *yes = problem != BD_JSON_NO_TEXT;
    bd_scanner_close(source);
    bd_json_text_free(parser);
    return status == BD_ERR_FORMAT ? BD_OK : status;
}

// Text of another kind may begin with a bracket, too. A folder of sources has arrays of settings
// and of numbers, which are no corpus.
static bd_status recognise_json(bd_input *input, const bd_input_head *head,
                                const bd_input_options *options, bool *yes, bd_error *err)
{
    const char *s = head->bytes, *end = s + head->n;
    char seen[3] = "";  // the first characters that are not space
    if (bd_head_begins_with(head, "\xEF\xBB\xBF", 3))
        s += 3;
    for (size_t n = 0; s < end && n < sizeof seen; s++)
        if (!is_json_space(*s))
            seen[n++] = *s;
    *yes = head->is_clean && seen[0] == '[' &&
           (bd_name_has_ending(input->path, ".json") || (seen[1] == '{' && seen[2] == '"'));
    if (!*yes || input->folder == 0)
        return BD_OK;
    bool is_corpus;
    BD_TRY(has_text(input, options, &is_corpus, err));
    if (!is_corpus)
        input->passed = BD_PASS_JSON_CONFIG;
    return BD_OK;
}

const bd_input_kind bd_json_kind = {
    .name = bd_json_name,
    .place = "element at byte",
    .is_text = true,
    .is_json = true,
    .takes_strings = true,
    .has_lines = true,
    .is_stream = true,
    .recognise = recognise_json,
    .cut = bd_records_cut,
    .open = open_json,
    .begin = bd_scanner_begin,
    .next = next_element,
    .close = bd_scanner_close,
    .reaches = bd_scanner_reaches,
    .consumed = bd_scanner_consumed,
};
