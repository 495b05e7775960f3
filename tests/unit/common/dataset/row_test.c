#include "common/dataset/row.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/random.h"

enum {
    A = 97,
    B = 98,
    C = 99,
    SEPARATOR = 256,
    PADDING = 3,
    MAX_TOKENS = 32,
    MAX_SEGMENTS = 8
};

// A row that owns what it points to, so that a test can edit it. The ids are kept wide and
// stored as the config says.
typedef struct owned_row {
    bd_dataset_config config;
    uint32_t ids[MAX_TOKENS];
    int32_t bounds[MAX_SEGMENTS + 1];
    int64_t n_bounds, n_segments;
    uint32_t input[MAX_SEGMENTS], offset[MAX_SEGMENTS], length[MAX_SEGMENTS];
    uint64_t position[MAX_SEGMENTS];
    uint16_t stored16[MAX_TOKENS];
    uint32_t stored32[MAX_TOKENS];
} owned_row;

// The example drawn in schemas/shard-v1.md.
static owned_row example(void)
{
    return (owned_row){
        .config = {.seq_len = 17,
                   .vocab_size = 257,
                   .separator = SEPARATOR,
                   .bos = BD_NO_BOS,
                   .padding = PADDING,
                   .batch_rows = 2,
                   .shuffle = BD_NO_SHUFFLE},
        .ids = {A, A, A, A, A, SEPARATOR, B, SEPARATOR, C, C, C, C, C, SEPARATOR, PADDING,
                PADDING, PADDING},
        .bounds = {0, 6, 8, 14},
        .n_bounds = 4,
        .n_segments = 3,
        .input = {4, 4, 5},
        .position = {10, 77, 0},
        .offset = {0, 0, 9},
        .length = {6, 2, 15},
    };
}

// Returns the row as readers see it, with its own checksum. Its mask, if the config has one,
// begins with bit `mask_bit` of `mask`.
static bd_row masked_view_of(owned_row *owned, const uint8_t *mask, int mask_bit)
{
    for (int t = 0; t < MAX_TOKENS; t++) {
        owned->stored16[t] = (uint16_t)owned->ids[t];
        owned->stored32[t] = owned->ids[t];
    }
    const bool narrow = bd_dataset_id_bytes(&owned->config) == 2;
    bd_row row = {
        .ids = narrow ? (const void *)owned->stored16 : owned->stored32,
        .n_bounds = owned->n_bounds,
        .bounds = owned->bounds,
        .n_segments = owned->n_segments,
        .segments = {owned->input, owned->position, owned->offset, owned->length},
        .loss_mask = mask,
        .mask_bit = mask_bit,
    };
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    row.checksum = bd_row_checksum(&row, &owned->config, hasher);
    bd_hasher_free(hasher);
    return row;
}

static bd_row view(owned_row *owned)
{
    return masked_view_of(owned, NULL, 0);
}

static bd_status check(const bd_row *row, const bd_dataset_config *config, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    const bd_status status = bd_row_check(row, config, hasher, err);
    bd_hasher_free(hasher);
    return status;
}

static void obeys(owned_row owned)
{
    bd_error err = {0};
    const bd_row row = view(&owned);
    const bd_status status = check(&row, &owned.config, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, BD_OK);
}

