#include "packer/input/arrow_columns.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mapped_file.h"
#include "common/base/memory.h"
#include "common/dataset/arrow_glib.h"
#include "packer/input/arrow_json.h"
#include "packer/input/arrow_limit.h"
#include "packer/input/parquet_footer.h"

// How deep the column may lie in structs; Arrow has the same limit for IPC files.
enum { MAX_PATH_NAMES = 64 };

// How many times as large as in the file a column may be in memory.
enum { MOST_EXPANSION = 64 };

typedef struct group {
    bd_column_group figures;
    int64_t begin, end;  // bytes of the file that the batch takes, if it is a stream
} group;

struct bd_columns {
    char *path;
    bd_columns_format format;
    bd_mapped_file file;
    GArrowBuffer *buffer;               // over the mapping
    GArrowSeekableInputStream *stream;  // must outlive the readers
    bd_arrow_limit *limit;              // must outlive the readers and what they read
    int64_t allowance_bytes;

    // The format decides which of these are there.
    GParquetArrowFileReader *parquet;
    GArrowRecordBatchFileReader *batches;
    GArrowSchema *stream_schema;
    GArrowReadOptions *stream_options;  // reads only the column

    struct ArrowSchema *schema;        // of the whole file, owned
    const struct ArrowSchema *parent;  // in `schema`; the column is a child of it
    char *names[MAX_PATH_NAMES + 1];   // the column, then fields of structs, then NULL
    size_t n_names;
    char *name;    // the names, joined by dots
    int column;    // index of names[0] among the file's columns
    int leaf;      // index among Parquet's columns, which are the leaves of structs and lists
    bool is_mask;  // it is a column beside the ids
    int n_leaves;  // of the column, which follow each other; 1 unless `as_json`
    bd_value_type type;

    group *groups;
    size_t n_groups, groups_capacity;
    int64_t n_rows;

    GPtrArray *exported;  // of exported_chunk; `values` points into them
    bd_values values;

    bool as_json;       // its rows become JSON,
    bd_json_rows json;  // which `values` points into then
};

static bd_value_path path_of(const bd_columns *columns)
{
    return (bd_value_path){(const char *const *)columns->names, columns->n_names};
}

// Whether the column may have the type of `schema`, and which that is.
static bool type_of(const bd_columns *columns, const struct ArrowSchema *schema,
                    bd_value_type *type)
{
    return columns->is_mask ? bd_mask_type_of(type, schema) : bd_value_type_of(type, schema);
}

static const char *group_word(const bd_columns *columns)
{
    return columns->format == BD_COLUMNS_PARQUET ? "row group" : "record batch";
}

// ---- Arrow's C data interface -------------------------------------------------------------
// Arrow GLib wraps every Arrow object in one of its own classes. It has no class for the newest
// types and aborts when it meets one. It takes every extension type for one that was defined
// through GLib, and calls functions through memory that the file may have filled. So this file
// examines schemas through the C data interface, and lets no array be wrapped before its type is
// known to be safe.

