#include "packer/input/parquet_footer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// ---- Thrift's compact protocol ------------------------------------------------------------
// A struct is a sequence of fields and ends with a zero byte. A field begins with one byte: the
// type in its lower half, and in its upper half by how much the field's number exceeds the number
// of the field before it (0: the number itself follows). Integers are varints, signed ones in
// zigzag order (0, -1, 1, -2, ...). Lists, maps and strings begin with their length. So the type
// of a field is enough to skip it.

enum {
    STOP = 0,  // the end of a struct
    TRUE_FIELD = 1,
    FALSE_FIELD = 2,
    BYTE = 3,
    INT16 = 4,
    INT32 = 5,
    INT64 = 6,
    DOUBLE = 7,
    BINARY = 8,
    LIST = 9,
    SET = 10,
    MAP = 11,
    STRUCT = 12,
};

enum { MAX_DEPTH = 32 };  // of values inside values that are skipped

// After `damaged` is set, reading gives zero and does not advance, so that callers may check late.
typedef struct thrift {
    const uint8_t *at, *end;
    bool damaged;
} thrift;

static uint8_t read_byte(thrift *t)
{
    if (t->damaged || t->at == t->end) {
        t->damaged = true;
        return 0;
    }
    return *t->at++;
}

static void skip_bytes(thrift *t, uint64_t n)
{
    if (n > (uint64_t)(t->end - t->at))
        t->damaged = true;
    else
        t->at += n;
}

static uint64_t read_varint(thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = read_byte(t);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    t->damaged = true;
    return 0;
}

