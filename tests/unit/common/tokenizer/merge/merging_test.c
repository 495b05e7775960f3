// Compares every way of merging with the plain rule, on vocabularies with many overlaps.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/tokenizer/merge/cuts.h"
#include "common/tokenizer/merge/merge_long.h"
#include "common/tokenizer/merge/merge_short.h"
#include "common/tokenizer/merge/word_encoder.h"
#include "tests/unit/common/tokenizer/random_vocabulary.h"
#include "tests/unit/random.h"

enum { N_VOCABULARIES = 12, MAX_WORD = 300 };

typedef struct fixture {
    bd_bpe_model model;
    bd_bpe_tables tables;
    uint64_t random;
    int n_letters;
    bd_merge_memory memory;
} fixture;

static fixture open_fixture_of(unsigned seed, int n_letters, size_t n_merges)
{
    static fixture f;
    f = (fixture){.random = seed, .n_letters = n_letters};
    f.model = random_vocabulary(seed, f.n_letters, n_merges);
    assert_int_equal(bd_bpe_tables_init(&f.tables, &f.model, NULL), BD_OK);
    return f;
}

static fixture open_fixture(unsigned seed)
{
    return open_fixture_of(seed, 1 + (int)seed % 4, seed % 3 == 0 ? 3 : 60);
}

static void close_fixture(fixture *f)
{
    bd_bpe_tables_release(&f->tables);
    random_vocabulary_release(&f->model);
}

// Sometimes a letter that is in no merge.
static size_t random_word(fixture *f, char *word, size_t max)
{
    const size_t n = (size_t)random_between(&f->random, 1, (int32_t)max);
    for (size_t i = 0; i < n; i++)
        word[i] = (char)random_between(&f->random, 'a', 'a' + f->n_letters - 1);
    if (random_between(&f->random, 0, 3) == 0)
        word[random_between(&f->random, 0, (int32_t)n - 1)] = '\xFF';
    return n;
}

static void assert_symbols(const fixture *f, const uint32_t *symbols, size_t n,
                           const uint32_t *ids, size_t n_ids)
{
    assert_int_equal(n, n_ids);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(f->tables.merges.ids[symbols[i]], ids[i]);
}

static void every_way_of_merging_follows_the_plain_rule(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= N_VOCABULARIES; seed++) {
        fixture f = open_fixture(seed);
        for (int i = 0; i < 60; i++) {
            char word[MAX_WORD];
            uint32_t ids[MAX_WORD], symbols[MAX_WORD];
            const size_t n = random_word(&f, word, i % 3 == 0 ? MAX_WORD : BD_SHORT_BYTES);
            const size_t n_ids = plain_merge(&f.model, word, n, ids);
            const uint8_t *bytes = (const uint8_t *)word;
            size_t n_symbols =
                bd_merge_long(&f.tables.merges, &f.tables.trie, &f.memory, bytes, n, symbols);
            assert_symbols(&f, symbols, n_symbols, ids, n_ids);
            if (n > BD_SHORT_BYTES)
                continue;
            n_symbols = bd_merge_short(&f.tables.merges, bytes, n, symbols);
            assert_symbols(&f, symbols, n_symbols, ids, n_ids);
        }
        close_fixture(&f);
    }
}

static void two_symbols_stay_apart_exactly_if_merging_both_gives_them_again(void **state)
{
    (void)state;
    fixture f = open_fixture(7);
    const bd_merge_table *table = &f.tables.merges;
    for (uint32_t left = 'a'; left < table->n_symbols; left++)
        for (uint32_t right = 'a'; right < table->n_symbols; right++) {
            char word[MAX_WORD];
            uint32_t ids[MAX_WORD];
            size_t n = 0;
            for (int i = 0; i < 2; i++) {
                const uint32_t symbol = i == 0 ? left : right;
                memcpy(word + n, f.model.bytes + f.model.begins[table->ids[symbol]],
                       table->sizes[symbol]);
                n += table->sizes[symbol];
            }
            const bool apart = plain_merge(&f.model, word, n, ids) == 2 &&
                               ids[0] == table->ids[left] && ids[1] == table->ids[right];
            assert_int_equal(bd_symbols_stay_apart(table, left, right), apart);
        }
    close_fixture(&f);
}

// A word with other text around it.
typedef struct embedded_word {
    char text[3 * MAX_WORD];
    bd_cut_word word;
} embedded_word;

static void embed_word(fixture *f, embedded_word *w)
{
    enum { AROUND = 30 };
    const size_t begin = random_word(f, w->text, AROUND) - 1;  // maybe 0
    const size_t end = begin + random_word(f, w->text + begin, 60);
    const size_t size_bytes = end + random_word(f, w->text + end, AROUND) - 1;
    w->word = (bd_cut_word){(const uint8_t *)w->text, size_bytes, begin, end};
}

