// table.h - what the kinds of tables have in common: a row is a document, and slices consist of
// whole row groups or record batches.
#ifndef BINDERY_PACKER_INPUT_TABLE_H
#define BINDERY_PACKER_INPUT_TABLE_H

#include "packer/input/kinds.h"

// As kinds.h says. A table whose rows are not documents is BD_ERR_FORMAT: shards of Bindery and
// packed sequences. A column beside the ids that says which of them are trained becomes
// record->trained; two such columns, and items that say something else, are BD_ERR_FORMAT.
bd_status bd_table_cut(bd_input *input, const bd_input_options *options, bd_error *err);
bd_status bd_table_open(void **source, const bd_input *input, const bd_input_options *options,
                        bd_error *err);
void bd_table_begin(void *source, bd_slice slice);
bd_status bd_table_next(void *source, int64_t end, bd_record *record, bool *found,
                        bd_error *err);
void bd_table_close(void *source);

// The members that all kinds of tables have.
#define BD_TABLE_KIND                                                                 \
    .place = "row", .is_table = true, .open = bd_table_open, .begin = bd_table_begin, \
    .next = bd_table_next, .close = bd_table_close

#endif
