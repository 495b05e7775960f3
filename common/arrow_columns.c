#include "common/arrow_columns.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/arrow_glib.h"
#include "common/arrow_values.h"
#include "common/mapped_file.h"
#include "common/parquet_footer.h"
#include "common/size.h"

// Structs inside structs that a path may go through; Arrow's own limit for IPC files.
enum { MAX_PATH_NAMES = 64 };

typedef struct group {
    bd_column_group figures;
    int64_t begin, end;  // of the batch in a stream, bytes
} group;

struct bd_columns {
    char *path;
    bd_columns_format format;
    bd_mapped_file file;
    GArrowBuffer *buffer;               // over the mapping
    GArrowSeekableInputStream *stream;  // must outlive the readers

    // One of these, as the format says.
    GParquetArrowFileReader *parquet;
    GArrowRecordBatchFileReader *batches;
    GArrowSchema *stream_schema;
    GArrowReadOptions *stream_options;  // reads our column alone

    char *names[MAX_PATH_NAMES];  // the column, then fields of structs
    size_t n_names;
    int column;  // among the file's columns
    int leaf;    // among Parquet's columns, which are what structs and lists end in
    bd_value_type type;

    group *groups;
    size_t n_groups, groups_capacity;
    int64_t n_rows;

    GPtrArray *exported;  // of exported_chunk: what `values` points into
    bd_values values;
};

static bd_value_path path_of(const bd_columns *columns)
{
    return (bd_value_path){(const char *const *)columns->names, columns->n_names};
}

static const char *group_word(const bd_columns *columns)
{
    return columns->format == BD_COLUMNS_PARQUET ? "row group" : "record batch";
}

// ---- Arrow's C data interface -------------------------------------------------------------
// Arrow GLib has no class for the newest types and aborts when it is asked to wrap one, so that
// schemas are looked at through the C data interface, and arrays wrapped after that.

static void free_schema(gpointer data)
{
    struct ArrowSchema *schema = data;
    if (schema && schema->release)
        schema->release(schema);
    g_free(schema);
}

typedef struct exported_chunk {
    struct ArrowArray *array;
    struct ArrowSchema *schema;
} exported_chunk;

static void free_chunk(gpointer data)
{
    exported_chunk *chunk = data;
    if (chunk->array && chunk->array->release)
        chunk->array->release(chunk->array);
    g_free(chunk->array);
    free_schema(chunk->schema);
    g_free(chunk);
}

// Adds `array`, validated, to what the group exports.
static bd_status export_chunk(bd_columns *columns, GArrowArray *array, bool fully,
                              bd_error *err)
{
    GError *gerror = NULL;
    gpointer c_array = NULL, c_schema = NULL;
    // Without full validation a damaged offset would be followed outside its buffer.
    if (!(fully ? garrow_array_validate_full(array, &gerror)
                : garrow_array_validate(array, &gerror)))
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "damaged");
    if (!garrow_array_export(array, &c_array, &c_schema, &gerror))
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be used");
    exported_chunk *chunk = g_new0(exported_chunk, 1);
    *chunk = (exported_chunk){c_array, c_schema};
    g_ptr_array_add(columns->exported, chunk);
    return BD_OK;
}

// ---- Finding the column -------------------------------------------------------------------

typedef struct field_path {
    int64_t indices[MAX_PATH_NAMES];  // of a child in each level
    size_t n;
} field_path;

static bool find_path(const struct ArrowSchema *parent, const char *field, field_path *path)
{
    if (path->n == MAX_PATH_NAMES)
        return false;
    int64_t *index = &path->indices[path->n++];
    for (*index = 0; *index < parent->n_children; (*index)++)
        if (strcmp(parent->children[*index]->name, field) == 0)
            return true;
    for (*index = 0; *index < parent->n_children; (*index)++) {
        const struct ArrowSchema *child = parent->children[*index];
        const size_t length = strlen(child->name);
        if (strcmp(child->format, "+s") == 0 && strncmp(child->name, field, length) == 0 &&
            field[length] == '.' && find_path(child, field + length + 1, path))
            return true;
    }
    path->n--;
    return false;
}

// How many columns Parquet makes of a column.
static int n_leaves(const struct ArrowSchema *schema)
{
    int n = 0;
    for (int64_t i = 0; i < schema->n_children; i++)
        n += n_leaves(schema->children[i]);
    return n > 0 ? n : 1;
}