static void free_schema(struct ArrowSchema *schema)
{
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

// Fails unless what was read is one column of a type that Arrow GLib can wrap.
static bd_status check_wrappable(const bd_columns *columns, GArrowSchema *read, bd_error *err)
{
    GError *gerror = NULL;
    struct ArrowSchema *schema = garrow_schema_export(read, &gerror);
    if (!schema)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    size_t length;
    bd_value_type type;
    bd_status status = BD_OK;
    const struct ArrowSchema *column = schema->n_children == 1 ? schema->children[0] : NULL;
    const bool is_expected = column && !bd_schema_metadata(column, bd_extension_key, &length) &&
                             (columns->n_names > 1 ? strcmp(column->format, "+s") == 0
                              : columns->as_json   ? bd_arrow_json_accepts(column)
                                                   : type_of(columns, column, &type));
    if (!is_expected)
        status = bd_fail(err, BD_ERR_FORMAT, "it does not have the column");
    free_schema(schema);
    return status;
}

// Validates `array` and adds it to what was exported of the group.
static bd_status export_chunk(bd_columns *columns, GArrowArray *array, bool fully,
                              bd_error *err)
{
    GError *gerror = NULL;
    gpointer c_array = NULL, c_schema = NULL;
    // Values need the full validation: a damaged offset would lead outside its buffer.
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

// ---- Memory -------------------------------------------------------------------------------

int64_t bd_columns_allowed(const bd_columns *columns, int64_t stored_bytes)
{
    const int64_t file_bytes = (int64_t)columns->file.size_bytes;
    int64_t expanded;
    if (!bd_int64_mul(stored_bytes < file_bytes ? stored_bytes : file_bytes, MOST_EXPANSION,
                      &expanded) ||
        expanded > INT64_MAX / 4)
        expanded = INT64_MAX / 4;
    return expanded > columns->allowance_bytes ? expanded : columns->allowance_bytes;
}

// Limits the memory for reading a group that takes `stored_bytes` in the file. Arrow may need
// four times the memory of the result, because it holds a page, its dictionary and the result at
// the same time, and doubles arrays that grow.
static void limit_memory(bd_columns *columns, int64_t stored_bytes)
{
    bd_arrow_limit_set(columns->limit, 4 * bd_columns_allowed(columns, stored_bytes));
}

static bd_status fail_column_too_large(const bd_columns *columns, bd_error *err)
{
    return bd_fail(
        err, BD_ERR_FORMAT,
        "column '%s' would take far more memory than it takes bytes in the file: write "
        "smaller row groups or record batches, or allow more with --unit-size",
        columns->name ? columns->name : "");
}

// Reports that reading failed, and frees `gerror`.
static bd_status fail_read(const bd_columns *columns, GError *gerror, const char *what,
                           bd_error *err)
{
    if (!bd_arrow_limit_was_hit(columns->limit))
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, what);
    g_clear_error(&gerror);
    return fail_column_too_large(columns, err);
}

// ---- Finding the column -------------------------------------------------------------------

typedef struct field_path {
    int64_t indices[MAX_PATH_NAMES];  // of the child at each level
    size_t n;
} field_path;

// Names may have dots in them, so that "a.b.c" can be a column, field "b.c" of "a", or field "c"
// of "a.b". A child of `parent` with the whole name is taken first; if there is none, every struct
// whose name is the part of `field` before some dot is searched for the rest. Returns how many
// columns were found, and adds the way to the first of them to *path.
static int find_path(const struct ArrowSchema *parent, const char *field, field_path *path)
{
    int n_ways = 0;
    if (path->n == MAX_PATH_NAMES)
        return 0;
    const field_path above = *path;
    for (int64_t i = 0; i < parent->n_children; i++)
        if (strcmp(parent->children[i]->name, field) == 0 && n_ways++ == 0)
            path->indices[path->n++] = i;
    const bool has_that_name = n_ways > 0;
    for (int64_t i = 0; !has_that_name && i < parent->n_children; i++) {
        const struct ArrowSchema *child = parent->children[i];
        const size_t length = strlen(child->name);
        if (strcmp(child->format, "+s") != 0 || strncmp(child->name, field, length) != 0 ||
            field[length] != '.')
            continue;
        field_path below = above;
        below.indices[below.n++] = i;
        const int n_below = find_path(child, field + length + 1, &below);
        if (n_below > 0 && n_ways == 0)
            *path = below;
        n_ways += n_below;
    }
    return n_ways;
}

// How many columns Parquet makes of a column: one of every leaf.
static int n_leaves(const struct ArrowSchema *schema)
{
    int n = 0;
    for (int64_t i = 0; i < schema->n_children; i++)
        n += n_leaves(schema->children[i]);
    return n > 0 ? n : 1;
}

static int64_t n_children_named(const struct ArrowSchema *parent, const char *name)
{
    int64_t n = 0;
    for (int64_t i = 0; i < parent->n_children; i++)
        n += strcmp(parent->children[i]->name, name) == 0;
    return n;
}

// Follows the path, level by level, and sets where the column lies. Refuses extension types and a
// name that several columns have (`is_clear`: no other path was found).
static bd_status take_path(bd_columns *columns, const field_path *path, bool is_clear,
                           const struct ArrowSchema **column, bd_error *err)
{
    const struct ArrowSchema *at = columns->schema;
    const char *extension = NULL;
    size_t length = 0;
    columns->column = (int)path->indices[0];
    columns->leaf = 0;
    for (size_t level = 0; level < path->n; level++) {
        for (int64_t i = 0; i < path->indices[level]; i++)
            columns->leaf += n_leaves(at->children[i]);
        columns->parent = at;
        at = at->children[path->indices[level]];
        columns->names[columns->n_names++] = g_strdup(at->name);
        is_clear = is_clear && n_children_named(columns->parent, at->name) == 1;
        if (!extension)
            extension = bd_schema_metadata(at, bd_extension_key, &length);
    }
    columns->name = g_strjoinv(".", columns->names);
    if (!is_clear)
        return bd_fail(err, BD_ERR_FORMAT, "it has several columns '%s': rename all but one",
                       columns->name);
    if (!extension)
        extension = bd_extension_name(at, &length);
    if (extension)
        return bd_fail(err, BD_ERR_FORMAT,
                       "column '%s' is of the extension type '%.*s': cast it to its storage "
                       "type and write the table again",
                       columns->name, (int)(length < 100 ? length : 100), extension);
    *column = at;
    return BD_OK;
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

// Sets columns->schema and everything that is known about the column.
static bd_status choose_column(bd_columns *columns, GArrowSchema *gschema, const char *field,
                               bd_error *err)
{
    static const char *const ids[] = {"input_ids", "tokens"};
    GError *gerror = NULL;
    columns->schema = garrow_schema_export(gschema, &gerror);
    if (!columns->schema)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not a schema that Arrow knows");
    field_path path = {.n = 0};
    int n_ways = find_path(columns->schema, field, &path);
    const bool may_be_ids =
        strcmp(field, "text") == 0 && !columns->is_mask && !columns->as_json;
    for (size_t i = 0; n_ways == 0 && may_be_ids && i < 2; i++)
        n_ways = find_path(columns->schema, ids[i], &path);
    if (n_ways == 0)
        return fail_no_column(columns->schema, field, err);
    const struct ArrowSchema *column = NULL;
    BD_TRY(take_path(columns, &path, n_ways == 1, &column, err));
    columns->n_leaves = columns->as_json ? n_leaves(column) : 1;
    if (columns->as_json ? bd_arrow_json_accepts(column)
                         : type_of(columns, column, &columns->type))
        return BD_OK;
    // The text of the schema has one line per column. Asking for one field would wrap its type.
    g_autofree gchar *text = garrow_schema_to_string_metadata(gschema, FALSE);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    const bool is_there = (guint)columns->column < g_strv_length(lines);
    const char *found = is_there ? lines[columns->column] : "an unknown type";
    if (columns->is_mask)
        return bd_fail(
            err, BD_ERR_FORMAT,
            "column '%s' does not say which tokens are trained, because it is no list "
            "of integers or booleans: %s (rename or drop it)",
            columns->name, found);
    return bd_fail(err, BD_ERR_FORMAT,
                   columns->as_json ? "column '%s' is of a type that cannot be read: %s"
                                    : "column '%s' is neither text nor a list of integers: %s",
                   columns->name, found);
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

// Adds the record batch whose column was exported last. In a stream it lies at [begin, end); both
// are 0 for an Arrow file.
static bd_status add_batch_group(bd_columns *columns, int64_t begin, int64_t end, bd_error *err)
{
    const exported_chunk *chunk = columns->exported->pdata[0];
    const bd_value_path path = path_of(columns);
    const int64_t stored_bytes = end > 0 ? end - begin : (int64_t)columns->file.size_bytes;
    group g = {.figures = {.n_rows = chunk->array->length, .stored_bytes = stored_bytes},
               .begin = begin,
               .end = end};
    BD_TRY(columns->as_json
               ? bd_arrow_json_weigh(chunk->schema, chunk->array, &g.figures.weight_bytes, err)
               : bd_values_weigh(chunk->schema, chunk->array, &path, &columns->type,
                                 &g.figures.weight_bytes, err));
    return add_group(columns, &g, err);
}

// Releases what was exported of the last group.
static void forget_exported(bd_columns *columns)
{
    bd_values_clear(&columns->values);
    bd_json_rows_clear(&columns->json);
    if (columns->exported)
        g_ptr_array_set_size(columns->exported, 0);
}

// ---- Parquet ------------------------------------------------------------------------------

// Adds the groups of the column's leaf, or, for a leaf after its first, its sizes to them.
static bd_status add_leaf(bd_columns *columns, int leaf, int n_leaf_columns, bd_error *err)
{
    bd_parquet_chunk *chunks;
    size_t n;
    BD_TRY(bd_parquet_footer_read(columns->file.data, columns->file.size_bytes, n_leaf_columns,
                                  leaf, &chunks, &n, err));
    bd_status status = BD_OK;
    if (n != (size_t)gparquet_arrow_file_reader_get_n_row_groups(columns->parquet))
        status = bd_fail(err, BD_ERR_FORMAT, "the footer is damaged");
    for (size_t i = 0; status == BD_OK && i < n; i++) {
        const bd_column_group figures = {.n_rows = chunks[i].n_rows,
                                         .weight_bytes = chunks[i].encoded_bytes,
                                         .stored_bytes = chunks[i].stored_bytes};
        if (leaf == columns->leaf) {
            status = add_group(columns, &(group){.figures = figures}, err);
            continue;
        }
        bd_column_group *sum = &columns->groups[i].figures;
        if (figures.weight_bytes < 0 || figures.stored_bytes < 0 ||
            !bd_int64_add(sum->weight_bytes, figures.weight_bytes, &sum->weight_bytes) ||
            !bd_int64_add(sum->stored_bytes, figures.stored_bytes, &sum->stored_bytes))
            status = bd_fail(err, BD_ERR_FORMAT, "row group %zu claims an impossible size", i);
    }
    free(chunks);
    return status;
}

static bd_status find_row_groups(bd_columns *columns, int n_leaf_columns, bd_error *err)
{
    for (int i = 0; i < columns->n_leaves; i++)
        BD_TRY(add_leaf(columns, columns->leaf + i, n_leaf_columns, err));
    return BD_OK;
}

static bd_status open_parquet(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    BD_TRY(bd_parquet_check(columns->file.data, columns->file.size_bytes, err));
    columns->parquet = bd_limited_parquet_reader(columns->stream, columns->limit, &gerror);
    if (!columns->parquet)
        return fail_read(columns, gerror, "not a Parquet file", err);
    gparquet_arrow_file_reader_set_use_threads(columns->parquet, FALSE);  // callers use threads
    g_autoptr(GArrowSchema) gschema =
        gparquet_arrow_file_reader_get_schema(columns->parquet, &gerror);
    if (!gschema)
        return fail_read(columns, gerror, "not a schema that Arrow knows", err);
    g_autoptr(GParquetFileMetadata) metadata =
        gparquet_arrow_file_reader_get_metadata(columns->parquet);
    BD_TRY(choose_column(columns, gschema, field, err));
    // If Parquet counted leaves in another way, `leaf` would be the index of another column.
    const int n_leaf_columns = gparquet_file_metadata_get_n_columns(metadata);
    if (n_leaves(columns->schema) != n_leaf_columns)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "it has columns of an unknown structure");
    return find_row_groups(columns, n_leaf_columns, err);
}

static bd_status export_row_group(bd_columns *columns, int64_t index, bd_error *err)
{
    GError *gerror = NULL;
    limit_memory(columns, columns->groups[index].figures.stored_bytes);
    g_autofree gint *leaves = g_new(gint, (gsize)columns->n_leaves);
    for (int i = 0; i < columns->n_leaves; i++)
        leaves[i] = columns->leaf + i;
    g_autoptr(GArrowTable) table = gparquet_arrow_file_reader_read_row_group(
        columns->parquet, (gint)index, leaves, (gsize)columns->n_leaves, &gerror);
    if (!table)
        return fail_read(columns, gerror, "cannot be read", err);
    g_autoptr(GArrowSchema) read = garrow_table_get_schema(table);
    BD_TRY(check_wrappable(columns, read, err));
    g_autoptr(GArrowChunkedArray) chunks = garrow_table_get_column_data(table, 0);
    const guint n = garrow_chunked_array_get_n_chunks(chunks);
    for (guint i = 0; i < n; i++) {
        g_autoptr(GArrowArray) chunk = garrow_chunked_array_get_chunk(chunks, i);
        BD_TRY(export_chunk(columns, chunk, true, err));
    }
    return BD_OK;
}

// ---- Arrow files --------------------------------------------------------------------------

// Exports the only column of a batch.
static bd_status export_batch(bd_columns *columns, GArrowRecordBatch *record, bool fully,
                              bd_error *err)
{
    g_autoptr(GArrowSchema) read = garrow_record_batch_get_schema(record);
    BD_TRY(check_wrappable(columns, read, err));
    g_autoptr(GArrowArray) array = garrow_record_batch_get_column_data(record, 0);
    return export_chunk(columns, array, fully, err);
}

static bd_status export_file_batch(bd_columns *columns, int64_t index, bool fully,
                                   bd_error *err)
{
    GError *gerror = NULL;
    limit_memory(columns, (int64_t)columns->file.size_bytes);
    g_autoptr(GArrowRecordBatch) record = garrow_record_batch_file_reader_read_record_batch(
        columns->batches, (guint)index, &gerror);
    if (!record)
        return fail_read(columns, gerror, "cannot be read", err);
    return export_batch(columns, record, fully, err);
}

static bd_status open_arrow_file(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowRecordBatchFileReader) whole =
        bd_limited_file_reader(columns->stream, -1, columns->limit, &gerror);
    if (!whole)
        return fail_read(columns, gerror, "not an Arrow file", err);
    g_autoptr(GArrowSchema) gschema = garrow_record_batch_file_reader_get_schema(whole);
    BD_TRY(choose_column(columns, gschema, field, err));
    columns->batches =
        bd_limited_file_reader(columns->stream, columns->column, columns->limit, &gerror);
    if (!columns->batches)
        return fail_read(columns, gerror, "not an Arrow file", err);
    bd_status status = BD_OK;
    const guint n = garrow_record_batch_file_reader_get_n_record_batches(columns->batches);
    for (guint i = 0; status == BD_OK && i < n; i++) {
        forget_exported(columns);
        status = export_file_batch(columns, i, false, err);
        if (status == BD_OK)
            status = add_batch_group(columns, 0, 0, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "record batch %u", i);
    }
    return status;
}

// ---- Arrow streams ------------------------------------------------------------------------
// A stream has no table of contents. So all batches are read once when it is opened, to find where
// they begin, and again when their values are needed.

static bool has_dictionary(const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (has_dictionary(schema->children[i]))
            return true;
    return schema->dictionary != NULL;
}

// Sets *mark_bytes to the size of the mark of the end if it is at `at`; to 0 if a batch begins.
static bd_status look_ahead(const bd_columns *columns, int64_t at, int64_t *mark_bytes,
                            bd_error *err)
{
    const char *data = columns->file.data;
    const int64_t left = (int64_t)columns->file.size_bytes - at;
    uint32_t word = 0;
    *mark_bytes = sizeof word;
    // Every writer marks the end when it closes a stream.
    if (left == 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "it ends without the mark of its end, after %" PRId64
                       " rows: its writer was stopped or is still at work; write it again, or "
                       "copy what is there with pyarrow.ipc.open_stream()",
                       columns->n_rows);
    if (left >= (int64_t)sizeof word)
        memcpy(&word, data + at, sizeof word);
    // A message begins with its length, since Arrow 0.15 after 32 bits that are all ones. The mark
    // of the end is a message of length 0.
    if (word == UINT32_MAX && left >= 2 * (int64_t)sizeof word) {
        memcpy(&word, data + at + sizeof word, sizeof word);
        *mark_bytes = 2 * sizeof word;
    } else if (word == UINT32_MAX || left < (int64_t)sizeof word) {
        return bd_fail(err, BD_ERR_FORMAT, "it is cut short after %" PRId64 " bytes", at);
    }
    if (word != 0)
        *mark_bytes = 0;
    return BD_OK;
}

// The stream ended before `at`. Nothing may follow, because its rows would be lost.
static bd_status check_stream_end(const bd_columns *columns, int64_t at, bd_error *err)
{
    static const char begin[] = {'\xff', '\xff', '\xff', '\xff'};
    const int64_t left = (int64_t)columns->file.size_bytes - at;
    if (left == 0)
        return BD_OK;
    if (left >= (int64_t)sizeof begin &&
        memcmp((const char *)columns->file.data + at, begin, sizeof begin) == 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "the stream ends after %" PRId64
                       " rows, and another follows at byte %" PRId64
                       ": split them into two files",
                       columns->n_rows, at);
    return bd_fail(err, BD_ERR_FORMAT,
                   "%" PRId64 " bytes follow the end of the stream, at byte %" PRId64, left,
                   at);
}

// Exports the batch at `begin`, which ends at *end at the latest; sets *end to its true end.
static bd_status export_stream_batch(bd_columns *columns, int64_t begin, int64_t *end,
                                     bool fully, bd_error *err)
{
    GError *gerror = NULL;
    limit_memory(columns, *end - begin);
    g_autoptr(GArrowBuffer) rest = garrow_buffer_slice(columns->buffer, begin, *end - begin);
    g_autoptr(GArrowBufferInputStream) stream = garrow_buffer_input_stream_new(rest);
    g_autoptr(GArrowRecordBatch) record = garrow_input_stream_read_record_batch(
        GARROW_INPUT_STREAM(stream), columns->stream_schema, columns->stream_options, &gerror);
    if (!record)
        return fail_read(columns, gerror, "cannot be read", err);
    const gint64 size_bytes = garrow_file_tell(GARROW_FILE(stream), &gerror);
    if (size_bytes <= 0)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "cannot be read");
    *end = begin + size_bytes;
    return export_batch(columns, record, fully, err);
}

