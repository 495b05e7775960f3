#include "common/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/json.h"
#include "common/threads.h"

static const bd_tokenizer *opened(void)
{
    const bd_tokenizer *tokenizer;
    assert_int_equal(bd_tokenizer_open(&tokenizer, "bytes", NULL), BD_OK);
    return tokenizer;
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
    assert_int_equal(tokenizer->kind->encode(tokenizer, text, sizeof text, ids), 256);
    for (uint32_t byte = 0; byte < 256; byte++) {
        size_t n;
        assert_int_equal(ids[byte], byte);
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, ids[byte], &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)bytes[0], byte);
    }
    assert_int_equal(tokenizer->kind->encode(tokenizer, text, 0, ids), 0);
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

static void unknown_tokenizer_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const specs[] = {"", "byte", "Bytes", "bytes ", "tokenizer.json"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const bd_tokenizer *tokenizer = opened();
        bd_error err;
        char quoted[40];
        snprintf(quoted, sizeof quoted, "'%s'", specs[i]);
        assert_int_equal(bd_tokenizer_open(&tokenizer, specs[i], &err), BD_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, quoted));
        assert_null(tokenizer);
    }
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

// How byte-level vocabularies write a byte; the three runs that stand for themselves are those
// of GPT-2's bytes_to_unicode().
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
    assert_int_equal(integer_of(vocabulary, "\u0120"), ' ');  // as everybody knows it
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

// ---- Several threads --------------------------------------------------------------

static bd_status encode_first(void *context, int64_t index, bd_error *err)
{
    const bd_tokenizer **found = context;
    uint32_t id;
    const char text = (char)index;
    BD_TRY(bd_tokenizer_open(&found[index], "bytes", err));
    found[index]->kind->encode(found[index], &text, 1, &id);
    return id == index ? BD_OK : bd_fail(err, BD_ERR_FORMAT, "id %u", id);
}

// Runs first, while nobody has opened it yet.
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
        cmocka_unit_test(unknown_tokenizer_is_refused_by_name),
        cmocka_unit_test(file_is_json_with_every_byte_in_its_vocabulary),
        cmocka_unit_test(file_is_the_same_bytes_every_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
