// Boundaries reach the model as they are in the shard: nothing per token is made on the way.
#include "trainer/data/batch.h"

#include <inttypes.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

// Several shards, each of several record batches and a shorter one at its end.
static const int LENGTHS[] = {30, 3,  9,  0,  14, 31, 1,  1,  70, 5,  22, 8,  0,
                              0,  0,  17, 29, 2,  6,  12, 4,  4,  4,  64, 33, 7,
                              7,  19, 23, 3,  1,  15, 0,  28, 11, 90, 5,  2};
static const packed_as SMALL = {
    .seq_len = 32, .batch_rows = 2, .unit_bytes = 300, .vocab_size = 257};
enum { N_DOCUMENTS = sizeof LENGTHS / sizeof LENGTHS[0] };

static void open_small(bd_rows *rows)
{
    pack_documents(rows, "dataset", LENGTHS, N_DOCUMENTS, SMALL);
    assert_true(rows->manifests[0].n_shards >= 3);
    assert_true(rows->manifests[0].shards[0].figures.rows >= 5);
    assert_int_equal(rows->manifests[0].shards[0].figures.rows % 2, 1);
}

static bool lies_in(const bd_shard *shard, const void *pointer)
{
    const char *data = shard->file.data, *p = pointer;
    return data <= p && p < data + shard->file.size_bytes;
}

// Returns the row as the shard gives it, without a batch.
static bd_row row_of(const bd_rows *rows, int64_t number)
{
    bd_error err;
    bd_row row;
    size_t shard;
    int64_t row_in_shard;
    bd_hasher *hasher = bd_hasher_new();
    assert_true(bd_manifest_find_row(&rows->manifests[0], number, &shard, &row_in_shard));
    check(bd_shard_row(&rows->shards[shard], row_in_shard, hasher, &row, &err), &err);
    bd_hasher_free(hasher);
    return row;
}

// However the batch was made, it contains the rows unchanged.
static void assert_holds(const bd_batch *batch, const bd_rows *rows, const int64_t *numbers,
                         int64_t n)
{
    const int64_t seq_len = rows->manifests[0].config.seq_len;
    const size_t row_bytes = (size_t)(seq_len * batch->id_bytes);
    int64_t n_targets = 0, n_segments_with_target = 0;
    assert_int_equal(batch->boundaries.n_rows, n);
    assert_int_equal(batch->boundaries.seq_len, seq_len);
    assert_int_equal(batch->id_bytes, bd_dataset_id_bytes(&rows->manifests[0].config));
    for (int64_t r = 0; r < n; r++) {
        const bd_row row = row_of(rows, numbers[r]);
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&batch->boundaries, r, &n_segments);
        assert_int_equal(batch->row_numbers[r], numbers[r]);
        assert_int_equal(n_segments, row.n_segments);
        assert_memory_equal(bounds, row.bounds, (size_t)row.n_bounds * sizeof *bounds);
        assert_memory_equal((const char *)batch->ids + (size_t)r * row_bytes, row.ids,
                            row_bytes);
        assert_int_equal(bd_row_has_mask(&batch->mask, r), row.loss_mask != NULL);
        for (int64_t t = 0; t < seq_len && row.loss_mask; t++)
            assert_int_equal(bd_token_is_trained(&batch->mask, r, t),
                             bd_bit_at(row.loss_mask, row.mask_bit + t));
        for (int64_t k = 0; k < n_segments; k++) {
            int64_t n_own = 0;
            for (int64_t t = bounds[k] + 1; t < bounds[k + 1]; t++)
                n_own += !row.loss_mask || bd_bit_at(row.loss_mask, row.mask_bit + t);
            n_targets += n_own;
            n_segments_with_target += n_own > 0;
        }
    }
    const bd_target_count counted = bd_count_row_targets(&batch->boundaries, &batch->mask);
    assert_int_equal(batch->targets.n_targets, n_targets);
    assert_int_equal(batch->targets.n_segments, n_segments_with_target);
    assert_int_equal(counted.n_targets, n_targets);
    assert_int_equal(counted.n_segments, n_segments_with_target);
}