static int64_t read_integer(thrift *t)
{
    const uint64_t zigzag = read_varint(t);
    return (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
}

typedef struct field {
    int64_t id;
    int type;
} field;

// Reads the beginning of a struct's next field; `f` must be zero before the first. Returns false
// after the last field and if the footer is damaged.
static bool next_field(thrift *t, field *f)
{
    const uint8_t header = read_byte(t);
    f->type = header & 0x0f;
    if (t->damaged || f->type == STOP)
        return false;
    const int delta = header >> 4;
    if (delta == 0)
        f->id = read_integer(t);
    else if (__builtin_add_overflow(f->id, delta, &f->id))
        t->damaged = true;
    return !t->damaged;
}

// Reads the beginning of a list and returns its length.
static uint64_t read_list(thrift *t, int *item_type)
{
    const uint8_t header = read_byte(t);
    *item_type = header & 0x0f;
    return header >> 4 == 15 ? read_varint(t) : header >> 4;
}

static void skip(thrift *t, int type, int depth);

static void skip_struct(thrift *t, int depth)
{
    field f = {0};
    while (next_field(t, &f))
        if (f.type != TRUE_FIELD && f.type != FALSE_FIELD)  // their value is in the type
            skip(t, f.type, depth);
}

static void skip_map(thrift *t, int depth)
{
    const uint64_t n = read_varint(t);
    const uint8_t types = n > 0 ? read_byte(t) : 0;
    for (uint64_t i = 0; !t->damaged && i < n; i++) {
        skip(t, types >> 4, depth);
        skip(t, types & 0x0f, depth);
    }
}

// Skips a value. Every value takes at least one byte, so the loops end with the footer, however
// large a count is.
static void skip(thrift *t, int type, int depth)
{
    int item_type;
    uint64_t n;
    if (depth == MAX_DEPTH)
        t->damaged = true;
    if (t->damaged)
        return;
    switch (type) {
    case TRUE_FIELD:
    case FALSE_FIELD:
    case BYTE:
        skip_bytes(t, 1);
        break;
    case INT16:
    case INT32:
    case INT64:
        read_varint(t);
        break;
    case DOUBLE:
        skip_bytes(t, 8);
        break;
    case BINARY:
        skip_bytes(t, read_varint(t));
        break;
    case LIST:
    case SET:
        n = read_list(t, &item_type);
        for (uint64_t i = 0; !t->damaged && i < n; i++)
            skip(t, item_type, depth + 1);
        break;
    case MAP:
        skip_map(t, depth + 1);
        break;
    case STRUCT:
        skip_struct(t, depth + 1);
        break;
    default:
        t->damaged = true;
    }
}

static void skip_field(thrift *t, const field *f)
{
    if (f->type != TRUE_FIELD && f->type != FALSE_FIELD)
        skip(t, f->type, 0);
}

// ---- The structs that lead to a column chunk; parquet.thrift numbers their fields ----------

static bool is_field(const field *f, int64_t id, int type)
{
    return f->id == id && f->type == type;
}

static void read_column_metadata(thrift *t, bd_parquet_chunk *chunk)
{
    field f = {0};
    while (next_field(t, &f)) {
        if (is_field(&f, 6, INT64))
            chunk->encoded_bytes = read_integer(t);
        else if (is_field(&f, 7, INT64))
            chunk->stored_bytes = read_integer(t);
        else
            skip_field(t, &f);
    }
}

static void read_column_chunk(thrift *t, bd_parquet_chunk *chunk)
{
    field f = {0};
    while (next_field(t, &f)) {
        chunk->is_encrypted |= f.id == 8;  // ColumnCryptoMetaData
        if (is_field(&f, 3, STRUCT))
            read_column_metadata(t, chunk);
        else
            skip_field(t, &f);
    }
}

static void read_columns(thrift *t, int64_t n_columns, int64_t column, bd_parquet_chunk *chunk)
{
    int type;
    const uint64_t n = read_list(t, &type);
    if (n != (uint64_t)n_columns || type != STRUCT)
        t->damaged = true;
    for (int64_t i = 0; !t->damaged && i < n_columns; i++) {
        if (i == column)
            read_column_chunk(t, chunk);
        else
            skip_struct(t, 0);
    }
}

static void read_row_group(thrift *t, int64_t n_columns, int64_t column,
                           bd_parquet_chunk *chunk)
{
    field f = {0};
    *chunk = (bd_parquet_chunk){-1, -1, -1, false};  // -1: missing
    while (next_field(t, &f)) {
        if (is_field(&f, 1, LIST))
            read_columns(t, n_columns, column, chunk);
        else if (is_field(&f, 3, INT64))
            chunk->n_rows = read_integer(t);
        else
            skip_field(t, &f);
    }
}

static bd_status read_row_groups(thrift *t, int64_t n_columns, int64_t column,
                                 size_t file_bytes, bd_parquet_chunk **chunks, size_t *n_chunks,
                                 bd_error *err)
{
    size_t capacity = *n_chunks;
    int type;
    const uint64_t n = read_list(t, &type);
    if (type != STRUCT && n > 0)
        t->damaged = true;
    for (uint64_t i = 0; !t->damaged && i < n; i++) {
        bd_parquet_chunk chunk;
        read_row_group(t, n_columns, column, &chunk);
        if (t->damaged)
            break;
        if (chunk.is_encrypted)
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "the column is encrypted: decrypt it first");
        if (chunk.n_rows < 0 || chunk.encoded_bytes < 0 || chunk.stored_bytes < 0 ||
            (uint64_t)chunk.stored_bytes > file_bytes)
            return bd_fail(err, BD_ERR_FORMAT,
                           "the footer has impossible sizes for row group %zu", *n_chunks);
        BD_TRY(
            bd_array_reserve((void **)chunks, &capacity, *n_chunks + 1, sizeof **chunks, err));
        (*chunks)[(*n_chunks)++] = chunk;
    }
    return BD_OK;
}

