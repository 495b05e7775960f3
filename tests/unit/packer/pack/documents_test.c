#include "packer/pack/documents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/dataset/row.h"

static bd_encoder encoder;  // for bytes, shared by all tests

static bd_dataset_config config_of(int64_t vocab_size, int64_t bos)
{
    return (bd_dataset_config){.seq_len = 8,
                               .vocab_size = vocab_size,
                               .separator = 256,
                               .bos = bos,
                               .shuffle = BD_NO_SHUFFLE};
}

static void append(bd_documents *documents, const char *text, uint32_t input, uint64_t position)
{
    assert_int_equal(bd_documents_append(documents, text, strlen(text), input, position, NULL),
                     BD_OK);
}

static void assert_ids(const bd_documents *documents, const uint32_t *expected, size_t n)
{
    const int id_bytes = bd_dataset_id_bytes(documents->config);
    assert_int_equal(documents->n_tokens, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bd_id_at(documents->ids, id_bytes, (int64_t)i), expected[i]);
}

static void assert_document(const bd_documents *documents, size_t d,
                            const bd_document *expected)
{
    const bd_document *found = &documents->items[d];
    assert_int_equal(found->begin, expected->begin);
    assert_int_equal(found->position, expected->position);
    assert_int_equal(found->input, expected->input);
    assert_int_equal(found->length, expected->length);
}

// The widths in which ids are stored: two bytes, two bytes to the last id, four bytes.
static const int64_t VOCAB_SIZES[] = {257, 65536, 65537};

static void a_document_is_its_text_and_one_separator(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const bd_dataset_config config = config_of(VOCAB_SIZES[v], BD_NO_BOS);
        bd_documents documents;
        bd_documents_init(&documents, &config, &encoder);
        append(&documents, "ab", 7, UINT64_C(1) << 40);
        append(&documents, "", 7, 3);  // an empty text is still a document
        append(&documents, "\xff", UINT32_MAX, 9);
        assert_int_equal(bd_dataset_id_bytes(&config), v < 2 ? 2 : 4);
        assert_ids(&documents, (uint32_t[]){'a', 'b', 256, 256, 255, 256}, 6);
        assert_int_equal(documents.n, 3);
        assert_document(&documents, 0, &(bd_document){0, UINT64_C(1) << 40, 7, 3});
        assert_document(&documents, 1, &(bd_document){3, 3, 7, 1});
        assert_document(&documents, 2, &(bd_document){4, 9, UINT32_MAX, 2});
        assert_int_equal(documents.text, 3);
        assert_int_equal(documents.bos, 0);
        assert_int_equal(documents.separators, 3);
        bd_documents_release(&documents);
        bd_documents_release(&documents);
    }
}

static void a_bos_token_begins_every_document(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const bd_dataset_config config = config_of(VOCAB_SIZES[v], 1);
        bd_documents documents;
        bd_documents_init(&documents, &config, &encoder);
        append(&documents, "ab", 0, 0);
        append(&documents, "", 0, 0);
        assert_ids(&documents, (uint32_t[]){1, 'a', 'b', 256, 1, 256}, 6);
        assert_document(&documents, 0, &(bd_document){.begin = 0, .length = 4});
        assert_document(&documents, 1, &(bd_document){.begin = 4, .length = 2});
        assert_int_equal(documents.text, 2);
        assert_int_equal(documents.bos, 2);
        assert_int_equal(documents.separators, 2);
        bd_documents_release(&documents);
    }
}

static void the_separator_and_bos_are_the_configs(void **state)
{
    (void)state;
    bd_dataset_config config = config_of(65537, 65536);
    config.separator = 65535;
    bd_documents documents;
    bd_documents_init(&documents, &config, &encoder);
    append(&documents, "a", 0, 0);
    assert_ids(&documents, (uint32_t[]){65536, 'a', 65535}, 3);
    bd_documents_release(&documents);
}

static void many_documents_keep_their_tokens(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const bd_dataset_config config = config_of(VOCAB_SIZES[v], BD_NO_BOS);
        bd_documents documents;
        bd_documents_init(&documents, &config, &encoder);
        char text[200];
        for (int d = 0; d < 500; d++) {
            memset(text, d % 256, sizeof text);
            assert_int_equal(bd_documents_append(&documents, text, (size_t)(d * 7 % 200), 0,
                                                 (uint64_t)d, NULL),
                             BD_OK);
        }
        int64_t begin = 0;
        for (int d = 0; d < 500; d++) {
            const int64_t n_text = d * 7 % 200;
            assert_document(&documents, (size_t)d,
                            &(bd_document){begin, (uint64_t)d, 0, (uint32_t)n_text + 1});
            assert_int_equal(bd_ids_count(documents.ids, bd_dataset_id_bytes(&config), begin,
                                          begin + n_text, (uint32_t)d % 256),
                             n_text);
            begin += n_text + 1;
        }
        assert_int_equal(documents.n_tokens, begin);
        bd_documents_release(&documents);
    }
}

