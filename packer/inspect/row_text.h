// row_text.h - a row for people: its documents as text, with boundaries, origins, positions and
// targets.
#ifndef BINDERY_PACKER_INSPECT_ROW_TEXT_H
#define BINDERY_PACKER_INSPECT_ROW_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "common/dataset/manifest.h"
#include "common/dataset/row.h"
#include "common/tokenizer/tokenizer.h"

typedef struct bd_row_style {
    bool color;         // neighbours in different colours
    size_t most_bytes;  // of the text of a segment, the rest is left out; 0: all of it
} bd_row_style;

// BD_ERR_FORMAT if a segment is of an input that the manifest does not list; the rules of a row
// say nothing of this. A manifest without inputs, as that of a shard alone, knows of none.
bd_status bd_row_check_inputs(const bd_row *row, const bd_manifest *manifest, bd_error *err);

// Prints each segment of `row` with a heading and its text. In a row with a loss mask, text that
// is not trained is dimmed (common/cli/dimming.h). Characters that could control the
// terminal are shown as \xNN; without a tokenizer (NULL) the ids are shown. The row must have been
// checked by bd_row_check(); bd_row_check_inputs() is called. Memory: 4 MB, or four times
// `most_bytes`.
bd_status bd_row_print(FILE *out, const bd_row *row, const bd_manifest *manifest,
                       const bd_tokenizer *tokenizer, bd_row_style style, bd_error *err);

#endif
