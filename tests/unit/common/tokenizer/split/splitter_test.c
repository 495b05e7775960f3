#include "common/tokenizer/split/splitter.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/common/tokenizer/split_fixture.h"
#include "tests/unit/common/tokenizer/split_fragments.h"
#include "tests/unit/random.h"

#define REQUIRE(condition) assert_true(condition)
#include "tests/unit/common/tokenizer/known_words.h"

// The last one is two steps, see split_scalar.h.
static const bd_pattern known[] = {BD_PATTERN_GPT2,      BD_PATTERN_CL100K, BD_PATTERN_LLAMA3,
                                   BD_PATTERN_O200K,     BD_PATTERN_QWEN2,  BD_PATTERN_DIGIT,
                                   BD_PATTERN_DIGIT_GPT2};
enum { N_KNOWN = sizeof known / sizeof *known };

// ---- Three ways to find the words -------------------------------------------------

static void scalar_words(bd_pattern pattern, const char *text, size_t size_bytes, words *found)
{
    assert_true(size_bytes <= MOST_WORDS - ENDS_AT_A_TIME);
    found->n = scalar_ends(pattern, text, size_bytes, found->ends);
}

// The scalar code, the code of each instruction set that this machine has, and PCRE2 with the
// pattern's expression.
typedef struct comparison {
    bd_splitter *splitters[N_KNOWN];
    bd_word_reader *readers[N_KNOWN];
} comparison;

static void comparison_init(comparison *c)
{
    for (int p = 0; p < N_KNOWN; p++) {
        const bool two = known[p] == BD_PATTERN_DIGIT_GPT2;
        const bd_pattern first = two ? BD_PATTERN_DIGIT : known[p];
        const bd_split_step steps[] = {
            {BD_PATTERN_OTHER, (char *)bd_pattern_expression(first)},
            {BD_PATTERN_OTHER, (char *)bd_pattern_expression(BD_PATTERN_GPT2)}};
        c->readers[p] = reader_of(steps, two ? 2 : 1, &c->splitters[p]);
    }
}

static void comparison_release(comparison *c)
{
    for (int p = 0; p < N_KNOWN; p++) {
        bd_word_reader_free(c->readers[p]);
        bd_splitter_free(c->splitters[p]);
    }
}

static void compare_isas(bd_pattern pattern, const char *text, size_t size_bytes,
                         const words *expected)
{
    static const char *const isa_names[BD_SPLIT_N_ISA] = {"scalar", "avx2", "avx512"};
    static words found;
    for (int isa = 0; isa < BD_SPLIT_N_ISA; isa++)
        if (bd_split_isa_serves((bd_split_isa)isa)) {
            found.n = isa_ends((bd_split_isa)isa, pattern, text, size_bytes, found.ends);
            assert_same(isa_names[isa], text, expected, &found);
        }
}

static void compare(comparison *c, const char *text, size_t size_bytes)
{
    static words expected, found;
    char *exact = malloc(size_bytes > 0 ? size_bytes : 1);  // so that ASan sees reads past it
    assert_non_null(exact);
    memcpy(exact, text, size_bytes);
    for (int p = 0; p < N_KNOWN; p++) {
        read_words(c->readers[p], exact, size_bytes, FEWEST, &expected);
        scalar_words(known[p], exact, size_bytes, &found);
        assert_same("the scalar code differs from PCRE2", exact, &expected, &found);
        compare_isas(known[p], exact, size_bytes, &expected);
    }
    free(exact);
}

// ---- The patterns -----------------------------------------------------------------