// ---- Documents that come as ids ---------------------------------------------------

static void a_document_of_ids_gets_its_bos_and_separator(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const uint32_t last = (uint32_t)VOCAB_SIZES[v] - 1;
        const bd_dataset_config config = config_of(VOCAB_SIZES[v], 1);
        bd_documents documents;
        bd_documents_init(&documents, &config, NULL);  // no encoder is needed
        assert_int_equal(bd_documents_append_ids(&documents, (uint32_t[]){0, last, 256}, NULL,
                                                 3, true, 5, 6, NULL),
                         BD_OK);
        assert_int_equal(bd_documents_append_ids(&documents, NULL, NULL, 0, true, 5, 7, NULL),
                         BD_OK);
        assert_ids(&documents, (uint32_t[]){1, 0, last, 256, 256, 1, 256}, 7);
        assert_document(&documents, 0, &(bd_document){0, 6, 5, 5});
        assert_document(&documents, 1, &(bd_document){5, 7, 5, 2});
        assert_int_equal(documents.text, 3);
        assert_int_equal(documents.bos, 2);
        assert_int_equal(documents.separators, 2);
        bd_documents_release(&documents);
    }
}

// Text and ids give the same document, whatever came before.
static void ids_become_what_their_text_becomes(void **state)
{
    (void)state;
    for (int bos = BD_NO_BOS; bos < 2; bos += 2) {
        const bd_dataset_config config = config_of(257, bos);
        bd_documents texts, ids;
        bd_documents_init(&texts, &config, &encoder);
        bd_documents_init(&ids, &config, &encoder);
        uint32_t encoded[100];
        char text[100];
        for (uint32_t n = 0; n < 100; n += 11) {
            for (uint32_t i = 0; i < n; i++)
                text[i] = (char)(encoded[i] = (n + i) % 128);
            assert_int_equal(bd_documents_append(&texts, text, n, 0, n, NULL), BD_OK);
            assert_int_equal(bd_documents_append_ids(&ids, encoded, NULL, n, true, 0, n, NULL),
                             BD_OK);
        }
        assert_int_equal(ids.n_tokens, texts.n_tokens);
        assert_memory_equal(ids.ids, texts.ids, 2 * texts.n_tokens);
        assert_int_equal(ids.n, texts.n);
        for (size_t d = 0; d < ids.n; d++)
            assert_document(&ids, d, &texts.items[d]);
        bd_documents_release(&texts);
        bd_documents_release(&ids);
    }
}

// ---- Loss masks ---------------------------------------------------------------------

static void assert_mask(const bd_documents *documents, size_t index, const char *expected)
{
    const bd_document *document = &documents->items[index];
    assert_int_equal(document->length, strlen(expected));
    for (uint32_t t = 0; t < document->length; t++)
        assert_int_equal(bd_bit_at(documents->loss_mask, document->begin + t),
                         expected[t] == 'x');
    assert_int_equal(bd_documents_has_target(documents, index), strchr(expected, 'x') != NULL);
}

static void a_document_of_ids_is_trained_as_it_says(void **state)
{
    (void)state;
    static const uint8_t trained[] = {1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1};
    const uint32_t ids[11] = {0};
    bd_dataset_config config = config_of(257, BD_NO_BOS);
    config.loss_mask = true;
    bd_documents documents;
    bd_documents_init(&documents, &config, &encoder);
    for (int end = 0; end < 2; end++) {  // the second time they begin inside a byte
        const size_t d = documents.n;
        bd_documents_append_ids(&documents, ids, trained, 11, end, 0, 0, NULL);
        bd_documents_append_ids(&documents, ids, trained, 1, end, 0, 1, NULL);
        bd_documents_append_ids(&documents, ids, NULL, 10, end, 0, 2, NULL);
        bd_documents_append_ids(&documents, ids, trained, 0, end, 0, 3, NULL);
        bd_documents_append(&documents, "text", 4, 0, 4, NULL);
        assert_mask(&documents, d, end ? "..xx...x..xx" : "..xx...x..x.");
        assert_mask(&documents, d + 1, end ? ".x" : "..");
        assert_mask(&documents, d + 2, ".xxxxxxxxxx");
        assert_mask(&documents, d + 3, ".");  // it begins with its separator
        assert_mask(&documents, d + 4, ".xxxx");
    }
    bd_documents_release(&documents);
}

static void bos_is_never_trained(void **state)
{
    (void)state;
    static const uint8_t trained[] = {1, 0, 1};
    const uint32_t ids[3] = {0};
    bd_dataset_config config = config_of(257, 1);
    config.loss_mask = true;
    bd_documents documents;
    bd_documents_init(&documents, &config, &encoder);
    bd_documents_append_ids(&documents, ids, trained, 3, false, 0, 0, NULL);
    bd_documents_append_ids(&documents, ids, NULL, 3, true, 0, 1, NULL);
    bd_documents_append_ids(&documents, ids, NULL, 0, true, 0, 2, NULL);
    bd_documents_append(&documents, "text", 4, 0, 3, NULL);
    assert_mask(&documents, 0, ".x.x.");
    assert_mask(&documents, 1, ".xxxx");
    assert_mask(&documents, 2, ".x");
    assert_mask(&documents, 3, ".xxxxx");
    bd_documents_release(&documents);
}

