#include "packer/input/arrow_values.h"

#include <arrow/c/abi.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// Slices begin in the middle of their buffers, which is rare in files, because IPC moves them
// to the front. The arrays here are made by hand, every level with an offset of its own.

static const bd_value_path whole_column = {(const char *const[]){"c"}, 1};

static bd_value_type type_of(const struct ArrowSchema *schema)
{
    bd_value_type type;
    assert_true(bd_value_type_of(&type, schema));
    return type;
}

static void assert_row(const bd_values *values, int64_t row, const char *expected)
{
    const bd_value *value = &values->rows[row];
    if (!expected) {
        assert_null(value->data);
        return;
    }
    assert_non_null(value->data);
    assert_int_equal(value->size_bytes, strlen(expected));
    assert_memory_equal(value->data, expected, strlen(expected));
}

// "a", "bc", null, "", "def", "g": as int32 offsets and bytes.
static const int32_t text_offsets[] = {0, 1, 3, 3, 3, 6, 7};
static const uint8_t text_valid[] = {0x3b};
static const char text_bytes[] = "abcdefg";
static const char *const texts[] = {"a", "bc", NULL, "", "def", "g"};

static struct ArrowArray text_slice(const void *buffers[3], int64_t offset, int64_t length)
{
    buffers[0] = text_valid;
    buffers[1] = text_offsets;
    buffers[2] = text_bytes;
    return (struct ArrowArray){.length = length,
                               .offset = offset,
                               .null_count = -1,
                               .n_buffers = 3,
                               .buffers = buffers};
}

static void slices_of_text_are_the_rows_that_they_show(void **state)
{
    (void)state;
    struct ArrowSchema schema = {.format = "u", .name = "c"};
    const bd_value_type type = type_of(&schema);
    for (int64_t offset = 0; offset <= 6; offset++)
        for (int64_t length = 0; offset + length <= 6; length++) {
            const void *buffers[3];
            struct ArrowArray array = text_slice(buffers, offset, length);
            bd_values values = {0};
            bd_error err = {0};
            bd_values_append(&values, &schema, &array, &whole_column, &type, &err);
            assert_string_equal(err.message, "");
            assert_int_equal(values.n_rows, length);
            for (int64_t i = 0; i < length; i++)
                assert_row(&values, i, texts[offset + i]);
            int64_t weight_bytes;
            assert_int_equal(
                bd_values_weigh(&schema, &array, &whole_column, &type, &weight_bytes, NULL),
                BD_OK);
            assert_int_equal(weight_bytes, values.size_bytes);
            bd_values_release(&values);
            bd_values_release(&values);
        }
}

static void several_slices_are_gathered_in_order(void **state)
{
    (void)state;
    struct ArrowSchema schema = {.format = "u", .name = "c"};
    const bd_value_type type = type_of(&schema);
    bd_values values = {0};
    for (int round = 0; round < 2; round++) {  // the second uses the memory of the first
        bd_values_clear(&values);
        const void *buffers[3];
        for (int64_t offset = 0; offset < 6; offset += 2) {
            struct ArrowArray array = text_slice(buffers, offset, 2);
            assert_int_equal(
                bd_values_append(&values, &schema, &array, &whole_column, &type, NULL), BD_OK);
        }
        assert_int_equal(values.n_rows, 6);
        for (int64_t i = 0; i < 6; i++)
            assert_row(&values, i, texts[i]);
    }
    bd_values_release(&values);
}

static void fields_of_a_sliced_struct_are_sliced_with_it(void **state)
{
    (void)state;
    struct ArrowSchema field = {.format = "u", .name = "b"}, *fields[] = {&field};
    struct ArrowSchema schema = {
        .format = "+s", .name = "c", .n_children = 1, .children = fields};
    const bd_value_path path = {(const char *const[]){"c", "b"}, 2};
    const bd_value_type type = type_of(&field);
    const void *text_buffers[3], *buffers[] = {(const uint8_t[]){0x17}};  // 1 1 1 0 1
    struct ArrowArray text = text_slice(text_buffers, 1, 5), *children[] = {&text};
    struct ArrowArray array = {.length = 4,
                               .offset = 1,
                               .null_count = 1,
                               .n_buffers = 1,
                               .buffers = buffers,
                               .n_children = 1,
                               .children = children};
    bd_values values = {0};
    assert_int_equal(bd_values_append(&values, &schema, &array, &path, &type, NULL), BD_OK);
    assert_int_equal(values.n_rows, 4);
    assert_row(&values, 0, NULL);  // null in the field
    assert_row(&values, 1, "");
    assert_row(&values, 2, NULL);  // null in the struct
    assert_row(&values, 3, "g");
    bd_values_release(&values);
}