static void breaks(owned_row owned, const char *message)
{
    bd_error err = {0};
    const bd_row row = view(&owned);
    assert_int_equal(check(&row, &owned.config, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, message);
    assert_int_equal(check(&row, &owned.config, NULL), BD_ERR_FORMAT);
}

// ---- The checksum -----------------------------------------------------------------

// Computed by Python: xxh3_64 of struct.pack("<17H4i", …) + "<IQII" of each segment.
static void checksum_is_over_ids_boundaries_and_documents_without_gaps(void **state)
{
    (void)state;
    owned_row row = example();
    assert_true(view(&row).checksum == UINT64_C(0x6b4264f52aea48ae));
    row.config.vocab_size = 70000;  // ids of four bytes
    assert_true(view(&row).checksum == UINT64_C(0xa95e5949295c9eab));
}

static void r7_every_changed_bit_of_a_row_is_noticed(void **state)
{
    (void)state;
    owned_row owned = example();
    const bd_row row = view(&owned);
    const struct {
        void *data;
        size_t size_bytes;
    } parts[] = {
        {owned.stored16, 17 * sizeof *owned.stored16},
        {owned.bounds, 4 * sizeof *owned.bounds},
        {owned.input, 3 * sizeof *owned.input},
        {owned.position, 3 * sizeof *owned.position},
        {owned.offset, 3 * sizeof *owned.offset},
        {owned.length, 3 * sizeof *owned.length},
    };
    assert_int_equal(check(&row, &owned.config, NULL), BD_OK);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t bit = 0; bit < 8 * parts[p].size_bytes; bit++) {
            unsigned char *byte = (unsigned char *)parts[p].data + bit / 8;
            bd_error err;
            *byte ^= (unsigned char)(1 << bit % 8);
            assert_int_equal(check(&row, &owned.config, &err), BD_ERR_FORMAT);
            assert_string_equal(err.message, "R7: the checksum does not match the row");
            *byte ^= (unsigned char)(1 << bit % 8);
        }
    for (int bit = 0; bit < 64; bit++) {
        bd_row other = row;
        other.checksum ^= UINT64_C(1) << bit;
        assert_int_equal(check(&other, &owned.config, NULL), BD_ERR_FORMAT);
    }
}

// ---- Valid rows (each rule is broken in tests/cli/rules_test.py) -------------------

static void sound_row_obeys_every_rule(void **state)
{
    (void)state;
    obeys(example());
}

static void separator_inside_a_document_means_nothing(void **state)
{
    (void)state;
    owned_row row = example();
    row.ids[0] = row.ids[2] = row.ids[9] = SEPARATOR;
    obeys(row);
}

// ---- Awkward rows -----------------------------------------------------------------

static void row_that_is_exactly_full_has_no_padding(void **state)
{
    (void)state;
    owned_row row = example();
    row.config.seq_len = 14;
    obeys(row);
    row.config.seq_len = 13;
    breaks(row, "R1: boundary 3 is 14 after 8");
}

static void row_of_one_token_is_an_empty_document(void **state)
{
    (void)state;
    owned_row row = {
        .config = example().config,
        .ids = {SEPARATOR},
        .bounds = {0, 1},
        .n_bounds = 2,
        .n_segments = 1,
        .length = {1},
    };
    for (int t = 1; t < MAX_TOKENS; t++)
        row.ids[t] = PADDING;
    obeys(row);
    row.config.seq_len = 2;
    obeys(row);
    row.ids[0] = A;
    breaks(row, "R5: segment 0 ends its document without the separator");
}

static void smallest_row_is_held_to_the_same_rules(void **state)
{
    (void)state;
    owned_row row = {
        .config = example().config,
        .ids = {A, SEPARATOR},
        .bounds = {0, 2},
        .n_bounds = 2,
        .n_segments = 1,
        .length = {2},
    };
    row.config.seq_len = 2;
    obeys(row);
    row.ids[1] = A;
    breaks(row, "R5: segment 0 ends its document without the separator");
    row.offset[0] = 100;
    row.length[0] = UINT32_MAX;
    obeys(row);  // a piece from the middle of a very long document
    row.ids[1] = SEPARATOR;
    row.bounds[1] = 1;
    row.bounds[2] = 2;
    row.n_bounds = 3;
    row.n_segments = 2;
    row.ids[0] = SEPARATOR;
    row.offset[0] = 0;
    row.length[0] = row.length[1] = 1;
    row.position[1] = 1;
    obeys(row);  // two empty documents
}

static void wide_ids_are_read_as_wide(void **state)
{
    (void)state;
    owned_row row = example();
    row.config.vocab_size = 70000;
    row.ids[2] = 69999;
    obeys(row);
    row.ids[2] = 70000;
    breaks(row, "R3: token 2 has id 70000, the vocabulary 70000");
    row.config.vocab_size = INT64_C(1) << 32;
    row.ids[2] = UINT32_MAX;
    obeys(row);
    row.ids[15] = PADDING + 65536;  // equal in its lower 16 bits
    breaks(row, "R3: a token after the last boundary 14 is not padding");
    row = example();
    row.config.vocab_size = 65536;  // the largest vocabulary of two bytes
    row.ids[2] = 65535;
    obeys(row);
}

