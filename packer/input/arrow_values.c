#include "packer/input/arrow_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/dataset/arrow_glib.h"

// ---- Types --------------------------------------------------------------------------------

// The size of the integers that `format` stands for; 0 if it stands for something else.
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

// The size of the offsets of texts, 4 or 8; 0 if `format` is not text.
static int text_offset_bytes(const char *format)
{
    return strcmp(format, "u") == 0 ? 4 : strcmp(format, "U") == 0 ? 8 : 0;
}

static bool list_value_type(bd_value_type *type, const struct ArrowSchema *schema)
{
    static const char fixed[] = "+w:";
    if (strcmp(schema->format, "+l") == 0)
        *type = (bd_value_type){.layout = BD_VALUES_LIST, .offset_bytes = 4};
    else if (strcmp(schema->format, "+L") == 0)
        *type = (bd_value_type){.layout = BD_VALUES_LIST, .offset_bytes = 8};
    else if (strncmp(schema->format, fixed, strlen(fixed)) == 0)
        *type = (bd_value_type){.layout = BD_VALUES_FIXED_LIST,
                                .list_size = strtoll(schema->format + strlen(fixed), NULL, 10)};
    else {
        *type = (bd_value_type){0};
        return false;
    }
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
    return type->offset_bytes > 0 || list_value_type(type, schema);
}

bool bd_mask_type_of(bd_value_type *type, const struct ArrowSchema *schema)
{
    bool found = list_value_type(type, schema);
    type->is_mask = true;
    if (!found && type->list_size >= 0 && schema->n_children == 1 &&
        strcmp(schema->children[0]->format, "b") == 0) {
        type->is_boolean = true;
        type->item_bytes = 1;
        found = true;
    }
    return found;
}

static bool same_type(const bd_value_type *a, const bd_value_type *b)
{
    return a->layout == b->layout && a->offset_bytes == b->offset_bytes &&
           a->index_bytes == b->index_bytes && a->item_bytes == b->item_bytes &&
           a->is_signed == b->is_signed && a->is_mask == b->is_mask &&
           a->is_boolean == b->is_boolean && a->list_size == b->list_size;
}

// ---- Metadata -----------------------------------------------------------------------------

const char bd_extension_key[] = "ARROW:extension:name";

// Reads the next int32 of encoded metadata and advances *at.
static size_t read_length(const char **at)
{
    int32_t n;
    memcpy(&n, *at, sizeof n);
    *at += sizeof n;
    return n > 0 ? (size_t)n : 0;
}

const char *bd_schema_metadata(const struct ArrowSchema *schema, const char *key,
                               size_t *length)
{
    // The number of pairs comes first, then the key and the value of each, with its length before
    // it. Arrow has encoded this itself, so the lengths are right.
    const char *at = schema->metadata;
    for (size_t n = at ? read_length(&at) : 0; n > 0; n--) {
        const size_t key_length = read_length(&at);
        const bool found = key_length == strlen(key) && memcmp(at, key, key_length) == 0;
        at += key_length;
        *length = read_length(&at);
        if (found)
            return at;
        at += *length;
    }
    return NULL;
}

const char *bd_extension_name(const struct ArrowSchema *schema, size_t *length)
{
    const char *name = bd_schema_metadata(schema, bd_extension_key, length);
    if (!name && schema->dictionary)
        name = bd_extension_name(schema->dictionary, length);
    for (int64_t i = 0; !name && i < schema->n_children; i++)
        name = bd_extension_name(schema->children[i], length);
    return name;
}

// ---- Finding the values in a column -------------------------------------------------------

// An array to which a path leads. Row i of the column is element `first + i` of its buffers.
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

// Sets the data of every row that is null in `at` to NULL.
static void mark_nulls(const located *at, int64_t n_rows, bd_value *rows)
{
    const uint8_t *valid = validity(at->array);
    for (int64_t i = 0; valid && i < n_rows; i++)
        if (!is_set(valid, at->first + i))
            rows[i].data = NULL;
}

static int64_t child_index(const struct ArrowSchema *schema, const char *name)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (strcmp(schema->children[i]->name, name) == 0)
            return i;
    return -1;
}

// Follows the path. If a struct is null in some row, then so are its fields: nulls are therefore
// marked at every level, unless `rows` is NULL.
static bd_status locate_values(located *at, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const bd_value_path *path,
                               const bd_value_type *type, bd_value *rows, bd_error *err)
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
        if (rows)
            mark_nulls(at, n_rows, rows);
        schema = schema->children[i];
        array = at->array->children[i];
        *at = (located){array, at->first + array->offset};
    }
    if (rows)
        mark_nulls(at, n_rows, rows);
    const bool is_known =
        type->is_mask ? bd_mask_type_of(&found, schema) : bd_value_type_of(&found, schema);
    if (!is_known || !same_type(&found, type))
        return bd_fail(err, BD_ERR_FORMAT, "the column's type is not that of the file");
    return BD_OK;
}

// ---- Values that lie end to end -----------------------------------------------------------

// Value i is the items [edge(i), edge(i + 1)).
typedef struct span {
    const char *items;    // NULL if there are none
    const char *offsets;  // not necessarily aligned; NULL if every value has list_size items
    const bd_value_type *type;
    int64_t first;       // index of value 0 in the buffers
    int64_t first_item;  // that `items` begin with
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
    if (s.items && !type->is_boolean)
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

// Refuses nulls and negative numbers among the ids of value i; messages call it `row`.
static bd_status check_items(const struct ArrowArray *items, const span *s, int64_t i,
                             int64_t row, bd_error *err)
{
    const int64_t from = edge(s, i), to = edge(s, i + 1);
    const uint8_t *valid = validity(items);
    const int item_bytes = s->type->item_bytes;
    for (int64_t j = from; valid && j < to; j++)
        if (!is_set(valid, items->offset + j))
            return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has a null among its %s", row,
                           s->type->is_mask ? "items" : "ids");
    // The machine is little-endian, so the sign is in an item's last byte.
    const bool may_be_wrong = s->type->is_signed && !s->type->is_mask;
    for (int64_t j = from; may_be_wrong && j < to; j++)
        if (s->items[j * item_bytes + item_bytes - 1] & 0x80)
            return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has a negative id", row);
    return BD_OK;
}

