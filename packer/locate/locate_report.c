#include "packer/locate/locate_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/cli/dimming.h"
#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "packer/input/input_options.h"

static const char reverse[] = "\x1b[7m", not_reverse[] = "\x1b[27m", no_color[] = "\x1b[0m";

// ---- For people ----------------------------------------------------------------------------

static void print_name(FILE *out, const char *text)
{
    bd_print_safely(out, text, strlen(text), false);
}

static void print_part(FILE *out, const bd_text_part *part)
{
    bd_print_safely(out, part->bytes, part->n, true);
}

// Prints a part of which it is known what is trained, and dims the rest. A character of several
// tokens is shown as its first byte is.
static void print_dimmed_part(FILE *out, const bd_text_part *part, bd_dimming *dimming)
{
    for (size_t begin = 0, end; begin < part->n; begin = end) {
        for (end = begin + 1; end < part->n; end++)
            if (part->trained[end] != part->trained[begin] &&
                ((unsigned char)part->bytes[end] & 0xC0) != 0x80)
                break;
        bd_dimming_set(out, dimming, part->trained[begin]);
        bd_print_safely(out, part->bytes + begin, end - begin, true);
    }
}

static void print_masked_text(FILE *out, const bd_location *location, bool color)
{
    bd_dimming dimming = bd_dimming_start(color);
    print_dimmed_part(out, &location->before, &dimming);
    if (location->marked.n > 0)  // so that no mark begins between the brackets and a token
        bd_dimming_set(out, &dimming, location->marked.trained[0]);
    fputs(color ? reverse : "[", out);
    print_dimmed_part(out, &location->marked, &dimming);
    fputs(color ? not_reverse : "]", out);
    print_dimmed_part(out, &location->after, &dimming);
    bd_dimming_end(out, &dimming);
}

static void print_located_token(FILE *out, const bd_location *location)
{
    static const char *const what[] = {
        [BD_TOKEN_TEXT] = "text",
        [BD_TOKEN_BOS] = "BOS, which begins the document",
        [BD_TOKEN_SEPARATOR] = "the separator, which ends the document",
        [BD_TOKEN_PADDING] = "padding, which belongs to no document",
    };
    fprintf(out, "  token     id %u, %s%s\n", location->id, what[location->kind],
            location->repeated ? "; repeated from the piece before as context" : "");
    if (location->has_target)
        fprintf(out, "  target    id %u\n", location->target);
    else if (location->kind == BD_TOKEN_PADDING)
        fprintf(out, "  target    none\n");
    else if (location->address.token == location->end - 1)
        fprintf(out, "  target    none: it is the last of its segment\n");
    else
        fprintf(out, "  target    none: the token after it is masked\n");
    if (location->is_masked && location->kind != BD_TOKEN_PADDING)
        fprintf(out, "  trained   %s\n",
                location->trained ? "yes, it is a target"
                : location->address.token == location->begin
                    ? "no: it is the first of its segment"
                    : "no: it is masked");
}

static void print_segment(FILE *out, const bd_location *location)
{
    const int64_t n = location->end - location->begin;
    fprintf(out,
            "  segment   %" PRId64 " of the row's %" PRId64 ", tokens %" PRId64 " to %" PRId64
            "; position %" PRId64 " in it\n",
            location->segment, location->n_segments, location->begin, location->end - 1,
            location->address.token - location->begin);
    fprintf(out, "  document  token %" PRId64 " of %" PRId64 "; ", location->token,
            location->length);
    if (n == location->length)
        fprintf(out, "the segment is all of it\n");
    else
        fprintf(out, "the segment is its tokens %" PRId64 " to %" PRId64 "\n", location->offset,
                location->offset + n - 1);
}

static void print_record_place(FILE *out, const bd_location *location,
                               const bd_manifest *manifest)
{
    const bd_input_entry *input = &manifest->inputs[location->input];
    fprintf(out, "  input     ");
    print_name(out, input->name);
    fprintf(out, "\n  source    ");
    print_name(out, input->source);
    fprintf(out, "\n  place     %s %" PRIu64 "%s\n", bd_position_unit(input->format),
            location->position,
            strcmp(input->compression, "none") == 0 ? "" : " of the decompressed file");
}

static void print_record(FILE *out, const bd_record_place *record)
{
    fprintf(out, "  file      ");
    print_name(out, record->path);
    fprintf(out, "\n  record    %s bytes", bd_format_exact(record->size_bytes).text);
    if (record->begin != BD_UNKNOWN && record->size_bytes > 0)
        fprintf(out, ", bytes %" PRId64 " to %" PRId64, record->begin, record->end - 1);
    if (record->line != BD_UNKNOWN)
        fprintf(out, ", from line %" PRId64 " on", record->line);
    fputc('\n', out);
    if (record->token_byte == BD_UNKNOWN)
        return;
    fprintf(out, "            the token at byte %" PRId64, record->token_byte);
    if (record->token_line != BD_UNKNOWN)
        fprintf(out, ", line %" PRId64, record->token_line);
    fputc('\n', out);
}