// ---- Counting and cutting ---------------------------------------------------------

static void any_number_of_ids_is_counted(void **state)
{
    (void)state;
    enum { N = 3 * 65536 + 33 };
    uint32_t *wide = malloc(N * sizeof *wide);
    uint16_t *narrow = malloc(N * sizeof *narrow);
    assert_true(wide && narrow);
    for (int t = 0; t < N; t++)
        wide[t] = narrow[t] = t % 1000 == 0 ? 6 : 5;
    for (int n = 0; n <= N; n += n < 70 ? 1 : n + 32749 < N ? 32749 : n < N ? N - n : 1) {
        const int n_others = (n + 999) / 1000;
        assert_int_equal(bd_ids_count(narrow, 2, 0, n, 5), n - n_others);
        assert_int_equal(bd_ids_count(wide, 4, 0, n, 5), n - n_others);
        assert_int_equal(bd_ids_count(narrow, 2, 0, n, 6), n_others);
        assert_int_equal(bd_ids_count(wide, 4, 0, n, 6), n_others);
    }
    free(wide);
    free(narrow);
}

static void ids_are_counted_in_the_range_alone(void **state)
{
    (void)state;
    const uint16_t narrow[] = {5, 5, 6, 5, 65535, 5};
    const uint32_t wide[] = {5, 5, 6, 5, UINT32_MAX, 5};
    assert_int_equal(bd_ids_count(narrow, 2, 0, 6, 5), 4);
    assert_int_equal(bd_ids_count(wide, 4, 0, 6, 5), 4);
    assert_int_equal(bd_ids_count(narrow, 2, 1, 5, 5), 2);
    assert_int_equal(bd_ids_count(wide, 4, 1, 5, 5), 2);
    assert_int_equal(bd_ids_count(narrow, 2, 3, 3, 5), 0);
    assert_int_equal(bd_ids_count(wide, 4, 3, 3, 5), 0);
    assert_int_equal(bd_ids_count(narrow, 2, 0, 6, 65535 + 65536), 0);
    assert_int_equal(bd_ids_count(wide, 4, 0, 6, UINT32_MAX), 1);
    for (int t = 0; t < 6; t++) {
        assert_int_equal(bd_id_at(narrow, 2, t), narrow[t]);
        assert_int_equal(bd_id_at(wide, 4, t), wide[t]);
    }
}