static bd_status find_batches(bd_columns *columns, int64_t at, bd_error *err)
{
    for (;;) {
        int64_t end = (int64_t)columns->file.size_bytes, mark_bytes;
        BD_TRY(look_ahead(columns, at, &mark_bytes, err));
        if (mark_bytes > 0)
            return check_stream_end(columns, at + mark_bytes, err);
        forget_exported(columns);
        bd_status status = export_stream_batch(columns, at, &end, false, err);
        if (status == BD_OK)
            status = add_batch_group(columns, at, end, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "record batch %zu", columns->n_groups);
        at = end;
    }
}

static bd_status open_arrow_stream(bd_columns *columns, const char *field, bd_error *err)
{
    GError *gerror = NULL;
    g_autoptr(GArrowRecordBatchStreamReader) reader =
        garrow_record_batch_stream_reader_new(GARROW_INPUT_STREAM(columns->stream), &gerror);
    if (!reader)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not an Arrow stream");
    columns->stream_schema =
        garrow_record_batch_reader_get_schema(GARROW_RECORD_BATCH_READER(reader));
    const gint64 at = garrow_file_tell(GARROW_FILE(columns->stream), &gerror);
    if (at < 0)
        return bd_fail_gerror(err, gerror, BD_ERR_FORMAT, "not an Arrow stream");
    BD_TRY(choose_column(columns, columns->stream_schema, field, err));
    if (has_dictionary(columns->schema))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "an Arrow stream with a dictionary-encoded column; an Arrow file or "
                       "Parquet may have one");
    columns->stream_options = garrow_read_options_new();
    garrow_read_options_set_included_fields(columns->stream_options, &columns->column, 1);
    g_object_set(columns->stream_options, "use-threads", FALSE, NULL);
    bd_read_options_limit(columns->stream_options, columns->limit);
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
    columns->limit = bd_arrow_limit_new();
    if (!columns->limit)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", columns->path);
    limit_memory(columns, (int64_t)columns->file.size_bytes);
    bd_status status = BD_OK;
    switch (columns->format) {
    case BD_COLUMNS_PARQUET:
        status = open_parquet(columns, field, err);
        break;
    case BD_COLUMNS_ARROW_FILE:
        status = open_arrow_file(columns, field, err);
        break;
    case BD_COLUMNS_ARROW_STREAM:
        status = open_arrow_stream(columns, field, err);
        break;
    }
    forget_exported(columns);
    return status == BD_OK ? BD_OK
                           : bd_error_prefix(err, status, "cannot read '%s'", columns->path);
}

