#include "common/base/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/text_stream.h"
#include "common/base/utf8.h"

// bd_json is json_t under a name that keeps jansson's header in this file.
static json_t *unwrap(const bd_json *value)
{
    return (json_t *)value;
}

static bd_json *wrap(json_t *value)
{
    return (bd_json *)value;
}

// ---- Building ---------------------------------------------------------------------

// Set when an allocation failed since the last bd_json_print() of this thread.
static _Thread_local bool out_of_memory;

static json_t *check_made(json_t *value)
{
    if (!value)
        out_of_memory = true;
    return value;
}

bd_json *bd_json_object(void)
{
    return wrap(check_made(json_object()));
}

bd_json *bd_json_array(void)
{
    return wrap(check_made(json_array()));
}

bd_json *bd_json_integer(int64_t value)
{
    return wrap(check_made(json_integer(value)));
}

bd_json *bd_json_string(const char *text)
{
    return wrap(check_made(json_string_nocheck(text)));
}

bd_json *bd_json_real(double value)
{
    return wrap(check_made(json_real(value)));
}

void bd_json_set(bd_json *object, const char *key, bd_json *value)
{
    if (json_object_set_new(unwrap(object), key, check_made(unwrap(value))) != 0)
        out_of_memory = true;
}

void bd_json_append(bd_json *array, bd_json *value)
{
    if (json_array_append_new(unwrap(array), check_made(unwrap(value))) != 0)
        out_of_memory = true;
}

void bd_json_set_integer(bd_json *object, const char *key, int64_t value)
{
    bd_json_set(object, key, wrap(json_integer(value)));
}

void bd_json_set_real(bd_json *object, const char *key, double value)
{
    bd_json_set(object, key, wrap(json_real(value)));
}

void bd_json_set_figure(bd_json *object, const char *key, double value)
{
    bd_json_set(object, key, wrap(isfinite(value) ? json_real(value) : json_null()));
}

void bd_json_set_bool(bd_json *object, const char *key, bool value)
{
    bd_json_set(object, key, wrap(json_boolean(value)));
}

void bd_json_set_null(bd_json *object, const char *key)
{
    bd_json_set(object, key, wrap(json_null()));
}

void bd_json_set_string(bd_json *object, const char *key, const char *text)
{
    const size_t n = strlen(text);
    if (bd_utf8_valid_prefix(text, n) == n) {
        bd_json_set(object, key, wrap(json_string_nocheck(text)));
        return;
    }
    char *repaired = malloc(bd_utf8_replaced_bound(n));
    if (!repaired) {
        out_of_memory = true;
        return;
    }
    const size_t m = bd_utf8_replace(text, n, repaired);
    bd_json_set(object, key, wrap(json_stringn_nocheck(repaired, m)));
    free(repaired);
}

bd_json *bd_json_share(const bd_json *value)
{
    return wrap(json_incref(unwrap(value)));
}

void bd_json_free(bd_json *value)
{
    json_decref(unwrap(value));
}

// json_dumps() will not do: where Jansson finds no memory for a key, it goes on without the
// key. A stream remembers the failure.
static char *print_value(const json_t *value, bd_json_style style)
{
    const size_t layout = style == BD_JSON_COMPACT ? JSON_COMPACT : JSON_INDENT(2);
    bd_text_stream out;
    if (!bd_text_stream_open(&out))
        return NULL;
    const bool whole = json_dumpf(value, out.file, JSON_ENCODE_ANY | layout) == 0;
    char *text = bd_text_stream_close(&out, NULL);
    if (whole)
        return text;
    free(text);
    return NULL;
}

bd_status bd_json_print(const bd_json *value, bd_json_style style, char **text, bd_error *err)
{
    const bool failed = out_of_memory || !value;
    out_of_memory = false;
    *text = failed ? NULL : print_value(unwrap(value), style);
    if (!*text)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to print JSON");
    return BD_OK;
}

bd_status bd_json_put(bd_json *value, bd_json_style style, FILE *out, bd_error *err)
{
    char *text = NULL;
    const bd_status status = bd_json_print(value, style, &text, err);
    if (status == BD_OK)
        fprintf(out, "%s\n", text);
    free(text);
    bd_json_free(value);
    return status;
}

// ---- Reading ----------------------------------------------------------------------

