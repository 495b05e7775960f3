#include "packer/inspect/row_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/utf8.h"
#include "common/cli/dimming.h"
#include "common/cli/terminal.h"
#include "packer/input/input_options.h"
#include "packer/pack/ledger_report.h"

static const char *const colors[] = {"\x1b[36m", "\x1b[33m", "\x1b[32m",
                                     "\x1b[35m", "\x1b[34m", "\x1b[31m"};
enum { N_COLORS = sizeof colors / sizeof colors[0] };
static const char no_color[] = "\x1b[0m";

typedef struct gathered_text {
    char *bytes;  // owned
    size_t capacity, n;
} gathered_text;

// Prints the first `n` bytes of what was gathered and forgets them.
static void flush_some(FILE *out, gathered_text *text, size_t n)
{
    bd_print_safely(out, text->bytes, n, true);
    if (n < text->n)
        memmove(text->bytes, text->bytes + n, text->n - n);
    text->n -= n;
}

static void flush_text(FILE *out, gathered_text *text)
{
    flush_some(out, text, text->n);
}

// The length of the bytes without an incomplete character at their end.
static size_t whole_characters(const gathered_text *text)
{
    enum { MOST_LACKING = 3 };
    for (size_t n = 1; n <= MOST_LACKING && n <= text->n; n++) {
        const unsigned char byte = (unsigned char)text->bytes[text->n - n];
        if (byte >= 0xC0)
            return n < (byte < 0xE0 ? 2u : byte < 0xF0 ? 3u : 4u) ? text->n - n : text->n;
        if (byte < 0x80)
            break;
    }
    return text->n;
}

// The bytes of a segment are gathered before they are printed: a character may be several
// tokens. A token without text is shown by its id.
static bd_status gather_token(FILE *out, gathered_text *text, const bd_tokenizer *tokenizer,
                              uint32_t id, bd_error *err)
{
    size_t n = 0;
    const char *bytes = tokenizer ? tokenizer->kind->token_bytes(tokenizer, id, &n) : NULL;
    if (!bytes) {
        flush_text(out, text);
        fprintf(out, "<%u>", id);
        return BD_OK;
    }
    BD_TRY(bd_array_reserve((void **)&text->bytes, &text->capacity, text->n + n, 1, err));
    memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    return BD_OK;
}

static bool continues_character(const bd_tokenizer *tokenizer, uint32_t id)
{
    size_t n = 0;
    const char *bytes = tokenizer ? tokenizer->kind->token_bytes(tokenizer, id, &n) : NULL;
    return bytes && n > 0 && ((unsigned char)bytes[0] & 0xC0) == 0x80;
}

enum { GATHERED_BYTES = 1 << 20 };  // then they are printed: tokens may be long, and segments

// Whether `n` bytes are as many as were asked for, and end with a character.
static bool is_enough(const gathered_text *text, size_t n, size_t most_bytes)
{
    enum { MOST_IN_CHARACTER = 4 };
    return most_bytes > 0 && n >= most_bytes &&
           (n >= most_bytes + MOST_IN_CHARACTER ||
            bd_utf8_valid_prefix(text->bytes, text->n) == text->n);
}

static bd_status print_tokens(FILE *out, const bd_row *row, int id_bytes, int64_t s,
                              const bd_tokenizer *tokenizer, bd_row_style style, bd_error *err)
{
    const int64_t from = row->bounds[s], to = row->bounds[s + 1];
    const size_t most_bytes = style.most_bytes;
    bd_dimming dimming = bd_dimming_start(style.color);
    gathered_text text = {0};
    bd_status status = BD_OK;
    int64_t t = from;
    // An id that is shown counts as one byte: it is the length of the text that matters.
    for (size_t n = 0; status == BD_OK && t < to && !is_enough(&text, n, most_bytes); t++) {
        const uint32_t id = bd_id_at(row->ids, id_bytes, t);
        const bool trained = bd_row_is_target(row, s, t);
        if (row->loss_mask && trained != dimming.bright) {
            flush_some(out, &text, whole_characters(&text));
            // A character of several tokens is shown as the first of them is.
            if (text.n == 0 || !continues_character(tokenizer, id)) {
                flush_text(out, &text);
                bd_dimming_set(out, &dimming, trained);
            }
        }
        const size_t before = text.n;
        status = gather_token(out, &text, tokenizer, id, err);
        n += text.n > before ? text.n - before : 1;
        if (text.n > GATHERED_BYTES && most_bytes == 0)
            flush_some(out, &text, whole_characters(&text));
    }
    flush_text(out, &text);
    bd_dimming_end(out, &dimming);
    if (status == BD_OK && t < to)
        fprintf(out, " [%" PRId64 " more token%s]", to - t, to - t == 1 ? "" : "s");
    free(text.bytes);
    return status;
}

