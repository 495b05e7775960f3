#include "packer/export/export_columns.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

BD_ENUM_NAMES(bd_export_column, BD_EXPORT_COLUMNS);

// ---- Which columns ------------------------------------------------------------------------

static bd_status fail_unknown_column(const char *name, int length, bd_error *err)
{
    char known[128] = "";
    for (int i = 0; bd_export_column_names[i]; i++) {
        if (i > 0)
            strcat(known, ", ");
        strcat(known, bd_export_column_names[i]);
    }
    return bd_fail(err, BD_ERR_ARGUMENT, "--columns: '%.*s' is not one of %s", length, name,
                   known);
}

static bd_status add_column(bd_export_columns *columns, const char *name, size_t length,
                            bd_error *err)
{
    int column = 0;
    while (column < BD_EXPORT_N_COLUMNS &&
           (strlen(bd_export_column_names[column]) != length ||
            memcmp(bd_export_column_names[column], name, length) != 0))
        column++;
    if (column == BD_EXPORT_N_COLUMNS)
        return fail_unknown_column(name, (int)length, err);
    for (size_t i = 0; i < columns->n; i++)
        if (columns->items[i] == (bd_export_column)column)
            return bd_fail(err, BD_ERR_ARGUMENT, "--columns: '%s' is there twice",
                           bd_export_column_names[column]);
    columns->items[columns->n++] = (bd_export_column)column;
    return BD_OK;
}

bd_status bd_export_columns_parse(bd_export_columns *columns, const char *list, bd_error *err)
{
    *columns = (bd_export_columns){.n = 0};
    for (;;) {
        const size_t length = strcspn(list, ",");
        BD_TRY(add_column(columns, list, length, err));
        if (list[length] == '\0')
            return BD_OK;
        list += length + 1;
    }
}

bd_table_column bd_export_table_column(bd_export_column column, const bd_dataset_config *config)
{
    const bool holds_ids = column == BD_EXPORT_INPUT_IDS || column == BD_EXPORT_LABELS;
    const bool wide = holds_ids && config->vocab_size - 1 > INT32_MAX;
    return (bd_table_column){bd_export_column_names[column], wide ? 8 : 4};
}

// ---- A row ----------------------------------------------------------------------------------

// Where the items of one row go.
typedef struct sink {
    void *items;
    int item_bytes;
    int64_t at;
} sink;

static void put(sink *out, int64_t value)
{
    if (out->item_bytes == 4)
        ((int32_t *)out->items)[out->at++] = (int32_t)value;
    else
        ((int64_t *)out->items)[out->at++] = value;
}

static int64_t used_tokens(const bd_row *row)
{
    return row->bounds[row->n_bounds - 1];
}

static void put_ids(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    const int id_bytes = bd_dataset_id_bytes(config);
    for (int64_t t = 0; t < config->seq_len; t++)
        put(out, bd_id_at(row->ids, id_bytes, t));
}

static void put_positions(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    for (int64_t s = 0; s + 1 < row->n_bounds; s++)
        for (int64_t t = row->bounds[s]; t < row->bounds[s + 1]; t++)
            put(out, t - row->bounds[s]);
    for (int64_t t = used_tokens(row); t < config->seq_len; t++)
        put(out, t - used_tokens(row));
}

static void put_labels(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    const int id_bytes = bd_dataset_id_bytes(config);
    for (int64_t s = 0; s + 1 < row->n_bounds; s++)
        for (int64_t t = row->bounds[s]; t < row->bounds[s + 1]; t++)
            put(out, bd_row_is_target(row, s, t) ? (int64_t)bd_id_at(row->ids, id_bytes, t)
                                                 : BD_EXPORT_NO_TARGET);
    for (int64_t t = used_tokens(row); t < config->seq_len; t++)
        put(out, BD_EXPORT_NO_TARGET);
}

static void put_targets(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    for (int64_t s = 0; s + 1 < row->n_bounds; s++)
        for (int64_t t = row->bounds[s]; t < row->bounds[s + 1]; t++)
            put(out, bd_row_is_target(row, s, t));
    for (int64_t t = used_tokens(row); t < config->seq_len; t++)
        put(out, 0);
}

static void put_lengths(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    for (int64_t s = 0; s + 1 < row->n_bounds; s++)
        put(out, row->bounds[s + 1] - row->bounds[s]);
    if (used_tokens(row) < config->seq_len)
        put(out, config->seq_len - used_tokens(row));
}

static void put_bounds(sink *out, const bd_row *row, const bd_dataset_config *config)
{
    (void)config;
    for (int64_t s = 0; s < row->n_bounds; s++)
        put(out, row->bounds[s]);
}

bd_status bd_export_batch_add(bd_export_batch *batch, const bd_export_columns *columns,
                              const bd_dataset_config *config, const bd_row *row, bd_error *err)
{
    static void (*const fill[])(sink *, const bd_row *, const bd_dataset_config *) = {
        [BD_EXPORT_INPUT_IDS] = put_ids,          [BD_EXPORT_POSITION_IDS] = put_positions,
        [BD_EXPORT_LABELS] = put_labels,          [BD_EXPORT_SEQ_LENGTHS] = put_lengths,
        [BD_EXPORT_CU_SEQLENS] = put_bounds,      [BD_EXPORT_LOSS_MASK] = put_targets,
        [BD_EXPORT_COMPLETION_MASK] = put_targets};
    // A segment has a token at least, so that there are never more boundaries than this.
    const size_t most_items = (size_t)config->seq_len + 1;
    const size_t n_rows = (size_t)batch->n_rows;
    for (size_t i = 0; i < columns->n; i++) {
        const int item_bytes = bd_export_table_column(columns->items[i], config).item_bytes;
        int32_t **offsets = &batch->columns[i].offsets;
        void **items = &batch->columns[i].items;
        BD_TRY(bd_array_reserve((void **)offsets, &batch->columns[i].offsets_capacity,
                                n_rows + 2, sizeof **offsets, err));
        if (n_rows == 0)
            (*offsets)[0] = 0;
        sink out = {.item_bytes = item_bytes, .at = (*offsets)[n_rows]};
        BD_TRY(bd_array_reserve(items, &batch->columns[i].items_capacity,
                                (size_t)out.at + most_items, (size_t)item_bytes, err));
        out.items = *items;
        fill[columns->items[i]](&out, row, config);
        (*offsets)[n_rows + 1] = (int32_t)out.at;
    }
    batch->n_rows++;
    return BD_OK;
}

void bd_export_batch_clear(bd_export_batch *batch)
{
    batch->n_rows = 0;
}

void bd_export_batch_release(bd_export_batch *batch)
{
    for (int i = 0; i < BD_EXPORT_N_COLUMNS; i++) {
        free(batch->columns[i].offsets);
        free(batch->columns[i].items);
    }
    *batch = (bd_export_batch){0};
}
