#include "common/tokenizer/model/byte_alphabet.h"

#include "tests/unit/temporary_folder.h"

static void every_byte_has_a_character_and_comes_back(void **state)
{
    (void)state;
    char bytes[256], symbols[256 * BD_MAX_SYMBOL_BYTES], back[sizeof symbols];
    for (int byte = 0; byte < 256; byte++)
        bytes[byte] = (char)byte;
    const size_t n = bd_symbols_of_bytes(bytes, sizeof bytes, symbols);
    size_t n_back;
    assert_true(bd_bytes_of_symbols(symbols, n, back, &n_back));
    assert_int_equal(n_back, sizeof bytes);
    assert_memory_equal(back, bytes, sizeof bytes);
    for (size_t i = 0; i < n; i++)
        assert_true((unsigned char)symbols[i] > ' ');
    // GPT-2's: newline, space, "!", DEL, no-break space, soft hyphen, "ÿ".
    assert_int_equal(bd_symbols_of_bytes("\n !\x7F\xA0\xAD\xFF", 7, symbols), 13);
    assert_memory_equal(symbols, "\u010a\u0120!\u0121\u0142\u0143\u00ff", 13);
}

static void other_characters_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {" ",      "\n",       "\x7F",     "\u00a0", "\u00ad",
                                        "\u0144", "\u4e16",   "\xC4",     "\xFF",   "\xC4!",
                                        "a\x80",  "\xC0\x80", "\xC1\x81", "\u0180"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char bytes[8];
        size_t n;
        assert_false(bd_bytes_of_symbols(texts[i], strlen(texts[i]), bytes, &n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_has_a_character_and_comes_back),
        cmocka_unit_test(other_characters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
