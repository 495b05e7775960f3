// A table whose types the bytes choose, written by Arrow and read as `pack` reads it: every row
// is valid, or the table is refused with a reason. Then the file is damaged, and read again.
//
// byte 0     the format, and the requested field
//   then       a byte for the number of columns and one for each type, followed by those inside
//              of it; and one more where it says that it is an extension type
// the rest   damage: the place in two bytes, and the byte to write there
#include <arrow-glib/arrow-glib.h>
#include <arrow/c/abi.h>
#include <parquet-glib/parquet-glib.h>
#include <string.h>

#include "packer/input/arrow_columns.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MAX_DEPTH = 6,
    MAX_COLUMNS = 3,
    MAX_CHILDREN = 3,
    MAX_TYPES = 24,  // types that come after so many have no children
    // What the types before them still lack comes after them: children at each level, columns.
    ROOM = MAX_TYPES + MAX_DEPTH * MAX_CHILDREN + MAX_COLUMNS,
    ALLOWANCE_BYTES = 1 << 24
};

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static uint8_t next_byte(bytes *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

// ---- Types and arrays without rows --------------------------------------------------------
// Arrow releases what it imports; everything lies in here, so nothing has to be freed.

typedef struct made {
    struct ArrowSchema schemas[ROOM], *schema_children[ROOM][MAX_CHILDREN];
    struct ArrowArray arrays[ROOM], *array_children[ROOM][MAX_CHILDREN];
    const void *buffers[ROOM][3];
    char metadata[ROOM][160];
    int n;
} made;

static const uint64_t zeros[8];  // offsets for no rows

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i]->release)
            schema->children[i]->release(schema->children[i]);
    if (schema->dictionary && schema->dictionary->release)
        schema->dictionary->release(schema->dictionary);
    schema->release = NULL;
}

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);
    if (array->dictionary && array->dictionary->release)
        array->dictionary->release(array->dictionary);
    array->release = NULL;
}

static void put(char **at, const char *text)
{
    const int32_t length = (int32_t)strlen(text);
    memcpy(*at, &length, sizeof length);
    memcpy(*at + sizeof length, text, (size_t)length);
    *at += sizeof length + (size_t)length;
}

static void make_extension(char *metadata, uint8_t choice)
{
    static const char *const names[] = {
        "arrow.json", "arrow.opaque", "arrow.bool8", "arrow.uuid", "arrow.fixed_shape_tensor",
        "a.b"};
    static const char *const values[] = {
        "", "{\"type_name\": \"AAAAAAAAAAAAAAAA\", \"vendor_name\": \"v\"}", "{\"shape\":[1]}"};
    const int32_t n_pairs = 2;
    memcpy(metadata, &n_pairs, sizeof n_pairs);
    metadata += sizeof n_pairs;
    put(&metadata, "ARROW:extension:name");
    put(&metadata, names[choice % 6]);
    put(&metadata, "ARROW:extension:metadata");
    put(&metadata, values[choice / 6 % 3]);
}

static int make_type(made *m, bytes *b, int depth);

static void make_children(made *m, bytes *b, int index, int n, int depth)
{
    m->schemas[index].children = m->schema_children[index];
    m->arrays[index].children = m->array_children[index];
    for (int i = 0; i < n; i++) {
        const int child = make_type(m, b, depth + 1);
        m->schema_children[index][i] = &m->schemas[child];
        m->array_children[index][i] = &m->arrays[child];
    }
    m->schemas[index].n_children = m->arrays[index].n_children = n;
}

// Returns the index of a new type. If there are too many types, or they are nested too deep,
// it has no children.
static int make_type(made *m, bytes *b, int depth)
{
    static const struct {
        const char *format;
        int n_buffers, n_children;
    } kinds[] = {{"u", 3, 0},  {"U", 3, 0},    {"c", 2, 0},  {"S", 2, 0},
                 {"i", 2, 0},  {"L", 2, 0},    {"z", 3, 0},  {"b", 2, 0},
                 {"g", 2, 0},  {"w:16", 2, 0}, {"n", 0, 0},  {"+l", 2, 1},
                 {"+L", 2, 1}, {"+w:3", 1, 1}, {"+s", 1, 2}, {"+w:0", 1, 1}};
    static const char *const names[] = {"text", "a", "input_ids", "b"};
    const uint8_t choice = next_byte(b);
    const int index = m->n++;
    const bool is_leaf = depth == MAX_DEPTH || m->n >= MAX_TYPES;
    const int kind = choice % (is_leaf ? 11 : 16);
    m->schemas[index] = (struct ArrowSchema){.format = kinds[kind].format,
                                             .name = names[choice / 16 % 4],
                                             .flags = ARROW_FLAG_NULLABLE,
                                             .release = release_schema};
    m->arrays[index] = (struct ArrowArray){.n_buffers = kinds[kind].n_buffers,
                                           .buffers = m->buffers[index],
                                           .release = release_array};
    for (int i = 1; i < kinds[kind].n_buffers; i++)
        m->buffers[index][i] = zeros;
    make_children(m, b, index, kinds[kind].n_children, depth);
    if (choice / 64 == 1) {
        make_extension(m->metadata[index], next_byte(b));
        m->schemas[index].metadata = m->metadata[index];
    }
    if (choice / 64 == 2 && !is_leaf && kinds[kind].n_children == 0 && choice % 11 >= 2 &&
        choice % 11 <= 5) {
        const int values = make_type(m, b, MAX_DEPTH);
        m->schemas[index].dictionary = &m->schemas[values];
        m->arrays[index].dictionary = &m->arrays[values];
    }
    return index;
}