static bd_columns *new_columns(const char *path, bd_columns_format format,
                               int64_t allowance_bytes)
{
    bd_columns *columns = g_new0(bd_columns, 1);
    columns->path = g_strdup(path);
    columns->format = format;
    columns->allowance_bytes = allowance_bytes;
    columns->file.slot = -1;
    return columns;
}

bd_status bd_columns_open(bd_columns **out, const char *path, bd_columns_format format,
                          const char *field, int64_t allowance_bytes, bd_error *err)
{
    *out = NULL;
    bd_columns *columns = new_columns(path, format, allowance_bytes);
    const bd_status status = open_mapped(columns, field, err);
    if (status == BD_OK)
        *out = columns;
    else
        bd_columns_close(columns);
    return status;
}

// "a.b" might also be a column of that name, which is then found in place of the one beside the ids.
static bool lies_beside(const bd_columns *mask, const bd_columns *ids)
{
    bool same = mask->n_names == ids->n_names;
    for (size_t i = 0; same && i + 1 < ids->n_names; i++)
        same = strcmp(mask->names[i], ids->names[i]) == 0;
    return same;
}

bd_status bd_columns_open_mask(bd_columns **out, const bd_columns *ids, const char *name,
                               bd_error *err)
{
    *out = NULL;
    bd_columns *columns = new_columns(ids->path, ids->format, ids->allowance_bytes);
    columns->is_mask = true;
    g_autoptr(GString) field = g_string_new(NULL);
    for (size_t i = 0; i + 1 < ids->n_names; i++)
        g_string_append_printf(field, "%s.", ids->names[i]);
    g_string_append(field, name);
    bd_status status = open_mapped(columns, field->str, err);
    if (status == BD_OK && !lies_beside(columns, ids))
        status = bd_fail(err, BD_ERR_FORMAT,
                         "cannot read '%s': two columns are called '%s': rename one of them",
                         ids->path, field->str);
    if (status == BD_OK)
        *out = columns;
    else
        bd_columns_close(columns);
    return status;
}

