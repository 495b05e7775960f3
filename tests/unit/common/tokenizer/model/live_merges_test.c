#include "common/tokenizer/model/live_merges.h"

#include "tests/unit/common/tokenizer/read_model.h"
#include "tests/unit/random.h"

enum { MAX_WORD = 24 };

typedef struct parts {
    uint32_t ids[MAX_WORD];
    size_t n;
} parts;

// The plainest BPE: lowest rank first, then leftmost; `ranks` may have any merges.
static parts merge_plainly(const bd_merge *merges, size_t n_merges, const char *word)
{
    parts p = {.n = strlen(word)};
    for (size_t i = 0; i < p.n; i++)
        p.ids[i] = (unsigned char)word[i];
    for (size_t m = 0; m < n_merges; m++)
        for (size_t i = 0; i + 1 < p.n; i++)
            if (p.ids[i] == merges[m].left && p.ids[i + 1] == merges[m].right) {
                p.ids[i] = merges[m].product;
                p.n--;
                memmove(&p.ids[i + 1], &p.ids[i + 2], (p.n - i - 1) * sizeof *p.ids);
                m = (size_t)-1;  // start again: the product may have a lower rank
                break;
            }
    return p;
}

static void random_word(uint64_t *random, char *word, int low, int high)
{
    const int n = random_between(random, low, high);
    for (int i = 0; i < n; i++)
        word[i] = (char)('a' + random_between(random, 0, 2));
    word[n] = '\0';
}

// Distinct words of 2 to 6 letters.
static size_t random_tokens(uint64_t *random, char tokens[][8], size_t n)
{
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        random_word(random, tokens[made], 2, 6);
        bool there = false;
        for (size_t j = 0; j < made; j++)
            there = there || strcmp(tokens[j], tokens[made]) == 0;
        made += !there;
    }
    return made;
}

static int64_t id_of(char tokens[][8], size_t n, const char *text, size_t size)
{
    if (size == 1)
        return text[0];
    for (size_t i = 0; i < n; i++)
        if (strlen(tokens[i]) == size && memcmp(tokens[i], text, size) == 0)
            return 256 + (int64_t)i;
    return -1;
}

// All ways to make each token of two others, in the order of the tokens.
static size_t all_merges(char tokens[][8], size_t n, bd_merge *merges)
{
    size_t made = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t cut = 1; cut < strlen(tokens[i]); cut++) {
            const int64_t left = id_of(tokens, n, tokens[i], cut);
            const int64_t right = id_of(tokens, n, tokens[i] + cut, strlen(tokens[i]) - cut);
            if (left >= 0 && right >= 0)
                merges[made++] =
                    (bd_merge){(uint32_t)left, (uint32_t)right, (uint32_t)(256 + i)};
        }
    return made;
}

static void assert_same_words(uint64_t *random, const bd_bpe_model *model,
                              const bd_merge *merges, size_t n_merges)
{
    for (int i = 0; i < 200; i++) {
        char word[MAX_WORD];
        random_word(random, word, 1, MAX_WORD - 1);
        const parts all = merge_plainly(merges, n_merges, word);
        const parts few = merge_plainly(model->merges, model->n_merges, word);
        assert_int_equal(all.n, few.n);
        assert_memory_equal(all.ids, few.ids, all.n * sizeof *all.ids);
    }
}

static void ranks_become_merges_that_do_the_same(void **state)
{
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        char tokens[40][8];
        bd_merge merges[40 * 6];
        const size_t n = random_tokens(&random, tokens, 1 + (size_t)round % 39);
        const size_t n_merges = all_merges(tokens, n, merges);
        FILE *out = fopen(in(*state, "r.tiktoken"), "wb");
        put_byte_ranks(out);
        for (size_t i = 0; i < n; i++)
            put_rank(out, tokens[i], strlen(tokens[i]), 256 + i);
        fclose(out);
        bd_bpe_model model = loaded(in(*state, "r.tiktoken:gpt2"));
        assert_same_words(&random, &model, merges, n_merges);
        bool all_made = true;
        for (size_t i = 0; i < n; i++)
            all_made = all_made && merge_plainly(merges, n_merges, tokens[i]).n == 1;
        assert_int_equal(model.whole_words, !all_made);
        bd_bpe_model_release(&model);
    }
}

static void leaving_out_merges_that_never_happen_changes_no_word(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (int round = 0; round < 300; round++) {
        char tokens[40][8], *entries = NULL, *texts = NULL;
        bd_merge merges[40 * 6];
        size_t size;
        const size_t n = random_tokens(&random, tokens, 1 + (size_t)round % 39);
        const size_t n_merges = all_merges(tokens, n, merges);
        for (size_t i = n_merges; i > 1; i--) {  // any order
            const size_t j = next_random(&random) % i;
            const bd_merge kept = merges[i - 1];
            merges[i - 1] = merges[j];
            merges[j] = kept;
        }
        FILE *out = open_memstream(&entries, &size);
        for (size_t i = 0; i < n; i++)
            fprintf(out, ", \"%s\": %zu", tokens[i], 256 + i);
        fclose(out);
        out = open_memstream(&texts, &size);
        for (size_t i = 0; i < n_merges; i++) {
            const char *product = tokens[merges[i].product - 256];
            const size_t left = merges[i].left < 256 ? 1 : strlen(tokens[merges[i].left - 256]);
            fprintf(out, "%s\"%.*s %s\"", i ? ", " : "", (int)left, product, product + left);
        }
        fclose(out);
        bd_bpe_model model = parsed((tokenizer_text){.entries = entries, .merges = texts});
        assert_same_words(&random, &model, merges, n_merges);
        bool has_merge[40] = {false};
        for (size_t i = 0; i < model.n_merges; i++) {
            assert_false(has_merge[model.merges[i].product - 256]);
            has_merge[model.merges[i].product - 256] = true;
        }
        bd_bpe_model_release(&model);
        free(entries);
        free(texts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(ranks_become_merges_that_do_the_same),
        cmocka_unit_test(leaving_out_merges_that_never_happen_changes_no_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
