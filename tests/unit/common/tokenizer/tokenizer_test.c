#include "common/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/json.h"
#include "common/base/threads.h"

static const bd_tokenizer *opened(void)
{
    const bd_tokenizer *tokenizer;
    assert_int_equal(bd_tokenizer_open(&tokenizer, "bytes", NULL), BD_OK);
    return tokenizer;
}

// Returns the number of ids of `text`, with a new encoder.
static size_t encode(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                     uint32_t *ids)
{
    bd_encoder encoder;
    size_t n = SIZE_MAX;
    assert_int_equal(bd_encoder_init(&encoder, tokenizer, NULL), BD_OK);
    assert_int_equal(bd_encode(&encoder, text, size_bytes, ids, &n, NULL), BD_OK);
    bd_encoder_release(&encoder);
    bd_encoder_release(&encoder);
    return n;
}

static void every_byte_is_its_own_token_and_comes_back(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened();
    char text[256];
    uint32_t ids[256];
    for (int byte = 0; byte < 256; byte++)
        text[byte] = (char)byte;
    assert_in_range(tokenizer->kind->max_ids(tokenizer, sizeof text), 256, SIZE_MAX);
    assert_int_equal(encode(tokenizer, text, sizeof text, ids), 256);
    for (uint32_t byte = 0; byte < 256; byte++) {
        size_t n;
        assert_int_equal(ids[byte], byte);
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, ids[byte], &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)bytes[0], byte);
    }
    assert_int_equal(encode(tokenizer, text, 0, ids), 0);
}

static void separator_is_a_token_of_its_own_without_text(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened();
    assert_int_equal(tokenizer->separator, 256);
    assert_int_equal(tokenizer->vocab_size, 257);
    static const uint32_t ids[] = {256, 257, UINT32_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        size_t n = 9;
        assert_null(tokenizer->kind->token_bytes(tokenizer, ids[i], &n));
        assert_int_equal(n, 0);
    }
}

// Computed by Python: xxh3_128 of the 256 bytes, "<|endoftext|>" and a NUL. It is in every
// dataset: another value would make all of them unreadable.
static void fingerprint_stays_what_it_is(void **state)
{
    (void)state;
    assert_string_equal(opened()->fingerprint.hex, "f42017219a71443d62cc4e2539ffa8a9");
    assert_string_equal(opened()->name, "bytes");
}

static void bytes_take_text_and_are_closed_by_nobody(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened();
    assert_true(tokenizer->takes_text);
    assert_true(tokenizer->tokens_per_byte == 1.0);
    bd_tokenizer_close(tokenizer);
    bd_tokenizer_close(tokenizer);
    bd_tokenizer_close(NULL);
    uint32_t id;
    assert_int_equal(encode(tokenizer, "a", 1, &id), 1);
    assert_int_equal(id, 'a');
}

static void unknown_tokenizer_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const specs[] = {"",
                                        "byte",
                                        "Bytes",
                                        "bytes ",
                                        "tokenizer.json",
                                        "ids",
                                        "ids:",
                                        "ids: 7",
                                        "ids:7 ",
                                        "ids:-7",
                                        "ids:+7",
                                        "ids:0x7",
                                        "ids:7.0",
                                        "Ids:7",
                                        "ids:seven",
                                        "ids:9223372036854775807",
                                        "ids:99999999999999999999999999"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const bd_tokenizer *tokenizer = opened();
        bd_error err;
        char quoted[60];
        snprintf(quoted, sizeof quoted, "'%s'", specs[i]);
        assert_int_equal(bd_tokenizer_open(&tokenizer, specs[i], &err), BD_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, quoted));
        assert_null(tokenizer);
    }
}