// ---- Taking out and sorting -------------------------------------------------------

static void the_last_document_is_taken_out_but_stays_counted(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const bd_dataset_config config = config_of(VOCAB_SIZES[v], 1);
        bd_documents documents;
        bd_documents_init(&documents, &config, &encoder);
        append(&documents, "ab", 3, 10);
        append(&documents, "cde", 4, 20);
        const bd_document removed = bd_documents_remove_last(&documents);
        assert_int_equal(removed.input, 4);
        assert_int_equal(removed.position, 20);
        assert_int_equal(removed.length, 5);
        assert_int_equal(documents.n, 1);
        assert_ids(&documents, (uint32_t[]){1, 'a', 'b', 256}, 4);
        assert_int_equal(documents.text, 5);
        assert_int_equal(documents.bos, 2);
        assert_int_equal(documents.separators, 2);

        append(&documents, "", 5, 30);  // uses its memory
        assert_ids(&documents, (uint32_t[]){1, 'a', 'b', 256, 1, 256}, 6);
        assert_document(&documents, 1, &(bd_document){4, 30, 5, 2});
        bd_documents_remove_last(&documents);
        bd_documents_remove_last(&documents);
        assert_int_equal(documents.n, 0);
        assert_int_equal(documents.n_tokens, 0);
        assert_int_equal(documents.separators, 3);
        bd_documents_release(&documents);
    }
}

enum { N_PLACES = 6 };
static const struct {
    uint32_t input;
    uint64_t position;
} places[N_PLACES] = {{0, 0}, {0, 5}, {0, 9}, {1, 0}, {1, 7}, {2, 3}};

// Sorted orders of `places`; the shuffled ones as Python's xxhash ranks them.
static const struct {
    int64_t seed;
    int order[N_PLACES];
} orders[] = {
    {BD_NO_SHUFFLE, {0, 1, 2, 3, 4, 5}}, {0, {3, 4, 5, 2, 0, 1}}, {7, {3, 5, 4, 2, 1, 0}}};

static void documents_are_sorted_by_their_places(void **state)
{
    (void)state;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
        for (int first = 0; first < N_PLACES; first++) {
            bd_dataset_config config = config_of(257, BD_NO_BOS);
            config.shuffle = orders[o].seed;
            bd_documents documents;
            bd_documents_init(&documents, &config, &encoder);
            for (int i = 0; i < N_PLACES; i++) {  // whatever order they come in
                const int p = (first + 5 * i) % N_PLACES;
                append(&documents, (char[]){(char)('a' + p), '\0'}, places[p].input,
                       places[p].position);
            }
            assert_int_equal(bd_documents_sort(&documents, NULL), BD_OK);
            assert_int_equal(documents.n, N_PLACES);
            assert_int_equal(documents.n_tokens, 2 * N_PLACES);
            for (int i = 0; i < N_PLACES; i++) {
                const bd_document *document = &documents.items[i];
                const int p = orders[o].order[i];
                assert_int_equal(document->input, places[p].input);
                assert_int_equal(document->position, places[p].position);
                assert_int_equal(bd_id_at(documents.ids, 2, document->begin), 'a' + p);
            }
            bd_documents_release(&documents);
        }
}

static void no_documents_and_one_are_sorted(void **state)
{
    (void)state;
    const bd_dataset_config config = config_of(257, BD_NO_BOS);
    bd_documents documents;
    bd_documents_init(&documents, &config, &encoder);
    assert_int_equal(bd_documents_sort(&documents, NULL), BD_OK);
    assert_int_equal(documents.n, 0);
    append(&documents, "a", 7, 8);
    assert_int_equal(bd_documents_sort(&documents, NULL), BD_OK);
    assert_document(&documents, 0, &(bd_document){0, 8, 7, 2});
    bd_documents_release(&documents);
}

int main(void)
{
    if (bd_encoder_init(&encoder, bd_tokenizer_bytes(), NULL) != BD_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_its_text_and_one_separator),
        cmocka_unit_test(a_bos_token_begins_every_document),
        cmocka_unit_test(the_separator_and_bos_are_the_configs),
        cmocka_unit_test(many_documents_keep_their_tokens),
        cmocka_unit_test(a_document_of_ids_gets_its_bos_and_separator),
        cmocka_unit_test(ids_become_what_their_text_becomes),
        cmocka_unit_test(a_document_of_ids_is_trained_as_it_says),
        cmocka_unit_test(bos_is_never_trained),
        cmocka_unit_test(the_last_document_is_taken_out_but_stays_counted),
        cmocka_unit_test(documents_are_sorted_by_their_places),
        cmocka_unit_test(no_documents_and_one_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