static const struct {
    bd_pattern pattern;
    const char *cut;  // words are separated by |
} hard_cases[] = {
    {BD_PATTERN_GPT2, "Hello| world"},
    {BD_PATTERN_GPT2, "don|'t|'re|'|RE"},
    {BD_PATTERN_GPT2, "it|'s|abc"},
    {BD_PATTERN_GPT2, "a| '|s"},
    {BD_PATTERN_GPT2, "a|  | b|\n|\n|c"},
    {BD_PATTERN_GPT2, "a|\t|b"},
    {BD_PATTERN_GPT2, "x| 12345|y"},
    {BD_PATTERN_GPT2, "end|  \n "},
    {BD_PATTERN_GPT2, "a|\u00a0|b|\u200b|c"},
    {BD_PATTERN_GPT2, "\u180e|a|\xC2\x85|b"},
    {BD_PATTERN_GPT2, "e|\u0301|e"},
    {BD_PATTERN_GPT2, "a|\xFF\x80|b"},
    {BD_PATTERN_GPT2, "漢字|、|かな"},
    {BD_PATTERN_CL100K, "don|'T|'ſ|x"},
    {BD_PATTERN_CL100K, "(abc|((|abc"},
    {BD_PATTERN_CL100K, "x| (|abc"},
    {BD_PATTERN_CL100K, "123|456|7|a"},
    {BD_PATTERN_CL100K, "٣٣٣|٣"},
    {BD_PATTERN_CL100K, "a| |1|\tb"},
    {BD_PATTERN_CL100K, "a|!\n\r\n|  \n|  | b"},
    {BD_PATTERN_CL100K, "a|\n|\tb"},
    {BD_PATTERN_CL100K, "a|\n  "},
    {BD_PATTERN_CL100K, "a| \n \n  "},
    {BD_PATTERN_LLAMA3, "a|\n|  "},
    {BD_PATTERN_LLAMA3, "a| \n \n|  "},
    {BD_PATTERN_LLAMA3, "a|\n"},
    {BD_PATTERN_LLAMA3, "a| \n|  | b"},
    {BD_PATTERN_QWEN2, "1|2|3|a| |4"},
    {BD_PATTERN_O200K, "Hello| World|HELLO|.HELLO| hello|World"},
    {BD_PATTERN_O200K, "AB漢CABcd's|X|.AB漢|C|!"},
    {BD_PATTERN_O200K, "it'S|abc| '|S"},
    {BD_PATTERN_O200K, "a|!//\n/|b"},
    {BD_PATTERN_O200K, "\u0301abc\u0301|ABC"},
    {BD_PATTERN_O200K, "ǅaʰa|Ʒ"},
    {BD_PATTERN_DIGIT, "abc |1|2| |½|x|Ⅷ|\n"},
};

static void hard_cases_are_cut_as_the_references_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hard_cases / sizeof *hard_cases; i++) {
        const bd_split_step step = {hard_cases[i].pattern, NULL};
        check_steps(&step, 1, hard_cases[i].cut);
    }
}

static void known_spellings_are_recognised(void **state)
{
    (void)state;
    for (int p = 0; p < N_KNOWN - 1; p++)
        assert_int_equal(bd_pattern_of_expression(bd_pattern_expression(known[p])), known[p]);
    // tests/oracle/splitter_test.py shows that these have the same words.
    const char *gpt2 = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                       "\\s+(?!\\S)|\\s+";
    const char *llama3 = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
                         " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
    assert_int_equal(bd_pattern_of_expression(gpt2), BD_PATTERN_GPT2);
    assert_int_equal(bd_pattern_of_expression(llama3), BD_PATTERN_LLAMA3);
    assert_int_equal(bd_pattern_of_expression("\\p{L}+"), BD_PATTERN_OTHER);
    assert_int_equal(bd_pattern_of_expression(""), BD_PATTERN_OTHER);
    bd_pattern pattern;
    assert_true(bd_pattern_by_name("cl100k_base", &pattern));
    assert_int_equal(pattern, BD_PATTERN_CL100K);
    assert_true(bd_pattern_by_name("llama3", &pattern));
    assert_int_equal(pattern, BD_PATTERN_LLAMA3);
    assert_false(bd_pattern_by_name("gpt5", &pattern));
    assert_non_null(strstr(bd_pattern_names(), "qwen2"));
}

// ---- All ways agree ---------------------------------------------------------------

static void every_way_cuts_random_text_alike(void **state)
{
    (void)state;
    static const int32_t longest[] = {3, 12, 40, 200};
    const char *rounds = getenv("BINDERY_SPLIT_ROUNDS");
    const int n = rounds ? atoi(rounds) : 4000;
    uint64_t seed = 8;
    comparison c;
    comparison_init(&c);
    for (int i = 0; i < n; i++) {
        char text[200 * MOST_FRAGMENT_BYTES];
        const int32_t n_fragments = random_between(&seed, 0, longest[i % 4]);
        // Few different fragments make long runs.
        const int32_t variety = i % 3 == 0 ? 4 : N_FRAGMENTS;
        const int32_t first = random_between(&seed, 0, N_FRAGMENTS - 1);
        size_t size_bytes = 0;
        for (int32_t f = 0; f < n_fragments; f++)
            size_bytes = add_fragment(
                text, size_bytes,
                (uint32_t)(first + random_between(&seed, 0, variety - 1)) % N_FRAGMENTS);
        compare(&c, text, size_bytes);
    }
    comparison_release(&c);
}

