// Parquet.
#include "packer/input/table.h"

static bd_status recognise_parquet(bd_input *input, const bd_input_head *head,
                                   const bd_input_options *options, bool *yes, bd_error *err)
{
    (void)input;
    (void)options;
    (void)err;
    // PARE: an encrypted file, of which its reader says so; but text may begin like this.
    *yes = bd_head_begins_with(head, "PAR1", 4) ||
           (!head->is_clean && bd_head_begins_with(head, "PARE", 4));
    return BD_OK;
}

static const char *const parquet_endings[] = {".parquet", NULL};

const bd_input_kind bd_parquet_kind = {
    .name = bd_parquet_name,
    .endings = parquet_endings,
    .columns = BD_COLUMNS_PARQUET,
    .recognise = recognise_parquet,
    .cut = bd_table_cut,
    BD_TABLE_KIND,
};