static void collisions_are_text_that_looks_like_the_separator(void **state)
{
    (void)state;
    enum { S = SEPARATOR };
    static const uint16_t ids[] = {S, S, S, S, S, S}, text[] = {A, S, A, S};
    static const struct {
        const uint16_t *ids;
        int64_t bos;
        int32_t from, to;
        uint32_t offset, document_length;
        int64_t expected;
    } cases[] = {
        {ids, BD_NO_BOS, 0, 6, 0, 6, 5},   // all except its own separator
        {ids, BD_NO_BOS, 0, 6, 0, 9, 6},   // a first piece: all text
        {ids, BD_NO_BOS, 0, 6, 3, 9, 4},   // a last piece: without context and separator
        {ids, BD_NO_BOS, 0, 6, 3, 20, 5},  // a middle piece: without the context
        {ids, S, 0, 6, 0, 6, 4},           // without the BOS
        {ids, 7, 0, 6, 3, 20, 5},          // a later piece has no BOS
        {ids, BD_NO_BOS, 2, 4, 0, 2, 1},   // part of the row
        {ids, BD_NO_BOS, 2, 3, 0, 1, 0},   // an empty document
        {ids, S, 2, 4, 0, 2, 0},           // an empty document with BOS
        {ids, BD_NO_BOS, 2, 4, 5, 7, 0},   // a last piece of context and separator
        {text, BD_NO_BOS, 0, 4, 0, 4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t bounds[] = {cases[i].from, cases[i].to};
        const bd_row row = {
            .ids = cases[i].ids,
            .bounds = bounds,
            .segments = {.offset = &cases[i].offset, .length = &cases[i].document_length}};
        bd_dataset_config config = example().config;
        config.bos = cases[i].bos;
        assert_int_equal(bd_separator_collisions(&row, &config, 0), cases[i].expected);
    }
}

static void every_token_of_a_segment_but_its_first_is_a_target(void **state)
{
    (void)state;
    const int32_t bounds[] = {0, 3, 4, 6};  // and padding
    const bd_row row = {.n_bounds = 4, .bounds = bounds, .n_segments = 3};
    const char *const expected[] = {".xx.....", "........", ".....x.."};
    for (int64_t s = 0; s < 3; s++) {
        int64_t n = 0;
        for (int64_t t = 0; t < 8; t++) {
            assert_int_equal(bd_row_is_target(&row, s, t), expected[s][t] == 'x');
            n += expected[s][t] == 'x';
        }
        assert_int_equal(bd_row_targets(&row, s), n);
    }
}

// ---- Loss masks ---------------------------------------------------------------------

enum { N_BITS = 400, N_BIT_BYTES = N_BITS / 8 };

static void fill_randomly(uint8_t *bytes, uint64_t *random)
{
    for (int i = 0; i < N_BIT_BYTES; i++)
        bytes[i] = (uint8_t)random_between(random, 0, 255);
}

// Against a loop over bits, wherever in their bytes they begin and end. The bits around them stay
// as they were. The bits lie at the end of memory that is exactly as large, so that a sanitizer
// sees a byte that is read in vain.
static void bits_are_copied_filled_and_counted_one_by_one(void **state)
{
    (void)state;
    uint64_t random = 20250611;
    for (int i = 0; i < 20000; i++) {
        const int n = i % 3 ? random_between(&random, 0, 80) : random_between(&random, 0, 390);
        const int from = random_between(&random, 0, i % 2 ? 7 : N_BITS - n);
        const int at = random_between(&random, 0, i % 2 ? 7 : N_BITS - n);
        if (from + n > N_BITS || at + n > N_BITS)
            continue;
        uint8_t bits[N_BIT_BYTES], before[N_BIT_BYTES];
        fill_randomly(bits, &random);
        fill_randomly(before, &random);
        const size_t source_bytes = bd_column_bytes(from + n, 1);
        const size_t target_bytes = bd_column_bytes(at + n, 1);
        uint8_t *source = malloc(source_bytes + 1), *target = malloc(target_bytes + 1);
        memcpy(source + 1, bits, source_bytes);
        memcpy(target + 1, before, target_bytes);
        int64_t n_set = 0;
        bd_column_copy(target + 1, at, source + 1, from, n, 1);
        for (int t = 0; t < (int)(8 * target_bytes); t++) {
            const bool copied = at <= t && t < at + n;
            assert_int_equal(bd_bit_at(target + 1, t),
                             copied ? bd_bit_at(bits, from + t - at) : bd_bit_at(before, t));
        }
        for (int t = from; t < from + n; t++)
            n_set += bd_bit_at(bits, t);
        assert_int_equal(bd_bits_count(source + 1, from, from + n), n_set);
        assert_int_equal(bd_bits_difference(source + 1, from, target + 1, at, n), n);
        if (n > 0) {
            const int t = random_between(&random, 0, n - 1);
            target[1 + (at + t) / 8] ^= (uint8_t)(1 << (at + t) % 8);
            assert_int_equal(bd_bits_difference(source + 1, from, target + 1, at, n), t);
        }
        memcpy(target + 1, before, target_bytes);
        bd_column_fill(target + 1, at, at + n, 1, i % 2);
        for (int t = 0; t < (int)(8 * target_bytes); t++)
            assert_int_equal(bd_bit_at(target + 1, t),
                             at <= t && t < at + n ? i % 2 : bd_bit_at(before, t));
        free(source);
        free(target);
    }
}

// Bits as a word shows them, the first token first, from bit `begin` on.
static void put_mask(uint8_t *mask, int begin, const char *word)
{
    for (int t = 0; word[t]; t++)
        bd_bits_fill(mask, begin + t, begin + t + 1, word[t] == 'x');
}

static void tokens_that_the_mask_leaves_out_are_no_targets(void **state)
{
    (void)state;
    const int32_t bounds[] = {0, 5, 6, 12};  // and padding
    const char *const expected[] = {"..x.x.......", "............", "........xx.x"};
    for (int32_t begin = 0; begin < 8; begin++) {
        uint8_t mask[4] = {0xFF, 0xFF, 0xFF, 0xFF};
        put_mask(mask, begin, "..x.x...xx.x..");
        const bd_row row = {.loss_mask = mask,
                            .mask_bit = begin,
                            .n_bounds = 4,
                            .bounds = bounds,
                            .n_segments = 3};
        for (int64_t s = 0; s < 3; s++) {
            int64_t n = 0;
            for (int64_t t = 0; t < 12; t++) {
                assert_int_equal(bd_row_is_target(&row, s, t), expected[s][t] == 'x');
                n += expected[s][t] == 'x';
            }
            assert_int_equal(bd_row_targets(&row, s), n);
        }
    }
}

// The mask of the example, at any place in a byte; the bits around it are set.
static bd_row masked_view(owned_row *owned, uint8_t mask[4], int begin, const char *word)
{
    owned->config.loss_mask = true;
    memset(mask, 0xFF, 4);
    put_mask(mask, begin, word);
    return masked_view_of(owned, mask, begin);
}

static void the_mask_follows_all_else_in_the_checksum(void **state)
{
    (void)state;
    owned_row owned = example();
    const bd_row plain = view(&owned);
    unsigned char bytes[200];
    size_t n = 0;
    memcpy(bytes + n, plain.ids, 2 * 17);
    n += 2 * 17;
    memcpy(bytes + n, plain.bounds, 4 * 4);
    n += 4 * 4;
    for (int s = 0; s < 3; s++, n += 20) {
        memcpy(bytes + n, &owned.input[s], 4);
        memcpy(bytes + n + 4, &owned.position[s], 8);
        memcpy(bytes + n + 12, &owned.offset[s], 4);
        memcpy(bytes + n + 16, &owned.length[s], 4);
    }
    assert_int_equal(plain.checksum, bd_hash64(bytes, n, 0));
    bytes[n++] = 0xBC;  // ..xxxx.x
    bytes[n++] = 0x22;  // .x...x..
    bytes[n++] = 0x00;
    for (int begin = 0; begin < 8; begin++) {
        uint8_t mask[4];
        const bd_row row = masked_view(&owned, mask, begin, "..xxxx.x.x...x...");
        assert_int_equal(row.checksum, bd_hash64(bytes, n, 0));
    }
}

static void segments_begin_and_padding_lies_untrained(void **state)
{
    (void)state;
    static const struct {
        const char *mask, *message;
    } cases[] = {
        {"..xxxx.x.x...x...", NULL},
        {".................", NULL},
        {".xxxxx.x.xxxxx...", NULL},
        {"x.xxxx.x.x...x...", "R10: token 0, the first of segment 0, is marked as trained"},
        {"..xxxxxx.x...x...", "R10: token 6, the first of segment 1, is marked as trained"},
        {"..xxxx.xxx...x...", "R10: token 8, the first of segment 2, is marked as trained"},
        {"..xxxx.x.x...xx..", "R10: padding is marked as trained"},
        {"..xxxx.x.x...x..x", "R10: padding is marked as trained"},
    };
    bd_hasher *hasher = bd_hasher_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int begin = 0; begin < 8; begin++) {
            owned_row owned = example();
            uint8_t mask[4];
            bd_error err = {0};
            const bd_row row = masked_view(&owned, mask, begin, cases[i].mask);
            bd_row_check(&row, &owned.config, hasher, &err);
            assert_string_equal(err.message, cases[i].message ? cases[i].message : "");
        }
    bd_hasher_free(hasher);
}