// Returns a record batch with columns of these types; NULL if Arrow refuses them.
static GArrowRecordBatch *make_batch(made *m, bytes *b)
{
    const int top = m->n++;
    m->schemas[top] =
        (struct ArrowSchema){.format = "+s", .name = "", .release = release_schema};
    m->arrays[top] = (struct ArrowArray){
        .n_buffers = 1, .buffers = m->buffers[top], .release = release_array};
    make_children(m, b, top, 1 + next_byte(b) % MAX_COLUMNS, 0);
    g_autoptr(GArrowSchema) schema = garrow_schema_import(&m->schemas[top], NULL);
    GArrowRecordBatch *batch =
        schema ? garrow_record_batch_import(&m->arrays[top], schema, NULL) : NULL;
    if (m->schemas[top].release)
        m->schemas[top].release(&m->schemas[top]);
    if (m->arrays[top].release)
        m->arrays[top].release(&m->arrays[top]);
    return batch;
}

// ---- Files ----------------------------------------------------------------------------------

static bool write_batch(GArrowRecordBatch *batch, bd_columns_format format,
                        GArrowOutputStream *sink)
{
    g_autoptr(GArrowSchema) schema = garrow_record_batch_get_schema(batch);
    if (format == BD_COLUMNS_PARQUET) {
        g_autoptr(GParquetArrowFileWriter) writer =
            gparquet_arrow_file_writer_new_arrow(schema, sink, NULL, NULL);
        return writer && gparquet_arrow_file_writer_write_record_batch(writer, batch, NULL) &&
               gparquet_arrow_file_writer_close(writer, NULL);
    }
    g_autoptr(GArrowRecordBatchWriter) writer =
        format == BD_COLUMNS_ARROW_FILE
            ? (GArrowRecordBatchWriter *)garrow_record_batch_file_writer_new(sink, schema, NULL)
            : (GArrowRecordBatchWriter *)garrow_record_batch_stream_writer_new(sink, schema,
                                                                               NULL);
    return writer && garrow_record_batch_writer_write_record_batch(writer, batch, NULL) &&
           garrow_record_batch_writer_close(writer, NULL);
}

static void read_table(bd_columns_format format, const char *field)
{
    bd_columns *columns;
    bd_error err = {0};
    bd_status status =
        bd_columns_open(&columns, memory_file_path(), format, field, ALLOWANCE_BYTES, &err);
    for (int64_t g = 0; status == BD_OK && g < bd_columns_n_groups(columns); g++) {
        bd_column_values values;
        uint64_t sum = 0;
        status = bd_columns_read(columns, g, &values, &err);
        for (int64_t i = 0; status == BD_OK && i < values.n_rows; i++)
            for (int64_t j = 0; j < values.rows[i].size_bytes; j++)
                sum += (unsigned char)values.rows[i].data[j];
        REQUIRE(sum < UINT64_MAX);
    }
    REQUIRE(status == BD_OK || err.message[0]);
    bd_columns_close(columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const fields[] = {"text", "a", "a.b", "a.a.text"};
    bytes b = {data, data + size};
    const uint8_t choice = next_byte(&b);
    const bd_columns_format format = (bd_columns_format)(choice % 3);
    made m = {.n = 0};
    g_autoptr(GArrowRecordBatch) batch = make_batch(&m, &b);
    if (!batch)
        return 0;
    g_autoptr(GArrowResizableBuffer) buffer = garrow_resizable_buffer_new(4096, NULL);
    g_autoptr(GArrowBufferOutputStream) sink = garrow_buffer_output_stream_new(buffer);
    if (!write_batch(batch, format, GARROW_OUTPUT_STREAM(sink)) ||
        !garrow_file_close(GARROW_FILE(sink), NULL))
        return 0;
    g_autoptr(GBytes) written = garrow_buffer_get_data(GARROW_BUFFER(buffer));
    gsize n;
    char *file = g_memdup2(g_bytes_get_data(written, &n), g_bytes_get_size(written));
    memory_file_set(file, n);
    read_table(format, fields[choice / 3 % 4]);
    while (n > 0 && b.at < b.end) {
        const size_t at = next_byte(&b) * 256u + next_byte(&b);
        file[at % n] = (char)next_byte(&b);
        memory_file_set(file, n);
        read_table(format, fields[choice / 3 % 4]);
    }
    g_free(file);
    return 0;
}
