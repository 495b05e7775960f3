#include "common/dataset/arrow_io.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/dataset/arrow_glib.h"

static const char metadata_key[] = "bindery";

// The children of `documents`, in order.
static const char *const segment_fields[] = {"input", "position", "offset", "length"};
enum { N_SEGMENT_FIELDS = 4 };

// ---- The schema -------------------------------------------------------------------

static GArrowField *token_field(const bd_dataset_config *config, int column)
{
    const int bits = bd_token_bits(config, column);
    g_autoptr(GArrowDataType) value =
        bits == 1    ? GARROW_DATA_TYPE(garrow_boolean_data_type_new())
        : bits == 16 ? GARROW_DATA_TYPE(garrow_uint16_data_type_new())
                     : GARROW_DATA_TYPE(garrow_uint32_data_type_new());
    g_autoptr(GArrowField) item = garrow_field_new_full("item", value, FALSE);
    g_autoptr(GArrowDataType) row = GARROW_DATA_TYPE(
        garrow_fixed_size_list_data_type_new_field(item, (gint32)config->seq_len));
    return garrow_field_new_full(bd_token_columns[column].name, row, FALSE);
}

static GArrowDataType *segment_type(void)
{
    GList *fields = NULL;
    for (int i = 0; i < N_SEGMENT_FIELDS; i++) {
        const bool wide = strcmp(segment_fields[i], "position") == 0;
        g_autoptr(GArrowDataType) type = wide ? GARROW_DATA_TYPE(garrow_uint64_data_type_new())
                                              : GARROW_DATA_TYPE(garrow_uint32_data_type_new());
        fields = g_list_append(fields, garrow_field_new_full(segment_fields[i], type, FALSE));
    }
    GArrowStructDataType *type = garrow_struct_data_type_new(fields);
    g_list_free_full(fields, g_object_unref);
    return GARROW_DATA_TYPE(type);
}

static GArrowField *list_field(const char *name, GArrowDataType *item)
{
    g_autoptr(GArrowField) field = garrow_field_new_full("item", item, FALSE);
    g_autoptr(GArrowDataType) type = GARROW_DATA_TYPE(garrow_list_data_type_new(field));
    return garrow_field_new_full(name, type, FALSE);
}

// Writing and loading follow this order of columns, too.
static GArrowSchema *shard_schema(const bd_dataset_config *config)
{
    g_autoptr(GArrowDataType) bound = GARROW_DATA_TYPE(garrow_int32_data_type_new());
    g_autoptr(GArrowDataType) segment = segment_type();
    g_autoptr(GArrowDataType) checksum = GARROW_DATA_TYPE(garrow_uint64_data_type_new());
    GList *fields = NULL;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        if (bd_token_bits(config, c) == 0)
            continue;  // the dataset does not have it
        fields = g_list_append(fields, token_field(config, c));
        if (c == BD_COLUMN_ids) {
            fields = g_list_append(fields, list_field("cu_seqlens", bound));
            fields = g_list_append(fields, list_field("documents", segment));
        }
    }
    fields = g_list_append(fields, garrow_field_new_full("checksum", checksum, FALSE));
    GArrowSchema *schema = garrow_schema_new(fields);
    g_list_free_full(fields, g_object_unref);
    return schema;
}

// ---- Writing ----------------------------------------------------------------------

struct bd_arrow_writer {
    bd_dataset_config config;
    GArrowSchema *schema;
    GArrowResizableBuffer *memory;  // NULL: it writes a file
    GArrowOutputStream *sink;
    GArrowRecordBatchFileWriter *writer;
};

// NULL with an error if this Arrow was built without zstd.
static GArrowWriteOptions *write_options(bool compressed, GError **gerror)
{
    g_autoptr(GArrowWriteOptions) options = garrow_write_options_new();
    g_object_set(options, "use-threads", FALSE, NULL);  // units are written side by side
    if (compressed) {
        g_autoptr(GArrowCodec) codec = garrow_codec_new(GARROW_COMPRESSION_TYPE_ZSTD, gerror);
        if (!codec)
            return NULL;
        g_object_set(options, "codec", codec, NULL);
    }
    return g_steal_pointer(&options);
}

