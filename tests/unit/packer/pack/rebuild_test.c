#include "packer/pack/rebuild.h"

#include "packer/pack/shard_writer.h"
#include "packer/pack/unit_writer.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { SEQ_LEN = 8, N_DOCUMENTS = 60, LONGEST = 40 };

static bd_dataset_config a_config(void)
{
    return (bd_dataset_config){.seq_len = SEQ_LEN,
                               .vocab_size = 257,
                               .separator = 256,
                               .bos = BD_NO_BOS,
                               .padding = 256,
                               .batch_rows = 3,
                               .shuffle = BD_NO_SHUFFLE,
                               .tokenizer = "bytes",
                               .fingerprint = bd_tokenizer_bytes()->fingerprint};
}

static const bd_shard_entry AN_ENTRY = {.unit = {.n_inputs = 1, .last = true}};

static void append(bd_documents *documents, const uint32_t *ids, size_t n, uint32_t input,
                   uint64_t position)
{
    assert_int_equal(
        bd_documents_append_ids(documents, ids, NULL, n, true, input, position, NULL), BD_OK);
}

static bd_shard open_shard(void)
{
    bd_shard shard;
    bd_error err = {0};
    if (bd_shard_open(&shard, ".", bd_unit_shard_name(&AN_ENTRY.unit).text, &err) != BD_OK)
        fail_msg("%s", err.message);
    return shard;
}

// ---- Whole documents ----------------------------------------------------------------------

// Documents of all lengths in two inputs, some with the separator in their text.
static void make_documents(bd_documents *documents, uint64_t *random)
{
    uint64_t position = 0;
    for (int i = 0; i < N_DOCUMENTS; i++) {
        uint32_t ids[LONGEST];
        uint8_t trained[LONGEST];
        const int n = i < 20 ? i : random_between(random, 0, LONGEST);
        for (int t = 0; t < n; t++) {
            ids[t] = (uint32_t)random_between(random, 0, 256);
            trained[t] = (uint8_t)random_between(random, 0, 1);
        }
        position =
            i == N_DOCUMENTS / 2 ? 0 : position + (uint64_t)random_between(random, 1, 50);
        bd_documents_append_ids(documents, ids, trained, (size_t)n, n % 2, i >= N_DOCUMENTS / 2,
                                position, NULL);
    }
}

static void assert_same_documents(const bd_documents *found, const bd_documents *expected)
{
    const size_t id_bytes = (size_t)bd_dataset_id_bytes(expected->config);
    assert_int_equal(found->n, expected->n);
    for (size_t i = 0; i < found->n; i++) {
        const bd_document *a = &found->items[i], *b = &expected->items[i];
        assert_int_equal(a->input, b->input);
        assert_int_equal(a->position, b->position);
        assert_int_equal(a->length, b->length);
        assert_memory_equal((char *)found->ids + (size_t)a->begin * id_bytes,
                            (char *)expected->ids + (size_t)b->begin * id_bytes,
                            a->length * id_bytes);
        for (int64_t t = 0; expected->config->loss_mask && t < a->length; t++)
            assert_int_equal(bd_bit_at(found->loss_mask, a->begin + t),
                             bd_bit_at(expected->loss_mask, b->begin + t));
    }
    assert_int_equal(found->text, expected->text);
    assert_int_equal(found->bos, expected->bos);
    assert_int_equal(found->separators, expected->separators);
}