// The name in a manifest may be anything.
static void stored_name_never_names_a_file(void **state)
{
    (void)state;
    static const char *const names[] = {
        "", "/dev/null", "../tokenizer.json", "tokenizer.json", "..", "bytes.tiktoken:gpt2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bd_tokenizer *tokenizer = opened();
        bd_error err;
        assert_int_equal(bd_tokenizer_open_stored(&tokenizer, ".", names[i], &err),
                         BD_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, names[i]));
        assert_null(tokenizer);
    }
    const bd_tokenizer *tokenizer;
    assert_int_equal(bd_tokenizer_open_stored(&tokenizer, "/nowhere", "bytes", NULL), BD_OK);
    assert_ptr_equal(tokenizer, bd_tokenizer_bytes());
    assert_int_equal(bd_tokenizer_open_stored(&tokenizer, "/nowhere", "ids:7", NULL), BD_OK);
    assert_int_equal(tokenizer->vocab_size, 7);
    bd_tokenizer_close(tokenizer);
}

// ---- Its tokenizer.json -----------------------------------------------------------

static const bd_json *object_of(const bd_json *json, const char *key)
{
    const bd_json *value;
    assert_int_equal(bd_json_get_object(json, key, &value, NULL), BD_OK);
    return value;
}

static int64_t integer_of(const bd_json *json, const char *key)
{
    int64_t value;
    bd_error err = {0};
    bd_json_get_integer(json, key, 0, INT64_MAX, &value, &err);
    assert_string_equal(err.message, "");
    return value;
}

static void assert_text(const bd_json *json, const char *key, const char *expected)
{
    const char *value;
    assert_int_equal(bd_json_get_string(json, key, &value, NULL), BD_OK);
    assert_string_equal(value, expected);
}

// Returns the character for a byte in byte-level vocabularies; the three ranges that stand for
// themselves are those of GPT-2's bytes_to_unicode().
static int visible_code(int byte)
{
    int n_before = 0;
    for (int b = 0; b <= byte; b++) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte)
            return itself ? b : 256 + n_before;
        n_before += !itself;
    }
    return -1;
}

static void file_is_json_with_every_byte_in_its_vocabulary(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened();
    char *text;
    bd_json *json;
    assert_int_equal(tokenizer->kind->to_file(tokenizer, &text, NULL), BD_OK);
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    const bd_json *model = object_of(json, "model"), *vocabulary = object_of(model, "vocab");
    assert_text(model, "type", "BPE");
    assert_text(object_of(json, "pre_tokenizer"), "type", "ByteLevel");
    assert_text(object_of(json, "decoder"), "type", "ByteLevel");
    for (int byte = 0; byte < 256; byte++) {
        const int code = visible_code(byte);
        char symbol[3] = {(char)code};
        if (code >= 128) {
            symbol[0] = (char)(0xC0 + code / 64);
            symbol[1] = (char)(0x80 + code % 64);
        }
        assert_int_equal(integer_of(vocabulary, symbol), byte);
    }
    assert_int_equal(integer_of(vocabulary, "\u0120"), ' ');  // the well-known character
    assert_int_equal(integer_of(vocabulary, "\u010A"), '\n');
    assert_int_equal(integer_of(vocabulary, "<|endoftext|>"), 256);

    const bd_json *added, *merges;
    assert_int_equal(bd_json_get_array(json, "added_tokens", &added, NULL), BD_OK);
    assert_int_equal(bd_json_length(added), 1);
    assert_int_equal(integer_of(bd_json_at(added, 0), "id"), 256);
    assert_text(bd_json_at(added, 0), "content", "<|endoftext|>");
    assert_int_equal(bd_json_get_array(model, "merges", &merges, NULL), BD_OK);
    assert_int_equal(bd_json_length(merges), 0);
    bd_json_free(json);
    free(text);
}

