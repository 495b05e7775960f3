#include "common/chat/chat_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Conversations against other renderers are in tests/cli/chat_test.py. Here: what each field does.

static bd_chat_format *parse(const char *fields)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"chat_format\": 1, \"name\": \"n\", \"train\": [\"assistant\"], \"roles\": "
             "{\"user\": {\"before\": [{\"text\": \"U\"}], \"after\": [{\"text\": \"/\"}]}, "
             "\"assistant\": {\"before\": [{\"text\": \"A\"}], \"start\": [{\"text\": \">\"}], "
             "\"end\": [{\"token\": \"<|endoftext|>\"}], \"after\": [{\"text\": \"/\"}]}, "
             "\"tool\": {\"before\": [{\"text\": \"(\"}], \"after\": [{\"text\": \")\"}], "
             "\"between\": [{\"text\": \";\"}]}}%s}",
             fields);
    bd_json *json;
    bd_chat_format *format;
    bd_error err;
    if (bd_json_parse(text, strlen(text), &json, &err) != BD_OK ||
        bd_chat_format_from_json(&format, json, &err) != BD_OK ||
        bd_chat_format_find_tokens(format, bd_tokenizer_bytes(), "bytes", &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_json_free(json);
    return format;
}

// Writes spans as text, trained parts in braces, with $ for the special token.
static const char *write_spans(const bd_spans *spans, bool separator_trained)
{
    static char text[600];
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < spans->n; i++) {
        const bd_span *span = &spans->items[i];
        const bool begins = span->trained && (i == 0 || !spans->items[i - 1].trained);
        const bool stops = span->trained && (i + 1 == spans->n || !spans->items[i + 1].trained);
        const bool is_text = span->token == BD_SPAN_IS_TEXT;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.*s%s", begins ? "{" : "",
                               is_text ? (int)span->size_bytes : 1, is_text ? span->text : "$",
                               stops ? "}" : "");
    }
    if (separator_trained)
        snprintf(text + at, sizeof text - at, "!");
    return text;
}

// Renders "role content role content ..."; a message instead if that fails.
static const char *render(const bd_chat_format *format, bd_turn_ends ends,
                          const char *const *said)
{
    static char text[600];
    bd_turn turns[8] = {0};
    size_t n = 0;
    for (; said[2 * n]; n++) {
        turns[n].role = (bd_text_view){said[2 * n], strlen(said[2 * n])};
        turns[n].text = (bd_text_view){said[2 * n + 1], strlen(said[2 * n + 1])};
    }
    bd_spans spans = {0};
    bd_error err;
    bool separator_trained;
    const bd_turns all = {turns, n, NULL};
    if (bd_chat_render(format, &all, ends, &spans, &separator_trained, &err) != BD_OK) {
        snprintf(text, sizeof text, "%s", err.message);
        bd_spans_release(&spans);
        return text;
    }
    const char *written = write_spans(&spans, separator_trained);
    bd_spans_release(&spans);
    return written;
}

#define SAID(...) ((const char *const[]){__VA_ARGS__, NULL})

static void ends_of_turns_are_trained_as_asked(void **state)
{
    (void)state;
    bd_chat_format *format = parse("");
    const char *const *said =
        SAID("user", "a", "assistant", "b", "assistant", "c", "user", "d");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said), "Ua/A{>b$}/A{>c$}/Ud/");
    assert_string_equal(render(format, BD_TURN_ENDS_LAST, said), "Ua/A{>b}$/A{>c$}/Ud/");
    assert_string_equal(render(format, BD_TURN_ENDS_NONE, said), "Ua/A{>b}$/A{>c}$/Ud/");
    bd_chat_format_free(format);
}

static void neighbours_of_a_role_share_a_turn(void **state)
{
    (void)state;
    bd_chat_format *format = parse("");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL,
                               SAID("tool", "a", "tool", "b", "user", "c", "tool", "d")),
                        "(a;b)Uc/(d)");
    bd_chat_format_free(format);
}

static void a_system_message_has_its_place(void **state)
{
    (void)state;
    const char *const *said = SAID("system", "s", "user", "a", "user", "b");
    bd_chat_format *format = parse(", \"system\": \"first-user\", \"system_between\": \"-\"");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said), "Us-a/Ub/");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said + 2), "Ua/Ub/");
    bd_chat_format_free(format);
    format = parse(", \"system\": \"last-user\", \"default_system\": \"d\"");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said), "Ua/Usb/");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said + 2), "Ua/Udb/");
    bd_chat_format_free(format);
}