// Takes ownership of the writer. Its sink is NULL if opening it failed with `gerror`.
static bd_status begin_writing(bd_arrow_writer **out, bd_arrow_writer *writer, GError *gerror,
                               const bd_dataset_config *config, const char *metadata,
                               bool compressed, bd_error *err)
{
    *out = NULL;
    writer->config = *config;
    g_autoptr(GArrowSchema) plain = shard_schema(config);
    // One key alone: the order of several would depend on the hash table.
    g_autoptr(GHashTable) pairs = g_hash_table_new(g_str_hash, g_str_equal);
    g_hash_table_insert(pairs, (gpointer)metadata_key, (gpointer)metadata);
    writer->schema = garrow_schema_with_metadata(plain, pairs);
    g_autoptr(GArrowWriteOptions) options = NULL;
    if (writer->sink)
        options = write_options(compressed, &gerror);
    if (options)
        writer->writer = garrow_record_batch_file_writer_new_full(writer->sink, writer->schema,
                                                                  options, NULL, &gerror);
    if (!writer->writer) {
        bd_arrow_writer_free(writer);
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot write an Arrow file");
    }
    *out = writer;
    return BD_OK;
}

bd_status bd_arrow_writer_open(bd_arrow_writer **out, const char *path,
                               const bd_dataset_config *config, const char *metadata,
                               bool compressed, bd_error *err)
{
    GError *gerror = NULL;
    bd_arrow_writer *writer = g_new0(bd_arrow_writer, 1);
    GArrowFileOutputStream *file = garrow_file_output_stream_new(path, FALSE, &gerror);
    if (file)
        writer->sink = GARROW_OUTPUT_STREAM(file);
    return begin_writing(out, writer, gerror, config, metadata, compressed, err);
}

bd_status bd_arrow_writer_open_memory(bd_arrow_writer **out, size_t expected_bytes,
                                      const bd_dataset_config *config, const char *metadata,
                                      bool compressed, bd_error *err)
{
    GError *gerror = NULL;
    bd_arrow_writer *writer = g_new0(bd_arrow_writer, 1);
    writer->memory = garrow_resizable_buffer_new((gint64)expected_bytes, &gerror);
    if (writer->memory)
        writer->sink = GARROW_OUTPUT_STREAM(garrow_buffer_output_stream_new(writer->memory));
    return begin_writing(out, writer, gerror, config, metadata, compressed, err);
}

bool bd_arrow_writer_equals(const bd_arrow_writer *writer, const void *data, size_t size_bytes)
{
    g_autoptr(GBytes) written = garrow_buffer_get_data(GARROW_BUFFER(writer->memory));
    gsize n;
    const void *bytes = g_bytes_get_data(written, &n);
    return n == size_bytes && memcmp(bytes, data, n) == 0;
}

// An Arrow buffer over the caller's memory: no copy, so it must not outlive the call.
static GArrowBuffer *borrow(const void *data, size_t size_bytes)
{
    return garrow_buffer_new((const guint8 *)data, (gint64)size_bytes);
}

static GArrowArray *uint32_array(const uint32_t *values, int64_t n)
{
    g_autoptr(GArrowBuffer) buffer = borrow(values, (size_t)n * sizeof *values);
    return GARROW_ARRAY(garrow_uint32_array_new(n, buffer, NULL, 0));
}

static GArrowArray *uint64_array(const uint64_t *values, int64_t n)
{
    g_autoptr(GArrowBuffer) buffer = borrow(values, (size_t)n * sizeof *values);
    return GARROW_ARRAY(garrow_uint64_array_new(n, buffer, NULL, 0));
}

// A new reference: the field that owns the type goes away here.
static GArrowDataType *column_type(const bd_arrow_writer *writer, guint column)
{
    g_autoptr(GArrowField) field = garrow_schema_get_field(writer->schema, column);
    return g_object_ref(garrow_field_get_data_type(field));
}

static GArrowArray *token_array(const bd_arrow_writer *writer, guint column,
                                const bd_row_batch *batch, int c)
{
    const int bits = bd_token_bits(&writer->config, c);
    const int64_t n = batch->n_rows * writer->config.seq_len;
    g_autoptr(GArrowBuffer) buffer = borrow(batch->columns[c], bd_column_bytes(n, bits));
    g_autoptr(GArrowArray) values =
        bits == 1    ? GARROW_ARRAY(garrow_boolean_array_new(n, buffer, NULL, 0))
        : bits == 16 ? GARROW_ARRAY(garrow_uint16_array_new(n, buffer, NULL, 0))
                     : GARROW_ARRAY(garrow_uint32_array_new(n, buffer, NULL, 0));
    g_autoptr(GArrowDataType) type = column_type(writer, column);
    return GARROW_ARRAY(garrow_fixed_size_list_array_new(type, batch->n_rows, values, NULL, 0));
}

