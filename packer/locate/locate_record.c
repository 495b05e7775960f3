#include "packer/locate/locate_record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "packer/input/kinds.h"
#include "packer/input/reader.h"

static bd_status fail_absent(const bd_input *input, const bd_location *location, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s': no record begins at %s %" PRIu64, input->path,
                   bd_position_unit(input->entry.format), location->position);
}

static bd_status read_record(bd_reader *reader, const bd_input *input,
                             const bd_location *location, bd_record *record, bd_error *err)
{
    bool found = true;
    *record = (bd_record){.position = -1};
    const int64_t extent = input->entry.extent;
    if (location->position > 0 && extent != BD_UNKNOWN &&
        location->position >= (uint64_t)extent)
        return fail_absent(input, location, err);
    const int64_t position = (int64_t)location->position;
    bd_reader_begin(reader, (bd_slice){bd_input_group_begin(input, position), position + 1});
    while (record->position < position) {
        BD_TRY(bd_reader_next(reader, record, &found, err));
        if (!found)
            break;
    }
    if (found && record->position == position && record->bad == BD_BAD_NONE)
        return BD_OK;
    return fail_absent(input, location, err);
}

// A byte order mark is no part of the first line's record, but it lies before it.
static bd_status find_bytes(bd_record_place *place, const bd_input *input,
                            const bd_record *record, bd_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF";
    char head[sizeof mark - 1];
    size_t n = 0;
    place->begin = record->position;
    if (input->kind == &bd_jsonl_kind && record->position == 0) {
        bd_byte_stream *stream;
        BD_TRY(bd_byte_stream_open(&stream, input->path, err));
        const bd_status status = bd_byte_stream_read(stream, head, sizeof head, &n, err);
        bd_byte_stream_close(stream);
        BD_TRY(status);
        if (n == sizeof head && memcmp(head, mark, n) == 0)
            place->begin += (int64_t)n;
    }
    place->end = place->begin + (int64_t)(record->stored_bytes > 0 ? record->stored_bytes
                                                                   : record->size_bytes);
    const int64_t line = bd_line_number(input, place->begin);
    place->line = line > 0 ? line : BD_UNKNOWN;
    return BD_OK;
}

// Only the bytes of a text file are those of its document, and only if none of them had to be
// replaced.
static void find_token(bd_record_place *place, const bd_corpus *corpus, const bd_input *input,
                       const bd_record *record, const bd_location *location)
{
    const size_t n = record->size_bytes;
    const bd_input_options *reading = &corpus->found[location->input].reading;
    const bool as_it_is =
        reading->utf8_policy == BD_UTF8_KEEP || bd_utf8_valid_prefix(record->data, n) == n;
    const int64_t before = location->text_before;
    const size_t n_token = location->marked.n;
    if (input->kind != &bd_text_kind || !as_it_is || location->kind != BD_TOKEN_TEXT ||
        before == BD_UNKNOWN || before > (int64_t)n || n_token > n - (size_t)before)
        return;
    if (n_token == 0 || memcmp(record->data + before, location->marked.bytes, n_token) != 0)
        return;
    place->token_byte = place->begin + before;
    const int64_t line = bd_line_number(input, place->token_byte);
    place->token_line = line > 0 ? line : BD_UNKNOWN;
}

static bd_status keep_content(bd_record_place *place, const bd_input *input,
                              const bd_record *record, size_t n_content, bd_error *err)
{
    bd_text_part *content = &place->content;
    content->n = record->size_bytes < n_content ? record->size_bytes : n_content;
    if (input->id_bytes > 0 || content->n == 0) {
        content->n = 0;
        return BD_OK;
    }
    content->bytes = malloc(content->n);
    if (!content->bytes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a record");
    memcpy(content->bytes, record->data, content->n);
    return BD_OK;
}

// An input that has changed since it was packed cannot be used.
static bd_status find_input(bd_corpus *corpus, size_t index, bd_error *err)
{
    if (corpus->check->inputs[index].size_bytes == BD_UNKNOWN)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--corpus: the document came from standard input, which is gone");
    BD_TRY(bd_corpus_examine(corpus, index, err));
    const bd_error *change = &corpus->found[index].change;
    return change->status == BD_OK ? BD_OK
                                   : bd_fail(err, change->status, "%s", change->message);
}

bd_status bd_record_find(bd_record_place *place, bd_corpus *corpus, const bd_location *location,
                         size_t n_content, bd_error *err)
{
    const bd_input *input = &corpus->inputs.items[location->input];
    bd_reader *reader;
    bd_record record;
    *place = (bd_record_place){.begin = BD_UNKNOWN,
                               .end = BD_UNKNOWN,
                               .line = BD_UNKNOWN,
                               .token_byte = BD_UNKNOWN,
                               .token_line = BD_UNKNOWN};
    BD_TRY(find_input(corpus, location->input, err));
    BD_TRY(bd_reader_open(&reader, input, &corpus->found[location->input].reading, err));
    bd_status status = read_record(reader, input, location, &record, err);
    if (status == BD_OK) {
        place->size_bytes = (int64_t)record.size_bytes;
        place->path = strdup(input->path);
        if (!place->path)
            status = bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    }
    if (status == BD_OK && input->kind->is_text) {
        status = find_bytes(place, input, &record, err);
        if (status == BD_OK)
            find_token(place, corpus, input, &record, location);
    }
    if (status == BD_OK)
        status = keep_content(place, input, &record, n_content, err);
    bd_reader_close(reader);
    return status;
}

void bd_record_place_release(bd_record_place *place)
{
    free(place->path);
    free(place->content.bytes);
    *place = (bd_record_place){0};
}
