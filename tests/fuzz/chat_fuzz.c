// A chat format and a record with messages, with a NUL byte between them. Whatever they say, the
// ids are those of the bytes that the format and the record have, a token is trained only if the
// record or the format says so, and nothing is read beyond its end. Records are also read as
// segments and as pairs.
#include <string.h>

#include "common/base/json.h"
#include "common/chat/chat_format.h"
#include "packer/input/json_text.h"
#include "packer/input/records.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bd_chat_format *read_format(const char *text, size_t size)
{
    bd_json *json = NULL;
    bd_chat_format *format = NULL;
    bd_error err = {0};
    if (bd_json_parse(text, size, &json, NULL) != BD_OK)
        return NULL;
    const bd_status status = bd_chat_format_from_json(&format, json, &err);
    REQUIRE((status == BD_OK) == (format != NULL));
    REQUIRE(format || (status == BD_ERR_FORMAT && err.message[0]));
    bd_json_free(json);
    if (format &&
        bd_chat_format_find_tokens(format, bd_tokenizer_bytes(), "bytes", NULL) != BD_OK) {
        bd_chat_format_free(format);
        return NULL;
    }
    return format;
}

// With the tokenizer of bytes an id is a byte, so that no byte may be lost or made up.
static void check_ids(const bd_spans *spans)
{
    bd_encoder encoder;
    bd_span_ids ids = {0};
    REQUIRE(bd_encoder_init(&encoder, bd_tokenizer_bytes(), NULL) == BD_OK);
    encoder.special_tokens = BD_SPECIAL_TEXT;
    REQUIRE(bd_spans_encode(spans, &encoder, &ids, NULL) == BD_OK);
    size_t at = 0;
    for (size_t i = 0; i < spans->n; i++) {
        const bd_span *span = &spans->items[i];
        const bool is_text = span->token == BD_SPAN_IS_TEXT;
        const size_t n = is_text ? span->size_bytes : 1;
        for (size_t k = 0; k < n; k++, at++) {
            REQUIRE(at < ids.n && ids.trained[at] == span->trained);
            REQUIRE(ids.ids[at] ==
                    (is_text ? (unsigned char)span->text[k] : (uint32_t)span->token));
        }
    }
    REQUIRE(at == ids.n);
    bd_span_ids_release(&ids);
    bd_encoder_release(&encoder);
}

static void render(const bd_chat_format *format, const bd_turns *turns)
{
    bd_spans spans = {0};
    for (int ends = 0; bd_turn_ends_names[ends]; ends++) {
        bool separator_trained;
        bd_error err = {0};
        const bd_status status =
            bd_chat_render(format, turns, (bd_turn_ends)ends, &spans, &separator_trained, &err);
        if (status == BD_OK)
            check_ids(&spans);
        else
            REQUIRE(status == BD_ERR_FORMAT && err.message[0]);
    }
    bd_spans_release(&spans);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const fields[] = {"messages", "text"};
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    const size_t format_bytes = nul ? (size_t)(nul - data) : size;
    const size_t record_bytes = nul ? size - format_bytes - 1 : 0;
    char *record = malloc(record_bytes + BD_RECORD_PADDING);
    REQUIRE(record);
    if (record_bytes > 0)
        memcpy(record, nul + 1, record_bytes);
    memset(record + record_bytes, 0, BD_RECORD_PADDING);
    bd_chat_format *format = read_format((const char *)data, format_bytes);
    for (int form = BD_FORM_COMPLETION; form <= BD_FORM_MESSAGES; form++) {
        bd_json_text *parser = bd_json_text_new_turns((bd_record_form)form, fields);
        bd_json_problem problem;
        bd_turns turns;
        bd_error err = {0};
        REQUIRE(parser);
        const bd_status status = bd_json_text_extract_turns(parser, record, record_bytes, false,
                                                            &turns, &problem, &err);
        REQUIRE((status == BD_OK) == (problem == BD_JSON_FINE));
        REQUIRE(status == BD_OK || (status == BD_ERR_FORMAT && err.message[0]));
        if (status == BD_OK && form == BD_FORM_MESSAGES && format)
            render(format, &turns);
        bd_json_text_free(parser);
    }
    bd_chat_format_free(format);
    free(record);
    return 0;
}
