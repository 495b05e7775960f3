#include "packer/inspect/row_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 1 << 15, SEPARATOR = 256 };

// A row of documents that begin at byte 0, 100, 200… of one input; the ids are bytes.
typedef struct fixture {
    uint16_t ids[MAX_TOKENS];
    int32_t bounds[8];
    uint32_t input[8], offset[8], length[8];
    uint64_t position[8];
    uint8_t loss_mask[MAX_TOKENS / 8 + 1];
    bd_input_entry entry;
    bd_manifest manifest;
    bd_row row;
} fixture;

static void init(fixture *f, int64_t seq_len)
{
    *f = (fixture){.entry = {.name = "a.txt", .format = "text"}};
    f->manifest =
        (bd_manifest){.config = {.seq_len = seq_len, .vocab_size = 257, .separator = SEPARATOR},
                      .inputs = &f->entry,
                      .n_inputs = 1};
    f->row = (bd_row){.ids = f->ids,
                      .bounds = f->bounds,
                      .n_bounds = 1,
                      .segments = {f->input, f->position, f->offset, f->length}};
}

static void add_token(fixture *f, int64_t s, uint16_t id)
{
    assert_true(f->bounds[s + 1] < MAX_TOKENS);
    f->ids[f->bounds[s + 1]++] = id;
}

// Appends a piece that begins at token `offset` of a document of `length` tokens, and ends with
// a separator if it reaches the document's end. A length of 0 means the whole document.
static void add(fixture *f, const char *text, size_t n, uint32_t offset, uint32_t length)
{
    const int64_t s = f->row.n_segments++;
    f->row.n_bounds++;
    f->bounds[s + 1] = f->bounds[s];
    for (size_t i = 0; i < n; i++)
        add_token(f, s, (unsigned char)text[i]);
    f->length[s] = length ? length : (uint32_t)n + 1;
    f->offset[s] = offset;
    f->position[s] = (uint64_t)s * 100;
    if (offset + n + 1 == f->length[s])
        add_token(f, s, SEPARATOR);
}

static char *printed(const fixture *f, bool color)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    assert_int_equal(bd_row_print(out, &f->row, &f->manifest, bd_tokenizer_bytes(),
                                  (bd_row_style){.color = color}, NULL),
                     BD_OK);
    fclose(out);
    return text;
}

static void assert_printed(const fixture *f, bool color, const char *expected)
{
    char *text = printed(f, color);
    assert_string_equal(text, expected);
    free(text);
}

// Checks the text that is shown for a whole document of `n` bytes.
static void assert_shown(const char *text, size_t n, const char *expected)
{
    static fixture f;
    init(&f, (int64_t)n + 1);
    add(&f, text, n, 0, 0);
    char *whole = printed(&f, false);
    char *line = strchr(strchr(whole, '\n') + 1, '\n') + 1;  // after two lines of heading
    const size_t n_shown = strlen(line);
    assert_true(n_shown >= strlen("<256>\n"));
    assert_string_equal(line + n_shown - strlen("<256>\n"), "<256>\n");
    line[n_shown - strlen("<256>\n")] = '\0';
    assert_string_equal(line, expected);
    free(whole);
}

static void segments_are_told_by_their_headings(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 20);
    add(&f, "one", 3, 0, 0);
    add(&f, "two", 3, 0, 9);
    add(&f, "three", 5, 2, 40);
    add(&f, "end", 3, 6, 10);
    assert_printed(&f, false,
                   "--- tokens 0 to 3: a.txt byte 0, whole document of 4\n"
                   "    positions 0 to 3, 3 targets: none for token 3\n"
                   "one<256>\n"
                   "--- tokens 4 to 6: a.txt byte 100, tokens 0 to 2 of 9\n"
                   "    positions 0 to 2, 2 targets: none for token 6\n"
                   "two\n"
                   "--- tokens 7 to 11: a.txt byte 200, tokens 2 to 6 of 40\n"
                   "    token 7 is repeated as context\n"
                   "    positions 0 to 4, 4 targets: none for token 11\n"
                   "three\n"
                   "--- tokens 12 to 15: a.txt byte 300, tokens 6 to 9 of 10\n"
                   "    token 12 is repeated as context\n"
                   "    positions 0 to 3, 3 targets: none for token 15\n"
                   "end<256>\n"
                   "--- tokens 16 to 19: padding\n");
}

static void position_is_told_in_the_units_of_its_input(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"jsonl", "byte 100"},
                                           {"parquet", "row 100"},
                                           {"arrow-stream", "row 100"},
                                           {"megatron", "document 100"},
                                           {"llm.c", "token 100"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static fixture f;
        char expected[100];
        init(&f, 4);
        f.entry.format = (char *)cases[i][0];
        add(&f, "a", 1, 0, 0);
        add(&f, "b", 1, 0, 0);
        snprintf(expected, sizeof expected,
                 "--- tokens 2 to 3: a.txt %s, whole document of 2\n", cases[i][1]);
        char *text = printed(&f, false);
        assert_non_null(strstr(text, expected));
        free(text);
    }
}

