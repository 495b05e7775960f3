#include "common/arrow_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/arrow_glib.h"
#include "common/size.h"

// ---- Types --------------------------------------------------------------------------------

// The width of the integers that `format` stands for, 0 if it is something else.
static int integer_bytes(const char *format, bool *is_signed)
{
    static const struct {
        char letter;
        int bytes;
        bool is_signed;
    } integers[] = {{'c', 1, true}, {'C', 1, false}, {'s', 2, true}, {'S', 2, false},
                    {'i', 4, true}, {'I', 4, false}, {'l', 8, true}, {'L', 8, false}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (format[0] == integers[i].letter && format[1] == '\0') {
            *is_signed = integers[i].is_signed;
            return integers[i].bytes;
        }
    return 0;
}

// 4 or 8, 0 if `format` is not text.
static int text_offset_bytes(const char *format)
{
    return strcmp(format, "u") == 0 ? 4 : strcmp(format, "U") == 0 ? 8 : 0;
}

static bool list_type(bd_value_type *type, const struct ArrowSchema *schema)
{
    static const char fixed[] = "+w:";
    if (strcmp(schema->format, "+l") == 0)
        *type = (bd_value_type){.layout = BD_VALUES_LIST, .offset_bytes = 4};
    else if (strcmp(schema->format, "+L") == 0)
        *type = (bd_value_type){.layout = BD_VALUES_LIST, .offset_bytes = 8};
    else if (strncmp(schema->format, fixed, strlen(fixed)) == 0)
        *type = (bd_value_type){.layout = BD_VALUES_FIXED_LIST,
                                .list_size = strtoll(schema->format + strlen(fixed), NULL, 10)};
    else
        return false;
    const struct ArrowSchema *item = schema->children[0];
    type->item_bytes = item->dictionary ? 0 : integer_bytes(item->format, &type->is_signed);
    return type->item_bytes > 0 && type->list_size >= 0;
}

bool bd_value_type_of(bd_value_type *type, const struct ArrowSchema *schema)
{
    if (schema->dictionary) {
        bool is_signed;
        *type = (bd_value_type){.layout = BD_VALUES_TEXT_DICTIONARY, .item_bytes = 1};
        type->offset_bytes = text_offset_bytes(schema->dictionary->format);
        type->index_bytes = integer_bytes(schema->format, &is_signed);
        return type->offset_bytes > 0 && type->index_bytes > 0 &&
               !schema->dictionary->dictionary;
    }
    *type = (bd_value_type){.layout = BD_VALUES_TEXT, .item_bytes = 1};
    type->offset_bytes = text_offset_bytes(schema->format);
    return type->offset_bytes > 0 || list_type(type, schema);
}

static bool same_type(const bd_value_type *a, const bd_value_type *b)
{
    return a->layout == b->layout && a->offset_bytes == b->offset_bytes &&
           a->index_bytes == b->index_bytes && a->item_bytes == b->item_bytes &&
           a->is_signed == b->is_signed && a->list_size == b->list_size;
}

// ---- Finding the values in a column -------------------------------------------------------

// The array at the end of a path. Row i of the column is its element `first + i`, counted from
// where its buffers begin.
typedef struct located {
    const struct ArrowArray *array;
    int64_t first;
} located;

static bool is_set(const uint8_t *bitmap, int64_t i)
{
    return bitmap[i / 8] >> (i % 8) & 1;
}

// The validity bitmap; NULL if nothing is null.
static const uint8_t *validity(const struct ArrowArray *array)
{
    return array->null_count == 0 ? NULL : array->buffers[0];
}

static void mark_nulls(const located *at, int64_t n_rows, uint8_t *is_null, bool *has_null)
{
    const uint8_t *valid = validity(at->array);
    for (int64_t i = 0; valid && i < n_rows; i++)
        if (!is_set(valid, at->first + i))
            is_null[i] = *has_null = true;
}

static int64_t child_index(const struct ArrowSchema *schema, const char *name)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (strcmp(schema->children[i]->name, name) == 0)
            return i;
    return -1;
}