static const struct ArrowSchema *
take_path(bd_columns *columns, const struct ArrowSchema *schema, const field_path *path)
{
    columns->column = (int)path->indices[0];
    columns->leaf = 0;
    for (size_t level = 0; level < path->n; level++) {
        for (int64_t i = 0; i < path->indices[level]; i++)
            columns->leaf += n_leaves(schema->children[i]);
        schema = schema->children[path->indices[level]];
        columns->names[columns->n_names++] = g_strdup(schema->name);
    }
    return schema;
}

static bd_status fail_no_column(const struct ArrowSchema *schema, const char *field,
                                bd_error *err)
{
    g_autoptr(GString) names = g_string_new(NULL);
    for (int64_t i = 0; i < schema->n_children; i++)
        g_string_append_printf(names, "%s'%s'", i > 0 ? ", " : "", schema->children[i]->name);
    return bd_fail(err, BD_ERR_FORMAT, "it has no column '%s'; %s%s", field,
                   names->len > 0 ? "it has " : "it has none at all", names->str);
}

// Sets everything about the column. `gschema` says the same as `schema`, for the message.
static bd_status choose_column(bd_columns *columns, GArrowSchema *gschema,
                               const struct ArrowSchema *schema, const char *field,
                               bd_error *err)
{
    field_path path = {.n = 0};
    const bool found = find_path(schema, field, &path) ||
                       (strcmp(field, "text") == 0 && (find_path(schema, "input_ids", &path) ||
                                                       find_path(schema, "tokens", &path)));
    if (!found)
        return fail_no_column(schema, field, err);
    if (bd_value_type_of(&columns->type, take_path(columns, schema, &path)))
        return BD_OK;
    // As text and one line per column, because a field of its own would have to be wrapped.
    g_autofree gchar *text = garrow_schema_to_string_metadata(gschema, FALSE);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    const bool is_there = (guint)columns->column < g_strv_length(lines);
    return bd_fail(err, BD_ERR_FORMAT, "column '%s' is neither text nor a list of integers: %s",
                   field, is_there ? lines[columns->column] : "an unknown type");
}

// ---- Groups -------------------------------------------------------------------------------

static bd_status add_group(bd_columns *columns, const group *added, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&columns->groups, &columns->groups_capacity,
                            columns->n_groups + 1, sizeof *columns->groups, err));
    group *g = &columns->groups[columns->n_groups];
    *g = *added;
    g->figures.first_row = columns->n_rows;
    if (g->figures.n_rows < 0 || g->figures.weight_bytes < 0 ||
        !bd_int64_add(columns->n_rows, g->figures.n_rows, &columns->n_rows))
        return bd_fail(err, BD_ERR_FORMAT, "%s %zu says that it has %" PRId64 " rows",
                       group_word(columns), columns->n_groups, g->figures.n_rows);
    columns->n_groups++;
    return BD_OK;
}

// Adds the group that a record batch is, with what the exported column says.
static bd_status add_batch(bd_columns *columns, int64_t begin, int64_t end, bd_error *err)
{
    const exported_chunk *chunk = columns->exported->pdata[0];
    const bd_value_path path = path_of(columns);
    group g = {.figures = {.n_rows = chunk->array->length}, .begin = begin, .end = end};
    BD_TRY(bd_values_weigh(chunk->schema, chunk->array, &path, &columns->type,
                           &g.figures.weight_bytes, err));
    return add_group(columns, &g, err);
}

// Forgets what the last group exported.
static void forget_exported(bd_columns *columns)
{
    bd_values_clear(&columns->values);
    if (columns->exported)
        g_ptr_array_set_size(columns->exported, 0);
}

// ---- Parquet ------------------------------------------------------------------------------

static bd_status find_row_groups(bd_columns *columns, int n_leaf_columns, bd_error *err)
{
    bd_parquet_chunk *chunks;
    size_t n;
    BD_TRY(bd_parquet_footer_read(columns->file.data, columns->file.size_bytes, n_leaf_columns,
                                  columns->leaf, &chunks, &n, err));
    bd_status status = BD_OK;
    if (n != (size_t)gparquet_arrow_file_reader_get_n_row_groups(columns->parquet))
        status = bd_fail(err, BD_ERR_FORMAT, "the footer is damaged");
    for (size_t i = 0; status == BD_OK && i < n; i++) {
        const bd_column_group figures = {.n_rows = chunks[i].n_rows,
                                         .weight_bytes = chunks[i].encoded_bytes};
        status = add_group(columns, &(group){.figures = figures}, err);
    }
    free(chunks);
    return status;
}