void bd_location_print(FILE *out, const bd_location *location, const bd_record_place *record,
                       const bd_manifest *manifest, bool color)
{
    const bd_token_address *address = &location->address;
    fprintf(out,
            "Token %" PRId64 " of row %" PRId64 " of %s (row %" PRId64 " of the dataset)\n",
            address->token, address->row,
            bd_unit_shard_name(&manifest->shards[address->shard].unit).text, location->row);
    print_located_token(out, location);
    if (location->kind == BD_TOKEN_PADDING)
        return;
    print_segment(out, location);
    print_record_place(out, location, manifest);
    if (record)
        print_record(out, record);
    if (location->is_masked)
        fprintf(out, "  text      %s\n",
                color ? "dimmed where it is masked: not trained"
                      : "{+in such marks+} is trained, the rest is masked");
    fputc('\n', out);
    if (location->is_masked) {
        print_masked_text(out, location, color);
    } else {
        print_part(out, &location->before);
        fputs(color ? reverse : "[", out);
        print_part(out, &location->marked);
        fputs(color ? no_color : "]", out);
        print_part(out, &location->after);
    }
    fputc('\n', out);
    if (!record || record->content.n == 0)
        return;
    fprintf(out, "\nThe record%s:\n",
            (int64_t)record->content.n < record->size_bytes ? " begins" : "");
    print_part(out, &record->content);
    fputc('\n', out);
}

// ---- For scripts ---------------------------------------------------------------------------

static bd_status set_text_part(bd_json *object, const char *key, const bd_text_part *part,
                               bd_error *err)
{
    char *sound = malloc(bd_utf8_replaced_bound(part->n) + 1);
    char *bytes = malloc(part->n + 1);
    bd_status status = BD_OK;
    if (sound && bytes) {
        // A NUL would end the string: it becomes a byte that UTF-8 does not have.
        for (size_t i = 0; i < part->n; i++)
            bytes[i] = part->bytes[i] == '\0' ? '\xFF' : part->bytes[i];
        sound[bd_utf8_replace(bytes, part->n, sound)] = '\0';
        bd_json_set_string(object, key, sound);
    } else {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a text");
    }
    free(sound);
    free(bytes);
    return status;
}

static void set_known(bd_json *object, const char *key, int64_t value)
{
    if (value == BD_UNKNOWN)
        bd_json_set_null(object, key);
    else
        bd_json_set_integer(object, key, value);
}

static bd_json *document_to_json(const bd_location *location, const bd_manifest *manifest)
{
    const bd_input_entry *input = &manifest->inputs[location->input];
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "input", location->input);
    bd_json_set_string(json, "name", input->name);
    bd_json_set_string(json, "source", input->source);
    bd_json_set_string(json, "format", input->format);
    bd_json_set_integer(json, "position", (int64_t)location->position);
    bd_json_set_string(json, "position_unit", bd_position_unit(input->format));
    bd_json_set_integer(json, "length", location->length);
    bd_json_set_integer(json, "token", location->token);
    return json;
}

static bd_json *segment_to_json(const bd_location *location)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "index", location->segment);
    bd_json_set_integer(json, "begin", location->begin);
    bd_json_set_integer(json, "end", location->end);
    bd_json_set_integer(json, "offset", location->offset);
    bd_json_set_integer(json, "position", location->address.token - location->begin);
    bd_json_set_bool(json, "repeated", location->repeated);
    return json;
}

static bd_status set_texts(bd_json *json, const bd_location *location, bd_error *err)
{
    bd_json *text = bd_json_object();
    bd_json_set(json, "text", text);
    BD_TRY(set_text_part(text, "before", &location->before, err));
    BD_TRY(set_text_part(text, "marked", &location->marked, err));
    return set_text_part(text, "after", &location->after, err);
}

static bd_status set_record(bd_json *json, const bd_record_place *record, bd_error *err)
{
    bd_json *place = bd_json_object();
    bd_json_set(json, "record", place);
    bd_json_set_string(place, "path", record->path);
    bd_json_set_integer(place, "size_bytes", record->size_bytes);
    set_known(place, "begin", record->begin);
    set_known(place, "end", record->end);
    set_known(place, "line", record->line);
    set_known(place, "token_byte", record->token_byte);
    set_known(place, "token_line", record->token_line);
    return set_text_part(place, "content", &record->content, err);
}

bd_status bd_location_to_json(const bd_location *location, const bd_record_place *record,
                              const bd_manifest *manifest, bd_json **out, bd_error *err)
{
    const bd_token_address *address = &location->address;
    const bool is_padding = location->kind == BD_TOKEN_PADDING;
    bd_json *json = bd_json_object();
    *out = json;
    bd_json_set_integer(json, "shard", (int64_t)address->shard);
    bd_json_set_string(json, "shard_name",
                       bd_unit_shard_name(&manifest->shards[address->shard].unit).text);
    bd_json_set_integer(json, "shard_row", address->row);
    bd_json_set_integer(json, "row", location->row);
    bd_json_set_integer(json, "token", address->token);
    bd_json_set_integer(json, "id", location->id);
    bd_json_set_string(json, "kind", bd_token_kind_names[location->kind]);
    set_known(json, "target", location->has_target ? (int64_t)location->target : BD_UNKNOWN);
    if (location->is_masked)
        bd_json_set_bool(json, "trained", location->trained);
    if (is_padding) {
        bd_json_set_null(json, "segment");
        bd_json_set_null(json, "document");
        bd_json_set_null(json, "text");
    } else {
        bd_json_set(json, "segment", segment_to_json(location));
        bd_json_set(json, "document", document_to_json(location, manifest));
        BD_TRY(set_texts(json, location, err));
    }
    if (!record) {
        bd_json_set_null(json, "record");
        return BD_OK;
    }
    return set_record(json, record, err);
}
