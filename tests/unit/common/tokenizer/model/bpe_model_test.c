#include "common/tokenizer/model/bpe_model.h"

#include "tests/unit/common/tokenizer/read_model.h"

static void assert_bytes(const bd_bpe_model *model, uint32_t id, const char *expected)
{
    const size_t n = model->begins[id + 1] - model->begins[id];
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(model->bytes + model->begins[id], expected, n);
}

// ---- Reading ----------------------------------------------------------------------

static void a_file_becomes_its_meaning(void **state)
{
    (void)state;
    bd_bpe_model model = parsed((tokenizer_text){
        .entries = ", \"\u0120a\": 256, \"\u0120ab\": 259, \"<s>\": 257",
        .merges = "\"\u0120 a\", [\"\u0120a\", \"b\"]",
        .added = ADDED(257, "<s>", ""),
    });
    assert_int_equal(model.n_ids, 260);
    assert_int_equal(model.byte_ids[' '], ' ');
    assert_int_equal(model.byte_ids[0xAD], 0xAD);
    assert_bytes(&model, 256, " a");
    assert_bytes(&model, 257, "<s>");
    assert_bytes(&model, 258, "");
    assert_bytes(&model, 259, " ab");
    assert_int_equal(model.n_merges, 2);
    assert_int_equal(model.merges[1].left, 256);
    assert_int_equal(model.merges[1].right, 'b');
    assert_int_equal(model.merges[1].product, 259);
    assert_int_equal(model.n_added, 1);
    assert_true(model.added[0].special && !model.added[0].merges);
    assert_memory_equal(model.added[0].text, "<s>", model.added[0].size_bytes);
    assert_int_equal(model.n_steps, 1);
    assert_int_equal(model.steps[0].pattern, BD_PATTERN_GPT2);
    assert_true(bd_bpe_model_merges_to(&model, 256) && bd_bpe_model_merges_to(&model, 0));
    assert_false(bd_bpe_model_merges_to(&model, 257) || bd_bpe_model_merges_to(&model, 258) ||
                 bd_bpe_model_merges_to(&model, 260));
    bd_bpe_model_release(&model);
    bd_bpe_model_release(&model);
}

static void an_added_token_that_a_merge_makes_is_both(void **state)
{
    (void)state;
    bd_bpe_model model = parsed((tokenizer_text){
        .entries = ", \"ab\": 256", .merges = "\"a b\"", .added = ADDED(256, "ab", "")});
    assert_true(model.added[0].merges && bd_bpe_model_merges_to(&model, 256));
    bd_bpe_model_release(&model);
}

static void merges_may_come_before_the_vocabulary(void **state)
{
    (void)state;
    char *entries = byte_entries(-1, ", \"ab\": 256"), *text;
    assert_true(asprintf(&text,
                         "{\"pre_tokenizer\": " GPT2_STEP ", \"model\": {\"merges\": "
                         "[\"a b\"], \"vocab\": {%s}}}",
                         entries) > 0);
    bd_bpe_model model;
    assert_int_equal(bd_bpe_model_parse_json(&model, text, strlen(text), "t", NULL), BD_OK);
    assert_int_equal(model.n_merges, 1);
    bd_bpe_model_release(&model);
    free(text);
    free(entries);
}

static void whole_words_are_true_only_where_they_make_a_difference(void **state)
{
    (void)state;
    static const struct {
        tokenizer_text text;
        bool expected;
    } cases[] = {
        {{.entries = ", \"ab\": 256",
          .merges = "\"a b\"",
          .model = ", \"ignore_merges\": true"},
         false},
        {{.entries = ", \"ab\": 256, \"abc\": 257",
          .merges = "\"a b\"",
          .model = ", \"ignore_merges\": true"},
         true},
        {{.entries = ", \"abc\": 256"}, false},
        // The text between added tokens contains none of them, …
        {{.entries = ", \"<s>\": 256",
          .added = ADDED(256, "<s>", ""),
          .model = ", \"ignore_merges\": true"},
         false},
        // … unless a space before the text makes one.
        {{.entries = ", \"<s>\": 256",
          .added = ADDED(256, "<s>", ""),
          .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}",
          .model = ", \"ignore_merges\": true"},
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_bpe_model model = parsed(cases[i].text);
        assert_int_equal(model.whole_words, cases[i].expected);
        bd_bpe_model_release(&model);
    }
}

// ---- Refusals ---------------------------------------------------------------------

typedef struct refusal {
    tokenizer_text text;
    const char *message;  // follows the name of the file
} refusal;