static void neighbours_differ_in_colour(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 6);
    add(&f, "a", 1, 0, 0);
    add(&f, "b", 1, 0, 0);
    add(&f, "c", 1, 0, 0);
    char *text = printed(&f, true);
    assert_non_null(strstr(text, "\x1b[36ma<256>\x1b[0m\n"));
    assert_non_null(strstr(text, "\x1b[33mb<256>\x1b[0m\n"));
    assert_non_null(strstr(text, "\x1b[32mc<256>\x1b[0m\n"));
    assert_null(strstr(text, "padding"));
    free(text);
    text = printed(&f, false);
    assert_null(strchr(text, '\x1b'));
    free(text);
}

static void control_characters_are_shown_and_not_sent(void **state)
{
    (void)state;
    assert_shown("a\tb\nc", 5, "a\tb\nc");
    assert_shown("\x1b[31m\a\r\b", 8, "\\x1b[31m\\x07\\x0d\\x08");
    assert_shown("\x7f", 1, "\\x7f");
    assert_shown("a\0b", 3, "a\\x00b");
    // C1 controls are two bytes; a terminal that reads Latin-1 would obey the second alone.
    assert_shown("\xc2\x9b"
                 "31m\xc2\x80\xc2\x9f\xc2\xa0",
                 11, "\\xc2\\x9b31m\\xc2\\x80\\xc2\\x9f\xc2\xa0");
}

static void bytes_that_are_not_utf8_are_shown_as_numbers(void **state)
{
    (void)state;
    assert_shown("a\xff\xc3(\x80", 5, "a\\xff\\xc3(\\x80");
    assert_shown("\xe2\x82", 2, "\\xe2\\x82");
    assert_shown("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");
    assert_shown("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9,
                 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

// No character is cut where memory is full or a buffer ends.
static void long_text_keeps_its_characters(void **state)
{
    (void)state;
    static const char *const CHARACTERS[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static char text[MAX_TOKENS];
    for (size_t c = 0; c < 3; c++) {
        for (size_t shift = 0; shift < 4; shift++) {
            size_t n = shift;
            memset(text, 'a', shift);
            while (n + 8 < sizeof text) {
                memcpy(text + n, CHARACTERS[c], strlen(CHARACTERS[c]));
                n += strlen(CHARACTERS[c]);
            }
            text[n] = '\0';
            assert_shown(text, n, text);
        }
    }
}

static void names_of_inputs_cannot_play_tricks(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 2);
    f.entry.name = "a\n\x1b[2J\xff.txt";
    add(&f, "b", 1, 0, 0);
    assert_printed(&f, false,
                   "--- tokens 0 to 1: a\\x0a\\x1b[2J\\xff.txt byte 0, whole document of 2\n"
                   "    positions 0 to 1, 1 target: none for token 1\n"
                   "b<256>\n");
}

static void an_input_that_is_not_listed_is_refused(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 4);
    add(&f, "a", 1, 0, 0);
    add(&f, "b", 1, 0, 0);
    f.input[1] = UINT32_MAX;
    char *text;
    size_t n;
    bd_error err = {0};
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    assert_int_equal(
        bd_row_print(out, &f.row, &f.manifest, bd_tokenizer_bytes(), (bd_row_style){0}, &err),
        BD_ERR_FORMAT);
    fclose(out);
    free(text);
    assert_string_equal(err.message,
                        "S2: segment 1 is of input 4294967295, the manifest lists 1");
}

// The text repeats "aa" and "語" (3 bytes), and at most 4 bytes are requested: a character that
// has begun is shown completely, and so is the number of tokens that are left out.
static void abbreviated_text_ends_with_a_character(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 20);
    add(&f, "aa\xe8\xaa\x9e\xe8\xaa\x9e", 8, 0, 0);
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    assert_int_equal(bd_row_print(out, &f.row, &f.manifest, bd_tokenizer_bytes(),
                                  (bd_row_style){.most_bytes = 4}, NULL),
                     BD_OK);
    fclose(out);
    assert_non_null(strstr(text, "\naa\xe8\xaa\x9e [4 more tokens]\n"));
    free(text);
}

// A shard alone does not contain the names of its inputs.
static void without_a_list_inputs_are_told_by_number(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 2);
    add(&f, "a", 1, 0, 0);
    f.input[0] = 7;
    f.manifest.n_inputs = 0;
    assert_printed(&f, false,
                   "--- tokens 0 to 1: input 7 position 0, whole document of 2\n"
                   "    positions 0 to 1, 1 target: none for token 1\n"
                   "a<256>\n");
}

