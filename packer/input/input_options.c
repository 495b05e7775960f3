#include "packer/input/input_options.h"

#include <stdlib.h>
#include <string.h>

BD_ENUM_NAMES(bd_utf8_policy, BD_UTF8_POLICIES);
BD_ENUM_NAMES(bd_separator_mode, BD_SEPARATOR_MODES);
BD_ENUM_NAMES(bd_bad_policy, BD_BAD_POLICIES);
BD_ENUM_NAMES(bd_record_form, BD_RECORD_FORMS);

const char *bd_input_options_field(const bd_input_options *options)
{
    return options->form == BD_FORM_TEXT ? options->text_field : options->fields[0];
}

int64_t bd_input_options_table_bytes(const bd_input_options *options)
{
    const int64_t least_bytes = INT64_C(64) << 20;
    return options->unit_bytes > least_bytes ? options->unit_bytes : least_bytes;
}

bd_status bd_own_options_copy(bd_own_options *copy, const bd_own_options *own, bd_error *err)
{
    *copy = *own;
    copy->text_field = own->text_field ? strdup(own->text_field) : NULL;
    copy->delimiter = own->delimiter ? strdup(own->delimiter) : NULL;
    if (!copy->text_field == !own->text_field && !copy->delimiter == !own->delimiter)
        return BD_OK;
    bd_own_options_release(copy);
    return bd_fail(err, BD_ERR_MEMORY, "no memory for the options of an input");
}

void bd_own_options_release(bd_own_options *own)
{
    free(own->text_field);
    free(own->delimiter);
    *own = (bd_own_options){0};
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool bd_own_options_equal(const bd_own_options *a, const bd_own_options *b)
{
    return a->has_format == b->has_format && (!a->has_format || a->format == b->format) &&
           same_text(a->text_field, b->text_field) && same_text(a->delimiter, b->delimiter);
}
