// row_text.h - a row for people: its documents as text, with boundaries and origins.
#ifndef BINDERY_PACKER_ROW_TEXT_H
#define BINDERY_PACKER_ROW_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "common/manifest.h"
#include "common/row.h"
#include "common/tokenizer/tokenizer.h"

// Prints each segment of `row` with a heading and its text, neighbours in different colours if
// `color`. What could play tricks on the terminal is shown as \xNN. The row must have been
// checked by bd_row_check(); one that names an input that the manifest does not list is
// BD_ERR_FORMAT. Memory: the text of one segment.
bd_status bd_row_print(FILE *out, const bd_row *row, const bd_manifest *manifest,
                       const bd_tokenizer *tokenizer, bool color, bd_error *err);

#endif
