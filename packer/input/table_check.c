#include "packer/input/table_check.h"

// The first of the names, which NULL ends, that is a column beside the ids; NULL if none is.
static const char *first_beside(const bd_columns *columns, const char *const *names)
{
    while (*names && !bd_columns_has_beside(columns, *names))
        names++;
    return *names;
}

bd_status bd_table_check(const bd_columns *columns, bd_error *err)
{
    static const char *const boundaries[] = {"seq_lengths", "position_ids", "cu_seqlens", NULL};
    static const char *const masks[] = {"labels", "loss_mask", "completion_mask",
                                        "assistant_masks", NULL};
    if (bd_columns_has_metadata(columns, "bindery"))
        return bd_fail(err, BD_ERR_FORMAT,
                       "it is a shard of a Bindery dataset: bindery repack packs those anew");
    if (bd_columns_id_bytes(columns) == 0)
        return BD_OK;
    const char *const name = bd_columns_name(columns);
    const char *beside = first_beside(columns, boundaries);
    if (beside)
        return bd_fail(
            err, BD_ERR_FORMAT,
            "its rows are packed sequences, not documents: column '%s' is beside '%s'; "
            "give the documents, or the dataset to bindery repack if it was exported "
            "from one (drop that column if every row is one document)",
            beside, name);
    beside = first_beside(columns, masks);
    if (beside)
        return bd_fail(
            err, BD_ERR_FORMAT,
            "column '%s' beside '%s' says which tokens are to be learned, and training "
            "would ignore it: drop that column if all of them are",
            beside, name);
    return BD_OK;
}
