#include "packer/row_text.h"

#include <inttypes.h>
#include <string.h>

#include "common/utf8.h"

static const char *const colors[] = {"\x1b[36m", "\x1b[33m"};
static const char no_color[] = "\x1b[0m";

// Prints `n` bytes of text as they are meant, except what a terminal should not be given.
static void print_safely(FILE *out, const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        const size_t valid = bd_utf8_valid_prefix(text + at, n - at);
        for (size_t end = at + valid; at < end; at++) {
            const unsigned char c = (unsigned char)text[at];
            const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F ||
                                 (c == 0xC2 && (unsigned char)text[at + 1] < 0xA0);
            if (control)
                fprintf(out, "\\x%02x", c);
            else
                fputc(c, out);
        }
        if (at < n)
            fprintf(out, "\\x%02x", (unsigned char)text[at++]);
    }
}

// The bytes of a segment are gathered before they are printed: a character may be several
// tokens.
static void print_tokens(FILE *out, const bd_row *row, int id_bytes, int64_t from, int64_t to,
                         const bd_tokenizer *tokenizer)
{
    char gathered[4096];
    size_t n = 0;
    for (int64_t t = from; t < to; t++) {
        size_t token_bytes;
        const uint32_t id = bd_id_at(row->ids, id_bytes, t);
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, id, &token_bytes);
        if (!bytes || n + token_bytes > sizeof gathered) {
            print_safely(out, gathered, n);
            n = 0;
        }
        if (!bytes)
            fprintf(out, "<%u>", id);
        else if (token_bytes > sizeof gathered)
            print_safely(out, bytes, token_bytes);
        else {
            memcpy(gathered + n, bytes, token_bytes);
            n += token_bytes;
        }
    }
    print_safely(out, gathered, n);
}

static void print_heading(FILE *out, const bd_row *row, const bd_manifest *manifest, int64_t s)
{
    const int64_t from = row->bounds[s], to = row->bounds[s + 1];
    const int64_t offset = row->segments.offset[s];
    fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": ", from, to - 1);
    print_safely(out, manifest->inputs[row->segments.input[s]].name,
                 strlen(manifest->inputs[row->segments.input[s]].name));
    fprintf(out, " byte %" PRIu64, row->segments.position[s]);
    if (to - from == (int64_t)row->segments.length[s])
        fprintf(out, ", whole document of %" PRId64 "\n", to - from);
    else
        fprintf(out, ", tokens %" PRId64 " to %" PRId64 " of %u%s\n", offset,
                offset + to - from - 1, row->segments.length[s],
                offset > 0 ? ", the first one repeated as context" : "");
}

void bd_row_print(FILE *out, const bd_row *row, const bd_manifest *manifest,
                  const bd_tokenizer *tokenizer, bool color)
{
    const int id_bytes = bd_packing_id_bytes(&manifest->packing);
    for (int64_t s = 0; s < row->n_segments; s++) {
        print_heading(out, row, manifest, s);
        if (color)
            fputs(colors[s % 2], out);
        print_tokens(out, row, id_bytes, row->bounds[s], row->bounds[s + 1], tokenizer);
        fprintf(out, "%s\n", color ? no_color : "");
    }
    const int64_t used = row->bounds[row->n_segments];
    if (used < manifest->packing.seq_len)
        fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": padding\n", used,
                manifest->packing.seq_len - 1);
}