bd_status bd_json_parse(const char *text, size_t size_bytes, bd_json **value, bd_error *err)
{
    json_error_t where;
    json_t *parsed = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &where);
    *value = wrap(parsed);
    if (!parsed)
        return bd_fail(err, BD_ERR_FORMAT, "line %d, column %d: %s", where.line, where.column,
                       where.text);
    return BD_OK;
}

bd_status bd_json_read_file(const char *path, size_t max_bytes, bd_json **value, bd_error *err)
{
    char *text;
    size_t size_bytes;
    BD_TRY(bd_file_read(path, max_bytes, &text, &size_bytes, err));
    bd_status status = bd_json_parse(text, size_bytes, value, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "'%s' is not valid JSON", path);
    free(text);
    return status;
}

bd_status bd_json_as_integer(const bd_json *value, int64_t min, int64_t max, int64_t *out,
                             bd_error *err)
{
    if (!json_is_integer(unwrap(value)) || json_integer_value(unwrap(value)) < min ||
        json_integer_value(unwrap(value)) > max)
        return bd_fail(err, BD_ERR_FORMAT, "not an integer from %" PRId64 " to %" PRId64, min,
                       max);
    *out = json_integer_value(unwrap(value));
    return BD_OK;
}

bd_status bd_json_as_string(const bd_json *value, const char **out, bd_error *err)
{
    *out = json_string_value(unwrap(value));
    return *out ? BD_OK : bd_fail(err, BD_ERR_FORMAT, "not a string");
}

bd_status bd_json_get_integer(const bd_json *object, const char *key, int64_t min, int64_t max,
                              int64_t *value, bd_error *err)
{
    const bd_status status =
        bd_json_as_integer(wrap(json_object_get(unwrap(object), key)), min, max, value, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'%s'", key);
}

bd_status bd_json_get_real(const bd_json *object, const char *key, double min, double max,
                           double *value, bd_error *err)
{
    const json_t *found = json_object_get(unwrap(object), key);
    *value = json_number_value(found);
    if (!json_is_number(found) || *value < min || *value > max)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' is not a number from %g to %g", key, min, max);
    return BD_OK;
}

bd_status bd_json_get_bool(const bd_json *object, const char *key, bool *value, bd_error *err)
{
    const json_t *found = json_object_get(unwrap(object), key);
    *value = json_is_true(found);
    return json_is_boolean(found) ? BD_OK
                                  : bd_fail(err, BD_ERR_FORMAT, "'%s' is not a boolean", key);
}

bd_status bd_json_get_string(const bd_json *object, const char *key, const char **value,
                             bd_error *err)
{
    *value = json_string_value(json_object_get(unwrap(object), key));
    return *value ? BD_OK : bd_fail(err, BD_ERR_FORMAT, "'%s' is not a string", key);
}

bd_status bd_json_get_word(const bd_json *object, const char *key, const char *const *words,
                           int *index, bd_error *err)
{
    const char *word;
    BD_TRY(bd_json_get_string(object, key, &word, err));
    for (*index = 0; words[*index]; ++*index)
        if (strcmp(words[*index], word) == 0)
            return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s' is '%.40s', which this version does not know", key,
                   word);
}

bd_status bd_json_get_object(const bd_json *object, const char *key, const bd_json **value,
                             bd_error *err)
{
    json_t *found = json_object_get(unwrap(object), key);
    *value = wrap(found);
    return json_is_object(found) ? BD_OK
                                 : bd_fail(err, BD_ERR_FORMAT, "'%s' is not an object", key);
}

bd_status bd_json_get_array(const bd_json *object, const char *key, const bd_json **value,
                            bd_error *err)
{
    json_t *found = json_object_get(unwrap(object), key);
    *value = wrap(found);
    return json_is_array(found) ? BD_OK
                                : bd_fail(err, BD_ERR_FORMAT, "'%s' is not an array", key);
}

bool bd_json_is_null(const bd_json *object, const char *key)
{
    const json_t *found = json_object_get(unwrap(object), key);
    return !found || json_is_null(found);
}

size_t bd_json_length(const bd_json *array)
{
    return json_array_size(unwrap(array));
}

const bd_json *bd_json_at(const bd_json *array, size_t index)
{
    return wrap(json_array_get(unwrap(array), index));
}

static bd_json_member member_at(void *iterator)
{
    return (bd_json_member){json_object_iter_key(iterator),
                            wrap(json_object_iter_value(iterator))};
}

bd_json_member bd_json_first(const bd_json *object)
{
    return member_at(json_object_iter(unwrap(object)));
}

