#include "packer/export/export_columns.h"

#include "packer/input/arrow_columns.h"
#include "tests/unit/temporary_folder.h"

enum { SEQ_LEN = 10 };

static const bd_export_columns every_column = {
    {BD_EXPORT_LABELS, BD_EXPORT_INPUT_IDS, BD_EXPORT_CU_SEQLENS, BD_EXPORT_SEQ_LENGTHS,
     BD_EXPORT_POSITION_IDS, BD_EXPORT_LOSS_MASK, BD_EXPORT_COMPLETION_MASK},
    BD_EXPORT_N_COLUMNS};

// The row drawn in the header, and one that is a single segment without padding.
static const uint32_t ids[2][SEQ_LEN] = {{3000000001, 2, 3, 4, 5, 6, 7, 8, 9, 9},
                                         {11, 12, 13, 14, 15, 16, 17, 18, 19, 4294967294}};
static const int32_t drawn_bounds[] = {0, 5, 6, 8}, whole_bounds[] = {0, SEQ_LEN};

static bd_dataset_config config_of(int64_t vocab_size)
{
    return (bd_dataset_config){.seq_len = SEQ_LEN, .vocab_size = vocab_size};
}

static bd_export_batch both_rows(const bd_dataset_config *config)
{
    const bd_row drawn = {.ids = ids[0], .n_bounds = 4, .bounds = drawn_bounds};
    const bd_row whole = {.ids = ids[1], .n_bounds = 2, .bounds = whole_bounds};
    bd_export_batch batch = {.n_rows = 0};
    assert_int_equal(bd_export_batch_add(&batch, &every_column, config, &whole, NULL), BD_OK);
    bd_export_batch_clear(&batch);  // what was there does not matter
    assert_int_equal(bd_export_batch_add(&batch, &every_column, config, &drawn, NULL), BD_OK);
    assert_int_equal(bd_export_batch_add(&batch, &every_column, config, &whole, NULL), BD_OK);
    assert_int_equal(batch.n_rows, 2);
    return batch;
}

