// Arrow IPC: files, and streams as Hugging Face's datasets write them.
#include "packer/input/table.h"
#include "packer/input/token_layout.h"

static bd_status recognise_file(bd_input *input, const bd_input_head *head,
                                const bd_input_options *options, bool *yes, bd_error *err)
{
    (void)input;
    (void)options;
    (void)err;
    *yes = bd_head_begins_with(head, "ARROW1\0\0", 8);
    return BD_OK;
}

static uint32_t uint32_at(const bd_input_head *head, size_t at)
{
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++)
        value |= (uint32_t)(unsigned char)head->bytes[at + i] << (8 * i);
    return value;
}

// FF FF FF FF, the bytes of the first message's metadata, and where its root lies in there.
// Text after the mark would be lengths of half a gigabyte and more.
static bool is_arrow_stream(const bd_input_head *head)
{
    enum { MAX_METADATA_BYTES = 1 << 28 };
    if (!bd_head_begins_with(head, "\xFF\xFF\xFF\xFF", 4) || head->n < 12)
        return false;
    const uint32_t n = uint32_at(head, 4);
    return n > 0 && n % 8 == 0 && n <= MAX_METADATA_BYTES && uint32_at(head, 8) < n;
}

static bd_status recognise_stream(bd_input *input, const bd_input_head *head,
                                  const bd_input_options *options, bool *yes, bd_error *err)
{
    (void)input;
    (void)options;
    (void)err;
    *yes = is_arrow_stream(head);
    return BD_OK;
}

// --format arrow may mean either: what is no file is a stream.
static bd_status cut_file(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bool is_file;
    BD_TRY(bd_file_begins_with(input->path, "ARROW1", 6, &is_file, err));
    if (!is_file)
        input->kind = &bd_arrow_stream_kind;
    return bd_table_cut(input, options, err);
}

static const char *const arrow_endings[] = {".arrow", ".arrows", NULL};

const bd_input_kind bd_arrow_kind = {
    .name = bd_arrow_name,
    .endings = arrow_endings,
    .columns = BD_COLUMNS_ARROW_FILE,
    .recognise = recognise_file,
    .cut = cut_file,
    BD_TABLE_KIND,
};

const bd_input_kind bd_arrow_stream_kind = {
    .name = bd_arrow_stream_name,
    .columns = BD_COLUMNS_ARROW_STREAM,
    .recognise = recognise_stream,
    .cut = bd_table_cut,
    BD_TABLE_KIND,
};