bd_json_member bd_json_next(const bd_json *object, bd_json_member member)
{
    return member_at(
        json_object_iter_next(unwrap(object), json_object_key_to_iter(member.key)));
}

// ---- Sealing ----------------------------------------------------------------------

// The text that follows the checked bytes, around the digits.
static const char before_digits[] = ",\n  \"checksum\": \"";
static const char after_digits[] = "\"\n}\n";

enum {
    N_DIGITS = sizeof(bd_digest) - 1,
    SEAL_BYTES = sizeof before_digits - 1 + N_DIGITS + sizeof after_digits - 1,
};

// The SEAL_BYTES bytes that belong after `text`, and a NUL.
static void print_json_seal(char *seal, const char *text, size_t size_bytes)
{
    const bd_digest digest = bd_digest_of(text, size_bytes);
    snprintf(seal, SEAL_BYTES + 1, "%s%s%s", before_digits, digest.hex, after_digits);
}

bd_status bd_json_seal(const bd_json *object, char **text, size_t *size_bytes, bd_error *err)
{
    BD_TRY(bd_json_print(object, BD_JSON_INDENTED, text, err));
    const size_t checked = strlen(*text) - strlen("\n}");
    char *sealed = realloc(*text, checked + SEAL_BYTES + 1);
    if (!sealed) {
        free(*text);
        *text = NULL;
        return bd_fail(err, BD_ERR_MEMORY, "no memory to print JSON");
    }
    print_json_seal(sealed + checked, sealed, checked);
    *text = sealed;
    *size_bytes = checked + SEAL_BYTES;
    return BD_OK;
}

bd_status bd_json_unseal(const char *text, size_t size_bytes, bd_json **value, bd_error *err)
{
    *value = NULL;
    if (size_bytes < SEAL_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "it is cut short");
    const size_t checked = size_bytes - SEAL_BYTES;
    char seal[SEAL_BYTES + 1];
    print_json_seal(seal, text, checked);
    if (memcmp(text + checked, seal, SEAL_BYTES) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "its checksum does not match: damaged or edited");
    return bd_json_parse(text, size_bytes, value, err);
}

// ---- Comparing --------------------------------------------------------------------

// `path` is a buffer of PATH_SIZE in which each level appends its own step and takes it back.
enum { PATH_SIZE = 256 };

static bool differs(json_t *here, json_t *there, char *path, char *where, size_t where_size)
{
    const size_t length = strlen(path);
    const bool objects = json_is_object(here) && json_is_object(there);
    const bool arrays = json_is_array(here) && json_is_array(there);
    if (json_equal(here, there))
        return false;
    if (objects) {
        const char *key;
        json_t *value;
        json_object_foreach(here, key, value)
        {
            snprintf(path + length, PATH_SIZE - length, "%s%s", length ? "." : "", key);
            if (differs(value, json_object_get(there, key), path, where, where_size))
                return true;
        }
        json_object_foreach(there, key, value)
        {
            snprintf(path + length, PATH_SIZE - length, "%s%s", length ? "." : "", key);
            if (differs(json_object_get(here, key), value, path, where, where_size))
                return true;
        }
    }
    if (arrays) {
        const size_t n = json_array_size(here), m = json_array_size(there);
        for (size_t i = 0; i < n || i < m; i++) {
            // An element that has a name is easier to find by it.
            json_t *element = json_array_get(i < n ? here : there, i);
            const char *name = json_string_value(json_object_get(element, "name"));
            if (name)
                snprintf(path + length, PATH_SIZE - length, "[%zu '%s']", i, name);
            else
                snprintf(path + length, PATH_SIZE - length, "[%zu]", i);
            if (differs(json_array_get(here, i), json_array_get(there, i), path, where,
                        where_size))
                return true;
        }
    }
    path[length] = '\0';
    char *a = here ? print_value(here, BD_JSON_COMPACT) : NULL;
    char *b = there ? print_value(there, BD_JSON_COMPACT) : NULL;
    snprintf(where, where_size, "%s: %.80s here, %.80s there", *path ? path : "the document",
             a ? a : "nothing", b ? b : "nothing");
    free(a);
    free(b);
    return true;
}

bool bd_json_difference(const bd_json *here, const bd_json *there, char *where,
                        size_t where_size)
{
    char path[PATH_SIZE] = "";
    return differs(unwrap(here), unwrap(there), path, where, where_size);
}