static void check_config(const bd_dataset_config *config, uint64_t *random)
{
    bd_documents documents, written, found;
    uint64_t same = *random;
    bd_shard_entry entry = AN_ENTRY;
    entry.unit.n_inputs = 2;
    bd_error err = {0};
    bd_documents_init(&documents, config, NULL);
    bd_documents_init(&written, config, NULL);
    bd_documents_init(&found, config, NULL);
    make_documents(&documents, random);
    make_documents(&written, &same);  // writing may change their order
    if (bd_unit_write(".", &written, &entry, &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_shard shard = open_shard();
    if (config->loss_mask && config->codec == BD_SHARD_UNCOMPRESSED) {  // it is not copied
        const bd_row row = bd_shard_unchecked_row(&shard, 0);
        const char *file = shard.file.data, *mask = row.loss_mask;
        assert_true(mask > file && mask < file + shard.file.size_bytes);
    }
    if (bd_rebuild_documents(&shard, &found, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_same_documents(&found, &documents);
    bd_shard_close(&shard);
    bd_documents_release(&documents);
    bd_documents_release(&written);
    bd_documents_release(&found);
}

static void documents_come_back_as_they_were_in_the_order_of_the_input(void **state)
{
    (void)state;
    static const bd_strategy STRATEGIES[] = {BD_STRATEGY_BEST_FIT, BD_STRATEGY_FIRST_FIT,
                                             BD_STRATEGY_CONCAT};
    static const int64_t LENGTHS[] = {2, 3, 7, SEQ_LEN, 9, 31, 2 * LONGEST};
    uint64_t random = 20250203;
    print_message("seed %llu\n", (unsigned long long)random);
    for (int s = 0; s < 3; s++) {
        for (size_t l = 0; l < sizeof LENGTHS / sizeof *LENGTHS; l++) {
            for (int variant = 0; variant < 8; variant++) {
                bd_dataset_config config = a_config();
                config.strategy = STRATEGIES[s];
                config.seq_len = LENGTHS[l];
                config.bos = variant & 1 ? 7 : BD_NO_BOS;
                config.vocab_size = variant & 2 ? 70000 : 257;
                config.shuffle = variant & 4 ? 12345 : BD_NO_SHUFFLE;
                config.loss_mask = ((size_t)variant + l) % 2;
                config.codec = variant & 4 ? BD_SHARD_ZSTD : BD_SHARD_UNCOMPRESSED;
                check_config(&config, &random);
            }
        }
    }
}

static void a_shard_without_rows_has_no_documents(void **state)
{
    (void)state;
    const bd_dataset_config config = a_config();
    bd_documents documents, found;
    bd_shard_entry entry = AN_ENTRY;
    bd_documents_init(&documents, &config, NULL);
    bd_documents_init(&found, &config, NULL);
    assert_int_equal(bd_unit_write(".", &documents, &entry, NULL), BD_OK);
    bd_shard shard = open_shard();
    assert_int_equal(bd_rebuild_documents(&shard, &found, NULL), BD_OK);
    assert_int_equal(found.n, 0);
    bd_shard_close(&shard);
    bd_documents_release(&documents);
    bd_documents_release(&found);
}

// Documents that were left out are in no row, but the ledger still counts them.
static void the_ledger_keeps_what_was_left_out(void **state)
{
    (void)state;
    bd_dataset_config config = a_config();
    config.min_tokens = 2;
    const uint32_t ids[] = {1, 2, 3};
    bd_documents documents, found;
    bd_shard_entry entry = AN_ENTRY;
    bd_documents_init(&documents, &config, NULL);
    bd_documents_init(&found, &config, NULL);
    append(&documents, ids, 3, 0, 0);
    append(&documents, ids, 1, 0, 5);
    bd_documents_remove_last(&documents);
    entry.figures.too_short = 2;
    entry.figures.too_short_documents = 1;
    assert_int_equal(bd_unit_write(".", &documents, &entry, NULL), BD_OK);
    bd_shard shard = open_shard();
    assert_int_equal(bd_rebuild_documents(&shard, &found, NULL), BD_OK);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.text, 4);
    assert_int_equal(found.separators, 2);
    bd_shard_close(&shard);
    bd_documents_release(&documents);
    bd_documents_release(&found);
}

// ---- Damaged documents --------------------------------------------------------------------

// Writes rows of one piece each and tries to rebuild documents from them.
static bd_status rebuild_rows(const bd_documents *documents, bd_piece *pieces, int64_t n,
                              bd_error *err)
{
    int64_t row_begins[8];
    bd_layout layout = {.pieces = pieces, .row_begins = row_begins, .n_pieces = n, .n_rows = n};
    bd_shard_entry entry = AN_ENTRY;
    bd_documents found;
    for (int64_t r = 0; r <= n; r++)
        row_begins[r] = r;
    entry.figures.rows = n;
    if (bd_shard_write(".", documents, &layout, &entry, err) != BD_OK)
        fail_msg("%s", err->message);
    bd_shard shard = open_shard();
    bd_documents_init(&found, documents->config, NULL);
    const bd_status status = bd_rebuild_documents(&shard, &found, err);
    bd_documents_release(&found);
    bd_shard_close(&shard);
    return status;
}

static void assert_no_whole(const bd_documents *documents, bd_piece *pieces, int64_t n)
{
    bd_error err = {0};
    assert_int_equal(rebuild_rows(documents, pieces, n, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message,
                        "'./00000-00000.arrow': S3: the pieces of the document at input 0, "
                        "position 9 do not make a whole");
}

// A document of 20 tokens in three pieces.
static void pieces_that_do_not_make_a_whole_are_refused(void **state)
{
    (void)state;
    const bd_dataset_config config = a_config();
    uint32_t ids[19];
    bd_documents documents;
    bd_error err = {0};
    for (uint32_t t = 0; t < 19; t++)
        ids[t] = t;
    bd_documents_init(&documents, &config, NULL);
    append(&documents, ids, 19, 0, 9);
    bd_piece whole[] = {{0, 0, 8}, {0, 7, 8}, {0, 14, 6}};
    assert_int_equal(rebuild_rows(&documents, whole, 3, &err), BD_OK);
    assert_no_whole(&documents, whole, 2);                                // no end
    assert_no_whole(&documents, whole, 1);                                // truncated
    assert_no_whole(&documents, whole + 1, 2);                            // no beginning
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 14, 6}}, 2);  // a gap
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 8, 8}, {0, 15, 5}},
                    3);  // no context
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 6, 8}, {0, 13, 7}}, 3);  // too much
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 0, 8}, {0, 7, 8}, {0, 14, 6}}, 4);
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 7, 8}, {0, 7, 8}, {0, 14, 6}}, 4);
    bd_documents_release(&documents);
}