// Every fragment with some other one, at every place around the edges of blocks of 32 and 64
// bytes, between letters, spaces, line ends, digits and so on.
static void every_way_cuts_alike_at_the_edges_of_blocks(void **state)
{
    (void)state;
    static const char fillers[] = {'a', ' ', '\n', '1', '!', '\''};
    comparison c;
    comparison_init(&c);
    for (size_t f = 0; f < sizeof fillers; f++)
        for (uint32_t x = 0; x < N_FRAGMENTS; x++)
            for (size_t at = 29; at < 67; at++) {
                char text[160];
                memset(text, fillers[f], at);
                size_t n = add_fragment(text, at, x);
                n = add_fragment(text, n, (uint32_t)(x * 7 + at) % N_FRAGMENTS);
                memset(text + n, fillers[(f + x) % sizeof fillers], sizeof text - n);
                compare(&c, text, n);
                compare(&c, text, n + 1 + x % 5);
                compare(&c, text, 128 + x % 3);
            }
    comparison_release(&c);
}

// The edge of a block lies between or inside them.
static void every_way_cuts_every_pair_alike_at_the_edge_of_a_block(void **state)
{
    (void)state;
    comparison c;
    comparison_init(&c);
    for (uint32_t x = 0; x < N_FRAGMENTS; x++)
        for (uint32_t y = 0; y < N_FRAGMENTS; y++) {
            char text[128];
            memset(text, " a!A"[y % 4], sizeof text);
            const size_t before = 64 - (add_fragment(text, 0, x) - x % 2);
            memset(text, "a 1\n"[(x + y) % 4], before);
            const size_t n = add_fragment(text, add_fragment(text, before, x), y);
            compare(&c, text, n + 2);
        }
    comparison_release(&c);
}

static size_t add_code_point(char *text, size_t at, uint32_t code)
{
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    text[at++] = (char)(more == 0 ? code : 0xF80u >> more | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        text[at++] = (char)(0x80 | (code >> 6 * i & 0x3F));
    return at;
}

// Vector code finds some classes without the table.
static void every_way_knows_the_class_of_every_code_point(void **state)
{
    (void)state;
    static words expected;
    enum { CODES = 12 };
    for (uint32_t first = 0x80; first < 0x110000; first += CODES) {
        if (first == 0x34000 - 0x34000 % CODES)
            first = 0xE0000;  // nothing is assigned in between, and little above
        char text[CODES * 20];
        size_t n = 0;
        for (uint32_t code = first; code < first + CODES; code++) {
            n = add_code_point(text, n, code);
            text[n++] = 'a';
            n = add_code_point(text, n, code);
            memcpy(text + n, "1 ", 2);
            n = add_code_point(text, n + 2, code);
        }
        for (int p = 0; p < N_KNOWN; p++) {
            scalar_words(known[p], text, n, &expected);
            compare_isas(known[p], text, n, &expected);
        }
        if (first > 0xE0200)
            break;
    }
}

static void awkward_sizes_are_cut_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,  1,   2,   31,  32,  33,  63, 64,
                                   65, 127, 128, 129, 191, 192, 193};
    static const char *const units[] = {"a", " ",      "\n", " \n", "1",        "é",   "漢",
                                        "😀", "\u3000", "'s", "'",   "\xF0\x9F", "\0x", "\xFF"};
    comparison c;
    comparison_init(&c);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            char text[200];
            const size_t unit = units[u][0] == '\0' ? 2 : strlen(units[u]);
            for (size_t i = 0; i < sizes[s]; i++)
                text[i] = units[u][i % unit];  // the last may be cut short
            compare(&c, text, sizes[s]);
        }
    comparison_release(&c);
}

// ---- Bounds -----------------------------------------------------------------------

// The text ends where a page ends and the next cannot be read, and begins where one begins.
static void nothing_outside_the_text_is_read(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_READ | PROT_WRITE), 0);
    static const char *const units[] = {"ab ", "漢", "\xF0\x9F\x98\x80", "'r", "\r\n", "12"};
    static words expected;
    for (size_t u = 0; u < 6; u++)
        for (size_t n = 0; n < 200; n++)
            for (int place = 0; place < 2; place++) {
                char *text = place ? map + page : map + 2 * page - n;
                for (size_t i = 0; i < n; i++)
                    text[i] = units[u][i % strlen(units[u])];
                for (int p = 0; p < N_KNOWN; p++) {
                    scalar_words(known[p], text, n, &expected);
                    compare_isas(known[p], text, n, &expected);
                }
            }
    munmap(map, 3 * page);
}