static void rows_are_as_the_header_draws_them(void **state)
{
    (void)state;
    const bd_dataset_config config = config_of(INT64_C(1) << 32);
    bd_export_batch batch = both_rows(&config);
    const int64_t labels[] = {-100, 2,  3,  4,  5,  -100, -100, 8,  -100, -100,
                              -100, 12, 13, 14, 15, 16,   17,   18, 19,   4294967294};
    const int64_t input_ids[] = {3000000001, 2,  3,  4,  5,  6,  7,  8,  9,  9,
                                 11,         12, 13, 14, 15, 16, 17, 18, 19, 4294967294};
    const int32_t cu_seqlens[] = {0, 5, 6, 8, 0, 10}, seq_lengths[] = {5, 1, 2, 2, 10};
    const int32_t positions[] = {0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int32_t targets[] = {0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct {
        const void *items;
        size_t size_bytes;
        int32_t offsets[3];
    } expected[] = {{labels, sizeof labels, {0, 10, 20}},
                    {input_ids, sizeof input_ids, {0, 10, 20}},
                    {cu_seqlens, sizeof cu_seqlens, {0, 4, 6}},
                    {seq_lengths, sizeof seq_lengths, {0, 4, 5}},
                    {positions, sizeof positions, {0, 10, 20}},
                    {targets, sizeof targets, {0, 10, 20}},
                    {targets, sizeof targets, {0, 10, 20}}};
    for (size_t i = 0; i < every_column.n; i++) {
        assert_memory_equal(batch.columns[i].offsets, expected[i].offsets, 3 * 4);
        assert_memory_equal(batch.columns[i].items, expected[i].items, expected[i].size_bytes);
    }
    bd_export_batch_release(&batch);
    bd_export_batch_release(&batch);
}

// In every column that tells targets.
static void masked_tokens_are_no_targets(void **state)
{
    (void)state;
    static const bd_export_columns told = {
        {BD_EXPORT_LABELS, BD_EXPORT_LOSS_MASK, BD_EXPORT_COMPLETION_MASK}, 3};
    static const uint8_t mask[] = {0xC0, 0x10};  // bits 6, 7 and 12: tokens 1, 2 and 7
    const bd_dataset_config config = {
        .seq_len = SEQ_LEN, .vocab_size = 70000, .loss_mask = true};
    const uint32_t own_ids[SEQ_LEN] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9};
    const bd_row row = {.ids = own_ids,
                        .loss_mask = mask,
                        .mask_bit = 5,
                        .n_bounds = 4,
                        .bounds = drawn_bounds};
    const int32_t labels[] = {-100, 2, 3, -100, -100, -100, -100, 8, -100, -100};
    const int32_t targets[] = {0, 1, 1, 0, 0, 0, 0, 1, 0, 0};
    bd_export_batch batch = {.n_rows = 0};
    assert_int_equal(bd_export_batch_add(&batch, &told, &config, &row, NULL), BD_OK);
    assert_memory_equal(batch.columns[0].items, labels, sizeof labels);
    assert_memory_equal(batch.columns[1].items, targets, sizeof targets);
    assert_memory_equal(batch.columns[2].items, targets, sizeof targets);
    bd_export_batch_release(&batch);
}

static void ids_are_64_bits_wide_only_where_they_must_be(void **state)
{
    (void)state;
    const int64_t edge = INT64_C(1) << 31;  // the largest id is then INT32_MAX
    const bd_dataset_config narrow = config_of(edge), wide = config_of(edge + 1);
    for (int column = 0; column < BD_EXPORT_N_COLUMNS; column++) {
        const bool holds_ids = column == BD_EXPORT_INPUT_IDS || column == BD_EXPORT_LABELS;
        const bd_export_column c = (bd_export_column)column;
        assert_int_equal(bd_export_table_column(c, &narrow).item_bytes, 4);
        assert_int_equal(bd_export_table_column(c, &wide).item_bytes, holds_ids ? 8 : 4);
        assert_string_equal(bd_export_table_column(c, &wide).name, bd_export_column_names[c]);
    }
}

static void assert_table_comes_back(const char *path, bd_table_format format, int n_batches)
{
    const bd_dataset_config config = config_of(INT64_C(1) << 32);
    bd_export_batch batch = both_rows(&config);
    bd_table_column columns[BD_EXPORT_N_COLUMNS];
    bd_table_lists lists[BD_EXPORT_N_COLUMNS];
    for (size_t i = 0; i < every_column.n; i++) {
        columns[i] = bd_export_table_column(every_column.items[i], &config);
        lists[i] = (bd_table_lists){batch.columns[i].offsets, batch.columns[i].items};
    }
    bd_table_writer *writer;
    assert_int_equal(bd_table_writer_open(&writer, path, format, columns, every_column.n, NULL),
                     BD_OK);
    for (int i = 0; i < n_batches; i++)
        assert_int_equal(bd_table_writer_write(writer, lists, batch.n_rows, NULL), BD_OK);
    assert_int_equal(bd_table_writer_close(writer, NULL), BD_OK);
    bd_table_writer_free(writer);

    bd_columns *read;
    bd_error err = {0};
    bd_columns_open(&read, path,
                    format == BD_TABLE_STREAM ? BD_COLUMNS_ARROW_STREAM : BD_COLUMNS_PARQUET,
                    "input_ids", INT64_C(1) << 28, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(bd_columns_id_bytes(read), 8);
    assert_int_equal(bd_columns_n_groups(read), n_batches);
    for (int i = 0; i < n_batches; i++) {
        bd_column_values values;
        assert_int_equal(bd_columns_read(read, i, &values, NULL), BD_OK);
        assert_int_equal(values.n_rows, 2);
        for (int row = 0; row < 2; row++) {
            const char *expected = (const char *)batch.columns[1].items + row * SEQ_LEN * 8;
            assert_int_equal(values.rows[row].size_bytes, SEQ_LEN * 8);
            assert_memory_equal(values.rows[row].data, expected, SEQ_LEN * 8);
        }
    }
    bd_columns_close(read);
    bd_export_batch_release(&batch);
}

static void tables_of_wide_ids_come_back_batch_by_batch(void **state)
{
    for (int n_batches = 0; n_batches < 4; n_batches++) {
        assert_table_comes_back(in(*state, "t.arrows"), BD_TABLE_STREAM, n_batches);
        assert_table_comes_back(in(*state, "t.parquet"), BD_TABLE_PARQUET, n_batches);
    }
}

static void writer_that_cannot_write_says_so(void **state)
{
    bd_table_writer *writer;
    bd_error err = {0};
    const bd_table_column column = {"c", 4};
    assert_int_equal(bd_table_writer_open(&writer, in(*state, "missing/file"), BD_TABLE_PARQUET,
                                          &column, 1, &err),
                     BD_ERR_IO);
    assert_null(writer);
    assert_int_equal(strncmp(err.message, "cannot write a table: ", 22), 0);
    bd_table_writer_free(NULL);
}

static void lists_of_columns_are_read_in_their_order(void **state)
{
    (void)state;
    bd_export_columns columns;
    bd_error err;
    assert_int_equal(bd_export_columns_parse(&columns, "labels,cu_seqlens", &err), BD_OK);
    assert_int_equal(columns.n, 2);
    assert_int_equal(columns.items[0], BD_EXPORT_LABELS);
    assert_int_equal(columns.items[1], BD_EXPORT_CU_SEQLENS);
    for (const char *const *bad = (const char *const[]){"", ",", "labels,", "label", "Labels",
                                                        "labels,labels", " labels", NULL};
         *bad; bad++)
        assert_int_equal(bd_export_columns_parse(&columns, *bad, &err), BD_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_the_header_draws_them),
        cmocka_unit_test(masked_tokens_are_no_targets),
        cmocka_unit_test(ids_are_64_bits_wide_only_where_they_must_be),
        test_in_folder(tables_of_wide_ids_come_back_batch_by_batch),
        test_in_folder(writer_that_cannot_write_says_so),
        cmocka_unit_test(lists_of_columns_are_read_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
