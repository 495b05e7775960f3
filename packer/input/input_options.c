#include "packer/input/input_options.h"

#include <stdlib.h>
#include <string.h>

const char *const bd_utf8_policy_words[] = {"error", "keep", "replace", NULL};
const char *const bd_separator_mode_words[] = {"append", "present", NULL};
const char *const bd_bad_policy_words[] = {"error", "skip", NULL};

int64_t bd_reading_table_bytes(const bd_reading *reading)
{
    const int64_t least_bytes = INT64_C(64) << 20;
    return reading->unit_bytes > least_bytes ? reading->unit_bytes : least_bytes;
}

bd_status bd_own_reading_copy(bd_own_reading *copy, const bd_own_reading *own, bd_error *err)
{
    *copy = *own;
    copy->text_field = own->text_field ? strdup(own->text_field) : NULL;
    copy->delimiter = own->delimiter ? strdup(own->delimiter) : NULL;
    if (!copy->text_field == !own->text_field && !copy->delimiter == !own->delimiter)
        return BD_OK;
    bd_own_reading_release(copy);
    return bd_fail(err, BD_ERR_MEMORY, "no memory for the options of an input");
}

void bd_own_reading_release(bd_own_reading *own)
{
    free(own->text_field);
    free(own->delimiter);
    *own = (bd_own_reading){0};
}

bd_reading bd_reading_of(const bd_reading *reading, const bd_own_reading *own)
{
    bd_reading result = *reading;
    if (own->has_format)
        result.format = own->format;
    if (own->text_field)
        result.text_field = own->text_field;
    if (own->delimiter)
        result.delimiter = own->delimiter;
    return result;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool bd_own_reading_equal(const bd_own_reading *a, const bd_own_reading *b)
{
    return a->has_format == b->has_format && (!a->has_format || a->format == b->format) &&
           same_text(a->text_field, b->text_field) && same_text(a->delimiter, b->delimiter);
}