static void text_of_four_gigabytes_is_refused(void **state)
{
    (void)state;
    const bd_split_step step = {BD_PATTERN_GPT2, NULL};
    bd_splitter *splitter;
    bd_word_reader *reader = reader_of(&step, 1, &splitter);
    bd_error err = {0};
    assert_int_equal(bd_word_reader_begin(reader, "", (size_t)1 << 32, &err),
                     BD_ERR_UNSUPPORTED);
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
}

// ---- Steps ------------------------------------------------------------------------

static void steps_work_inside_the_pieces_of_the_one_before(void **state)
{
    (void)state;
    check_steps(NULL, 0, "one word, whatever\nit has");
    check_steps(NULL, 0, "");
    const bd_split_step starcoder[] = {{BD_PATTERN_DIGIT, NULL}, {BD_PATTERN_GPT2, NULL}};
    check_steps(starcoder, 2, "a|  |1|2| b|  | c");  // the lookahead ends with the piece
    check_steps(starcoder, 2, "");
    const bd_split_step three[] = {
        {BD_PATTERN_OTHER, "-"}, {BD_PATTERN_DIGIT, NULL}, {BD_PATTERN_OTHER, "\\s+(?!\\S)|b"}};
    check_steps(three, 3, "a|  |-|  |1|x|b|y| |-");
}

static void words_come_in_order_through_every_buffer(void **state)
{
    (void)state;
    enum { N = 3000 };
    char text[2 * N];
    static words found;
    for (size_t i = 0; i < N; i++)
        memcpy(text + 2 * i, "1a", 2);
    const bd_split_step steps[] = {{BD_PATTERN_DIGIT, NULL}, {BD_PATTERN_OTHER, "[0-9]|a"}};
    bd_splitter *splitter;
    bd_word_reader *reader = reader_of(steps, 2, &splitter);
    for (size_t capacity = FEWEST; capacity < 300; capacity += 77) {
        read_words(reader, text, N, capacity, &found);
        assert_int_equal(found.n, N);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(found.ends[i], i + 1);
    }
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
}

// ---- Threads ----------------------------------------------------------------------

static void *read_many(void *splitter)
{
    bd_word_reader *reader;
    bd_error err;
    size_t total = 0;
    if (bd_word_reader_new(splitter, &reader, &err) != BD_OK)
        return NULL;
    for (int i = 0; i < 200; i++) {
        uint32_t ends[FEWEST];
        size_t n;
        if (bd_word_reader_begin(reader, "one two3 four\n", 14, &err) != BD_OK)
            break;
        while (bd_word_reader_next(reader, ends, FEWEST, &n, &err) == BD_OK && n > 0)
            total += n;
    }
    bd_word_reader_free(reader);
    return (void *)total;  // NOLINT: a number that fits
}

static void splitter_serves_many_threads(void **state)
{
    (void)state;
    const bd_split_step steps[] = {{BD_PATTERN_OTHER, "\\p{N}"}, {BD_PATTERN_CL100K, NULL}};
    bd_splitter *splitter;
    bd_word_reader_free(reader_of(steps, 2, &splitter));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, splitter), 0);
    for (int i = 0; i < 3; i++) {
        void *total;
        pthread_join(threads[i], &total);
        assert_int_equal((size_t)total, 200 * 5);
    }
    bd_splitter_free(splitter);
}

// splitter_test [CASE], a pattern of names as in a shell.
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard_cases_are_cut_as_the_references_do),
        cmocka_unit_test(known_spellings_are_recognised),
        cmocka_unit_test(every_way_cuts_random_text_alike),
        cmocka_unit_test(every_way_cuts_alike_at_the_edges_of_blocks),
        cmocka_unit_test(every_way_cuts_every_pair_alike_at_the_edge_of_a_block),
        cmocka_unit_test(every_way_knows_the_class_of_every_code_point),
        cmocka_unit_test(awkward_sizes_are_cut_whole),
        cmocka_unit_test(nothing_outside_the_text_is_read),
        cmocka_unit_test(text_of_four_gigabytes_is_refused),
        cmocka_unit_test(steps_work_inside_the_pieces_of_the_one_before),
        cmocka_unit_test(words_come_in_order_through_every_buffer),
        cmocka_unit_test(splitter_serves_many_threads),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
