#include "packer/input/arrow_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/dataset/arrow_glib.h"

// ---- Types ---------------------------------------------------------------------------------
// A format is a letter or a few (Arrow's C data interface).

enum { MAX_DEPTH = 64 };

static bool is_text(const char *format)
{
    return strcmp(format, "u") == 0 || strcmp(format, "U") == 0;
}

static bool is_integer(const char *format)
{
    return format[0] != '\0' && format[1] == '\0' && strchr("cCsSiIlL", format[0]);
}

static int64_t integer_bytes(const char *format)
{
    static const char letters[] = "cCsSiIlL";
    return INT64_C(1) << (strchr(letters, format[0]) - letters) / 2;
}

static bool is_list(const char *format)
{
    return strcmp(format, "+l") == 0 || strcmp(format, "+L") == 0;
}

static bool is_fixed_list(const char *format)
{
    return strncmp(format, "+w:", 3) == 0;
}

static bool accepts(const struct ArrowSchema *schema, int depth)
{
    const char *format = schema->format;
    if (depth > MAX_DEPTH)
        return false;
    if (schema->dictionary)
        return is_integer(format) && is_text(schema->dictionary->format) &&
               !schema->dictionary->dictionary;
    if (is_list(format) || is_fixed_list(format) || strcmp(format, "+s") == 0) {
        for (int64_t i = 0; i < schema->n_children; i++)
            if (!accepts(schema->children[i], depth + 1))
                return false;
        return true;
    }
    const bool is_letter = format[0] != '\0' && format[1] == '\0';
    return (is_letter && strchr("nbfguUzZ", format[0])) || is_integer(format) ||
           format[0] == 't' || strncmp(format, "d:", 2) == 0 || strncmp(format, "w:", 2) == 0;
}

bool bd_arrow_json_accepts(const struct ArrowSchema *schema)
{
    return accepts(schema, 0);
}

// ---- Values --------------------------------------------------------------------------------
// Element k of an array is element `array->offset + k` of its buffers.

static bool is_set(const uint8_t *bitmap, int64_t i)
{
    return bitmap[i / 8] >> (i % 8) & 1;
}

static bool is_null_at(const struct ArrowArray *array, int64_t at)
{
    const uint8_t *valid = array->null_count == 0 ? NULL : array->buffers[0];
    return valid && !is_set(valid, at);
}

// Offset `at` of a buffer of 32 or 64 bits, not necessarily aligned.
static int64_t offset_at(const void *offsets, bool is_wide, int64_t at)
{
    int32_t narrow;
    int64_t wide;
    if (!is_wide) {
        memcpy(&narrow, (const char *)offsets + at * (int64_t)sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, (const char *)offsets + at * (int64_t)sizeof wide, sizeof wide);
    return wide;
}

// The elements of a list's child that belong to its element with index `at` in the buffers.
static void list_range(const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t at, int64_t *from, int64_t *to)
{
    if (is_fixed_list(schema->format)) {
        const int64_t size = strtoll(schema->format + 3, NULL, 10);
        *from = at * size;
        *to = *from + size;
        return;
    }
    const bool is_wide = schema->format[1] == 'L';
    *from = offset_at(array->buffers[1], is_wide, at);
    *to = offset_at(array->buffers[1], is_wide, at + 1);
}

// ---- Writing -------------------------------------------------------------------------------

typedef struct writer {
    bd_json_rows *rows;
    size_t most_bytes;
    bool too_large;
} writer;

static bd_status put(writer *w, const char *text, size_t n, bd_error *err)
{
    bd_json_rows *rows = w->rows;
    if (w->too_large || n > w->most_bytes - rows->n_bytes) {
        w->too_large = true;
        return BD_OK;
    }
    BD_TRY(bd_array_reserve((void **)&rows->text, &rows->capacity, rows->n_bytes + n, 1, err));
    if (n > 0)
        memcpy(rows->text + rows->n_bytes, text, n);
    rows->n_bytes += n;
    return BD_OK;
}

static bd_status put_word(writer *w, const char *word, bd_error *err)
{
    return put(w, word, strlen(word), err);
}

static bd_status put_string(writer *w, const char *text, int64_t n, bd_error *err)
{
    BD_TRY(put(w, "\"", 1, err));
    for (int64_t i = 0, begin = 0; i <= n; i++) {
        const bool is_plain =
            i < n && (unsigned char)text[i] >= ' ' && text[i] != '"' && text[i] != '\\';
        char escape[8];
        if (is_plain)
            continue;
        if (i > begin)
            BD_TRY(put(w, text + begin, (size_t)(i - begin), err));
        begin = i + 1;
        if (i == n)
            break;
        const int size =
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)text[i]);
        BD_TRY(put(w, escape, (size_t)size, err));
    }
    return put(w, "\"", 1, err);
}

