// Text: a file is one document, or --delimiter separates documents.
#include <stdlib.h>

#include "packer/input/examine.h"
#include "packer/input/kinds.h"

// A text without a delimiter is one document and has one slice.
static bd_status cut_text(bd_input *input, const bd_input_options *options, bd_error *err)
{
    size_t capacity = 0;
    BD_TRY(bd_records_cut(input, options, err));
    if (options->delimiter)
        return BD_OK;
    input->entry.stride = 0;
    return bd_input_add_start(input, &capacity, 0, err);
}

static bd_status open_text(void **source, const bd_input *input,
                           const bd_input_options *options, bd_error *err)
{
    return bd_records_new(
        source, input, options->delimiter ? BD_RECORD_DELIMITED : BD_RECORD_FILE, options, err);
}

static const char *const text_endings[] = {".txt", ".text", NULL};

const bd_input_kind bd_text_kind = {
    .name = bd_text_name,
    .endings = text_endings,
    .place = "document at byte",
    .is_text = true,
    .cut = cut_text,
    .open = open_text,
    .begin = bd_records_begin,
    .next = bd_records_next,
    .close = bd_records_free,
    .reaches = bd_records_reach,
    .consumed = bd_records_consumed,
};