// Lists over a slice of ids; no list contains the ids of null rows.
static void lists_over_a_slice_of_ids_are_right(void **state)
{
    (void)state;
    struct ArrowSchema item = {.format = "s", .name = "item"}, *items[] = {&item};
    struct ArrowSchema list = {.format = "+l", .name = "c", .n_children = 1, .children = items};
    struct ArrowSchema fixed = list;
    fixed.format = "+w:2";
    const int16_t ids[] = {-9, -9, -9, 10, 11, -1, -1, 12, 13, 14, 15, -9};
    const int32_t offsets[] = {0, 0, 2, 4, 4, 8};
    const void *id_buffers[] = {NULL, ids};
    struct ArrowArray id_array = {
        .length = 8, .offset = 3, .n_buffers = 2, .buffers = id_buffers};
    struct ArrowArray *children[] = {&id_array};
    const void *list_buffers[] = {(const uint8_t[]){0x1b}, offsets};  // row 2 is null
    const void *fixed_buffers[] = {(const uint8_t[]){0x0d}};          // row 1 is null
    struct ArrowArray array = {.length = 4,
                               .offset = 1,
                               .null_count = 1,
                               .n_buffers = 2,
                               .buffers = list_buffers,
                               .n_children = 1,
                               .children = children};
    bd_values values = {0};
    bd_value_type type = type_of(&list);
    assert_int_equal(bd_values_append(&values, &list, &array, &whole_column, &type, NULL),
                     BD_OK);
    assert_int_equal(values.n_rows, 4);
    assert_ptr_equal(values.rows[0].data, &ids[3]);
    assert_int_equal(values.rows[0].size_bytes, 4);
    assert_null(values.rows[1].data);
    assert_non_null(values.rows[2].data);
    assert_int_equal(values.rows[2].size_bytes, 0);
    assert_ptr_equal(values.rows[3].data, &ids[7]);
    assert_int_equal(values.rows[3].size_bytes, 8);
    assert_int_equal(values.size_bytes, 12);

    bd_values_clear(&values);
    type = type_of(&fixed);
    array.buffers = fixed_buffers;
    array.n_buffers = 1;
    array.length = 3;
    assert_int_equal(bd_values_append(&values, &fixed, &array, &whole_column, &type, NULL),
                     BD_OK);
    assert_int_equal(values.n_rows, 3);
    assert_null(values.rows[0].data);
    assert_ptr_equal(values.rows[1].data, &ids[7]);
    assert_ptr_equal(values.rows[2].data, &ids[9]);
    assert_int_equal(values.size_bytes, 8);
    bd_values_release(&values);
}

static void ids_that_are_negative_or_null_are_refused(void **state)
{
    (void)state;
    struct ArrowSchema item = {.format = "c", .name = "item"}, *items[] = {&item};
    struct ArrowSchema schema = {
        .format = "+L", .name = "c", .n_children = 1, .children = items};
    const int8_t ids[] = {-1, 1, 2, 3, -128, 5};
    const int64_t offsets[] = {0, 1, 3, 4, 5};
    const void *id_buffers[] = {NULL, ids}, *buffers[] = {NULL, offsets};
    struct ArrowArray id_array = {
        .length = 5, .offset = 1, .n_buffers = 2, .buffers = id_buffers};
    struct ArrowArray *children[] = {&id_array};
    struct ArrowArray array = {
        .length = 4, .n_buffers = 2, .buffers = buffers, .n_children = 1, .children = children};
    const bd_value_type type = type_of(&schema);
    bd_values values = {0};
    bd_error err;
    assert_int_equal(bd_values_append(&values, &schema, &array, &whole_column, &type, &err),
                     BD_ERR_FORMAT);
    assert_string_equal(err.message, "row 2 has a negative id");
    id_buffers[0] = (const uint8_t[]){0xf7};  // element 3: the third of the slice
    id_array.null_count = 1;
    bd_values_clear(&values);
    assert_int_equal(bd_values_append(&values, &schema, &array, &whole_column, &type, &err),
                     BD_ERR_FORMAT);
    assert_string_equal(err.message, "row 1 has a null among its ids");
    bd_values_release(&values);
}

static void dictionary_may_be_sliced_and_have_wide_indices(void **state)
{
    (void)state;
    struct ArrowSchema text = {.format = "u"};
    struct ArrowSchema schema = {.format = "S", .name = "c", .dictionary = &text};
    const void *text_buffers[3];
    struct ArrowArray dictionary = text_slice(text_buffers, 1, 5);
    const uint16_t indices[] = {999, 4, 0, 1, 999, 3};
    const void *buffers[] = {(const uint8_t[]){0x2f}, indices};
    struct ArrowArray array = {.length = 5,
                               .offset = 1,
                               .null_count = 1,
                               .n_buffers = 2,
                               .buffers = buffers,
                               .dictionary = &dictionary};
    const bd_value_type type = type_of(&schema);
    bd_values values = {0};
    bd_error err;
    assert_int_equal(bd_values_append(&values, &schema, &array, &whole_column, &type, NULL),
                     BD_OK);
    const char *const expected[] = {"g", "bc", NULL, NULL, "def"};
    for (int64_t i = 0; i < 5; i++)
        assert_row(&values, i, expected[i]);
    array.offset = 0;
    bd_values_clear(&values);
    assert_int_equal(bd_values_append(&values, &schema, &array, &whole_column, &type, &err),
                     BD_ERR_FORMAT);
    assert_string_equal(err.message, "row 0 is beyond the column's dictionary");
    bd_values_release(&values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_text_are_the_rows_that_they_show),
        cmocka_unit_test(several_slices_are_gathered_in_order),
        cmocka_unit_test(fields_of_a_sliced_struct_are_sliced_with_it),
        cmocka_unit_test(lists_over_a_slice_of_ids_are_right),
        cmocka_unit_test(ids_that_are_negative_or_null_are_refused),
        cmocka_unit_test(dictionary_may_be_sliced_and_have_wide_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