static void file_is_the_same_bytes_every_time(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened();
    char *first, *second;
    assert_int_equal(tokenizer->kind->to_file(tokenizer, &first, NULL), BD_OK);
    assert_int_equal(tokenizer->kind->to_file(tokenizer, &second, NULL), BD_OK);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

// ---- Ids of an unknown vocabulary ---------------------------------------------------

static const bd_tokenizer *opened_ids(const char *spec)
{
    const bd_tokenizer *tokenizer = NULL;
    bd_error err = {0};
    bd_tokenizer_open(&tokenizer, spec, &err);
    assert_string_equal(err.message, "");
    return tokenizer;
}

static void ids_have_no_meaning_but_their_number(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened_ids("ids:50257");
    assert_string_equal(tokenizer->name, "ids:50257");
    assert_int_equal(tokenizer->vocab_size, 50257);
    assert_int_equal(tokenizer->separator, BD_NO_SEPARATOR);
    assert_false(tokenizer->takes_text);
    // Computed by Python: xxh3_128 of "ids:50257".
    assert_string_equal(tokenizer->fingerprint.hex, "c41a97c9d11667e4a402638dd79390f4");
    static const uint32_t ids[] = {0, 1, 9, 10, 31, 33, 50256};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        size_t n;
        char expected[20];
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, ids[i], &n);
        const int length = snprintf(expected, sizeof expected, "%u ", ids[i]);
        assert_int_equal(n, length);
        assert_memory_equal(bytes, expected, n);
    }
    bd_tokenizer_close(tokenizer);
}

static void vocabulary_of_ids_is_held_to_its_limits(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened_ids("ids:1");
    assert_int_equal(tokenizer->vocab_size, 1);
    bd_tokenizer_close(tokenizer);
    tokenizer = opened_ids("ids:4194304");
    size_t n;
    assert_int_equal(tokenizer->vocab_size, BD_MAX_IDS_VOCABULARY);
    assert_memory_equal(tokenizer->kind->token_bytes(tokenizer, 4194303, &n), "4194303 ", 8);
    assert_int_equal(n, 8);
    bd_tokenizer_close(tokenizer);
    static const char *const cases[][2] = {
        {"ids:0", "a vocabulary of 0 ids, not 1 to 4194304"},
        {"ids:4194305", "a vocabulary of 4194305 ids, not 1 to 4194304"},
        {"ids:999999999999999999", "a vocabulary of 999999999999999999 ids, not 1 to 4194304"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_error err = {0};
        tokenizer = opened();
        assert_int_equal(bd_tokenizer_open(&tokenizer, cases[i][0], &err), BD_ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i][1]);
        assert_null(tokenizer);
    }
    assert_int_equal(bd_tokenizer_open_ids(&tokenizer, -1, NULL), BD_ERR_ARGUMENT);
    assert_null(tokenizer);
}

static void assert_encoded(const bd_tokenizer *tokenizer, const char *text,
                           const uint32_t *expected, size_t n)
{
    uint32_t ids[100];
    assert_in_range(tokenizer->kind->max_ids(tokenizer, strlen(text)), n, 100);
    assert_int_equal(encode(tokenizer, text, strlen(text), ids), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], expected[i]);
}

static void numbers_are_encoded_and_the_rest_is_nothing(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened_ids("ids:300");
    assert_encoded(tokenizer, "", NULL, 0);
    assert_encoded(tokenizer, "no numbers", NULL, 0);
    assert_encoded(tokenizer, "0", (uint32_t[]){0}, 1);
    assert_encoded(tokenizer, "299 300 301 007", (uint32_t[]){299, 7}, 2);
    assert_encoded(tokenizer, "1,2;a3b -4 5.6", (uint32_t[]){1, 2, 3, 4, 5, 6}, 6);
    assert_encoded(tokenizer, "18446744073709551617 1", (uint32_t[]){1}, 1);  // 2^64 + 1
    assert_encoded(tokenizer, "1 1 1 1 1 1", (uint32_t[]){1, 1, 1, 1, 1, 1}, 6);
    assert_encoded(tokenizer, "11111", NULL, 0);
    uint32_t ids[1];
    assert_int_equal(encode(tokenizer, "12", 1, ids), 1);  // but no further
    assert_int_equal(ids[0], 1);
    bd_tokenizer_close(tokenizer);
}

