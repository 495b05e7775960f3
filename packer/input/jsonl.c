// JSON Lines: a document is an object on a line of its own, the text in one of its fields.
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/memory.h"
#include "packer/input/kinds.h"

typedef enum json_shape {
    JSON_NOT,
    JSON_LINES,   // the first line is an object, or goes on past the head
    JSON_SPREAD,  // an object that its first line does not end
} json_shape;

static size_t skip_space(const bd_input_head *head, size_t at)
{
    while (at < head->n && head->bytes[at] != '\0' && strchr(" \t\r\n", head->bytes[at]))
        at++;
    return at;
}

static char char_at(const bd_input_head *head, size_t at)
{
    return at < head->n ? head->bytes[at] : '\0';
}

// Whether the object that begins at `at` ends on the line on which it begins, *end being past
// its last brace. Otherwise *end is at the end of that line, or of the head.
static bool find_end(const bd_input_head *head, size_t at, size_t *end)
{
    int depth = 0;
    bool in_string = false;
    for (; at < head->n && head->bytes[at] != '\n'; at++) {
        const char c = head->bytes[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            break;
    }
    const bool ends = at < head->n && head->bytes[at] != '\n';
    *end = ends ? at + 1 : at < head->n ? at : head->n;
    return ends;
}

// `is_json`: its name says that it is JSON; any other text may begin with a bracket.
static json_shape json_shape_of(const bd_input_head *head, bool is_json)
{
    const size_t begin = skip_space(head, bd_head_begins_with(head, "\xEF\xBB\xBF", 3) ? 3 : 0);
    const size_t second = skip_space(head, begin + 1);
    const char first = char_at(head, begin), next = char_at(head, second);
    size_t end;
    if (first != '{')
        return is_json && begin == head->n ? JSON_LINES : JSON_NOT;  // an empty file
    if (next != '"' && next != '}')
        return is_json ? JSON_SPREAD : JSON_NOT;
    if (!find_end(head, begin, &end))
        return end == head->n ? JSON_LINES : JSON_SPREAD;
    while (end < head->n && head->bytes[end] != '\n' && skip_space(head, end) > end)
        end++;
    return is_json || end == head->n || head->bytes[end] == '\n' ? JSON_LINES : JSON_NOT;
}

// Whether all of it is one object that lacks the text: a file of settings, of which a folder of
// sources has many, and no corpus.
static bool lacks_text(const char *bytes, size_t n_bytes, const char *text_field)
{
    bd_json *json;
    if (bd_json_parse(bytes, n_bytes, &json, NULL) != BD_OK)
        return false;
    const size_t n = strcspn(text_field, ".");
    bool has_field = false;
    for (bd_json_member m = bd_json_first(json); m.key && !has_field; m = bd_json_next(json, m))
        has_field = strcmp(m.key, text_field) == 0 ||
                    (strlen(m.key) == n && strncmp(m.key, text_field, n) == 0);
    bd_json_free(json);
    return !has_field;
}

// Reads a file that is one line of at most CONFIG_BYTES; *is_line says whether it is, and if so
// the caller frees *text. Of one that has more lines little more than the first is read.
static bd_status read_only_line(bd_byte_stream *stream, char **text, size_t *n, bool *is_line,
                                bd_error *err)
{
    enum { CONFIG_BYTES = 1 << 22, STEP = 1 << 16 };
    size_t n_read = STEP, capacity = 0;
    bool ended = false;
    *is_line = true;
    while (*is_line && n_read == STEP) {
        BD_TRY(bd_array_reserve((void **)text, &capacity, *n + STEP, 1, err));
        BD_TRY(bd_byte_stream_read(stream, *text + *n, STEP, &n_read, err));
        const char *end = n_read > 0 ? memchr(*text + *n, '\n', n_read) : NULL;
        *is_line = (!ended || n_read == 0) && (!end || end == *text + *n + n_read - 1) &&
                   *n + n_read <= CONFIG_BYTES;
        ended = ended || end;
        *n += n_read;
    }
    return BD_OK;
}

static bd_status is_config(const char *path, const bd_input_head *head, const char *text_field,
                           bool *yes, bd_error *err)
{
    char *text = NULL;
    size_t n = 0;
    bool is_line = false;
    *yes = false;
    if (head->n < BD_HEAD_BYTES) {
        *yes = lacks_text(head->bytes, head->n, text_field);
        return BD_OK;
    }
    if (memchr(head->bytes, '\n', head->n - 1))  // which is not the end
        return BD_OK;
    bd_byte_stream *stream;
    BD_TRY(bd_byte_stream_open(&stream, path, err));
    const bd_status status = read_only_line(stream, &text, &n, &is_line, err);
    bd_byte_stream_close(stream);
    *yes = status == BD_OK && is_line && lacks_text(text, n, text_field);
    free(text);
    return status;
}

static bd_status recognise_jsonl(bd_input *input, const bd_input_head *head,
                                 const bd_input_options *options, bool *yes, bd_error *err)
{
    const json_shape shape = json_shape_of(head, bd_name_has_ending(input->path, ".json"));
    bool without_text = false;
    *yes = head->named == &bd_jsonl_kind || shape == JSON_LINES;
    if (head->named == &bd_jsonl_kind || !head->is_clean)
        return BD_OK;
    if (shape == JSON_LINES && input->folder > 0)
        BD_TRY(
            is_config(input->path, head, bd_input_options_field(options), &without_text, err));
    if (shape == JSON_SPREAD)
        input->passed = BD_PASS_JSON_SPREAD;
    else if (without_text)
        input->passed = BD_PASS_JSON_CONFIG;
    return BD_OK;
}

static bd_status open_jsonl(void **source, const bd_input *input,
                            const bd_input_options *options, bd_error *err)
{
    return bd_records_new(source, input, BD_RECORD_LINE, options, err);
}

static const char *const jsonl_endings[] = {".jsonl", ".ndjson", NULL};

const bd_input_kind bd_jsonl_kind = {
    .name = bd_jsonl_name,
    .endings = jsonl_endings,
    .place = "document at byte",
    .is_text = true,
    .is_json = true,
    .has_lines = true,
    .recognise = recognise_jsonl,
    .cut = bd_records_cut,
    .open = open_jsonl,
    .begin = bd_records_begin,
    .next = bd_records_next,
    .close = bd_records_free,
    .reaches = bd_records_reach,
    .consumed = bd_records_consumed,
};