static int64_t integer_at(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          int64_t at, bool *is_unsigned)
{
    const int64_t n_bytes = integer_bytes(schema->format);
    uint64_t value = 0;
    memcpy(&value, (const char *)array->buffers[1] + at * n_bytes, (size_t)n_bytes);
    *is_unsigned = strchr("CSIL", schema->format[0]);
    const int spare = 64 - 8 * (int)n_bytes;
    return *is_unsigned ? (int64_t)value : (int64_t)(value << spare) >> spare;
}

static bd_status put_number(writer *w, const struct ArrowSchema *schema,
                            const struct ArrowArray *array, int64_t at, bd_error *err)
{
    char text[40];
    if (is_integer(schema->format)) {
        bool is_unsigned;
        const int64_t value = integer_at(schema, array, at, &is_unsigned);
        if (is_unsigned)
            snprintf(text, sizeof text, "%" PRIu64, (uint64_t)value);
        else
            snprintf(text, sizeof text, "%" PRId64, value);
        return put_word(w, text, err);
    }
    double value;
    if (schema->format[0] == 'f') {
        float narrow;
        memcpy(&narrow, (const char *)array->buffers[1] + at * (int64_t)sizeof narrow,
               sizeof narrow);
        value = narrow;
    } else {
        memcpy(&value, (const char *)array->buffers[1] + at * (int64_t)sizeof value,
               sizeof value);
    }
    snprintf(text, sizeof text, "%.17g", value);
    return put_word(w, isfinite(value) ? text : "null", err);
}

static bd_status put_value(writer *w, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, int64_t k, bd_error *err)
{
    const char *format = schema->format;
    const int64_t at = array->offset + k;
    if (w->too_large)
        return BD_OK;
    if (is_null_at(array, at))
        return put_word(w, "null", err);
    if (schema->dictionary) {
        bool is_unsigned;
        const int64_t index = integer_at(schema, array, at, &is_unsigned);
        if (index < 0 || index >= array->dictionary->length)
            return bd_fail(err, BD_ERR_FORMAT, "an index is beyond the column's dictionary");
        return put_value(w, schema->dictionary, array->dictionary, index, err);
    }
    if (is_text(format)) {
        const bool is_wide = format[0] == 'U';
        const int64_t from = offset_at(array->buffers[1], is_wide, at);
        const int64_t to = offset_at(array->buffers[1], is_wide, at + 1);
        return put_string(w, (const char *)array->buffers[2] + from, to - from, err);
    }
    if (strcmp(format, "b") == 0)
        return put_word(w, is_set(array->buffers[1], at) ? "true" : "false", err);
    if (is_integer(format) || strcmp(format, "f") == 0 || strcmp(format, "g") == 0)
        return put_number(w, schema, array, at, err);
    if (strcmp(format, "+s") == 0) {
        for (int64_t i = 0; i < schema->n_children; i++) {
            const char *name = schema->children[i]->name;
            BD_TRY(put_word(w, i > 0 ? "," : "{", err));
            BD_TRY(put_string(w, name, (int64_t)strlen(name), err));
            BD_TRY(put_word(w, ":", err));
            BD_TRY(put_value(w, schema->children[i], array->children[i], at, err));
        }
        return put_word(w, schema->n_children > 0 ? "}" : "{}", err);
    }
    if (!is_list(format) && !is_fixed_list(format))
        return put_word(w, "null", err);
    int64_t from, to;
    list_range(schema, array, at, &from, &to);
    BD_TRY(put_word(w, "[", err));
    for (int64_t i = from; i < to && !w->too_large; i++) {
        if (i > from)
            BD_TRY(put_word(w, ",", err));
        BD_TRY(put_value(w, schema->children[0], array->children[0], i, err));
    }
    return put_word(w, "]", err);
}