// Follows the path. A row of a struct that is null has no value in the struct's fields either,
// so that nulls are marked on the way (is_null may be NULL: then they are not).
static bd_status locate(located *at, const struct ArrowSchema *schema,
                        const struct ArrowArray *array, const bd_value_path *path,
                        const bd_value_type *type, uint8_t *is_null, bool *has_null,
                        bd_error *err)
{
    const int64_t n_rows = array->length;
    bd_value_type found;
    *at = (located){array, array->offset};
    for (size_t level = 1; level < path->n_names; level++) {
        const bool is_struct = strcmp(schema->format, "+s") == 0;
        const int64_t i = is_struct ? child_index(schema, path->names[level]) : -1;
        if (i < 0)
            return bd_fail(err, BD_ERR_FORMAT, "the column has no field '%s'",
                           path->names[level]);
        if (is_null)
            mark_nulls(at, n_rows, is_null, has_null);
        schema = schema->children[i];
        array = at->array->children[i];
        *at = (located){array, at->first + array->offset};
    }
    if (is_null)
        mark_nulls(at, n_rows, is_null, has_null);
    if (!bd_value_type_of(&found, schema) || !same_type(&found, type))
        return bd_fail(err, BD_ERR_FORMAT, "the column's type is not that of the file");
    return BD_OK;
}

// ---- Values that lie end to end -----------------------------------------------------------

// Value i is the items [edge(i), edge(i + 1)).
typedef struct span {
    const char *items;    // NULL if there are none
    const char *offsets;  // not necessarily aligned; NULL if every value has list_size items
    const bd_value_type *type;
    int64_t first;
} span;

static span span_of(const located *at, const bd_value_type *type)
{
    const struct ArrowArray *array = at->array;
    span s = {.type = type, .first = at->first};
    if (type->layout == BD_VALUES_TEXT || type->layout == BD_VALUES_TEXT_DICTIONARY) {
        s.offsets = array->buffers[1];
        s.items = array->buffers[2];
        return s;
    }
    const struct ArrowArray *items = array->children[0];
    if (type->layout == BD_VALUES_LIST)
        s.offsets = array->buffers[1];
    s.items = items->buffers[1];
    if (s.items)
        s.items += items->offset * type->item_bytes;
    return s;
}

static int64_t edge(const span *s, int64_t i)
{
    int32_t narrow;
    int64_t wide;
    if (!s->offsets)
        return (s->first + i) * s->type->list_size;
    if (s->type->offset_bytes == sizeof narrow) {
        memcpy(&narrow, s->offsets + (s->first + i) * (int64_t)sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, s->offsets + (s->first + i) * (int64_t)sizeof wide, sizeof wide);
    return wide;
}

static bd_status check_items(const struct ArrowArray *items, const span *s, int64_t i,
                             int64_t row, bd_error *err)
{
    const int64_t from = edge(s, i), to = edge(s, i + 1);
    const uint8_t *valid = validity(items);
    const int item_bytes = s->type->item_bytes;
    for (int64_t j = from; valid && j < to; j++)
        if (!is_set(valid, items->offset + j))
            return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has a null among its ids", row);
    // Little-endian, as every machine that we run on: the sign is in an item's last byte.
    for (int64_t j = from; s->type->is_signed && j < to; j++)
        if (s->items[j * item_bytes + item_bytes - 1] & 0x80)
            return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has a negative id", row);
    return BD_OK;
}

// ---- Gathering ----------------------------------------------------------------------------

static bd_status copy_bytes(bd_values *values, const char *bytes, size_t n, bd_error *err)
{
    size_t needed;
    if (!bd_size_add(values->size_bytes, n, &needed))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the column");
    const bool is_borrowed = values->data != values->copy;
    BD_TRY(bd_array_reserve((void **)&values->copy, &values->copy_capacity, needed, 1, err));
    if (is_borrowed && values->size_bytes > 0)
        memcpy(values->copy, values->data, values->size_bytes);
    if (n > 0)
        memcpy(values->copy + values->size_bytes, bytes, n);
    values->data = values->copy;
    values->size_bytes = needed;
    return BD_OK;
}

static bd_status append_span(bd_values *values, const located *at, const bd_value_type *type,
                             int64_t n_rows, bd_error *err)
{
    const span s = span_of(at, type);
    const int64_t item_bytes = type->item_bytes, begin = edge(&s, 0);
    const size_t size_bytes = (size_t)((edge(&s, n_rows) - begin) * item_bytes);
    const int64_t base = (int64_t)values->size_bytes;
    int64_t *offsets = values->offsets + values->n_rows;
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t row = values->n_rows + i;
        offsets[i + 1] = base + (edge(&s, i + 1) - begin) * item_bytes;
        if (type->layout != BD_VALUES_TEXT && !values->is_null[row])
            BD_TRY(check_items(at->array->children[0], &s, i, row, err));
    }
    if (size_bytes == 0)
        return BD_OK;
    const char *bytes = s.items + begin * item_bytes;
    if (values->size_bytes > 0)
        return copy_bytes(values, bytes, size_bytes, err);
    values->data = bytes;
    values->size_bytes = size_bytes;
    return BD_OK;
}