// The pointers lead into the mapped file, and there is no buffer of our own.
static void assert_borrowed(const bd_rows *rows, size_t shard, const int64_t *numbers,
                            int64_t n)
{
    bd_batch batch = load_batch(rows, numbers, n);
    const bd_shard *from = &rows->shards[shard];
    const bd_row first = row_of(rows, numbers[0]);
    assert_ptr_equal(batch.ids, first.ids);
    assert_ptr_equal(batch.boundaries.values + batch.boundaries.offsets[0], first.bounds);
    assert_true(lies_in(from, batch.ids));
    assert_true(lies_in(from, batch.boundaries.offsets));
    assert_true(lies_in(from, batch.boundaries.values));
    assert_null(batch.id_buffer);
    assert_null(batch.offset_buffer);
    assert_null(batch.value_buffer);
    assert_null(batch.mask_buffer);
    if (first.loss_mask) {
        assert_true(lies_in(from, batch.mask.bits));
        assert_ptr_equal(batch.mask.bits + batch.mask.offsets[0] / 8, first.loss_mask);
        assert_int_equal(batch.mask.offsets[0] % 8, first.mask_bit);
    }
    assert_holds(&batch, rows, numbers, n);
    bd_batch_release(&batch);
}

static void assert_copied(const bd_rows *rows, const int64_t *numbers, int64_t n)
{
    bd_batch batch = load_batch(rows, numbers, n);
    assert_ptr_equal(batch.ids, batch.id_buffer);
    assert_ptr_equal(batch.boundaries.offsets, batch.offset_buffer);
    assert_ptr_equal(batch.boundaries.values, batch.value_buffer);
    int32_t offset = 0;  // rebased: counted from 0 again, one row after another
    for (int64_t r = 0; r < n; r++) {
        assert_int_equal(batch.boundaries.offsets[r], offset);
        offset += (int32_t)row_of(rows, numbers[r]).n_bounds;
    }
    assert_int_equal(batch.boundaries.offsets[n], offset);
    assert_holds(&batch, rows, numbers, n);
    bd_batch_release(&batch);
}

static void neighbours_of_one_record_batch_are_the_file_itself(void **state)
{
    (void)state;
    bd_rows rows;
    open_golden_rows(&rows);
    int64_t all[27];
    for (int64_t i = 0; i < 27; i++)
        all[i] = i;
    assert_borrowed(&rows, 0, all, 27);
    assert_borrowed(&rows, 0, all + 5, 9);
    assert_borrowed(&rows, 0, all + 26, 1);
    bd_rows_close(&rows);
}

static void a_single_row_is_the_file_itself_wherever_it_lies(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    for (int64_t r = 0; r < rows.manifests[0].totals.rows; r++) {
        size_t shard;
        int64_t row_in_shard;
        assert_true(bd_manifest_find_row(&rows.manifests[0], r, &shard, &row_in_shard));
        assert_borrowed(&rows, shard, &r, 1);
    }
    bd_rows_close(&rows);
}

static void a_whole_record_batch_is_the_file_itself(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    const int64_t second = rows.begins[1];
    assert_borrowed(&rows, 0, (const int64_t[]){2, 3}, 2);
    assert_borrowed(&rows, 1, (const int64_t[]){second, second + 1}, 2);
    bd_rows_close(&rows);
}

static void shuffled_rows_are_copied_unchanged(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    const int64_t last = rows.manifests[0].totals.rows - 1;
    assert_copied(&rows, (const int64_t[]){last, 0, 4, 3, 2, 1}, 6);
    assert_copied(&rows, (const int64_t[]){1, 0}, 2);     // neighbours in reverse order
    assert_copied(&rows, (const int64_t[]){3, 3, 3}, 3);  // the same again, as after an epoch
    assert_copied(&rows, (const int64_t[]){2, 2}, 2);
    assert_copied(&rows, (const int64_t[]){2, 3, 2}, 3);
    bd_rows_close(&rows);
    open_golden_rows(&rows);  // one record batch: only the order prevents borrowing
    assert_copied(&rows, (const int64_t[]){4, 9, 2, 3}, 4);
    assert_copied(&rows, (const int64_t[]){4, 5, 6, 8}, 4);
    bd_rows_close(&rows);
}

static void neighbours_across_a_border_are_copied(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    const int64_t second = rows.begins[1];
    assert_copied(&rows, (const int64_t[]){1, 2}, 2);                    // at a batch's end
    assert_copied(&rows, (const int64_t[]){second - 1, second}, 2);      // at a shard's end
    assert_copied(&rows, (const int64_t[]){second - 2, second - 1}, 2);  // 2 and 1 rows
    bd_rows_close(&rows);
}

