// recognise.h - what a file is, told by its first 4 KiB (decompressed) and its name.
//
// Content decides: tables and files of tokens by their marks, JSONL by a first line that is a
// JSON object, text by being UTF-8 without NULs. Names are believed where content leaves a
// choice: .txt and .jsonl (and their like) for what is text or JSONL, .csv and .tsv, .json for
// JSON that is not JSONL. What is none of these is told apart as well (bd_pass_reason), so that
// messages can say what it is and what to do about it.
#ifndef BINDERY_PACKER_INPUT_RECOGNISE_H
#define BINDERY_PACKER_INPUT_RECOGNISE_H

#include "common/base/error.h"
#include "packer/input/input_options.h"
#include "packer/input/inputs.h"

// Fills in format and compression of *input, or `passed` with the reason why it cannot be read.
// `options` is the input's own. Opens the file and reads its beginning once, unless it may be a
// file of tokens. Standard input is not touched: only the options tell what it is.
bd_status bd_input_recognise(bd_input *input, const bd_input_options *options, bd_error *err);

// BD_ERR_ARGUMENT, with what the file is and what can be done.
bd_status bd_input_refuse(const bd_input *input, bd_error *err);

#endif