static bd_status open_parquet(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    columns->parquet = gparquet_arrow_file_reader_new_arrow(columns->stream, &gerror);
    if (!columns->parquet)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a Parquet file");
    gparquet_arrow_file_reader_set_use_threads(columns->parquet, FALSE);  // callers have theirs
    g_autoptr(GArrowSchema) gschema =
        gparquet_arrow_file_reader_get_schema(columns->parquet, &gerror);
    if (!gschema)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    struct ArrowSchema *schema = garrow_schema_export(gschema, &gerror);
    if (!schema)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    g_autoptr(GParquetFileMetadata) metadata =
        gparquet_arrow_file_reader_get_metadata(columns->parquet);
    bd_status status = choose_column(columns, gschema, schema, field, err);
    // Counted in another way than Parquet does, the leaf would be that of another column.
    const int n_leaf_columns = gparquet_file_metadata_get_n_columns(metadata);
    if (status == BD_OK && n_leaves(schema) != n_leaf_columns)
        status = bd_fail(err, BD_ERR_UNSUPPORTED, "it has columns of an unknown structure");
    free_schema(schema);
    return status == BD_OK ? find_row_groups(columns, n_leaf_columns, err) : status;
}

static bd_status export_row_group(bd_columns *columns, int64_t index, bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowTable) table = gparquet_arrow_file_reader_read_row_group(
        columns->parquet, (gint)index, &columns->leaf, 1, &gerror);
    if (!table)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be read");
    if (garrow_table_get_n_columns(table) != 1)
        return bd_fail(err, BD_ERR_FORMAT, "it does not have the column");
    g_autoptr(GArrowChunkedArray) chunks = garrow_table_get_column_data(table, 0);
    const guint n = garrow_chunked_array_get_n_chunks(chunks);
    for (guint i = 0; i < n; i++) {
        g_autoptr(GArrowArray) chunk = garrow_chunked_array_get_chunk(chunks, i);
        BD_TRY(export_chunk(columns, chunk, true, err));
    }
    return BD_OK;
}

// ---- Arrow files --------------------------------------------------------------------------

static bd_status export_batch(bd_columns *columns, GArrowRecordBatch *record, int column,
                              bool fully, bd_error *err)
{
    if ((guint)column >= garrow_record_batch_get_n_columns(record))
        return bd_fail(err, BD_ERR_FORMAT, "it does not have the column");
    g_autoptr(GArrowArray) array = garrow_record_batch_get_column_data(record, column);
    return export_chunk(columns, array, fully, err);
}

static bd_status export_file_batch(bd_columns *columns, int64_t index, bool fully,
                                   bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowRecordBatch) record = garrow_record_batch_file_reader_read_record_batch(
        columns->batches, (guint)index, &gerror);
    if (!record)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be read");
    return export_batch(columns, record, columns->column, fully, err);
}

static bd_status open_file(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    columns->batches = garrow_record_batch_file_reader_new(columns->stream, &gerror);
    if (!columns->batches)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not an Arrow file");
    g_autoptr(GArrowSchema) gschema =
        garrow_record_batch_file_reader_get_schema(columns->batches);
    struct ArrowSchema *schema = garrow_schema_export(gschema, &gerror);
    if (!schema)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    bd_status status = choose_column(columns, gschema, schema, field, err);
    free_schema(schema);
    const guint n = garrow_record_batch_file_reader_get_n_record_batches(columns->batches);
    for (guint i = 0; status == BD_OK && i < n; i++) {
        forget_exported(columns);
        status = export_file_batch(columns, i, false, err);
        if (status == BD_OK)
            status = add_batch(columns, 0, 0, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "record batch %u", i);
    }
    return status;
}

// ---- Arrow streams ------------------------------------------------------------------------
// A stream has no table of contents: its batches are found by reading them once, and then read
// again where they were found.

static bool has_dictionary(const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (has_dictionary(schema->children[i]))
            return true;
    return schema->dictionary != NULL;
}