// Prints where segment `s` came from, in a line that has `n_others` other columns.
static void print_origin(FILE *out, const bd_manifest *manifest, const bd_row *row, int64_t s,
                         int n_others)
{
    const uint32_t index = row->segments.input[s];
    const uint64_t position = row->segments.position[s];
    if (manifest->n_inputs == 0) {
        fprintf(out, "input %u position %" PRIu64, index, position);
        return;
    }
    const bd_input_entry *input = &manifest->inputs[index];
    char place[48];
    const int n = snprintf(place, sizeof place, " %s %" PRIu64, bd_position_unit(input->format),
                           position);
    bd_print_name(out, input->name, bd_report_room(n + n_others));
    fputs(place, out);
}

static void print_heading(FILE *out, const bd_row *row, const bd_manifest *manifest, int64_t s)
{
    const int64_t from = row->bounds[s], to = row->bounds[s + 1], n = to - from;
    const int64_t offset = row->segments.offset[s], n_targets = bd_row_targets(row, s);
    char part[80];
    if (n == (int64_t)row->segments.length[s])
        snprintf(part, sizeof part, ", whole document of %" PRId64, n);
    else
        snprintf(part, sizeof part, ", tokens %" PRId64 " to %" PRId64 " of %u", offset,
                 offset + n - 1, row->segments.length[s]);
    const int before = fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": ", from, to - 1);
    print_origin(out, manifest, row, s, before + (int)strlen(part));
    fprintf(out, "%s\n", part);
    if (offset > 0)
        fprintf(out, "    token %" PRId64 " is repeated as context\n", from);
    fprintf(out, "    positions 0 to %" PRId64 ", %" PRId64 " target%s", n - 1, n_targets,
            n_targets == 1 ? "" : "s");
    if (row->loss_mask)
        fprintf(out, ", %" PRId64 " masked\n", n - 1 - n_targets);
    else
        fprintf(out, ": none for token %" PRId64 "\n", to - 1);
}

bd_status bd_row_check_inputs(const bd_row *row, const bd_manifest *manifest, bd_error *err)
{
    for (int64_t s = 0; s < row->n_segments; s++)
        if (manifest->n_inputs > 0 && row->segments.input[s] >= manifest->n_inputs)
            return bd_fail(err, BD_ERR_FORMAT,
                           "S2: segment %" PRId64 " is of input %u, the manifest lists %zu", s,
                           row->segments.input[s], manifest->n_inputs);
    return BD_OK;
}

bd_status bd_row_print(FILE *out, const bd_row *row, const bd_manifest *manifest,
                       const bd_tokenizer *tokenizer, bd_row_style style, bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(&manifest->config);
    BD_TRY(bd_row_check_inputs(row, manifest, err));
    if (row->loss_mask)
        fprintf(out, "%s\n",
                style.color ? "Dimmed text is masked: it is not trained"
                            : "{+Text in such marks+} is trained, the rest is masked");
    for (int64_t s = 0; s < row->n_segments; s++) {
        print_heading(out, row, manifest, s);
        if (style.color)
            fputs(colors[s % N_COLORS], out);
        BD_TRY(print_tokens(out, row, id_bytes, s, tokenizer, style, err));
        fprintf(out, "%s\n", style.color ? no_color : "");
    }
    const int64_t used = row->bounds[row->n_segments];
    if (used < manifest->config.seq_len)
        fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": padding\n", used,
                manifest->config.seq_len - 1);
    return BD_OK;
}