// ---- Gathering ----------------------------------------------------------------------------

static const char no_bytes[] = "";  // the data of empty values: NULL would mean null

// Value `i` of `s`.
static bd_value value_at(const span *s, int64_t i)
{
    const int64_t begin = edge(s, i), item_bytes = s->type->item_bytes;
    const int64_t size_bytes = (edge(s, i + 1) - begin) * item_bytes;
    return (bd_value){size_bytes > 0 ? s->items + (begin - s->first_item) * item_bytes
                                     : no_bytes,
                      size_bytes};
}

// Makes bytes of the booleans of the `n_rows` values of `s`, which point to those then.
static bd_status unpack(bd_values *values, span *s, const struct ArrowArray *items,
                        int64_t n_rows, bd_error *err)
{
    const uint8_t *bits = (const uint8_t *)s->items;
    const int64_t from = edge(s, 0), to = edge(s, n_rows);
    BD_TRY(bd_array_reserve((void **)&values->unpacked, &values->unpacked_capacity,
                            values->n_unpacked + 1, sizeof *values->unpacked, err));
    uint8_t *bytes = malloc((size_t)(to - from) + 1);
    if (!bytes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the column");
    values->unpacked[values->n_unpacked++] = bytes;
    for (int64_t j = from; j < to; j++)
        bytes[j - from] = is_set(bits, items->offset + j);
    s->items = (const char *)bytes;
    s->first_item = from;
    return BD_OK;
}

// Sets the value of every row that is not null; rows[0] is row `first` of the group.
static bd_status take_span(bd_values *values, bd_value *rows, int64_t n_rows, const located *at,
                           const bd_value_type *type, int64_t first, bd_error *err)
{
    span s = span_of(at, type);
    if (type->is_boolean)
        BD_TRY(unpack(values, &s, at->array->children[0], n_rows, err));
    for (int64_t i = 0; i < n_rows; i++) {
        if (!rows[i].data)
            continue;
        if (type->layout != BD_VALUES_TEXT)
            BD_TRY(check_items(at->array->children[0], &s, i, first + i, err));
        rows[i] = value_at(&s, i);
    }
    return BD_OK;
}

static uint64_t index_at(const void *indices, int index_bytes, int64_t i)
{
    uint64_t index = 0;
    memcpy(&index, (const char *)indices + i * index_bytes, (size_t)index_bytes);
    return index;
}

static bd_status take_dictionary(bd_value *rows, int64_t n_rows, const located *at,
                                 const bd_value_type *type, int64_t first, bd_error *err)
{
    const struct ArrowArray *texts = at->array->dictionary;
    const uint8_t *valid = validity(texts);
    const span s = span_of(&(located){texts, texts->offset}, type);
    for (int64_t i = 0; i < n_rows; i++) {
        if (!rows[i].data)
            continue;
        const uint64_t index =
            index_at(at->array->buffers[1], type->index_bytes, at->first + i);
        if (index >= (uint64_t)texts->length)
            return bd_fail(err, BD_ERR_FORMAT,
                           "row %" PRId64 " is beyond the column's dictionary", first + i);
        const bool is_null = valid && !is_set(valid, texts->offset + (int64_t)index);
        rows[i] = is_null ? (bd_value){0} : value_at(&s, (int64_t)index);
    }
    return BD_OK;
}

void bd_values_clear(bd_values *values)
{
    values->n_rows = 0;
    values->size_bytes = 0;
    while (values->n_unpacked > 0)
        free(values->unpacked[--values->n_unpacked]);
}

void bd_values_release(bd_values *values)
{
    bd_values_clear(values);
    free(values->unpacked);
    free(values->rows);
    *values = (bd_values){0};
}

bd_status bd_values_append(bd_values *values, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, const bd_value_path *path,
                           const bd_value_type *type, bd_error *err)
{
    located at;
    size_t n;
    const int64_t first = values->n_rows, n_rows = array->length;
    if (n_rows == 0)  // its buffers may be absent
        return BD_OK;
    if (!bd_size_add((size_t)first, (size_t)n_rows, &n))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the column");
    BD_TRY(bd_array_reserve((void **)&values->rows, &values->capacity, n, sizeof *values->rows,
                            err));
    bd_value *rows = values->rows + first;
    for (int64_t i = 0; i < n_rows; i++)
        rows[i] = (bd_value){no_bytes, 0};
    BD_TRY(locate_values(&at, schema, array, path, type, rows, err));
    BD_TRY(type->layout == BD_VALUES_TEXT_DICTIONARY
               ? take_dictionary(rows, n_rows, &at, type, first, err)
               : take_span(values, rows, n_rows, &at, type, first, err));
    for (int64_t i = 0; i < n_rows; i++)
        if (!bd_int64_add(values->size_bytes, rows[i].size_bytes, &values->size_bytes))
            values->size_bytes = INT64_MAX;
    values->n_rows = (int64_t)n;
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
    BD_TRY(locate_values(&at, schema, array, path, type, NULL, err));
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
        return bd_fail(err, BD_ERR_FORMAT, "the column's offsets are out of order");
    return BD_OK;
}
