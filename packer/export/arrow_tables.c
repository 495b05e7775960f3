#include "packer/export/arrow_tables.h"

#include <stdbool.h>

#include "common/dataset/arrow_glib.h"

BD_ENUM_NAMES(bd_table_format, BD_TABLE_FORMATS);

struct bd_table_writer {
    size_t n_columns;
    int *item_bytes;  // [n_columns]
    GArrowSchema *schema;
    GArrowFileOutputStream *sink;
    GArrowRecordBatchStreamWriter *stream;  // one of the two
    GParquetArrowFileWriter *parquet;
};

// Nulls are allowed in the type, though there are none: readers that concatenate tables compare
// types, and theirs allow them.
static GArrowDataType *list_type(int item_bytes)
{
    g_autoptr(GArrowDataType) item = item_bytes == 4
                                         ? GARROW_DATA_TYPE(garrow_int32_data_type_new())
                                         : GARROW_DATA_TYPE(garrow_int64_data_type_new());
    g_autoptr(GArrowField) field = garrow_field_new("item", item);
    return GARROW_DATA_TYPE(garrow_list_data_type_new(field));
}

static GArrowSchema *table_schema(const bd_table_column *columns, size_t n_columns)
{
    GList *fields = NULL;
    for (size_t i = 0; i < n_columns; i++) {
        g_autoptr(GArrowDataType) type = list_type(columns[i].item_bytes);
        fields = g_list_append(fields, garrow_field_new(columns[i].name, type));
    }
    GArrowSchema *schema = garrow_schema_new(fields);
    g_list_free_full(fields, g_object_unref);
    return schema;
}

static bool open_writer(bd_table_writer *writer, bd_table_format format, GError **gerror)
{
    GArrowOutputStream *sink = GARROW_OUTPUT_STREAM(writer->sink);
    if (format == BD_TABLE_STREAM) {
        writer->stream = garrow_record_batch_stream_writer_new(sink, writer->schema, gerror);
        return writer->stream;
    }
    g_autoptr(GParquetWriterProperties) properties = gparquet_writer_properties_new();
    gparquet_writer_properties_set_compression(properties, GARROW_COMPRESSION_TYPE_ZSTD, NULL);
    writer->parquet =
        gparquet_arrow_file_writer_new_arrow(writer->schema, sink, properties, gerror);
    return writer->parquet;
}

bd_status bd_table_writer_open(bd_table_writer **out, const char *path, bd_table_format format,
                               const bd_table_column *columns, size_t n_columns, bd_error *err)
{
    GError *gerror = NULL;
    *out = NULL;
    bd_table_writer *writer = g_new0(bd_table_writer, 1);
    writer->n_columns = n_columns;
    writer->item_bytes = g_new(int, n_columns);
    for (size_t i = 0; i < n_columns; i++)
        writer->item_bytes[i] = columns[i].item_bytes;
    writer->schema = table_schema(columns, n_columns);
    writer->sink = garrow_file_output_stream_new(path, FALSE, &gerror);
    if (!writer->sink || !open_writer(writer, format, &gerror)) {
        bd_table_writer_free(writer);
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot write a table");
    }
    *out = writer;
    return BD_OK;
}

// A column over the caller's memory: no copy, so it must not outlive the call.
static GArrowArray *table_array(const bd_table_lists *lists, int item_bytes, int64_t n_rows)
{
    const int64_t n = lists->offsets[n_rows];
    g_autoptr(GArrowBuffer) offsets = garrow_buffer_new(
        (const guint8 *)lists->offsets, (n_rows + 1) * (gint64)sizeof *lists->offsets);
    g_autoptr(GArrowBuffer) items = garrow_buffer_new(lists->items, n * (gint64)item_bytes);
    g_autoptr(GArrowArray) values =
        item_bytes == 4 ? GARROW_ARRAY(garrow_int32_array_new(n, items, NULL, 0))
                        : GARROW_ARRAY(garrow_int64_array_new(n, items, NULL, 0));
    g_autoptr(GArrowDataType) type = list_type(item_bytes);
    return GARROW_ARRAY(garrow_list_array_new(type, n_rows, offsets, values, NULL, 0));
}

static bool write_record_batch(bd_table_writer *writer, GArrowRecordBatch *record,
                               int64_t n_rows, GError **gerror)
{
    if (writer->stream)
        return garrow_record_batch_writer_write_record_batch(
            GARROW_RECORD_BATCH_WRITER(writer->stream), record, gerror);
    g_autoptr(GArrowTable) table =
        garrow_table_new_record_batches(writer->schema, &record, 1, gerror);
    return table && gparquet_arrow_file_writer_write_table(writer->parquet, table,
                                                           (gsize)n_rows, gerror);
}

bd_status bd_table_writer_write(bd_table_writer *writer, const bd_table_lists *lists,
                                int64_t n_rows, bd_error *err)
{
    GError *gerror = NULL;
    GList *arrays = NULL;
    for (size_t i = 0; i < writer->n_columns; i++)
        arrays = g_list_append(arrays, table_array(&lists[i], writer->item_bytes[i], n_rows));
    g_autoptr(GArrowRecordBatch) record =
        garrow_record_batch_new(writer->schema, (guint32)n_rows, arrays, &gerror);
    g_list_free_full(arrays, g_object_unref);
    if (!record || !write_record_batch(writer, record, n_rows, &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot write rows");
    return BD_OK;
}

bd_status bd_table_writer_close(bd_table_writer *writer, bd_error *err)
{
    GError *gerror = NULL;
    const bool closed = writer->stream
                            ? garrow_record_batch_writer_close(
                                  GARROW_RECORD_BATCH_WRITER(writer->stream), &gerror)
                            : gparquet_arrow_file_writer_close(writer->parquet, &gerror);
    if (!closed || !garrow_file_close(GARROW_FILE(writer->sink), &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot finish a table");
    return BD_OK;
}

void bd_table_writer_free(bd_table_writer *writer)
{
    if (!writer)
        return;
    g_clear_object(&writer->stream);
    g_clear_object(&writer->parquet);
    g_clear_object(&writer->sink);
    g_clear_object(&writer->schema);
    g_free(writer->item_bytes);
    g_free(writer);
}