// *last if no batch begins at `at`: there is the mark of the end, or, as writers may leave it
// out, the end of the file.
static bd_status look_ahead(const bd_columns *columns, int64_t at, bool *last, bd_error *err)
{
    const char *data = columns->file.data;
    const int64_t left = (int64_t)columns->file.size_bytes - at;
    uint32_t word = 0;
    *last = left == 0;
    if (*last)
        return BD_OK;
    if (left >= (int64_t)sizeof word)
        memcpy(&word, data + at, sizeof word);
    // Since Arrow 0.15 the length of a message follows 32 bits that are all ones.
    if (word == UINT32_MAX && left >= 2 * (int64_t)sizeof word)
        memcpy(&word, data + at + sizeof word, sizeof word);
    else if (word == UINT32_MAX || left < (int64_t)sizeof word)
        return bd_fail(err, BD_ERR_FORMAT, "it is cut short after %" PRId64 " bytes", at);
    *last = word == 0;
    return BD_OK;
}

// Exports the batch at `begin`; *end becomes where it ends.
static bd_status export_stream_batch(bd_columns *columns, int64_t begin, int64_t *end,
                                     bool fully, bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowBuffer) rest = garrow_buffer_slice(columns->buffer, begin, *end - begin);
    g_autoptr(GArrowBufferInputStream) stream = garrow_buffer_input_stream_new(rest);
    g_autoptr(GArrowRecordBatch) record = garrow_input_stream_read_record_batch(
        GARROW_INPUT_STREAM(stream), columns->stream_schema, columns->stream_options, &gerror);
    if (!record)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be read");
    const gint64 size_bytes = garrow_file_tell(GARROW_FILE(stream), &gerror);
    if (size_bytes <= 0)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be read");
    *end = begin + size_bytes;
    return export_batch(columns, record, 0, fully, err);
}

static bd_status find_batches(bd_columns *columns, int64_t at, bd_error *err)
{
    for (;;) {
        int64_t end = (int64_t)columns->file.size_bytes;
        bool last;
        BD_TRY(look_ahead(columns, at, &last, err));
        if (last)
            return BD_OK;
        forget_exported(columns);
        bd_status status = export_stream_batch(columns, at, &end, false, err);
        if (status == BD_OK)
            status = add_batch(columns, at, end, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "record batch %zu", columns->n_groups);
        at = end;
    }
}

static bd_status open_stream(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowRecordBatchStreamReader) reader =
        garrow_record_batch_stream_reader_new(GARROW_INPUT_STREAM(columns->stream), &gerror);
    if (!reader)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not an Arrow stream");
    columns->stream_schema =
        garrow_record_batch_reader_get_schema(GARROW_RECORD_BATCH_READER(reader));
    const gint64 at = garrow_file_tell(GARROW_FILE(columns->stream), &gerror);
    struct ArrowSchema *schema = garrow_schema_export(columns->stream_schema, &gerror);
    if (at < 0 || !schema) {
        free_schema(schema);
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    }
    bd_status status = choose_column(columns, columns->stream_schema, schema, field, err);
    if (status == BD_OK && has_dictionary(schema))
        status = bd_fail(err, BD_ERR_UNSUPPORTED,
                         "an Arrow stream with a dictionary-encoded column; an Arrow file or "
                         "Parquet may have one");
    free_schema(schema);
    if (status != BD_OK)
        return status;
    columns->stream_options = garrow_read_options_new();
    garrow_read_options_set_included_fields(columns->stream_options, &columns->column, 1);
    g_object_set(columns->stream_options, "use-threads", FALSE, NULL);
    return find_batches(columns, at, err);
}

// ---- The contract -------------------------------------------------------------------------

static bd_status open_mapped(bd_columns *columns, const char *field, bd_error *err)
{
    BD_TRY(bd_mapped_file_open(&columns->file, columns->path, err));
    if (columns->file.size_bytes == 0)
        return bd_fail(err, BD_ERR_FORMAT, "cannot read '%s': it is empty", columns->path);
    columns->buffer = garrow_buffer_new(columns->file.data, (gint64)columns->file.size_bytes);
    columns->stream =
        GARROW_SEEKABLE_INPUT_STREAM(garrow_buffer_input_stream_new(columns->buffer));
    columns->exported = g_ptr_array_new_with_free_func(free_chunk);
    bd_status status = BD_OK;
    switch (columns->format) {
    case BD_COLUMNS_PARQUET:
        status = open_parquet(columns, field, err);
        break;
    case BD_COLUMNS_ARROW_FILE:
        status = open_file(columns, field, err);
        break;
    case BD_COLUMNS_ARROW_STREAM:
        status = open_stream(columns, field, err);
        break;
    }
    forget_exported(columns);
    return status == BD_OK ? BD_OK
                           : bd_error_prefix(err, status, "cannot read '%s'", columns->path);
}