bd_status bd_columns_open_json(bd_columns **out, const char *path, bd_columns_format format,
                               const char *field, int64_t allowance_bytes, bd_error *err)
{
    *out = NULL;
    bd_columns *columns = new_columns(path, format, allowance_bytes);
    columns->as_json = true;
    const bd_status status = open_mapped(columns, field, err);
    if (status == BD_OK)
        *out = columns;
    else
        bd_columns_close(columns);
    return status;
}

int bd_columns_id_bytes(const bd_columns *columns)
{
    const bool is_text = columns->as_json || columns->type.layout == BD_VALUES_TEXT ||
                         columns->type.layout == BD_VALUES_TEXT_DICTIONARY;
    return is_text ? 0 : columns->type.item_bytes;
}

bool bd_columns_is_signed(const bd_columns *columns)
{
    return columns->type.is_signed;
}

const char *bd_columns_name(const bd_columns *columns)
{
    return columns->name;
}

bool bd_columns_has_beside(const bd_columns *columns, const char *name)
{
    return n_children_named(columns->parent, name) > 0;
}

bool bd_columns_has_metadata(const bd_columns *columns, const char *key)
{
    size_t length;
    return bd_schema_metadata(columns->schema, key, &length) != NULL;
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

// The rows as JSON have their places once all are written.
static bd_status take_json_rows(bd_columns *columns, bd_error *err)
{
    const bd_json_rows *json = &columns->json;
    bd_values *values = &columns->values;
    BD_TRY(bd_array_reserve((void **)&values->rows, &values->capacity, (size_t)json->n_rows + 1,
                            sizeof *values->rows, err));
    size_t begin = 0;
    for (int64_t i = 0; i < json->n_rows; begin = json->ends[i++])
        values->rows[i] = (bd_value){json->text + begin, (int64_t)(json->ends[i] - begin)};
    values->n_rows = json->n_rows;
    values->size_bytes = (int64_t)json->n_bytes;
    return BD_OK;
}

static bd_status read_values(bd_columns *columns, int64_t index, bd_error *err)
{
    const bd_value_path path = path_of(columns);
    const bd_column_group *figures = &columns->groups[index].figures;
    const int64_t n_rows = figures->n_rows;
    // Rows may take no bytes at all in the file (empty lists, runs of equal lengths).
    if (n_rows > bd_columns_allowed(columns, figures->stored_bytes) / BD_COLUMN_ROW_BYTES)
        return fail_column_too_large(columns, err);
    BD_TRY(export_group(columns, index, err));
    for (guint i = 0; i < columns->exported->len; i++) {
        const exported_chunk *chunk = columns->exported->pdata[i];
        bool too_large = false;
        BD_TRY(columns->as_json
                   ? bd_arrow_json_append(&columns->json, chunk->schema, chunk->array, &path,
                                          bd_columns_allowed(columns, figures->stored_bytes),
                                          &too_large, err)
                   : bd_values_append(&columns->values, chunk->schema, chunk->array, &path,
                                      &columns->type, err));
        if (too_large)
            return fail_column_too_large(columns, err);
    }
    if (columns->as_json)
        BD_TRY(take_json_rows(columns, err));
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
    *values = (bd_column_values){0};
    forget_exported(columns);
    const bd_status status = read_values(columns, index, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'%s', %s %" PRId64, columns->path,
                               group_word(columns), index);
    const bd_values *v = &columns->values;
    *values = (bd_column_values){v->rows, v->n_rows, v->size_bytes};
    return BD_OK;
}

void bd_columns_close(bd_columns *columns)
{
    if (!columns)
        return;
    if (columns->exported)
        g_ptr_array_free(columns->exported, TRUE);
    bd_values_release(&columns->values);
    bd_json_rows_release(&columns->json);
    g_clear_object(&columns->parquet);
    g_clear_object(&columns->batches);
    g_clear_object(&columns->stream_options);
    g_clear_object(&columns->stream_schema);
    g_clear_object(&columns->stream);
    g_clear_object(&columns->buffer);
    bd_arrow_limit_free(columns->limit);
    free_schema(columns->schema);
    bd_mapped_file_close(&columns->file);
    for (size_t i = 0; i < columns->n_names; i++)
        g_free(columns->names[i]);
    g_free(columns->name);
    free(columns->groups);
    g_free(columns->path);
    g_free(columns);
}