// Merges the parts of the word one by one and compares with the whole. Returns the number of
// cuts.
static size_t check_parts(const fixture *f, const embedded_word *w, bd_cuts_function *cutting)
{
    const bd_cut_word *word = &w->word;
    uint32_t whole[MAX_WORD], parts[MAX_WORD];
    const size_t n_whole =
        plain_merge(&f->model, w->text + word->begin, word->end - word->begin, whole);
    size_t n_parts = 0, n_cuts = 0, begin = word->begin;
    for (size_t at = word->begin + 1, next; at < word->end; at = next) {
        const bd_cut_places places = cutting(&f->tables.cuts, word, at);
        assert_in_range(places.n, 1, 16);
        next = at + places.n;
        for (size_t i = 0; i < 32; i++) {
            if (!(places.found >> i & 1))
                continue;
            assert_true(i < places.n && at + i < word->end);
            n_parts += plain_merge(&f->model, w->text + begin, at + i - begin, parts + n_parts);
            begin = at + i;
            n_cuts++;
        }
    }
    n_parts += plain_merge(&f->model, w->text + begin, word->end - begin, parts + n_parts);
    assert_int_equal(n_parts, n_whole);
    assert_memory_equal(parts, whole, n_whole * sizeof *whole);
    return n_cuts;
}

// From vocabularies in which everything overlaps to those with few tokens.
static void parts_between_cuts_merge_alone(void **state)
{
    (void)state;
    bd_cuts_function *const ways[] = {bd_cuts_plain, bd_cuts_best()};
    for (int way = 0; way < 2; way++) {
        size_t n_cuts = 0;
        for (unsigned seed = 1; seed <= N_VOCABULARIES; seed++) {
            fixture f = open_fixture_of(seed, 1 + (int)seed * 2, 60);
            for (int i = 0; i < 300; i++) {
                embedded_word w;
                embed_word(&f, &w);
                n_cuts += check_parts(&f, &w, ways[way]);
            }
            close_fixture(&f);
        }
        assert_true(n_cuts > 10000);
    }
}

// ---- Encoding batches ----------------------------------------------------------------------

// Words end to end in memory that ends with the page.
typedef struct page_text {
    char *map, *text;
    size_t map_bytes, size_bytes;
    uint32_t ends[BD_WORD_BATCH];
    size_t n;
} page_text;