static GArrowArray *list_array(const bd_arrow_writer *writer, guint column, int64_t n_rows,
                               const int32_t *offsets, GArrowArray *values)
{
    g_autoptr(GArrowBuffer) buffer = borrow(offsets, ((size_t)n_rows + 1) * sizeof *offsets);
    g_autoptr(GArrowDataType) type = column_type(writer, column);
    return GARROW_ARRAY(garrow_list_array_new(type, n_rows, buffer, values, NULL, 0));
}

static GArrowArray *bounds_array(const bd_row_batch *batch)
{
    const int64_t n = batch->bound_offsets[batch->n_rows];
    g_autoptr(GArrowBuffer) buffer = borrow(batch->bounds, (size_t)n * sizeof *batch->bounds);
    return GARROW_ARRAY(garrow_int32_array_new(n, buffer, NULL, 0));
}

static GArrowArray *segments_array(const bd_row_batch *batch)
{
    const int64_t n = batch->segment_offsets[batch->n_rows];
    const bd_segments *segments = &batch->segments;
    GList *children = NULL;
    children = g_list_append(children, uint32_array(segments->input, n));
    children = g_list_append(children, uint64_array(segments->position, n));
    children = g_list_append(children, uint32_array(segments->offset, n));
    children = g_list_append(children, uint32_array(segments->length, n));
    g_autoptr(GArrowDataType) item = segment_type();
    GArrowArray *structs = GARROW_ARRAY(garrow_struct_array_new(item, n, children, NULL, 0));
    g_list_free_full(children, g_object_unref);
    return structs;
}