static void assert_refused(const refusal *cases, size_t n, bd_status expected)
{
    for (size_t i = 0; i < n; i++) {
        bd_bpe_model model;
        bd_error err;
        const bd_status status = parse(&model, cases[i].text, &err);
        char message[600];
        snprintf(message, sizeof message, "cannot use 't.json': %s", cases[i].message);
        assert_string_equal(err.message, message);
        assert_int_equal(status, expected);
        assert_null(model.begins);
    }
}

static void damage_is_named(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {{.left_out = 'a'}, "byte 0x61 has no token"},
        {{.entries = ", \"ab\": 5"}, "'model': 'vocab': entry 'ab': id 5 is used twice"},
        {{.entries = ", \"a\": 256"},
         "'model': 'vocab': entry 'a': ids 97 and 256 have the same token"},
        {{.entries = ", \"\": 256"},
         "'model': 'vocab': entry '': the token with id 256 is empty"},
        {{.entries = ", \"ab\": -1"},
         "'model': 'vocab': entry 'ab': id -1 is not one from 0 to 2097150"},
        {{.entries = ", \"ab\": 2097151"},
         "'model': 'vocab': entry 'ab': id 2097151 is not one from 0 to 2097150"},
        {{.entries = ", \"ab\": 99999999999999999999"},
         "'model': 'vocab': byte 2761: an integer of 64 bits is expected"},
        {{.entries = ", \"ab\": 256.5"},
         "'model': 'vocab': byte 2761: an integer of 64 bits is expected"},
        {{.entries = ", \"ab\": \"256\""},
         "'model': 'vocab': byte 2761: an integer of 64 bits is expected"},
        {{.entries = ", \"a b\": 256"},
         "entry 'a b' with id 256 is not written in the alphabet of bytes, and is not an added "
         "token"},
        {{.entries = ", \"\u4e16\": 97", .added = ADDED(97, "\u4e16", "")},
         "entry '\u4e16': id 97 is used twice"},
        {{.merges = "\"a b\""}, "'model': 'merges': merge 0: 'ab' is not in the vocabulary"},
        {{.entries = ", \"abc\": 256", .merges = "\"ab c\""},
         "'model': 'merges': merge 0: 'ab' is not in the vocabulary"},
        {{.entries = ", \"ab\": 256", .merges = "\"a b\", \"a b\""},
         "merge 1 is merge 0 again"},
        {{.entries = ", \"ab\": 256", .merges = "\"ab\""},
         "'model': 'merges': merge 0: it is not two entries with a space between"},
        {{.entries = ", \"ab\": 256", .merges = "\"a b c\""},
         "'model': 'merges': merge 0: 'b c' is not in the vocabulary"},
        {{.entries = ", \"ab\": 256", .merges = "[\"a\"]"},
         "'model': 'merges': merge 0: it is not two entries"},
        {{.entries = ", \"ab\": 256", .merges = "[\"a\", \"b\", \"c\"]"},
         "'model': 'merges': merge 0: it is not two entries"},
        {{.merges = "7"}, "'model': 'merges': merge 0: byte 2767: a string is expected"},
        {{.model = ", \"vocab\": {}"}, "'model': it has 'vocab' twice"},
        {{.model = ", \"merges\": []"}, "'model': it has 'merges' twice"},
        {{.model = ", \"type\": \"BPE\""}, "'model': it has 'type' twice"},
        {{.document = ", \"model\": {}"}, "'model': it is given twice"},
        {{.document = ", \"version\": \"1.0\""}, "it has 'version' twice"},
        {{.document = ", \"normalizer\": 7"}, "'normalizer' is not an object"},
        {{.document = "} 1"}, "byte 2771: something follows the document"},
        {{.added = ADDED(256, "<s>", "") ", " ADDED(256, "<t>", "")},
         "'added_tokens', element 1: added token '<t>': id 256 is used twice"},
        {{.added = ADDED(256, "<s>", "") ", " ADDED(257, "<s>", "")},
         "'added_tokens', element 1: added token '<s>': ids 256 and 257 have the same token"},
        {{.added = ADDED(256, "", "")},
         "'added_tokens', element 0: added token '': the token with id 256 is empty"},
        {{.added = ADDED(-1, "<s>", "")},
         "'added_tokens', element 0: 'id': not an integer from 0 to 2097150"},
        {{.added = "{\"id\": 256, \"content\": \"<s>\"}"},
         "'added_tokens', element 0: 'single_word' is not a boolean"},
        {{.added = ADDED(5, "<s>", "")}, "added token '<s>' has id 5, which another entry has"},
        {{.added = ADDED(300, "<s>", "")},
         "added token '<s>' has id 300, but Hugging Face's tokenizers would give it id 256"},
        {{.added = ADDED(256, "a", "")},
         "added token 'a' has id 256, but Hugging Face's tokenizers would give it id 97"},
    };
    assert_refused(cases, sizeof cases / sizeof *cases, BD_ERR_FORMAT);
}

