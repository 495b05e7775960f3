#include "common/tokenizer/tokenizer_config.h"

#include "tests/unit/temporary_folder.h"

static const char TOKENIZER[] =
    "{\"version\": \"1.0\", \"model\": {\"vocab\": {\"a\": 0, \"added_tokens\": 1}},\n"
    " \"added_tokens\": [{\"id\": 7, \"content\": \"<\\u00e9nd>\", \"special\": true},\n"
    "                  {\"id\": 8, \"content\": \"<s>\"}, {\"id\": 9, \"content\": "
    "\"<pad>\"}],\n"
    " \"decoder\": null}";

static void assert_printed(const bd_tokenizer_config *config, const char *expected)
{
    char *text;
    bd_error err = {0};
    if (bd_tokenizer_config_print(config, &text, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_string_equal(text, expected);
    free(text);
}

static void tokens_are_named_as_the_file_has_them(void **state)
{
    (void)state;
    const bd_tokenizer_config all = {
        .tokenizer = TOKENIZER, .eos = 7, .bos = 8, .pad = 9, .max_length = 100};
    assert_printed(&all, "{\n"
                         "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                         "  \"model_max_length\": 100,\n"
                         "  \"clean_up_tokenization_spaces\": false,\n"
                         "  \"eos_token\": \"<\u00e9nd>\",\n"
                         "  \"bos_token\": \"<s>\",\n"
                         "  \"pad_token\": \"<pad>\"\n"
                         "}\n");
}

static const char NOTHING_NAMED[] = "{\n"
                                    "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                    "  \"clean_up_tokenization_spaces\": false\n"
                                    "}\n";

static void tokens_that_are_not_added_are_left_out(void **state)
{
    (void)state;
    assert_printed(&(bd_tokenizer_config){TOKENIZER, 0, BD_NO_TOKEN, 1, BD_NO_MAX_LENGTH},
                   NOTHING_NAMED);
    static const char *const WITHOUT_LIST[] = {"{}", "{\"added_tokens\": []}",
                                               "{\"added_tokens\": null}",
                                               "{\"added_tokens\": [7, {\"id\": 7}]}"};
    for (size_t i = 0; i < sizeof WITHOUT_LIST / sizeof *WITHOUT_LIST; i++)
        assert_printed(&(bd_tokenizer_config){WITHOUT_LIST[i], 7, 8, 9, BD_NO_MAX_LENGTH},
                       NOTHING_NAMED);
}

static void a_file_that_is_no_object_is_refused(void **state)
{
    (void)state;
    static const char *const BROKEN[] = {"", "[]", "{\"added_tokens\": [", "{\"version\""};
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++) {
        char *text;
        const bd_tokenizer_config config = {.tokenizer = BROKEN[i]};
        assert_int_equal(bd_tokenizer_config_print(&config, &text, NULL), BD_ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_named_as_the_file_has_them),
        cmocka_unit_test(tokens_that_are_not_added_are_left_out),
        cmocka_unit_test(a_file_that_is_no_object_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