static bd_status read_file_metadata(thrift *t, int64_t n_columns, int64_t column,
                                    size_t file_bytes, bd_parquet_chunk **chunks,
                                    size_t *n_chunks, bd_error *err)
{
    field f = {0};
    bool found = false;
    while (next_field(t, &f)) {
        if (is_field(&f, 4, LIST) && !found) {
            found = true;
            BD_TRY(read_row_groups(t, n_columns, column, file_bytes, chunks, n_chunks, err));
        } else {
            skip_field(t, &f);
        }
    }
    if (t->damaged || !found)
        return bd_fail(err, BD_ERR_FORMAT, "the footer is damaged");
    return BD_OK;
}

// Sets *t to the bytes of the footer.
static bd_status find_footer(thrift *t, const void *data, size_t size_bytes, bd_error *err)
{
    static const char magic[4] = "PAR1", encrypted[4] = "PARE";
    const uint8_t *bytes = data;
    uint32_t length;
    const size_t tail_bytes = sizeof length + sizeof magic;
    const uint8_t *tail = size_bytes < tail_bytes ? NULL : bytes + size_bytes - tail_bytes;
    if (tail && memcmp(tail + sizeof length, encrypted, sizeof encrypted) == 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "its footer is encrypted: decrypt it first");
    if (!tail || memcmp(tail + sizeof length, magic, sizeof magic) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "it does not end as a Parquet file does");
    memcpy(&length, tail, sizeof length);
    if (length > size_bytes - tail_bytes)
        return bd_fail(err, BD_ERR_FORMAT, "the footer is said to be longer than the file");
    *t = (thrift){.at = tail - length, .end = tail};
    return BD_OK;
}

// ---- The schema ---------------------------------------------------------------------------

enum { MAX_LEVELS = 200 };

// Reads a SchemaElement and returns how many children it has.
static int64_t read_element(thrift *t)
{
    field f = {0};
    int64_t n_children = 0;
    while (next_field(t, &f)) {
        if (is_field(&f, 5, INT32))
            n_children = read_integer(t);
        else
            skip_field(t, &f);
    }
    return n_children;
}

// Whether the schema is nested at most MAX_LEVELS deep. It is a tree in preorder: an element, then
// its children, each with everything below it. left[] is a stack: for every element above the
// next one, how many of its children are still to come. So its height is the depth.
static bool is_shallow(thrift *t)
{
    int64_t left[MAX_LEVELS];
    int depth = 0, type;
    const uint64_t n = read_list(t, &type);
    if (type != STRUCT && n > 0)
        t->damaged = true;
    for (uint64_t i = 0; !t->damaged && i < n; i++) {
        const int64_t n_children = read_element(t);
        if (depth > 0)
            left[depth - 1]--;
        if (n_children > 0) {
            if (depth == MAX_LEVELS)
                return false;
            left[depth++] = n_children;
        }
        while (depth > 0 && left[depth - 1] <= 0)
            depth--;
    }
    return true;
}

bd_status bd_parquet_check(const void *data, size_t size_bytes, bd_error *err)
{
    thrift t;
    field f = {0};
    BD_TRY(find_footer(&t, data, size_bytes, err));
    while (next_field(&t, &f)) {
        if (!is_field(&f, 2, LIST))
            skip_field(&t, &f);
        else if (!is_shallow(&t))
            return bd_fail(err, BD_ERR_FORMAT, "its columns are nested deeper than %d levels",
                           MAX_LEVELS);
    }
    return t.damaged ? bd_fail(err, BD_ERR_FORMAT, "the footer is damaged") : BD_OK;
}

bd_status bd_parquet_footer_read(const void *data, size_t size_bytes, int64_t n_columns,
                                 int64_t column, bd_parquet_chunk **chunks, size_t *n_chunks,
                                 bd_error *err)
{
    thrift t;
    *chunks = NULL;
    *n_chunks = 0;
    BD_TRY(find_footer(&t, data, size_bytes, err));
    const bd_status status =
        read_file_metadata(&t, n_columns, column, size_bytes, chunks, n_chunks, err);
    if (status != BD_OK) {
        free(*chunks);
        *chunks = NULL;
        *n_chunks = 0;
    }
    return status;
}
