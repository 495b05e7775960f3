#include "packer/input/arrow_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/dataset/arrow_glib.h"

// Arrays are made by hand: those in files have no offsets, those of other programs do.

static struct ArrowSchema schema_of(const char *format, const char *name,
                                    struct ArrowSchema **children, int64_t n_children)
{
    return (struct ArrowSchema){
        .format = format, .name = name, .children = children, .n_children = n_children};
}

static void assert_json(const struct ArrowSchema *schema, const struct ArrowArray *array,
                        const char *const *expected)
{
    const char *const names[] = {"column"};
    const bd_value_path path = {names, 1};
    bd_json_rows rows = {0};
    bool too_large;
    assert_true(bd_arrow_json_accepts(schema));
    assert_int_equal(
        bd_arrow_json_append(&rows, schema, array, &path, 1 << 20, &too_large, NULL), BD_OK);
    assert_false(too_large);
    assert_int_equal(rows.n_rows, array->length);
    size_t begin = 0;
    for (int64_t i = 0; i < rows.n_rows; begin = rows.ends[i++]) {
        assert_int_equal(rows.ends[i] - begin, strlen(expected[i]));
        assert_memory_equal(rows.text + begin, expected[i], strlen(expected[i]));
    }
    bd_json_rows_release(&rows);
}

// The third to the last of these, wherever the offset is.
static const int32_t text_offsets[] = {0, 1, 3, 3, 8, 11};
static const char text_bytes[] = "abbx\"\\\n\x01\xC3\xBC!";

static struct ArrowArray text_array(const void **buffers, int64_t offset, int64_t length)
{
    buffers[0] = NULL;
    buffers[1] = text_offsets;
    buffers[2] = text_bytes;
    return (struct ArrowArray){
        .offset = offset, .length = length, .n_buffers = 3, .buffers = buffers};
}

static void texts_are_escaped(void **state)
{
    (void)state;
    const void *buffers[3];
    const struct ArrowSchema schema = schema_of("u", "column", NULL, 0);
    const struct ArrowArray array = text_array(buffers, 1, 4);
    assert_json(&schema, &array,
                (const char *const[]){"\"bb\"", "\"\"", "\"x\\u0022\\u005c\\u000a\\u0001\"",
                                      "\"\xC3\xBC!\""});
}

// list<struct<content: string, n: int8, yes: bool>> with an offset in every array.
static void offsets_of_lists_structs_and_members_add_up(void **state)
{
    (void)state;
    static const int32_t list_offsets[] = {0, 0, 1, 3, 3};
    static const uint8_t struct_valid[] = {0x0b}, list_valid[] = {0x0f}, bits[] = {0x14};
    static const int8_t numbers[] = {0, 0, 0, -7, 8, 9, 10};
    const void *text_buffers[3],
        *number_buffers[] = {NULL, numbers}, *bit_buffers[] = {NULL, bits},
        *struct_buffers[] = {struct_valid}, *list_buffers[] = {list_valid, list_offsets};
    struct ArrowSchema text = schema_of("u", "content", NULL, 0),
                       number = schema_of("c", "n", NULL, 0),
                       yes = schema_of("b", "yes", NULL, 0);
    struct ArrowSchema *members[] = {&text, &number, &yes};
    struct ArrowSchema item = schema_of("+s", "item", members, 3), *items[] = {&item};
    const struct ArrowSchema list = schema_of("+l", "column", items, 1);
    struct ArrowArray texts = text_array(text_buffers, 0, 5),
                      values = {.offset = 2, .length = 5, .buffers = number_buffers},
                      flags = {.offset = 1, .length = 5, .buffers = bit_buffers};
    struct ArrowArray *columns[] = {&texts, &values, &flags};
    struct ArrowArray structs = {.offset = 1,
                                 .length = 3,
                                 .null_count = -1,
                                 .n_children = 3,
                                 .buffers = struct_buffers,
                                 .children = columns};
    struct ArrowArray *children[] = {&structs};
    const struct ArrowArray array = {.offset = 1,
                                     .length = 3,
                                     .null_count = -1,
                                     .n_children = 1,
                                     .buffers = list_buffers,
                                     .children = children};
    assert_json(
        &list, &array,
        (const char *const[]){
            "[{\"content\":\"bb\",\"n\":-7,\"yes\":true}]",
            "[null,{\"content\":\"x\\u0022\\u005c\\u000a\\u0001\",\"n\":9,\"yes\":true}]",
            "[]"});
    int64_t weight;
    assert_int_equal(bd_arrow_json_weigh(&list, &array, &weight, NULL), BD_OK);
    assert_int_equal(weight, 7 + 3 * 8 + 3 * 8);
}

static void damaged_offsets_are_not_followed(void **state)
{
    (void)state;
    static const int32_t list_offsets[] = {0, 9};
    const void *text_buffers[3], *list_buffers[] = {NULL, list_offsets};
    struct ArrowSchema text = schema_of("u", "item", NULL, 0), *items[] = {&text};
    const struct ArrowSchema list = schema_of("+l", "column", items, 1);
    struct ArrowArray texts = text_array(text_buffers, 0, 5), *children[] = {&texts};
    const struct ArrowArray array = {
        .length = 1, .buffers = list_buffers, .children = children};
    int64_t weight;
    assert_int_equal(bd_arrow_json_weigh(&list, &array, &weight, NULL), BD_ERR_FORMAT);
}

static void a_limit_stops_the_writing(void **state)
{
    (void)state;
    const char *const names[] = {"column"};
    const void *buffers[3];
    const struct ArrowSchema schema = schema_of("u", "column", NULL, 0);
    const struct ArrowArray array = text_array(buffers, 0, 5);
    bd_json_rows rows = {0};
    for (int64_t most = 0; most < 60; most++) {
        bool too_large;
        bd_json_rows_clear(&rows);
        assert_int_equal(bd_arrow_json_append(&rows, &schema, &array,
                                              &(bd_value_path){names, 1}, most, &too_large,
                                              NULL),
                         BD_OK);
        assert_true(rows.n_bytes <= (size_t)most);
        assert_int_equal(too_large, most < 3 + 4 + 2 + 27 + 5);
        if (!too_large)
            break;
    }
    bd_json_rows_release(&rows);
}

static void other_types_are_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"+m", "+us:0", "+r", "vu", "+vl", "e", ""};
    static const char *const taken[] = {"n", "tsu:UTC", "d:10,2", "z", "w:16", "tdD"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct ArrowSchema inner = schema_of(refused[i], "x", NULL, 0), *children[] = {&inner};
        const struct ArrowSchema list = schema_of("+l", "column", children, 1);
        assert_false(bd_arrow_json_accepts(&inner));
        assert_false(bd_arrow_json_accepts(&list));
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const struct ArrowSchema schema = schema_of(taken[i], "x", NULL, 0);
        assert_true(bd_arrow_json_accepts(&schema));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(offsets_of_lists_structs_and_members_add_up),
        cmocka_unit_test(damaged_offsets_are_not_followed),
        cmocka_unit_test(a_limit_stops_the_writing),
        cmocka_unit_test(other_types_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
