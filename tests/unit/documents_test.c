#include "packer/documents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/row.h"

static bd_packing packing_of(int64_t vocab_size, int64_t bos)
{
    return (bd_packing){.seq_len = 8, .vocab_size = vocab_size, .separator = 256, .bos = bos};
}

static void append(bd_documents *documents, const char *text, uint32_t input, uint64_t position)
{
    assert_int_equal(bd_documents_append(documents, text, strlen(text), input, position, NULL),
                     BD_OK);
}

static void assert_ids(const bd_documents *documents, const uint32_t *expected, size_t n)
{
    const int id_bytes = bd_packing_id_bytes(documents->packing);
    assert_int_equal(documents->n_ids, n);
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
        const bd_packing packing = packing_of(VOCAB_SIZES[v], BD_NO_BOS);
        bd_documents documents;
        bd_documents_init(&documents, &packing, bd_tokenizer_bytes());
        append(&documents, "ab", 7, UINT64_C(1) << 40);
        append(&documents, "", 7, 3);  // no text is still a document
        append(&documents, "\xff", UINT32_MAX, 9);
        assert_int_equal(bd_packing_id_bytes(&packing), v < 2 ? 2 : 4);
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
        const bd_packing packing = packing_of(VOCAB_SIZES[v], 1);
        bd_documents documents;
        bd_documents_init(&documents, &packing, bd_tokenizer_bytes());
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

static void the_separator_and_bos_are_the_packings(void **state)
{
    (void)state;
    bd_packing packing = packing_of(65537, 65536);
    packing.separator = 65535;
    bd_documents documents;
    bd_documents_init(&documents, &packing, bd_tokenizer_bytes());
    append(&documents, "a", 0, 0);
    assert_ids(&documents, (uint32_t[]){65536, 'a', 65535}, 3);
    bd_documents_release(&documents);
}

static void many_documents_keep_their_tokens(void **state)
{
    (void)state;
    for (size_t v = 0; v < 3; v++) {
        const bd_packing packing = packing_of(VOCAB_SIZES[v], BD_NO_BOS);
        bd_documents documents;
        bd_documents_init(&documents, &packing, bd_tokenizer_bytes());
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
            assert_int_equal(bd_ids_count(documents.ids, bd_packing_id_bytes(&packing), begin,
                                          begin + n_text, (uint32_t)d % 256),
                             n_text);
            begin += n_text + 1;
        }
        assert_int_equal(documents.n_ids, begin);
        bd_documents_release(&documents);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_its_text_and_one_separator),
        cmocka_unit_test(a_bos_token_begins_every_document),
        cmocka_unit_test(the_separator_and_bos_are_the_packings),
        cmocka_unit_test(many_documents_keep_their_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
