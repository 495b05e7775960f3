#include "common/tokenizer/added_tokens.h"

#include "tests/unit/temporary_folder.h"

enum { MAX_TOKENS = 8 };

typedef struct token_text {
    const char *text;
    bool left_strip, right_strip, single_word, normalized;
} token_text;

typedef struct fixture {
    bd_bpe_model model;
    bd_added_token added[MAX_TOKENS];
    bd_added_tokens *tokens;
} fixture;

// Tokens with the ids 0, 1, …; the last has no text.
static void set_up(fixture *f, const token_text *texts, bool nfc, bool normalized)
{
    *f = (fixture){.model = {.nfc = nfc}};
    for (; texts->text; texts++, f->model.n_added++)
        f->added[f->model.n_added] = (bd_added_token){.id = (uint32_t)f->model.n_added,
                                                      .left_strip = texts->left_strip,
                                                      .right_strip = texts->right_strip,
                                                      .single_word = texts->single_word,
                                                      .normalized = texts->normalized,
                                                      .text = texts->text,
                                                      .size_bytes = strlen(texts->text)};
    f->model.added = f->added;
    assert_int_equal(bd_added_tokens_new(&f->model, normalized, &f->tokens, NULL), BD_OK);
}

// "a[0]b" for a text "a<x>b" in which <x> is found: the other text, and the ids between.
static void assert_found(const fixture *f, const char *text, const char *expected)
{
    const size_t n = strlen(text);
    char *exact = malloc(n ? n : 1), *found = NULL;  // exactly this long, for the sanitizers
    size_t n_found, done = 0;
    memcpy(exact, text, n);
    FILE *out = open_memstream(&found, &n_found);
    bd_added_match match;
    for (size_t from = 0; bd_added_tokens_find(f->tokens, exact, n, from, true, &match);
         from = match.resume, done = match.end) {
        if (match.begin > done)
            fwrite(exact + done, 1, match.begin - done, out);
        fprintf(out, "[%u]", match.token->id);
    }
    fwrite(exact + done, 1, n - done, out);
    fclose(out);
    assert_string_equal(found, expected);
    free(found);
    free(exact);
}

static void the_longest_of_the_leftmost_is_found(void **state)
{
    (void)state;
    fixture f;
    set_up(
        &f,
        (token_text[]){{.text = "<x>"}, {.text = "<x"}, {.text = "<x>>y"}, {.text = "b<"}, {0}},
        false, false);
    assert_found(&f, "", "");
    assert_found(&f, "none < here", "none < here");
    assert_found(&f, "<x>", "[0]");
    assert_found(&f, "<x", "[1]");
    assert_found(&f, "<", "<");
    assert_found(&f, "<x>><x>>y", "[0]>[2]");
    assert_found(&f, "ab<x>", "a[3]x>");
    bd_added_tokens_free(f.tokens);
    bd_added_tokens_free(NULL);
}

static void tokens_are_found_at_every_place_of_a_block(void **state)
{
    (void)state;
    // One first byte, a few, and more than are searched at once.
    static const token_text sets[][MAX_TOKENS] = {
        {{.text = "<x>"}, {0}},
        {{.text = "<x>"}, {.text = "[y]"}, {.text = "\xC3\xA9"}, {0}},
        {{.text = "<x>"},
         {.text = "[y]"},
         {.text = "{z}"},
         {.text = "|w|"},
         {.text = "~v~"},
         {.text = "^u^"},
         {0}},
    };
    for (size_t set = 0; set < 3; set++) {
        fixture f;
        set_up(&f, sets[set], false, false);
        for (size_t n = 0; n < 100; n++) {
            char text[128], expected[128];
            memset(text, 'a', sizeof text);
            memcpy(text + n, "<x>bc<", 7);
            memset(expected, 'a', sizeof expected);
            memcpy(expected + n, "[0]bc<", 7);
            assert_found(&f, text, expected);
        }
        bd_added_tokens_free(f.tokens);
    }
}

static void white_space_is_taken(void **state)
{
    (void)state;
    fixture f;
    set_up(&f,
           (token_text[]){{.text = "<l>", .left_strip = true},
                          {.text = "<r>", .right_strip = true},
                          {.text = " b"},
                          {0}},
           false, false);
    assert_found(&f, "a \t\u3000\xC2\x85<l> c", "a[0] c");
    assert_found(&f, "a <r> \n\u00a0c", "a [1]c");
    assert_found(&f, "<r> \u200bc", "[1]\u200bc");  // no white space
    assert_found(&f, "<r> <l>", "[1][0]");
    assert_found(&f, "<r> b", "[1][2]");  // begins in the space that <r> took
    assert_found(&f, " <l>", "[0]");
    assert_found(&f, "\x80 <l>", "\x80[0]");
    bd_added_tokens_free(f.tokens);
}

static void single_words_are_not_parts_of_words(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, (token_text[]){{.text = "ab", .single_word = true}, {.text = "bc"}, {0}}, false,
           false);
    assert_found(&f, "ab", "[0]");
    assert_found(&f, "xab", "xab");
    assert_found(&f, "ab_", "ab_");
    assert_found(&f, "ab\u0301", "ab\u0301");
    assert_found(&f,
                 "\u4e16"
                 "ab",
                 "\u4e16"
                 "ab");
    assert_found(&f, "-ab.", "-[0].");
    assert_found(&f,
                 "\xB8"
                 "ab\xE4\xB8",
                 "\xB8[0]\xE4\xB8");          // not UTF-8: no word
    assert_found(&f, "xabc bc", "xabc [1]");  // `ab` does not count, but hides `bc`
    bd_added_tokens_free(f.tokens);
}

static void each_kind_is_found_for_itself_and_in_normal_form(void **state)
{
    (void)state;
    fixture f;
    const token_text texts[] = {{.text = "e\u0301", .normalized = true}, {.text = "<x>"}, {0}};
    set_up(&f, texts, true, true);
    assert_found(&f, "a\u00e9<x>e\u0301", "a[0]<x>e\u0301");
    bd_added_tokens_free(f.tokens);
    set_up(&f, texts, true, false);
    assert_found(&f, "a\u00e9<x>", "a\u00e9[1]");
    bd_added_tokens_free(f.tokens);
    bd_error err = {0};
    f.added[1] = f.added[0];
    f.added[1].text = "\u00e9";
    f.added[1].size_bytes = 2;
    assert_int_equal(bd_added_tokens_new(&f.model, true, &f.tokens, &err), BD_ERR_UNSUPPORTED);
    assert_null(f.tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_of_the_leftmost_is_found),
        cmocka_unit_test(tokens_are_found_at_every_place_of_a_block),
        cmocka_unit_test(white_space_is_taken),
        cmocka_unit_test(single_words_are_not_parts_of_words),
        cmocka_unit_test(each_kind_is_found_for_itself_and_in_normal_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