// The fixture's mask: 1 for each '+' of `trained`. It begins inside a byte, as a row's mask may.
static void set_mask(fixture *f, const char *trained)
{
    f->row.loss_mask = f->loss_mask;
    f->row.mask_bit = 5;
    for (int32_t t = 0; trained[t]; t++)
        if (trained[t] == '+')
            bd_bits_fill(f->loss_mask, f->row.mask_bit + t, f->row.mask_bit + t + 1, true);
}

static void masked_text_is_told_apart_without_colour(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 20);
    add(&f, "why?so!", 7, 0, 0);
    add(&f, "ask", 3, 0, 0);
    add(&f, "no", 2, 3, 6);
    set_mask(&f, "----+++"
                 "+"
                 "-++-"
                 "---");
    assert_printed(&f, false,
                   "{+Text in such marks+} is trained, the rest is masked\n"
                   "--- tokens 0 to 7: a.txt byte 0, whole document of 8\n"
                   "    positions 0 to 7, 4 targets, 3 masked\n"
                   "why?{+so!<256>+}\n"
                   "--- tokens 8 to 11: a.txt byte 100, whole document of 4\n"
                   "    positions 0 to 3, 2 targets, 1 masked\n"
                   "a{+sk+}<256>\n"
                   "--- tokens 12 to 14: a.txt byte 200, tokens 3 to 5 of 6\n"
                   "    token 12 is repeated as context\n"
                   "    positions 0 to 2, 0 targets, 2 masked\n"
                   "no<256>\n"
                   "--- tokens 15 to 19: padding\n");
}

static void masked_text_is_dimmed_in_its_colour(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 12);
    add(&f, "why?so!", 7, 0, 0);
    add(&f, "ask", 3, 0, 0);
    set_mask(&f, "----+++"
                 "+"
                 "-++-");
    char *text = printed(&f, true);
    assert_memory_equal(text, "Dimmed text is masked", strlen("Dimmed text is masked"));
    assert_non_null(strstr(text, "\n\x1b[36m\x1b[2mwhy?\x1b[22mso!<256>\x1b[0m\n"));
    assert_non_null(strstr(text, "\n\x1b[33m\x1b[2ma\x1b[22msk\x1b[2m<256>\x1b[22m\x1b[0m\n"));
    assert_null(strstr(text, "{+"));
    free(text);
}

// Masks may end inside a character, whose bytes must stay together; bytes that are no character
// keep their own side.
static void masks_do_not_cut_characters(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 20);
    add(&f, "a\xe8\xaa\x9e\xe8\xaa\x9e", 7, 0, 0);
    add(&f, "ab\xe8", 3, 0, 0);
    set_mask(&f, "--++-+-"
                 "-"
                 "-+++");
    char *text = printed(&f, false);
    assert_non_null(strstr(text, "\na\xe8\xaa\x9e\xe8\xaa\x9e<256>\n"));
    assert_non_null(strstr(text, "\na{+b\\xe8<256>+}\n"));
    free(text);
    bd_bits_fill(f.loss_mask, f.row.mask_bit + 11, f.row.mask_bit + 12, false);
    text = printed(&f, false);
    assert_non_null(strstr(text, "\na{+b\\xe8+}<256>\n"));
    free(text);
}

// The marks are closed before it is said how much was left out.
static void abbreviated_text_closes_its_marks(void **state)
{
    (void)state;
    static fixture f;
    init(&f, 20);
    add(&f, "abcdefgh", 8, 0, 0);
    set_mask(&f, "-++++++++");
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    assert_int_equal(bd_row_print(out, &f.row, &f.manifest, bd_tokenizer_bytes(),
                                  (bd_row_style){.most_bytes = 4}, NULL),
                     BD_OK);
    fclose(out);
    assert_non_null(strstr(text, "\na{+bcd+} [5 more tokens]\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_told_by_their_headings),
        cmocka_unit_test(position_is_told_in_the_units_of_its_input),
        cmocka_unit_test(neighbours_differ_in_colour),
        cmocka_unit_test(control_characters_are_shown_and_not_sent),
        cmocka_unit_test(bytes_that_are_not_utf8_are_shown_as_numbers),
        cmocka_unit_test(long_text_keeps_its_characters),
        cmocka_unit_test(abbreviated_text_ends_with_a_character),
        cmocka_unit_test(without_a_list_inputs_are_told_by_number),
        cmocka_unit_test(names_of_inputs_cannot_play_tricks),
        cmocka_unit_test(an_input_that_is_not_listed_is_refused),
        cmocka_unit_test(masked_text_is_told_apart_without_colour),
        cmocka_unit_test(masked_text_is_dimmed_in_its_colour),
        cmocka_unit_test(masks_do_not_cut_characters),
        cmocka_unit_test(abbreviated_text_closes_its_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