bd_status bd_columns_open(bd_columns **out, const char *path, bd_columns_format format,
                          const char *field, bd_error *err)
{
    bd_columns *columns = g_new0(bd_columns, 1);
    *out = NULL;
    columns->path = g_strdup(path);
    columns->format = format;
    columns->file.slot = -1;
    const bd_status status = open_mapped(columns, field, err);
    if (status == BD_OK)
        *out = columns;
    else
        bd_columns_close(columns);
    return status;
}

int bd_columns_id_bytes(const bd_columns *columns)
{
    const bool is_text = columns->type.layout == BD_VALUES_TEXT ||
                         columns->type.layout == BD_VALUES_TEXT_DICTIONARY;
    return is_text ? 0 : columns->type.item_bytes;
}

int64_t bd_columns_n_groups(const bd_columns *columns)
{
    return (int64_t)columns->n_groups;
}

bd_column_group bd_columns_group(const bd_columns *columns, int64_t index)
{
    assert(0 <= index && index < (int64_t)columns->n_groups);
    return columns->groups[index].figures;
}

static bd_status export_group(bd_columns *columns, int64_t index, bd_error *err)
{
    group *g = &columns->groups[index];
    int64_t end = g->end;
    switch (columns->format) {
    case BD_COLUMNS_PARQUET:
        return export_row_group(columns, index, err);
    case BD_COLUMNS_ARROW_FILE:
        return export_file_batch(columns, index, true, err);
    case BD_COLUMNS_ARROW_STREAM:
        return export_stream_batch(columns, g->begin, &end, true, err);
    }
    return BD_OK;
}

static bd_status read_group(bd_columns *columns, int64_t index, bd_error *err)
{
    const bd_value_path path = path_of(columns);
    const int64_t n_rows = columns->groups[index].figures.n_rows;
    BD_TRY(export_group(columns, index, err));
    for (guint i = 0; i < columns->exported->len; i++) {
        const exported_chunk *chunk = columns->exported->pdata[i];
        BD_TRY(bd_values_append(&columns->values, chunk->schema, chunk->array, &path,
                                &columns->type, err));
    }
    if (columns->values.n_rows != n_rows)
        return bd_fail(err, BD_ERR_FORMAT,
                       "it has %" PRId64 " rows, its metadata says %" PRId64,
                       columns->values.n_rows, n_rows);
    return BD_OK;
}

bd_status bd_columns_read(bd_columns *columns, int64_t index, bd_column_values *values,
                          bd_error *err)
{
    assert(0 <= index && index < (int64_t)columns->n_groups);
    static const int64_t no_rows[] = {0};
    *values = (bd_column_values){0};
    forget_exported(columns);
    const bd_status status = read_group(columns, index, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'%s', %s %" PRId64, columns->path,
                               group_word(columns), index);
    const bd_values *v = &columns->values;
    *values = (bd_column_values){
        .n_rows = v->n_rows,
        .data = v->data ? v->data : "",
        .offsets = v->offsets ? v->offsets : no_rows,
        .is_null = v->has_null ? v->is_null : NULL,
    };
    return BD_OK;
}

void bd_columns_close(bd_columns *columns)
{
    if (!columns)
        return;
    if (columns->exported)
        g_ptr_array_free(columns->exported, TRUE);
    bd_values_release(&columns->values);
    g_clear_object(&columns->parquet);
    g_clear_object(&columns->batches);
    g_clear_object(&columns->stream_options);
    g_clear_object(&columns->stream_schema);
    g_clear_object(&columns->stream);
    g_clear_object(&columns->buffer);
    bd_mapped_file_close(&columns->file);
    for (size_t i = 0; i < columns->n_names; i++)
        g_free(columns->names[i]);
    free(columns->groups);
    g_free(columns->path);
    g_free(columns);
}
