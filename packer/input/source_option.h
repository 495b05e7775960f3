// source_option.h - what --source is given: NAME=INPUT, and perhaps options of that input:
//
//   web=crawl/,text-field=content,format=jsonl
//   fortunes=fortunes.txt,delimiter=%
//
// Options are taken off from the right, as long as what follows the last comma is the name of
// an option and an equals sign: any other comma, and any other equals sign, is part of the
// input's name or of the value.
#ifndef BINDERY_PACKER_INPUT_SOURCE_OPTION_H
#define BINDERY_PACKER_INPUT_SOURCE_OPTION_H

#include "common/base/error.h"
#include "packer/input/input_options.h"

typedef struct bd_source_option {
    char *name;          // owned
    char *input;         // owned; what is to be read
    bd_own_options own;  // owned
} bd_source_option;

// BD_ERR_ARGUMENT if the text is not understood. Release the option also after a failure.
bd_status bd_source_option_parse(bd_source_option *option, const char *text, bd_error *err);

void bd_source_option_release(bd_source_option *option);  // safe on an empty struct, safe twice

#endif