bd_status bd_arrow_writer_write(bd_arrow_writer *writer, const bd_row_batch *batch,
                                bd_error *err)
{
    GError *gerror = NULL;
    GList *columns = NULL;
    guint n = 0;
    g_autoptr(GArrowArray) bounds = bounds_array(batch);
    g_autoptr(GArrowArray) segments = segments_array(batch);
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        if (bd_token_bits(&writer->config, c) == 0)
            continue;
        columns = g_list_append(columns, token_array(writer, n++, batch, c));
        if (c == BD_COLUMN_ids) {
            columns = g_list_append(
                columns, list_array(writer, n++, batch->n_rows, batch->bound_offsets, bounds));
            columns = g_list_append(columns, list_array(writer, n++, batch->n_rows,
                                                        batch->segment_offsets, segments));
        }
    }
    columns = g_list_append(columns, uint64_array(batch->checksums, batch->n_rows));
    g_autoptr(GArrowRecordBatch) record =
        garrow_record_batch_new(writer->schema, (guint32)batch->n_rows, columns, &gerror);
    g_list_free_full(columns, g_object_unref);
    if (!record || !garrow_record_batch_writer_write_record_batch(
                       GARROW_RECORD_BATCH_WRITER(writer->writer), record, &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot write a record batch");
    return BD_OK;
}

bd_status bd_arrow_writer_close(bd_arrow_writer *writer, bd_error *err)
{
    GError *gerror = NULL;
    if (!garrow_record_batch_writer_close(GARROW_RECORD_BATCH_WRITER(writer->writer),
                                          &gerror) ||
        !garrow_file_close(GARROW_FILE(writer->sink), &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_IO, "cannot finish an Arrow file");
    return BD_OK;
}

void bd_arrow_writer_free(bd_arrow_writer *writer)
{
    if (!writer)
        return;
    g_clear_object(&writer->writer);
    g_clear_object(&writer->sink);
    g_clear_object(&writer->memory);
    g_clear_object(&writer->schema);
    g_free(writer);
}

// ---- Reading ----------------------------------------------------------------------

// A batch and the arrays that keep its memory alive.
typedef struct loaded_batch {
    bd_row_batch rows;
    GPtrArray *arrays;
} loaded_batch;

struct bd_arrow_reader {
    const char *file;  // borrowed
    size_t file_bytes;
    GArrowBuffer *buffer;
    GArrowBufferInputStream *stream;  // must outlive the reader
    GArrowRecordBatchFileReader *reader;
    char *metadata;
    int64_t n_batches;
    loaded_batch *batches;
};

bd_status bd_arrow_reader_open(bd_arrow_reader **out, const void *data, size_t size_bytes,
                               bd_error *err)
{
    GError *gerror = NULL;
    *out = NULL;
    if (size_bytes == 0)
        return bd_fail(err, BD_ERR_FORMAT, "S1: not an Arrow file: it is empty");
    bd_arrow_reader *reader = g_new0(bd_arrow_reader, 1);
    reader->file = data;
    reader->file_bytes = size_bytes;
    reader->buffer = garrow_buffer_new(data, (gint64)size_bytes);
    reader->stream = garrow_buffer_input_stream_new(reader->buffer);
    reader->reader = garrow_record_batch_file_reader_new(
        GARROW_SEEKABLE_INPUT_STREAM(reader->stream), &gerror);
    if (!reader->reader) {
        bd_arrow_reader_free(reader);
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "S1: not an Arrow file");
    }
    g_autoptr(GArrowSchema) schema = garrow_record_batch_file_reader_get_schema(reader->reader);
    g_autoptr(GHashTable) pairs = garrow_schema_get_metadata(schema);
    if (pairs)
        reader->metadata = g_strdup(g_hash_table_lookup(pairs, metadata_key));
    *out = reader;
    return BD_OK;
}

const char *bd_arrow_reader_metadata(const bd_arrow_reader *reader)
{
    return reader->metadata;
}

// Keeps `array` until the batch is freed. `length` is what it must have, -1 for any.
static bool keep_array(loaded_batch *batch, GArrowArray *array, int64_t length)
{
    if (!array)
        return false;
    g_ptr_array_add(batch->arrays, array);
    return garrow_array_get_n_nulls(array) == 0 && garrow_array_get_offset(array) == 0 &&
           (length < 0 || garrow_array_get_length(array) == length);
}

static bool load_tokens(loaded_batch *batch, GArrowArray *column, int c,
                        const bd_dataset_config *config)
{
    const int64_t n_rows = batch->rows.n_rows, n = n_rows * config->seq_len;
    const int bits = bd_token_bits(config, c);
    if (!keep_array(batch, column, n_rows))
        return false;
    GArrowArray *values =
        garrow_fixed_size_list_array_get_values(GARROW_FIXED_SIZE_LIST_ARRAY(column));
    if (!keep_array(batch, values, n))
        return false;
    g_autoptr(GArrowBuffer) buffer =
        garrow_primitive_array_get_data_buffer(GARROW_PRIMITIVE_ARRAY(values));
    if (!buffer || (size_t)garrow_buffer_get_size(buffer) < bd_column_bytes(n, bits))
        return false;
    g_autoptr(GBytes) bytes = garrow_buffer_get_data(buffer);  // without a copy
    batch->rows.columns[c] = g_bytes_get_data(bytes, NULL);
    return true;
}

// Loads a list column: its offsets, one more than rows, and its values, of which the caller
// takes what they hold. NULL if it is not sound.
static GArrowArray *load_list(loaded_batch *batch, GArrowArray *column, const int32_t **offsets)
{
    const int64_t n_rows = batch->rows.n_rows;
    if (!keep_array(batch, column, n_rows))
        return NULL;
    GArrowArray *values = garrow_list_array_get_values(GARROW_LIST_ARRAY(column));
    if (!keep_array(batch, values, -1))
        return NULL;
    gint64 n;
    *offsets = garrow_list_array_get_value_offsets(GARROW_LIST_ARRAY(column), &n);
    if (!*offsets || n != n_rows + 1 || (*offsets)[0] < 0 ||
        (*offsets)[n_rows] > garrow_array_get_length(values))
        return NULL;
    for (int64_t r = 0; r < n_rows; r++)
        if ((*offsets)[r] > (*offsets)[r + 1])
            return NULL;
    return values;
}

static bool load_bounds(loaded_batch *batch, GArrowArray *column)
{
    gint64 n;
    GArrowArray *values = load_list(batch, column, &batch->rows.bound_offsets);
    if (values)
        batch->rows.bounds = garrow_int32_array_get_values(GARROW_INT32_ARRAY(values), &n);
    return values && batch->rows.bounds;
}

static bool load_segments(loaded_batch *batch, GArrowArray *column)
{
    GArrowArray *structs = load_list(batch, column, &batch->rows.segment_offsets);
    GArrowArray *fields[N_SEGMENT_FIELDS];
    for (int i = 0; structs && i < N_SEGMENT_FIELDS; i++) {
        fields[i] = garrow_struct_array_get_field(GARROW_STRUCT_ARRAY(structs), i);
        if (!keep_array(batch, fields[i], garrow_array_get_length(structs)))
            return false;
    }
    if (!structs)
        return false;
    bd_segments *segments = &batch->rows.segments;
    gint64 n;
    segments->input = garrow_uint32_array_get_values(GARROW_UINT32_ARRAY(fields[0]), &n);
    segments->position = garrow_uint64_array_get_values(GARROW_UINT64_ARRAY(fields[1]), &n);
    segments->offset = garrow_uint32_array_get_values(GARROW_UINT32_ARRAY(fields[2]), &n);
    segments->length = garrow_uint32_array_get_values(GARROW_UINT32_ARRAY(fields[3]), &n);
    return segments->input && segments->position && segments->offset && segments->length;
}

static bool load_checksums(loaded_batch *batch, GArrowArray *column)
{
    if (!keep_array(batch, column, batch->rows.n_rows))
        return false;
    gint64 n;
    batch->rows.checksums = garrow_uint64_array_get_values(GARROW_UINT64_ARRAY(column), &n);
    return batch->rows.checksums && n == batch->rows.n_rows;
}

bd_status bd_arrow_reader_check_schema(bd_arrow_reader *reader, const bd_dataset_config *config,
                                       bd_error *err)
{
    g_autoptr(GArrowSchema) schema = garrow_record_batch_file_reader_get_schema(reader->reader);
    g_autoptr(GArrowSchema) expected = shard_schema(config);
    if (!garrow_schema_equal(schema, expected))  // without metadata; types, names, nullability
        return bd_fail(err, BD_ERR_FORMAT, "S1: the columns are not those of a shard");
    const guint n = garrow_record_batch_file_reader_get_n_record_batches(reader->reader);
    reader->batches = g_try_new0(loaded_batch, n);
    if (n > 0 && !reader->batches)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %u record batches", n);
    reader->n_batches = n;
    return BD_OK;
}

bd_status bd_arrow_reader_load(bd_arrow_reader *reader, int64_t index,
                               const bd_dataset_config *config, bd_error *err)
{
    GError *gerror = NULL;
    loaded_batch *batch = &reader->batches[index];
    if (batch->arrays)
        return BD_OK;
    g_autoptr(GArrowRecordBatch) record = garrow_record_batch_file_reader_read_record_batch(
        reader->reader, (guint)index, &gerror);
    // Without full validation a damaged offset would be followed outside its buffer.
    if (!record || !garrow_record_batch_validate_full(record, &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "S1: damaged record batch");
    batch->arrays = g_ptr_array_new_with_free_func(g_object_unref);
    batch->rows.n_rows = garrow_record_batch_get_n_rows(record);
    int n = 0;
    bool sound = batch->rows.n_rows > 0;
    for (int c = 0; sound && c < BD_N_TOKEN_COLUMNS; c++) {
        if (bd_token_bits(config, c) == 0)
            continue;
        sound = load_tokens(batch, garrow_record_batch_get_column_data(record, n++), c, config);
        if (sound && c == BD_COLUMN_ids)
            sound = load_bounds(batch, garrow_record_batch_get_column_data(record, n++)) &&
                    load_segments(batch, garrow_record_batch_get_column_data(record, n++));
    }
    sound = sound && load_checksums(batch, garrow_record_batch_get_column_data(record, n));
    if (sound)
        return BD_OK;
    bd_arrow_reader_drop(reader, index);
    return bd_fail(err, BD_ERR_FORMAT, "S1: record batch %" PRId64 " is not as the schema says",
                   index);
}

void bd_arrow_reader_drop(bd_arrow_reader *reader, int64_t index)
{
    loaded_batch *batch = &reader->batches[index];
    if (batch->arrays)
        g_ptr_array_free(batch->arrays, TRUE);
    *batch = (loaded_batch){0};
}

bool bd_arrow_reader_is_compressed(const bd_arrow_reader *reader, int64_t index)
{
    const char *ids = reader->batches[index].rows.ids;
    // A buffer that does not lie in the file was decompressed from it.
    return ids < reader->file || ids >= reader->file + reader->file_bytes;
}

int64_t bd_arrow_reader_n_batches(const bd_arrow_reader *reader)
{
    return reader->n_batches;
}

const bd_row_batch *bd_arrow_reader_batch(const bd_arrow_reader *reader, int64_t index)
{
    return &reader->batches[index].rows;
}

void bd_arrow_reader_free(bd_arrow_reader *reader)
{
    if (!reader)
        return;
    for (int64_t i = 0; i < reader->n_batches; i++)
        bd_arrow_reader_drop(reader, i);
    g_free(reader->batches);
    g_free(reader->metadata);
    g_clear_object(&reader->reader);
    g_clear_object(&reader->stream);
    g_clear_object(&reader->buffer);
    g_free(reader);
}