static void unsupported_features_are_named(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {{.document = ", \"extra\": [1, {}]"}, "'extra' is [1,{}], which is not supported"},
        {{.document = ", \"padding\": {}"}, "'padding' is {}, which is not supported"},
        {{.model = ", \"byte_fallback\": true"},
         "'model': 'byte_fallback' is true, which is not supported"},
        {{.model = ", \"dropout\": 0.5"}, "'model': 'dropout' is 0.5, which is not supported"},
        {{.added = ADDED(256, "<s>", ", \"new\": 1")},
         "'added_tokens', element 0: 'new' is 1, which is not supported"},
        // The text "é" is two bytes, and the vocabulary's "é" is the byte 0xE9.
        {{.added = ADDED(233, "\u00e9", "")},
         "added token '\u00e9' with id 233 is also the vocabulary's token for other bytes"},
        {{.pre_tokenizer = "null"},
         "'pre_tokenizer' has no ByteLevel: only byte-level BPE is supported"},
        {{.pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
                           "\"behavior\": \"Contiguous\", \"invert\": false}"},
         "'pre_tokenizer' is {\"type\":\"Split\",\"pattern\":{\"String\":\" "
         "\"},\"behavior\":\"Contiguous\",\"invert\":false}, which is not supported"},
    };
    assert_refused(cases, sizeof cases / sizeof *cases, BD_ERR_UNSUPPORTED);
}

static void a_file_that_is_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    char *text = tokenizer_json((tokenizer_text){.entries = ", \"\\u0061b\": 256",
                                                 .merges = "[\"\\u0061\", \"b\"]",
                                                 .added = ADDED(257, "<s>", "")});
    const size_t n = strlen(text);
    for (size_t cut = 0; cut < n; cut++) {
        char *part = malloc(cut ? cut : 1);  // exactly this long, so that sanitizers see more
        memcpy(part, text, cut);
        bd_bpe_model model;
        bd_error err = {0};
        assert_int_equal(bd_bpe_model_parse_json(&model, part, cut, "t", &err), BD_ERR_FORMAT);
        assert_memory_equal(err.message, "cannot use 't': ", 16);
        free(part);
    }
    free(text);
}

// ---- Fingerprint and file ---------------------------------------------------------

static void assert_fixed_point(const bd_bpe_model *model)
{
    char *text, *again;
    bd_bpe_model second;
    assert_int_equal(bd_bpe_model_to_json(model, &text, NULL), BD_OK);
    assert_int_equal(bd_bpe_model_parse_json(&second, text, strlen(text), "t", NULL), BD_OK);
    assert_int_equal(bd_bpe_model_to_json(&second, &again, NULL), BD_OK);
    assert_string_equal(again, text);
    assert_string_equal(bd_bpe_model_fingerprint(&second).hex,
                        bd_bpe_model_fingerprint(model).hex);
    bd_bpe_model_release(&second);
    free(text);
    free(again);
}

