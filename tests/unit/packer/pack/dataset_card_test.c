#include "packer/pack/dataset_card.h"

#include "tests/unit/temporary_folder.h"

static bd_shard_entry one_shard = {.unit = {.input = 3, .n_inputs = 1, .last = true}};

static bd_manifest dataset(int64_t seq_len, int64_t rows, bd_part part)
{
    return (bd_manifest){
        .config = {.seq_len = seq_len,
                   .vocab_size = 65537,
                   .separator = 256,
                   .bos = 255,
                   .padding = 0,
                   .shuffle = BD_NO_SHUFFLE,
                   .part = part,
                   .tokenizer = "bpe"},
        .shards = &one_shard,
        .n_shards = 1,
        .totals = {.rows = rows, .documents = 1234, .packed = 9999999},
    };
}

static bool publish(const bd_manifest *manifest, const bd_manifest *held_out)
{
    bool kept = !bd_card_is_ours(".");  // whatever it was before
    bd_error err = {0};
    if (bd_card_publish(".", manifest, held_out, &kept, &err) != BD_OK)
        fail_msg("%s", err.message);
    return kept;
}

static void assert_says(const char *text, bool expected)
{
    size_t n;
    char *card = read_file("README.md", &n);
    if ((strstr(card, text) != NULL) != expected)
        fail_msg("'%s' is %s in the card: %s", text, expected ? "not" : "", card);
    free(card);
}

static void our_card_is_replaced(void **state)
{
    (void)state;
    const bd_manifest first = dataset(64, 5, BD_PART_ALL), second = dataset(65, 5, BD_PART_ALL);
    assert_false(bd_card_is_ours("."));
    assert_false(publish(&first, NULL));
    assert_true(bd_card_is_ours("."));
    assert_says("rows of 64 tokens", true);
    assert_false(publish(&second, NULL));
    assert_true(bd_card_is_ours("."));
    assert_says("rows of 65 tokens", true);
    assert_int_equal(count_entries("."), 1);
}

static void a_card_with_one_byte_changed_is_not_ours_and_stays(void **state)
{
    (void)state;
    const bd_manifest manifest = dataset(64, 5, BD_PART_ALL),
                      other = dataset(65, 5, BD_PART_ALL);
    size_t n, n_now;
    publish(&manifest, NULL);
    char *card = read_file("README.md", &n);
    for (size_t i = 0; i < n; i++) {
        card[i] ^= 1;
        write_file("README.md", card, n);
        if (bd_card_is_ours("."))
            fail_msg("byte %zu of %zu may be changed", i, n);
        if (i % 97 == 0 || i + 1 == n) {
            assert_true(publish(&other, NULL));
            char *now = read_file("README.md", &n_now);
            assert_int_equal(n_now, n);
            assert_memory_equal(now, card, n);
            free(now);
        }
        card[i] ^= 1;
    }
    write_file("README.md", card, n - 1);
    assert_false(bd_card_is_ours("."));
    write_file("README.md", card, n + 1);  // including its NUL
    assert_false(bd_card_is_ours("."));
    write_file("README.md", card, n);
    assert_true(bd_card_is_ours("."));
    free(card);
}

static void whatever_else_has_the_name_stays(void **state)
{
    (void)state;
    const bd_manifest manifest = dataset(64, 5, BD_PART_ALL);
    static const char *const TEXTS[] = {"", "mine", "<!-- -->\n"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        write_text("README.md", TEXTS[i]);
        assert_true(publish(&manifest, NULL));
        assert_file_holds("README.md", TEXTS[i]);
    }
    assert_int_equal(unlink("README.md"), 0);
    assert_int_equal(symlink("nowhere", "README.md"), 0);
    assert_true(publish(&manifest, NULL));
    assert_int_equal(unlink("README.md"), 0);
    add_folder("README.md");
    assert_true(publish(&manifest, NULL));
    assert_int_equal(count_entries("."), 1);
}

static void splits_are_those_that_have_rows(void **state)
{
    (void)state;
    const bd_manifest training = dataset(64, 5, BD_PART_TRAINING);
    const bd_manifest held_out = dataset(64, 7654321, BD_PART_HELD_OUT);
    const bd_manifest empty = dataset(64, 0, BD_PART_HELD_OUT);
    static const char TRAIN[] = "  - split: train\n    path: \"*.arrow\"\n";
    static const char HOLDOUT[] = "  - split: holdout\n    path: \"holdout/*.arrow\"\n";
    static const char ALONE[] = "  - split: holdout\n    path: \"*.arrow\"\n";
    publish(&training, &held_out);
    assert_says(TRAIN, true);
    assert_says(HOLDOUT, true);
    assert_says("| rows | 5 | 7,654,321 |", true);
    publish(&training, &empty);
    assert_says(TRAIN, true);
    assert_says("holdout", false);
    publish(&held_out, NULL);
    assert_says("train\n", false);
    assert_says(ALONE, true);
}

static void facts_are_those_of_the_config(void **state)
{
    (void)state;
    bd_manifest manifest = dataset(100, 5, BD_PART_ALL);
    publish(&manifest, NULL);
    assert_says("| documents | 1,234 |", true);
    assert_says("| tokens of documents | 9,999,999 |", true);
    assert_says("below 65537, those of the tokenizer in `tokenizer.json` (BPE of 65,537 ids)",
                true);
    assert_says("Id 255 begins a document. Id 256 ends a document; padding is id 0.", true);
    assert_says("uint32[100]", true);
    assert_says("DIR/00003-00000.arrow", true);
    manifest.config.bos = BD_NO_BOS;
    manifest.config.vocab_size = 65536;
    publish(&manifest, NULL);
    assert_says("begins a document", false);
    assert_says("uint16[100]", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(our_card_is_replaced),
        test_inside_folder(a_card_with_one_byte_changed_is_not_ours_and_stays),
        test_inside_folder(whatever_else_has_the_name_stays),
        test_inside_folder(splits_are_those_that_have_rows),
        test_inside_folder(facts_are_those_of_the_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
