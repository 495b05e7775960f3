#include "packer/row_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/terminal.h"

static const char *const colors[] = {"\x1b[36m", "\x1b[33m"};
static const char no_color[] = "\x1b[0m";

// The bytes of a segment are gathered before they are printed: a character may be several
// tokens. A token without text is shown by its id.
static bd_status print_tokens(FILE *out, const bd_row *row, int id_bytes, int64_t from,
                              int64_t to, const bd_tokenizer *tokenizer, bd_error *err)
{
    char *gathered = NULL;
    size_t capacity = 0, n = 0;
    bd_status status = BD_OK;
    for (int64_t t = from; status == BD_OK && t < to; t++) {
        size_t token_bytes;
        const uint32_t id = bd_id_at(row->ids, id_bytes, t);
        const char *bytes = tokenizer->kind->token_bytes(tokenizer, id, &token_bytes);
        if (bytes) {
            status = bd_array_reserve((void **)&gathered, &capacity, n + token_bytes, 1, err);
            if (status == BD_OK)
                memcpy(gathered + n, bytes, token_bytes);
            n += token_bytes;
        } else {
            bd_print_safely(out, gathered, n, true);
            fprintf(out, "<%u>", id);
            n = 0;
        }
    }
    if (status == BD_OK)
        bd_print_safely(out, gathered, n, true);
    free(gathered);
    return status;
}

static void print_heading(FILE *out, const bd_row *row, const bd_manifest *manifest, int64_t s)
{
    const int64_t from = row->bounds[s], to = row->bounds[s + 1];
    const int64_t offset = row->segments.offset[s];
    const bd_input_entry *input = &manifest->inputs[row->segments.input[s]];
    fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": ", from, to - 1);
    bd_print_safely(out, input->name, strlen(input->name), false);
    fprintf(out, " %s %" PRIu64, bd_input_entry_position_word(input),
            row->segments.position[s]);
    if (to - from == (int64_t)row->segments.length[s])
        fprintf(out, ", whole document of %" PRId64 "\n", to - from);
    else
        fprintf(out, ", tokens %" PRId64 " to %" PRId64 " of %u%s\n", offset,
                offset + to - from - 1, row->segments.length[s],
                offset > 0 ? ", the first one repeated as context" : "");
}

bd_status bd_row_print(FILE *out, const bd_row *row, const bd_manifest *manifest,
                       const bd_tokenizer *tokenizer, bool color, bd_error *err)
{
    const int id_bytes = bd_packing_id_bytes(&manifest->packing);
    // The rules of a row say nothing of this: only the manifest knows.
    for (int64_t s = 0; s < row->n_segments; s++)
        if (row->segments.input[s] >= manifest->n_inputs)
            return bd_fail(err, BD_ERR_FORMAT,
                           "S2: segment %" PRId64 " is of input %u, the manifest lists %zu", s,
                           row->segments.input[s], manifest->n_inputs);
    for (int64_t s = 0; s < row->n_segments; s++) {
        print_heading(out, row, manifest, s);
        if (color)
            fputs(colors[s % 2], out);
        BD_TRY(print_tokens(out, row, id_bytes, row->bounds[s], row->bounds[s + 1], tokenizer,
                            err));
        fprintf(out, "%s\n", color ? no_color : "");
    }
    const int64_t used = row->bounds[row->n_segments];
    if (used < manifest->packing.seq_len)
        fprintf(out, "--- tokens %" PRId64 " to %" PRId64 ": padding\n", used,
                manifest->packing.seq_len - 1);
    return BD_OK;
}