static uint64_t index_at(const void *indices, int index_bytes, int64_t i)
{
    uint64_t index = 0;
    memcpy(&index, (const char *)indices + i * index_bytes, (size_t)index_bytes);
    return index;
}

static bd_status append_dictionary(bd_values *values, const located *at,
                                   const bd_value_type *type, int64_t n_rows, bd_error *err)
{
    const struct ArrowArray *texts = at->array->dictionary;
    const uint8_t *valid = validity(texts);
    const span s = span_of(&(located){texts, texts->offset}, type);
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t row = values->n_rows + i;
        uint8_t *is_null = &values->is_null[row];
        if (!*is_null) {
            const uint64_t index =
                index_at(at->array->buffers[1], type->index_bytes, at->first + i);
            if (index >= (uint64_t)texts->length)
                return bd_fail(err, BD_ERR_FORMAT,
                               "row %" PRId64 " is beyond the column's dictionary", row);
            const int64_t entry = (int64_t)index, begin = edge(&s, entry);
            if (valid && !is_set(valid, texts->offset + entry))
                *is_null = values->has_null = true;
            else
                BD_TRY(copy_bytes(values, s.items ? s.items + begin : NULL,
                                  (size_t)(edge(&s, entry + 1) - begin), err));
        }
        values->offsets[row + 1] = (int64_t)values->size_bytes;
    }
    return BD_OK;
}

void bd_values_clear(bd_values *values)
{
    values->data = NULL;
    values->size_bytes = 0;
    values->n_rows = 0;
    values->has_null = false;
}

void bd_values_release(bd_values *values)
{
    free(values->copy);
    free(values->offsets);
    free(values->is_null);
    *values = (bd_values){0};
}

bd_status bd_values_append(bd_values *values, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, const bd_value_path *path,
                           const bd_value_type *type, bd_error *err)
{
    located at;
    size_t n_rows;
    if (!bd_size_add((size_t)values->n_rows, (size_t)array->length, &n_rows))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the column");
    BD_TRY(bd_array_reserve((void **)&values->offsets, &values->offsets_capacity, n_rows + 1,
                            sizeof *values->offsets, err));
    BD_TRY(bd_array_reserve((void **)&values->is_null, &values->null_capacity, n_rows, 1, err));
    if (values->n_rows == 0)
        values->offsets[0] = 0;
    if (array->length == 0)  // its buffers may be absent
        return BD_OK;
    uint8_t *is_null = values->is_null + values->n_rows;
    memset(is_null, 0, (size_t)array->length);
    BD_TRY(locate(&at, schema, array, path, type, is_null, &values->has_null, err));
    BD_TRY(type->layout == BD_VALUES_TEXT_DICTIONARY
               ? append_dictionary(values, &at, type, array->length, err)
               : append_span(values, &at, type, array->length, err));
    values->n_rows = (int64_t)n_rows;
    return BD_OK;
}

// ---- Weighing -----------------------------------------------------------------------------

bd_status bd_values_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const bd_value_path *path, const bd_value_type *type,
                          int64_t *weight_bytes, bd_error *err)
{
    located at;
    int64_t n_items;
    *weight_bytes = 0;
    if (array->length == 0)
        return BD_OK;
    BD_TRY(locate(&at, schema, array, path, type, NULL, NULL, err));
    if (type->layout == BD_VALUES_TEXT_DICTIONARY) {
        const struct ArrowArray *texts = at.array->dictionary;
        if (texts->length == 0)
            return BD_OK;
        const span s = span_of(&(located){texts, texts->offset}, type);
        const int64_t mean = (edge(&s, texts->length) - edge(&s, 0)) / texts->length + 1;
        if (!bd_int64_mul(mean, array->length, &n_items))
            n_items = -1;
    } else {
        const span s = span_of(&at, type);
        n_items = edge(&s, array->length) - edge(&s, 0);
    }
    if (n_items < 0 || !bd_int64_mul(n_items, type->item_bytes, weight_bytes))
        return bd_fail(err, BD_ERR_FORMAT, "offsets that are out of order");
    return BD_OK;
}