static void rows_of_ids_come_back_from_their_text(void **state)
{
    (void)state;
    const bd_tokenizer *tokenizer = opened_ids("ids:1000");
    char text[20] = "";
    uint32_t ids[3];
    static const uint32_t row[] = {999, 0, 42};
    for (int i = 0; i < 3; i++) {
        size_t n;
        strcat(text, tokenizer->kind->token_bytes(tokenizer, row[i], &n));
    }
    assert_int_equal(encode(tokenizer, text, strlen(text), ids), 3);
    assert_memory_equal(ids, row, sizeof row);
    bd_tokenizer_close(tokenizer);
}

static void file_of_ids_has_every_number_in_its_vocabulary(void **state)
{
    (void)state;
    static const char *const specs[] = {"ids:1", "ids:33", "ids:1000"};
    for (int s = 0; s < 3; s++) {
        const bd_tokenizer *tokenizer = opened_ids(specs[s]);
        char *text, *again, word[20];
        bd_json *json;
        assert_int_equal(tokenizer->kind->to_file(tokenizer, &text, NULL), BD_OK);
        assert_int_equal(tokenizer->kind->to_file(tokenizer, &again, NULL), BD_OK);
        assert_string_equal(text, again);
        assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
        const bd_json *model = object_of(json, "model"),
                      *vocabulary = object_of(model, "vocab");
        assert_text(model, "type", "WordLevel");
        assert_text(object_of(json, "pre_tokenizer"), "type", "WhitespaceSplit");
        int64_t n = 0;
        for (bd_json_member m = bd_json_first(vocabulary); m.key;
             m = bd_json_next(vocabulary, m)) {
            snprintf(word, sizeof word, "%d", (int)n);
            assert_string_equal(m.key, word);
            assert_int_equal(integer_of(vocabulary, word), n++);
        }
        assert_int_equal(n, tokenizer->vocab_size);
        bd_json_free(json);
        free(text);
        free(again);
        bd_tokenizer_close(tokenizer);
    }
}

// ---- Several threads --------------------------------------------------------------

static bd_status encode_first(void *context, int64_t index, bd_error *err)
{
    const bd_tokenizer **found = context;
    uint32_t id;
    const char text = (char)index;
    BD_TRY(bd_tokenizer_open(&found[index], "bytes", err));
    bd_encoder encoder;
    size_t n;
    BD_TRY(bd_encoder_init(&encoder, found[index], err));
    BD_TRY(bd_encode(&encoder, &text, 1, &id, &n, err));
    bd_encoder_release(&encoder);
    return n == 1 && id == index ? BD_OK : bd_fail(err, BD_ERR_FORMAT, "id %u", id);
}

// Must be the first test, so that the tokenizer has not been opened before.
static void first_use_may_come_from_several_threads(void **state)
{
    (void)state;
    const bd_tokenizer *found[64];
    bd_threads *threads;
    assert_int_equal(bd_threads_new(&threads, 4, NULL), BD_OK);
    assert_int_equal(bd_threads_run(threads, encode_first, found, 64, NULL), BD_OK);
    for (int i = 0; i < 64; i++)
        assert_ptr_equal(found[i], found[0]);
    bd_threads_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_use_may_come_from_several_threads),
        cmocka_unit_test(every_byte_is_its_own_token_and_comes_back),
        cmocka_unit_test(separator_is_a_token_of_its_own_without_text),
        cmocka_unit_test(fingerprint_stays_what_it_is),
        cmocka_unit_test(bytes_take_text_and_are_closed_by_nobody),
        cmocka_unit_test(unknown_tokenizer_is_refused_by_name),
        cmocka_unit_test(stored_name_never_names_a_file),
        cmocka_unit_test(file_is_json_with_every_byte_in_its_vocabulary),
        cmocka_unit_test(file_is_the_same_bytes_every_time),
        cmocka_unit_test(ids_have_no_meaning_but_their_number),
        cmocka_unit_test(vocabulary_of_ids_is_held_to_its_limits),
        cmocka_unit_test(numbers_are_encoded_and_the_rest_is_nothing),
        cmocka_unit_test(rows_of_ids_come_back_from_their_text),
        cmocka_unit_test(file_of_ids_has_every_number_in_its_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