static page_text random_words(fixture *f, size_t n, size_t max_word)
{
    static char text[BD_WORD_BATCH * MAX_WORD];
    page_text t = {.n = n};
    for (size_t i = 0; i < n; i++) {
        t.size_bytes += random_word(f, text + t.size_bytes, max_word);
        t.ends[i] = (uint32_t)t.size_bytes;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = (t.size_bytes + page - 1) / page * page;
    t.map_bytes = used + page;
    t.map = mmap(NULL, t.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(t.map, MAP_FAILED);
    assert_int_equal(mprotect(t.map + used, page, PROT_NONE), 0);
    t.text = t.map + used - t.size_bytes;
    memcpy(t.text, text, t.size_bytes);
    return t;
}

static void assert_batch(bd_word_encoder *encoder, const fixture *f, const page_text *t)
{
    static uint32_t ids[BD_WORD_BATCH * MAX_WORD + BD_SPARE_IDS], expected[MAX_WORD];
    const bd_word_batch batch = {t->text, t->size_bytes, 0, t->ends, t->n};
    const uint32_t *end = bd_word_encoder_encode(encoder, &batch, ids), *at = ids;
    for (size_t i = 0; i < t->n; i++) {
        const size_t begin = i > 0 ? t->ends[i - 1] : 0;
        const size_t n = plain_merge(&f->model, t->text + begin, t->ends[i] - begin, expected);
        assert_in_range(end - at, n, BD_WORD_BATCH * MAX_WORD);
        assert_memory_equal(at, expected, n * sizeof *at);
        at += n;
    }
    assert_ptr_equal(at, end);
}

// With a cache of 1 << bits lines, so that words replace each other.
static void check_encoder(const bd_word_lookup_kind *looking, bd_merge_function *merging,
                          bd_cuts_function *cutting, int bits)
{
    static const size_t sizes[] = {1, 7, 8, 9, 31, 33, BD_WORD_BATCH};
    for (unsigned seed = 1; seed <= N_VOCABULARIES; seed++) {
        fixture f = open_fixture(seed);
        static bd_word_encoder encoder;
        assert_int_equal(bd_word_encoder_init(&encoder, &f.tables, NULL), BD_OK);
        bd_word_cache_release(&encoder.cache);
        assert_int_equal(bd_word_cache_init(&encoder.cache, bits, NULL), BD_OK);
        encoder.looking = looking;
        encoder.merging = merging;
        encoder.cutting = cutting;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t max_word = 3; max_word <= 48; max_word *= 4) {
                page_text t = random_words(&f, sizes[i], max_word);
                assert_batch(&encoder, &f, &t);
                assert_batch(&encoder, &f, &t);  // if it is remembered
                munmap(t.map, t.map_bytes);
            }
        bd_word_encoder_release(&encoder);
        bd_word_encoder_release(&encoder);
        close_fixture(&f);
    }
}

static void encoder_gives_the_plain_rules_ids_however_little_it_remembers(void **state)
{
    (void)state;
    for (int bits = 1; bits <= 9; bits += 4)
        check_encoder(&bd_word_lookup_plain, bd_merge_word_plain, bd_cuts_plain, bits);
}

static void vector_code_gives_the_same(void **state)
{
    (void)state;
    if (bd_word_lookup_best() == &bd_word_lookup_plain)
        skip();  // no other code runs on this processor
    for (int bits = 1; bits <= 9; bits += 4)
        check_encoder(bd_word_lookup_best(), bd_merge_word_best(), bd_cuts_best(), bits);
#ifdef __x86_64__
    for (int bits = 1; bits <= 9; bits += 4)  // code that the best one hides
        check_encoder(&bd_word_lookup_avx2, bd_merge_word_plain, bd_cuts_avx2, bits);
#endif
}

static void a_word_of_a_million_letters_is_merged_whole(void **state)
{
    (void)state;
    fixture f = open_fixture(4);  // one letter
    enum { N = 1 << 20 };
    char *word = malloc(N);
    uint32_t *ids = malloc((N + BD_SPARE_IDS) * sizeof *ids), expected[MAX_WORD];
    assert_true(word && ids);
    memset(word, 'a', N);
    static bd_word_encoder encoder;
    assert_int_equal(bd_word_encoder_init(&encoder, &f.tables, NULL), BD_OK);
    const bd_word_batch batch = {word, N, 0, (uint32_t[]){N}, 1};
    const uint32_t *end = bd_word_encoder_encode(&encoder, &batch, ids);
    size_t n_bytes = 0;
    for (const uint32_t *id = ids; id < end; id++)
        n_bytes += f.model.begins[*id + 1] - f.model.begins[*id];
    assert_int_equal(n_bytes, N);
    const size_t n = plain_merge(&f.model, word, 100, expected);
    assert_memory_equal(ids, expected, (n > 2 ? n - 2 : 1) * sizeof *ids);  // except the end
    bd_word_encoder_release(&encoder);
    free(word);
    free(ids);
    close_fixture(&f);
}

// Letters a, b, c: (ab)c has a lower rank than ab, so ab is used as soon as it is made.
static bd_bpe_model late_vocabulary(void)
{
    bd_bpe_model model = random_vocabulary(1, 3, 0);
    static const char *const tokens[] = {"abc", "ab", "bc", "cc", "abcc", "ca", "aa", "caa"};
    static const char *const lefts[] = {"ab", "a", "b", "c", "abc", "c", "a", "ca"};
    enum { N = sizeof tokens / sizeof *tokens };
    model.begins = realloc(model.begins, (256 + N + 1) * sizeof *model.begins);
    model.bytes = realloc(model.bytes, 256 + N * 4);
    model.merges = realloc(model.merges, N * sizeof *model.merges);
    assert_true(model.begins && model.bytes && model.merges);
    for (uint32_t k = 0; k < N; k++) {
        const uint32_t id = model.n_ids++;
        memcpy(model.bytes + model.begins[id], tokens[k], strlen(tokens[k]));
        model.begins[id + 1] = model.begins[id] + (uint32_t)strlen(tokens[k]);
    }
    for (uint32_t k = 0; k < N; k++) {
        const char *parts[] = {lefts[k], tokens[k] + strlen(lefts[k])};
        uint32_t ids[2] = {0};
        for (int i = 0; i < 2; i++)
            for (uint32_t id = 0; id < model.n_ids; id++)
                if (model.begins[id + 1] - model.begins[id] == strlen(parts[i]) &&
                    memcmp(model.bytes + model.begins[id], parts[i], strlen(parts[i])) == 0)
                    ids[i] = id;
        model.merges[model.n_merges++] = (bd_merge){ids[0], ids[1], 256 + k};
    }
    return model;
}

static void merges_that_come_before_those_of_their_parts_follow_the_plain_rule(void **state)
{
    (void)state;
    fixture *f = test_malloc(sizeof *f);
    *f = (fixture){.random = 5, .n_letters = 3, .model = late_vocabulary()};
    assert_int_equal(bd_bpe_tables_init(&f->tables, &f->model, NULL), BD_OK);
    assert_true(f->tables.merges.late[BD_FIRST_PRODUCT]);
    for (int i = 0; i < 500; i++) {
        char word[MAX_WORD];
        uint32_t ids[MAX_WORD], symbols[MAX_WORD];
        const size_t n = random_word(f, word, i % 2 == 0 ? 8 : 60);
        const size_t n_ids = plain_merge(&f->model, word, n, ids);
        const uint8_t *bytes = (const uint8_t *)word;
        size_t n_symbols =
            bd_merge_long(&f->tables.merges, &f->tables.trie, &f->memory, bytes, n, symbols);
        assert_symbols(f, symbols, n_symbols, ids, n_ids);
        n_symbols = bd_merge_word_best()(&f->tables.merges, &f->tables.trie, &f->memory, bytes,
                                         n, symbols);
        assert_symbols(f, symbols, n_symbols, ids, n_ids);
        n_symbols = bd_merge_short(&f->tables.merges, bytes, n, symbols);
        assert_symbols(f, symbols, n_symbols, ids, n_ids);
    }
    close_fixture(f);
    test_free(f);
}

// Merging never makes `aaa`: it is the id of a whole word, not of a part of one.
static void a_token_that_only_whole_words_become_is_not_made_of_a_part(void **state)
{
    (void)state;
    fixture *f = test_malloc(sizeof *f);
    static bd_word_encoder encoder;
    *f = (fixture){.random = 5, .n_letters = 3, .model = random_vocabulary(1, 3, 0)};
    const char text[] = "aaa"
                        "zzzzzzzzaaazzzzzzzz"
                        "aaa"
                        "aaazzzzzzzzzzzzzzzaaa";
    const uint32_t ends[] = {3, 22, 25, 46};
    bd_bpe_model *model = &f->model;
    model->begins = realloc(model->begins, (model->n_ids + 3) * sizeof *model->begins);
    model->bytes = realloc(model->bytes, model->begins[model->n_ids] + 5);
    model->merges = realloc(model->merges, sizeof *model->merges);
    assert_true(model->begins && model->bytes && model->merges);
    const uint32_t a = model->byte_ids['a'], z = model->byte_ids['z'], aa = model->n_ids,
                   aaa = aa + 1;
    memcpy(model->bytes + model->begins[aa], "aaaaa", 5);
    model->begins[aaa] = model->begins[aa] + 2;
    model->begins[aaa + 1] = model->begins[aaa] + 3;
    model->n_ids += 2;
    model->merges[0] = (bd_merge){a, a, aa};
    model->n_merges = 1;
    model->whole_words = true;
    assert_int_equal(bd_bpe_tables_init(&f->tables, model, NULL), BD_OK);
    assert_int_equal(f->tables.whole_words.max_bytes, 3);
    uint32_t expected[46], ids[46 + BD_SPARE_IDS], n = 0;
    for (uint32_t w = 0; w < 4; w++) {
        const uint32_t begin = w > 0 ? ends[w - 1] : 0;
        if (ends[w] - begin == 3)
            expected[n++] = aaa;
        for (uint32_t i = begin; ends[w] - begin > 3 && i < ends[w]; i++)
            if (text[i] == 'z') {
                expected[n++] = z;
            } else {
                expected[n++] = aa;
                expected[n++] = a;
                i += 2;
            }
    }
    assert_int_equal(bd_word_encoder_init(&encoder, &f->tables, NULL), BD_OK);
    for (int pass = 0; pass < 2; pass++) {
        const bd_word_batch batch = {text, sizeof text - 1, 0, ends, 4};
        assert_ptr_equal(bd_word_encoder_encode(&encoder, &batch, ids), ids + n);
        assert_memory_equal(ids, expected, n * sizeof *ids);
    }
    bd_word_encoder_release(&encoder);
    close_fixture(f);
    test_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_merging_follows_the_plain_rule),
        cmocka_unit_test(two_symbols_stay_apart_exactly_if_merging_both_gives_them_again),
        cmocka_unit_test(parts_between_cuts_merge_alone),
        cmocka_unit_test(encoder_gives_the_plain_rules_ids_however_little_it_remembers),
        cmocka_unit_test(vector_code_gives_the_same),
        cmocka_unit_test(a_word_of_a_million_letters_is_merged_whole),
        cmocka_unit_test(merges_that_come_before_those_of_their_parts_follow_the_plain_rule),
        cmocka_unit_test(a_token_that_only_whole_words_become_is_not_made_of_a_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