static void a_flipped_bit_is_found_by_the_checksum(void **state)
{
    (void)state;
    bd_hasher *hasher = bd_hasher_new();
    for (int t = 0; t < 17; t++) {
        owned_row owned = example();
        uint8_t mask[4];
        bd_error err = {0};
        const bd_row row = masked_view(&owned, mask, 5, "..xxxx.x.x...x...");
        mask[(5 + t) / 8] ^= (uint8_t)(1 << (5 + t) % 8);
        assert_int_equal(bd_row_check(&row, &owned.config, hasher, &err), BD_ERR_FORMAT);
        assert_memory_equal(err.message, "R7", 2);
    }
    bd_hasher_free(hasher);
}

static void row_of_a_batch_is_its_own_part(void **state)
{
    (void)state;
    const uint16_t narrow[9] = {0};
    const uint32_t wide[9] = {0};
    const int32_t bound_offsets[] = {0, 2, 5, 7}, bounds[7] = {0};
    const int32_t segment_offsets[] = {0, 1, 3, 4};
    const uint32_t input[4] = {0}, offset[4] = {0}, length[4] = {0};
    const uint64_t position[4] = {0}, checksums[] = {7, 8, 9};
    for (int vocab_size = 257; vocab_size < 100000; vocab_size += 70000) {
        const bd_dataset_config config = {.seq_len = 3, .vocab_size = vocab_size};
        const bool is_narrow = vocab_size == 257;
        const bd_row_batch batch = {
            .n_rows = 3,
            .ids = is_narrow ? (const void *)narrow : wide,
            .bound_offsets = bound_offsets,
            .bounds = bounds,
            .segment_offsets = segment_offsets,
            .segments = {input, position, offset, length},
            .checksums = checksums,
        };
        for (int r = 0; r < 3; r++) {
            const bd_row row = bd_row_of_batch(&batch, &config, r);
            const int segment = segment_offsets[r];
            assert_ptr_equal(row.ids, is_narrow ? (const void *)&narrow[3 * r] : &wide[3 * r]);
            assert_ptr_equal(row.bounds, &bounds[bound_offsets[r]]);
            assert_int_equal(row.n_bounds, bound_offsets[r + 1] - bound_offsets[r]);
            assert_int_equal(row.n_segments, segment_offsets[r + 1] - segment);
            assert_ptr_equal(row.segments.input, &input[segment]);
            assert_ptr_equal(row.segments.position, &position[segment]);
            assert_ptr_equal(row.segments.offset, &offset[segment]);
            assert_ptr_equal(row.segments.length, &length[segment]);
            assert_int_equal(row.checksum, checksums[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum_is_over_ids_boundaries_and_documents_without_gaps),
        cmocka_unit_test(r7_every_changed_bit_of_a_row_is_noticed),
        cmocka_unit_test(sound_row_obeys_every_rule),
        cmocka_unit_test(separator_inside_a_document_means_nothing),
        cmocka_unit_test(row_that_is_exactly_full_has_no_padding),
        cmocka_unit_test(row_of_one_token_is_an_empty_document),
        cmocka_unit_test(smallest_row_is_held_to_the_same_rules),
        cmocka_unit_test(wide_ids_are_read_as_wide),
        cmocka_unit_test(any_number_of_ids_is_counted),
        cmocka_unit_test(ids_are_counted_in_the_range_alone),
        cmocka_unit_test(collisions_are_text_that_looks_like_the_separator),
        cmocka_unit_test(every_token_of_a_segment_but_its_first_is_a_target),
        cmocka_unit_test(bits_are_copied_filled_and_counted_one_by_one),
        cmocka_unit_test(tokens_that_the_mask_leaves_out_are_no_targets),
        cmocka_unit_test(the_mask_follows_all_else_in_the_checksum),
        cmocka_unit_test(segments_begin_and_padding_lies_untrained),
        cmocka_unit_test(a_flipped_bit_is_found_by_the_checksum),
        cmocka_unit_test(row_of_a_batch_is_its_own_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