static void wide_ids_are_handled_alike(void **state)
{
    (void)state;
    packed_as wide = SMALL;
    wide.vocab_size = 70000;
    bd_rows rows;
    pack_documents(&rows, "dataset", LENGTHS, N_DOCUMENTS, wide);
    assert_borrowed(&rows, 0, (const int64_t[]){2, 3}, 2);
    assert_copied(&rows, (const int64_t[]){3, 2}, 2);
    bd_batch batch = load_batch(&rows, (const int64_t[]){3, 2}, 2);
    assert_int_equal(batch.id_bytes, 4);
    bd_batch_release(&batch);
    bd_rows_close(&rows);
}

// Rows of 33 tokens begin at every bit of a byte, rows of 64 at the first only.
static void open_masked(bd_rows *rows, const char *folder, int64_t seq_len)
{
    pack_documents(rows, folder, LENGTHS, N_DOCUMENTS,
                   (packed_as){.seq_len = seq_len,
                               .batch_rows = 5,
                               .unit_bytes = 2000,
                               .vocab_size = 257,
                               .masked = true});
    assert_true(rows->manifests[0].totals.rows >= 10);
}

static void masks_of_neighbours_are_the_file_itself(void **state)
{
    (void)state;
    bd_rows rows;
    open_masked(&rows, "dataset", 33);
    assert_borrowed(&rows, 0, (const int64_t[]){0, 1, 2, 3, 4}, 5);
    assert_borrowed(&rows, 0, (const int64_t[]){2, 3}, 2);
    assert_borrowed(&rows, 0, (const int64_t[]){4}, 1);
    bd_rows_close(&rows);
}

// Not a bit is moved: a copied row begins at the same bit of a byte, and its bytes are the file's.
static void masks_of_other_rows_are_copied_unchanged(void **state)
{
    (void)state;
    static const int64_t lengths[] = {33, 41, 64};
    static const char *const folders[] = {"of 33", "of 41", "of 64"};
    static const int64_t numbers[] = {4, 1, 3, 1, 7, 0, 2};
    for (int i = 0; i < 3; i++) {
        bd_rows rows;
        open_masked(&rows, folders[i], lengths[i]);
        assert_copied(&rows, numbers, 7);
        bd_batch batch = load_batch(&rows, numbers, 7);
        for (int64_t r = 0; r < 7; r++) {
            const bd_row row = row_of(&rows, numbers[r]);
            assert_int_equal(batch.mask.offsets[r] % 8, row.mask_bit);
            assert_memory_equal(batch.mask.bits + batch.mask.offsets[r] / 8, row.loss_mask,
                                (size_t)(row.mask_bit + lengths[i] + 7) / 8);
        }
        bd_batch_release(&batch);
        bd_rows_close(&rows);
    }
}

static void masks_follow_rows_that_are_rearranged(void **state)
{
    (void)state;
    static const int64_t numbers[] = {1, 2, 3, 4}, order[] = {2, 0, 3, 1};
    static const int64_t rearranged[] = {3, 1, 4, 2};
    bd_error err;
    bd_rows rows;
    bd_batch batch = {0};
    open_masked(&rows, "dataset", 33);
    bd_batch from = load_batch(&rows, numbers, 4);
    check(bd_batch_rearrange(&batch, &from, order, &err), &err);
    assert_holds(&batch, &rows, rearranged, 4);
    const bd_model_batch part = bd_batch_part(&batch, 1, 3);
    for (int64_t r = 0; r < 3; r++)
        for (int64_t t = 0; t < 33; t++)
            assert_int_equal(bd_token_is_trained(&part.mask, r, t),
                             bd_token_is_trained(&batch.mask, r + 1, t));
    bd_batch_release(&from);
    bd_batch_release(&batch);
    bd_rows_close(&rows);
}

static void datasets_with_and_without_masks_are_mixed(void **state)
{
    (void)state;
    bd_error err;
    bd_rows plain, masked, both;
    packed_as how = SMALL;
    pack_documents(&plain, "plain", LENGTHS, N_DOCUMENTS, how);
    how.masked = true;
    pack_documents(&masked, "masked", LENGTHS, N_DOCUMENTS, how);
    const int64_t n_plain = bd_rows_count(&plain);
    const char *folders[] = {"plain", "masked"};
    check(bd_rows_open_all(&both, folders, (const double[]){1, 1}, 2, &err), &err);
    const int64_t numbers[] = {n_plain + 3, 2, n_plain, n_plain - 1};
    bd_batch batch = load_batch(&both, numbers, 4);
    const bd_row third = row_of(&masked, 3), first = row_of(&masked, 0);
    assert_int_equal(batch.mask.offsets[1], BD_ALL_TRAINED);
    assert_int_equal(batch.mask.offsets[3], BD_ALL_TRAINED);
    for (int64_t t = 0; t < SMALL.seq_len; t++) {
        assert_int_equal(bd_token_is_trained(&batch.mask, 0, t),
                         bd_bit_at(third.loss_mask, third.mask_bit + t));
        assert_int_equal(bd_token_is_trained(&batch.mask, 2, t),
                         bd_bit_at(first.loss_mask, first.mask_bit + t));
    }
    bd_batch_release(&batch);
    batch = load_batch(&both, (const int64_t[]){3, 1}, 2);  // no row has a mask
    assert_null(batch.mask.bits);
    bd_batch_release(&batch);
    bd_rows_close(&both);
    bd_rows_close(&plain);
    bd_rows_close(&masked);
}