// Two documents in the same place: their pieces contradict each other.
static void pieces_of_different_documents_are_refused(void **state)
{
    (void)state;
    const bd_dataset_config config = a_config();
    uint32_t ids[19], others[20];
    bd_documents documents;
    bd_error err = {0};
    for (uint32_t t = 0; t < 20; t++) {
        others[t] = t == 7 ? 100 : t;
        if (t < 19)
            ids[t] = t;
    }
    bd_documents_init(&documents, &config, NULL);
    append(&documents, ids, 19, 0, 9);
    append(&documents, others, 19, 0, 9);
    append(&documents, ids, 18, 0, 9);
    assert_int_equal(
        rebuild_rows(&documents, (bd_piece[]){{0, 0, 8}, {0, 7, 8}, {1, 14, 6}}, 3, &err),
        BD_OK);  // they agree from the context token on
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {1, 7, 8}, {0, 14, 6}}, 3);
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}, {0, 7, 8}, {2, 14, 5}}, 3);
    assert_no_whole(&documents, (bd_piece[]){{2, 0, 8}, {0, 7, 8}, {0, 14, 6}}, 3);
    // A false length, which must not cost memory.
    documents.items[0].length = UINT32_MAX;
    assert_no_whole(&documents, (bd_piece[]){{0, 0, 8}}, 1);
    bd_documents_release(&documents);
}

static void a_damaged_row_is_named(void **state)
{
    (void)state;
    const bd_dataset_config config = a_config();
    const uint32_t ids[] = {0x51, 0x52, 0x53};
    size_t n, n_changed = 0;
    bd_documents documents, found;
    bd_shard_entry entry = AN_ENTRY;
    bd_error err = {0};
    bd_documents_init(&documents, &config, NULL);
    bd_documents_init(&found, &config, NULL);
    append(&documents, ids, 3, 0, 0);
    assert_int_equal(bd_unit_write(".", &documents, &entry, NULL), BD_OK);
    char *file = read_file("00000-00000.arrow", &n);
    for (size_t i = 0; i + 6 <= n; i++)
        if (memcmp(file + i, "\x51\0\x52\0\x53\0", 6) == 0)
            n_changed += (file[i] ^= 1, 1);
    assert_int_equal(n_changed, 1);
    write_file("00000-00000.arrow", file, n);
    free(file);
    bd_shard shard = open_shard();
    assert_int_equal(bd_rebuild_documents(&shard, &found, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'./00000-00000.arrow', row 0: R7"));
    bd_shard_close(&shard);
    bd_documents_release(&documents);
    bd_documents_release(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(documents_come_back_as_they_were_in_the_order_of_the_input),
        test_inside_folder(a_shard_without_rows_has_no_documents),
        test_inside_folder(the_ledger_keeps_what_was_left_out),
        test_inside_folder(pieces_that_do_not_make_a_whole_are_refused),
        test_inside_folder(pieces_of_different_documents_are_refused),
        test_inside_folder(a_damaged_row_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