static void a_written_file_means_the_same(void **state)
{
    (void)state;
    static const tokenizer_text cases[] = {
        {.entries = NULL},
        {.entries = ", \"ab\": 300, \"<\\\"\\\\\\n>\": 400",  // holes and escapes
         .merges = "\"a b\"",
         .added = ADDED(400, "<\\\"\\\\\\n>", "")},
        {.added = ADDED(256, "<s>", ""), .document = ", \"normalizer\": {\"type\": \"NFC\"}"},
        {.pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                          "\"individual_digits\": true}, {\"type\": \"Split\", \"pattern\": "
                          "{\"String\": \"a+\\\"b\"}, \"behavior\": \"Isolated\", \"invert\": "
                          "true}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                          "\"use_regex\": false}]}"},
        {.pre_tokenizer = "{\"type\": \"ByteLevel\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_bpe_model model = parsed(cases[i]);
        assert_fixed_point(&model);
        bd_bpe_model_release(&model);
    }
}

static void a_change_of_ids_changes_the_fingerprint(void **state)
{
    (void)state;
    static const tokenizer_text cases[] = {
        {.entries = ", \"ab\": 256, \"bc\": 257", .merges = "\"a b\", \"b c\""},
        {.entries = ", \"ab\": 256, \"bc\": 257", .merges = "\"b c\", \"a b\""},
        {.entries = ", \"ab\": 256, \"bc\": 257", .merges = "\"a b\""},
        {.entries = ", \"ab\": 257, \"bc\": 256", .merges = "\"a b\", \"b c\""},
        {.entries = ", \"ab\": 256, \"bc\": 257",
         .merges = "\"a b\", \"b c\"",
         .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}"},
        {.entries = ", \"ab\": 256, \"bc\": 257",
         .merges = "\"a b\", \"b c\"",
         .document = ", \"normalizer\": {\"type\": \"NFC\"}"},
        {.entries = ", \"ab\": 256, \"bc\": 257",
         .merges = "\"a b\"",
         .model = ", \"ignore_merges\": true"},
        {.entries = ", \"ab\": 256, \"bc\": 257",
         .merges = "\"a b\", \"b c\"",
         .added = ADDED(258, "<s>", "")},
        {.entries = ", \"ab\": 256, \"bc\": 257",
         .merges = "\"a b\", \"b c\"",
         .added = ADDED(258, "<t>", "")},
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    bd_digest digests[N_CASES];
    for (size_t i = 0; i < N_CASES; i++) {
        bd_bpe_model model = parsed(cases[i]);
        digests[i] = bd_bpe_model_fingerprint(&model);
        bd_bpe_model_release(&model);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(digests[i].hex, digests[j].hex);
    }
}

// ---- Files ------------------------------------------------------------------------

static void write_vocabulary(const char *path, const char *more)
{
    char *entries = byte_entries(-1, more), *text;
    assert_true(asprintf(&text, "{%s}", entries) > 0);
    write_text(path, text);
    free(text);
    free(entries);
}

static void a_vocabulary_and_its_merges_are_read_from_a_folder(void **state)
{
    (void)state;
    write_vocabulary("vocab.json", ", \"ab\": 256, \"<|endoftext|>\": 257, \"</s>\": 258");
    write_text("merges.txt", "#version: 0.2\r\na b\r\n");
    for (const char *const *spec =
             (const char *const[]){".", "vocab.json", "./merges.txt", NULL};
         *spec; spec++) {
        bd_bpe_model model = loaded(*spec);
        assert_int_equal(model.n_merges, 1);
        assert_int_equal(model.n_added, 1);
        assert_int_equal(model.added[0].id, 257);
        bd_bpe_model_release(&model);
    }
    write_text("special_tokens_map.json",
               "{\"eos_token\": \"</s>\", \"bos_token\": {\"content\": \"</s>\", "
               "\"single_word\": false, \"lstrip\": false, \"rstrip\": false}}");
    write_text("added_tokens.json", "{\"<new>\": 259}");
    bd_bpe_model model = loaded(".");
    assert_int_equal(model.n_added, 2);
    assert_int_equal(model.added[0].id, 258);
    assert_true(model.added[0].special && !model.added[1].special);
    assert_int_equal(model.added[1].id, 259);
    bd_bpe_model_release(&model);
}

static void assert_load_fails(const char *spec, bd_status expected, const char *message)
{
    bd_bpe_model model;
    bd_error err = {0};
    assert_int_equal(bd_bpe_model_load(&model, spec, &err), expected);
    assert_string_equal(err.message, message);
    assert_null(model.begins);
}

static void bad_files_are_named(void **state)
{
    (void)state;
    bd_bpe_model model;
    bd_error err = {0};
    assert_int_equal(bd_bpe_model_load(&model, "absent.json", &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "absent.json"));
    assert_load_fails(".", BD_ERR_ARGUMENT,
                      "'.' has no tokenizer.json, nor vocab.json and merges.txt");
    write_text("merges.txt", "a b\nab");
    assert_load_fails("merges.txt", BD_ERR_ARGUMENT,
                      "'.' does not have both vocab.json and merges.txt");
    write_vocabulary("vocab.json", ", \"ab\": 256");
    assert_load_fails(
        ".", BD_ERR_FORMAT,
        "cannot use './merges.txt': line 2: not two entries with a space between");
    write_text("merges.txt", "a b\nb c\n");
    assert_load_fails(".", BD_ERR_FORMAT,
                      "cannot use './merges.txt': line 2: 'bc' is not in the vocabulary");
    write_text("merges.txt", "a b\n");
    write_text("special_tokens_map.json", "{\"eos_token\": \"</s>\"}");
    assert_load_fails(
        ".", BD_ERR_FORMAT,
        "cannot use './special_tokens_map.json': '</s>' is not in the vocabulary");
    write_text("tokenizer.json", "[]");
    assert_load_fails(".", BD_ERR_FORMAT,
                      "cannot use './tokenizer.json': byte 0: an object is expected");
    write_text("t.json", "{}");
    assert_load_fails("t.json", BD_ERR_FORMAT, "cannot use 't.json': it has no 'model'");
}

static void bad_rank_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *message;
    } cases[] = {
        {"YWI= 256\nYWI= 257\n",
         "cannot use 'r.tiktoken': line 258: ids 256 and 257 have the same token"},
        {"YWI= 255\n", "cannot use 'r.tiktoken': line 257: id 255 is used twice"},
        {"YWI= 9999999\n",
         "cannot use 'r.tiktoken': line 257: id 9999999 is not one from 0 to 2097150"},
        {"YWI=\n",
         "cannot use 'r.tiktoken': line 257: not a token in base64, a space and a rank"},
        {"YWI 256\n",
         "cannot use 'r.tiktoken': line 257: not a token in base64, a space and a rank"},
        {"YW*= 256\n",
         "cannot use 'r.tiktoken': line 257: not a token in base64, a space and a rank"},
        {"YWI= -1\n",
         "cannot use 'r.tiktoken': line 257: not a token in base64, a space and a rank"},
        {"YWI= 99999999999999999999\n",
         "cannot use 'r.tiktoken': line 257: not a token in base64, a space and a rank"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *out = fopen("r.tiktoken", "wb");
        put_byte_ranks(out);
        fputs(cases[i].lines, out);
        fclose(out);
        assert_load_fails("r.tiktoken:gpt2", BD_ERR_FORMAT, cases[i].message);
    }
    write_text("r.tiktoken", "IQ== 0\n");
    assert_load_fails("r.tiktoken:gpt2", BD_ERR_FORMAT,
                      "cannot use 'r.tiktoken': byte 0x00 has no token");
    bd_bpe_model model;
    bd_error err = {0};
    assert_int_equal(bd_bpe_model_load(&model, "r.tiktoken:other", &err), BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no pattern is named 'other': there are gpt2"));
    assert_int_equal(bd_bpe_model_load(&model, "r.tiktoken", &err), BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "needs the name of a pattern"));
}

// tiktoken's registry knows 50256 ranks as GPT-2 and 128000 as Llama 3.
static void special_tokens_come_with_the_number_of_ranks(void **state)
{
    (void)state;
    static const struct {
        size_t n_ranks;
        const char *spec;
        size_t n_added;
        uint32_t n_ids;
    } cases[] = {{50256, "r.tiktoken:gpt2", 1, 50257},
                 {50257, "r.tiktoken:gpt2", 0, 50257},
                 {50256, "r.tiktoken:cl100k", 0, 50256},
                 {128000, "r.tiktoken:llama3", 256, 128256}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *out = fopen("r.tiktoken", "wb");
        put_byte_ranks(out);
        for (size_t rank = 256; rank < cases[i].n_ranks; rank++) {
            char text[32];
            put_rank(out, text, (size_t)sprintf(text, "%zu", rank), rank);
        }
        fclose(out);
        bd_bpe_model model = loaded(cases[i].spec);
        assert_int_equal(model.n_added, cases[i].n_added);
        assert_int_equal(model.n_ids, cases[i].n_ids);
        if (cases[i].n_added == 256) {
            assert_bytes(&model, 128000, "<|begin_of_text|>");
            assert_bytes(&model, 128008, "<|reserved_special_token_4|>");
            assert_bytes(&model, 128009, "<|eot_id|>");
            assert_bytes(&model, 128255, "<|reserved_special_token_250|>");
        }
        bd_bpe_model_release(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_becomes_its_meaning),
        cmocka_unit_test(an_added_token_that_a_merge_makes_is_both),
        cmocka_unit_test(merges_may_come_before_the_vocabulary),
        cmocka_unit_test(whole_words_are_true_only_where_they_make_a_difference),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(unsupported_features_are_named),
        cmocka_unit_test(a_file_that_is_cut_short_anywhere_is_refused),
        cmocka_unit_test(a_written_file_means_the_same),
        cmocka_unit_test(a_change_of_ids_changes_the_fingerprint),
        test_inside_folder(a_vocabulary_and_its_merges_are_read_from_a_folder),
        test_inside_folder(bad_files_are_named),
        test_inside_folder(bad_rank_files_are_named),
        test_inside_folder(special_tokens_come_with_the_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