static void a_batch_is_reused_for_others(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    bd_batch batch = {0};
    open_small(&rows);
    bd_hasher *hasher = bd_hasher_new();
    static const int64_t choices[][6] = {{0},    {4, 2, 0, 1},       {2, 3},
                                         {5, 4}, {0, 2, 4, 6, 8, 1}, {6, 7}};
    static const int64_t n[] = {1, 4, 2, 2, 6, 2};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        check(bd_batch_load(&batch, &rows, choices[i], n[i], hasher, &err), &err);
        assert_holds(&batch, &rows, choices[i], n[i]);
    }
    bd_batch_release(&batch);
    bd_batch_release(&batch);
    bd_hasher_free(hasher);
    bd_rows_close(&rows);
}

static void a_dataset_of_one_token_documents_has_no_targets(void **state)
{
    (void)state;
    static const int empty[40] = {0};
    bd_rows rows;
    pack_documents(&rows, "dataset", empty, 40, SMALL);
    bd_batch batch = load_batch(&rows, (const int64_t[]){1, 0}, 2);
    assert_int_equal(batch.targets.n_targets, 0);
    assert_int_equal(batch.boundaries.offsets[2], 33 + 9);
    bd_batch_release(&batch);
    bd_rows_close(&rows);
}

static void a_damaged_row_is_refused_by_name(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_rows rows;
    bd_batch batch = {0};
    open_small(&rows);
    const int64_t bad = rows.begins[1] + 3, good = rows.begins[1] + 2;
    damage_row(&rows, "dataset", bad);
    bd_hasher *hasher = bd_hasher_new();
    const int64_t shuffled[] = {0, bad, 2}, neighbours[] = {good, bad};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            bd_batch_load(&batch, &rows, i == 0 ? shuffled : neighbours, 3 - i, hasher, &err),
            BD_ERR_FORMAT);
        assert_mentions(&err, rows.shards[1].path);
        assert_mentions(&err, "row 3");
        assert_mentions(&err, "R");
    }
    check(bd_batch_load(&batch, &rows, &good, 1, hasher, &err), &err);
    assert_holds(&batch, &rows, &good, 1);
    bd_batch_release(&batch);
    bd_hasher_free(hasher);
    bd_rows_close(&rows);
}

static void a_dataset_that_is_not_there_is_refused(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    assert_int_not_equal(bd_rows_open(&rows, "absent", &err), BD_OK);
    assert_mentions(&err, "absent");
    bd_rows_close(&rows);
    open_small(&rows);
    assert_int_equal(unlink(rows.shards[2].path), 0);
    bd_rows_close(&rows);
    assert_int_not_equal(bd_rows_open(&rows, "dataset", &err), BD_OK);
    assert_mentions(&err, "00002.arrow");
    bd_rows_close(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_of_one_record_batch_are_the_file_itself),
        test_inside_folder(a_single_row_is_the_file_itself_wherever_it_lies),
        test_inside_folder(a_whole_record_batch_is_the_file_itself),
        test_inside_folder(shuffled_rows_are_copied_unchanged),
        test_inside_folder(neighbours_across_a_border_are_copied),
        test_inside_folder(wide_ids_are_handled_alike),
        test_inside_folder(masks_of_neighbours_are_the_file_itself),
        test_inside_folder(masks_of_other_rows_are_copied_unchanged),
        test_inside_folder(masks_follow_rows_that_are_rearranged),
        test_inside_folder(datasets_with_and_without_masks_are_mixed),
        test_inside_folder(a_batch_is_reused_for_others),
        test_inside_folder(a_dataset_of_one_token_documents_has_no_targets),
        test_inside_folder(a_damaged_row_is_refused_by_name),
        test_inside_folder(a_dataset_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
