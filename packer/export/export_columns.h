// export_columns.h - rows in the columns that other people's trainers know.
//
//   boundaries     0         5   6           and padding from 8 on, seq_len 10
//   input_ids      a a a a a | b | c c | p p
//   position_ids   0 1 2 3 4   0   0 1   0 1   padding counts as a sequence of its own
//   labels         . a a a a   .   . c   . .   the id where the token is a target, else -100
//   loss_mask      0 1 1 1 1   0   0 1   0 0   1 where the token is a target, else 0
//   completion_mask                            the same, under the name that TRL knows
//   seq_lengths    5           1   2     2     add up to seq_len
//   cu_seqlens     0           5   6     8     as stored
//
// Labels are not shifted: models of Hugging Face do that themselves. A token is a target if the
// token before it is of the same segment, so that the first token of a segment never is, be it
// a document's first or a piece's repeated context; and if the dataset's loss mask, where it has
// one, says that it is trained.
#ifndef BINDERY_PACKER_EXPORT_EXPORT_COLUMNS_H
#define BINDERY_PACKER_EXPORT_EXPORT_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/dataset/config.h"
#include "common/dataset/row.h"
#include "packer/export/arrow_tables.h"

#define BD_EXPORT_COLUMNS(X)                  \
    X(BD_EXPORT_INPUT_IDS, "input_ids")       \
    X(BD_EXPORT_POSITION_IDS, "position_ids") \
    X(BD_EXPORT_LABELS, "labels")             \
    X(BD_EXPORT_SEQ_LENGTHS, "seq_lengths")   \
    X(BD_EXPORT_CU_SEQLENS, "cu_seqlens")     \
    X(BD_EXPORT_LOSS_MASK, "loss_mask")       \
    X(BD_EXPORT_COMPLETION_MASK, "completion_mask")
BD_ENUM(bd_export_column, BD_EXPORT_COLUMNS);

enum {
    BD_EXPORT_N_COLUMNS = BD_ENUM_COUNT(BD_EXPORT_COLUMNS),
    BD_EXPORT_NO_TARGET = -100,  // what PyTorch's cross entropy ignores
};

// Which columns, in which order; none twice.
typedef struct bd_export_columns {
    bd_export_column items[BD_EXPORT_N_COLUMNS];
    size_t n;
} bd_export_columns;

// Reads "input_ids,labels". A name that is unknown, empty or there twice is BD_ERR_ARGUMENT.
bd_status bd_export_columns_parse(bd_export_columns *columns, const char *list, bd_error *err);

// Ids are int32, or int64 where the vocabulary is too large for that; all else is int32.
bd_table_column bd_export_table_column(bd_export_column column,
                                       const bd_dataset_config *config);

// One batch under construction.
typedef struct bd_export_batch {
    struct {
        int32_t *offsets;  // [n_rows + 1], owned
        void *items;       // owned
        size_t offsets_capacity, items_capacity;
    } columns[BD_EXPORT_N_COLUMNS];  // by place in the bd_export_columns
    int64_t n_rows;
} bd_export_batch;

// Appends a row that has passed bd_row_check(). A batch must stay below 2^31 tokens.
bd_status bd_export_batch_add(bd_export_batch *batch, const bd_export_columns *columns,
                              const bd_dataset_config *config, const bd_row *row,
                              bd_error *err);
void bd_export_batch_clear(bd_export_batch *batch);    // no rows, but with its memory
void bd_export_batch_release(bd_export_batch *batch);  // safe twice

#endif
