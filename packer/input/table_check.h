// table_check.h - whether the rows of a table are documents that training may take as they are.
#ifndef BINDERY_PACKER_INPUT_TABLE_CHECK_H
#define BINDERY_PACKER_INPUT_TABLE_CHECK_H

#include "common/base/error.h"
#include "packer/input/arrow_columns.h"

// BD_ERR_FORMAT with the remedy for Bindery's own shards, for rows of packed sequences
// (seq_lengths, position_ids or cu_seqlens beside the ids), and for ids with a column beside
// them that says which tokens are to be learned (labels, loss_mask, completion_mask,
// assistant_masks): packing would lose it without a word.
bd_status bd_table_check(const bd_columns *columns, bd_error *err);

#endif