static void white_space_is_what_python_calls_so(void **state)
{
    (void)state;
    static const char *const spaces[] = {
        "\t",           "\n",           "\v",           "\f",           "\r",
        "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x8A",
        "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    static const char *const others[] = {"\x1b", "\xE2\x80\x8B", "\xEF\xBB\xBF", "\xC2\x86"};
    bd_chat_format *format = parse(", \"trim\": [\"user\"]");
    char text[32], expected[32];
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        snprintf(text, sizeof text, "%s %sx%sy%s", spaces[i], spaces[i], spaces[i], spaces[i]);
        snprintf(expected, sizeof expected, "Ux%sy/", spaces[i]);
        assert_string_equal(render(format, BD_TURN_ENDS_ALL, SAID("user", text)), expected);
        assert_string_equal(render(format, BD_TURN_ENDS_ALL, SAID("user", spaces[i])), "U/");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(expected, sizeof expected, "U%s/", others[i]);
        assert_string_equal(render(format, BD_TURN_ENDS_ALL, SAID("user", others[i])),
                            expected);
    }
    bd_chat_format_free(format);
}

static void the_separator_is_trained_after_a_trained_end(void **state)
{
    (void)state;
    bd_chat_format *format = parse(", \"train_separator\": true");
    const char *const *said = SAID("user", "a", "assistant", "b");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, said), "Ua/A{>b$}/!");
    assert_string_equal(render(format, BD_TURN_ENDS_NONE, said), "Ua/A{>b}$/");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, SAID("assistant", "b", "user", "a")),
                        "A{>b$}/Ua/");
    bd_chat_format_free(format);
}

static const char *render_prompt(const bd_chat_format *format, const char *system)
{
    static char text[600];
    bd_spans spans = {0};
    bd_error err;
    const bd_status status = bd_chat_render_prompt(format, system, "a", &spans, &err);
    snprintf(text, sizeof text, "%s",
             status == BD_OK ? write_spans(&spans, false) : err.message);
    bd_spans_release(&spans);
    return text;
}

// A model sees what it saw when it was trained, up to the first token that was trained.
static void a_prompt_is_the_untrained_beginning_of_a_chat(void **state)
{
    (void)state;
    bd_chat_format *format = parse(", \"begin\": [{\"token\": \"<|endoftext|>\"}]");
    assert_string_equal(render(format, BD_TURN_ENDS_ALL, SAID("user", "a", "assistant", "b")),
                        "$Ua/A{>b$}/");
    assert_string_equal(render_prompt(format, NULL), "$Ua/A");
    assert_string_equal(render_prompt(format, "s"),
                        "message 0 has the role 'system'; chat format 'n' has user, assistant, "
                        "tool");
    bd_chat_format_free(format);
    format = parse(", \"system\": \"first-user\", \"system_between\": \"-\", "
                   "\"default_system\": \"d\"");
    assert_string_equal(render_prompt(format, "s"), "Us-a/A");
    assert_string_equal(render_prompt(format, NULL), "Ud-a/A");
    bd_chat_format_free(format);
}

static bd_turn_end find_turn_end(const char *assistant)
{
    char text[400];
    snprintf(text, sizeof text,
             "{\"chat_format\": 1, \"name\": \"n\", \"train\": [\"assistant\"], \"roles\": "
             "{\"assistant\": {%s}}}",
             assistant);
    bd_json *json;
    bd_chat_format *format;
    bd_turn_end end;
    bd_error err;
    if (bd_json_parse(text, strlen(text), &json, &err) != BD_OK ||
        bd_chat_format_from_json(&format, json, &err) != BD_OK ||
        bd_chat_format_find_tokens(format, bd_tokenizer_bytes(), "bytes", &err) != BD_OK ||
        bd_chat_format_turn_end(format, &end, &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_json_free(json);
    bd_chat_format_free(format);
    return end;
}

static void a_turn_ends_with_a_token_or_with_all_of_a_text(void **state)
{
    (void)state;
    bd_turn_end end = find_turn_end("\"end\": [{\"text\": \"\\n\"}, {\"text\": \"##\"}]");
    assert_int_equal(end.token, BD_SPAN_IS_TEXT);
    assert_string_equal(end.text, "\n##");
    free(end.text);
    end = find_turn_end("\"end\": [{\"text\": \"\\n\"}, {\"token\": \"<|endoftext|>\"}]");
    assert_int_equal(end.token, bd_tokenizer_bytes()->separator);
    assert_null(end.text);
    end = find_turn_end("\"after\": [{\"text\": \"x\"}]");
    assert_int_equal(end.token, BD_SPAN_IS_TEXT);
    assert_null(end.text);
}

static void every_built_in_format_can_be_read(void **state)
{
    (void)state;
    for (size_t i = 0; bd_built_in_chat_formats[i]; i++) {
        bd_chat_format *format;
        bd_error err;
        if (bd_chat_format_open(&format, bd_built_in_chat_formats[i], &err) != BD_OK)
            fail_msg("%s", err.message);
        bd_chat_format_free(format);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_turns_are_trained_as_asked),
        cmocka_unit_test(neighbours_of_a_role_share_a_turn),
        cmocka_unit_test(a_system_message_has_its_place),
        cmocka_unit_test(white_space_is_what_python_calls_so),
        cmocka_unit_test(the_separator_is_trained_after_a_trained_end),
        cmocka_unit_test(a_prompt_is_the_untrained_beginning_of_a_chat),
        cmocka_unit_test(a_turn_ends_with_a_token_or_with_all_of_a_text),
        cmocka_unit_test(every_built_in_format_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