void bd_json_rows_clear(bd_json_rows *rows)
{
    rows->n_bytes = 0;
    rows->n_rows = 0;
}

void bd_json_rows_release(bd_json_rows *rows)
{
    free(rows->text);
    free(rows->ends);
    *rows = (bd_json_rows){0};
}

// A row of the column that the path leads to: null where a struct on the way is.
static bd_status put_row(writer *w, const struct ArrowSchema *schema,
                         const struct ArrowArray *array, int64_t k, const bd_value_path *path,
                         bd_error *err)
{
    for (size_t level = 1; level < path->n_names; level++) {
        int64_t child = 0;
        if (is_null_at(array, array->offset + k))
            return put_word(w, "null", err);
        while (child < schema->n_children &&
               strcmp(schema->children[child]->name, path->names[level]) != 0)
            child++;
        if (child == schema->n_children)
            return bd_fail(err, BD_ERR_FORMAT, "the column has no field '%s'",
                           path->names[level]);
        k += array->offset;
        schema = schema->children[child];
        array = array->children[child];
    }
    return put_value(w, schema, array, k, err);
}

bd_status bd_arrow_json_append(bd_json_rows *rows, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const bd_value_path *path,
                               int64_t most_bytes, bool *too_large, bd_error *err)
{
    writer w = {.rows = rows, .most_bytes = (size_t)most_bytes};
    size_t n;
    *too_large = false;
    if (!bd_size_add((size_t)rows->n_rows, (size_t)array->length, &n))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the column");
    BD_TRY(bd_array_reserve((void **)&rows->ends, &rows->ends_capacity, n + 1,
                            sizeof *rows->ends, err));
    for (int64_t k = 0; k < array->length && !w.too_large; k++) {
        BD_TRY(put_row(&w, schema, array, k, path, err));
        rows->ends[rows->n_rows++] = rows->n_bytes;
    }
    *too_large = w.too_large;
    return BD_OK;
}

// ---- Weighing ------------------------------------------------------------------------------

static bd_status fail_offsets(bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "the column's offsets are out of order");
}

// Adds the bytes of elements [from, to) of `array`.
static bd_status weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t from, int64_t to, int64_t *weight_bytes, bd_error *err)
{
    int64_t begin, end, n_bytes;
    if (from < 0 || to < from || to > array->length)
        return fail_offsets(err);
    if (from == to)  // its buffers may be absent
        return BD_OK;
    if (strcmp(schema->format, "+s") == 0) {
        for (int64_t i = 0; i < schema->n_children; i++)
            BD_TRY(weigh(schema->children[i], array->children[i], array->offset + from,
                         array->offset + to, weight_bytes, err));
        return BD_OK;
    }
    if (is_list(schema->format) || is_fixed_list(schema->format)) {
        int64_t unused;
        list_range(schema, array, array->offset + from, &begin, &unused);
        list_range(schema, array, array->offset + to - 1, &unused, &end);
        return weigh(schema->children[0], array->children[0], begin, end, weight_bytes, err);
    }
    if (is_text(schema->format) && !schema->dictionary) {
        const bool is_wide = schema->format[0] == 'U';
        begin = offset_at(array->buffers[1], is_wide, array->offset + from);
        end = offset_at(array->buffers[1], is_wide, array->offset + to);
        n_bytes = end - begin;
    } else if (!bd_int64_mul(to - from, sizeof(int64_t), &n_bytes)) {
        n_bytes = -1;
    }
    if (n_bytes < 0 || !bd_int64_add(*weight_bytes, n_bytes, weight_bytes))
        return fail_offsets(err);
    return BD_OK;
}

bd_status bd_arrow_json_weigh(const struct ArrowSchema *schema, const struct ArrowArray *array,
                              int64_t *weight_bytes, bd_error *err)
{
    *weight_bytes = 0;
    return weigh(schema, array, 0, array->length, weight_bytes, err);
}
