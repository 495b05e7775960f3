#include "common/tokenizer/spans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Counts how often it is called, and with what: an id for each text.
static char seen[8][16];
static size_t n_seen;

static size_t most_ids(const bd_tokenizer *tokenizer, size_t size_bytes)
{
    (void)tokenizer;
    return size_bytes;
}

static bd_status encode_once(bd_encoder *encoder, const char *text, size_t size_bytes,
                             uint32_t *ids, size_t *n, bd_error *err)
{
    (void)encoder;
    (void)err;
    memcpy(seen[n_seen], text, size_bytes);
    seen[n_seen][size_bytes] = '\0';
    ids[0] = (uint32_t)++n_seen;
    *n = 1;
    return BD_OK;
}

static const bd_tokenizer_kind kind = {.max_ids = most_ids, .encode = encode_once};
static const bd_tokenizer tokenizer = {.kind = &kind, .takes_text = true};

static void texts_that_are_trained_alike_are_one_text(void **state)
{
    (void)state;
    bd_spans spans = {0};
    bd_span_ids result = {0};
    bd_encoder encoder = {.tokenizer = &tokenizer};
    bd_spans_add_text(&spans, "a", 1, false, NULL);
    bd_spans_add_text(&spans, "", 0, true, NULL);  // nothing: no border
    bd_spans_add_text(&spans, "bc", 2, false, NULL);
    bd_spans_add_text(&spans, "d", 1, true, NULL);
    bd_spans_add_token(&spans, 77, true, NULL);
    bd_spans_add_text(&spans, "e", 1, true, NULL);
    bd_spans_add_token(&spans, 78, false, NULL);
    bd_spans_add_text(&spans, "f", 1, false, NULL);
    bd_spans_add_text(&spans, "g", 1, false, NULL);
    for (int again = 0; again < 2; again++) {
        const uint32_t ids[] = {1, 2, 77, 3, 78, 4};
        const uint8_t trained[] = {0, 1, 1, 1, 0, 0};
        n_seen = 0;
        assert_int_equal(bd_spans_encode(&spans, &encoder, &result, NULL), BD_OK);
        assert_int_equal(n_seen, 4);
        assert_string_equal(seen[0], "abc");
        assert_string_equal(seen[1], "d");
        assert_string_equal(seen[2], "e");
        assert_string_equal(seen[3], "fg");
        assert_int_equal(result.n, 6);
        assert_memory_equal(result.ids, ids, sizeof ids);
        assert_memory_equal(result.trained, trained, sizeof trained);
    }
    bd_spans_release(&spans);
    bd_span_ids_release(&result);
}

static void nothing_gives_no_ids(void **state)
{
    (void)state;
    const bd_spans spans = {0};
    bd_span_ids result = {0};
    bd_encoder encoder = {.tokenizer = &tokenizer};
    assert_int_equal(bd_spans_encode(&spans, &encoder, &result, NULL), BD_OK);
    assert_int_equal(result.n, 0);
    bd_span_ids_release(&result);
    bd_span_ids_release(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_trained_alike_are_one_text),
        cmocka_unit_test(nothing_gives_no_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
