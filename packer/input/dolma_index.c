#include "packer/input/dolma_index.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "packer/input/byte_stream.h"

enum { CHUNK_BYTES = 1 << 16, N_COLUMNS = 5 };

// The state after some bytes of the table; a chunk may end anywhere.
typedef struct csv_reader {
    const char *ids_path;
    int64_t n_tokens;
    int64_t *ends;  // [n_rows], owned
    size_t capacity;
    int64_t n_rows;
    enum { FIELD_BEGINS, FIELD_PLAIN, FIELD_QUOTED, FIELD_QUOTE_SEEN } state;
    int column;
    int n_digits;       // of this column so far
    int64_t bounds[2];  // start and end in this row
} csv_reader;

static bd_status take_content(csv_reader *csv, char c, bd_error *err)
{
    enum { MAX_DIGITS = 18 };  // which always fit into 64 bits
    if (csv->column >= 2)
        return BD_OK;
    if (c < '0' || c > '9' || ++csv->n_digits > MAX_DIGITS)
        return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 ": the %s is not a number of tokens",
                       csv->n_rows + 1, csv->column == 0 ? "start" : "end");
    csv->bounds[csv->column] = csv->bounds[csv->column] * 10 + (c - '0');
    return BD_OK;
}

static bd_status end_field(csv_reader *csv, bd_error *err)
{
    if (csv->column < 2 && csv->n_digits == 0)
        return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has no %s", csv->n_rows + 1,
                       csv->column == 0 ? "start" : "end");
    if (++csv->column > N_COLUMNS)
        return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has more than %d columns",
                       csv->n_rows + 1, N_COLUMNS);
    csv->n_digits = 0;
    csv->state = FIELD_BEGINS;
    return BD_OK;
}

static bd_status check_bounds(const csv_reader *csv, bd_error *err)
{
    const int64_t start = csv->bounds[0], end = csv->bounds[1], row = csv->n_rows + 1;
    const int64_t before = csv->n_rows == 0 ? 0 : csv->ends[csv->n_rows - 1];
    if (start < before)
        return bd_fail(err, BD_ERR_FORMAT,
                       "row %" PRId64 " begins at token %" PRId64
                       ", but the one before it ends at %" PRId64,
                       row, start, before);
    if (start > before)
        return bd_fail(err, BD_ERR_FORMAT,
                       "row %" PRId64 " begins at token %" PRId64 ": token %" PRId64
                       " belongs to no document",
                       row, start, before);
    if (end < start)
        return bd_fail(err, BD_ERR_FORMAT,
                       "row %" PRId64 " begins at token %" PRId64 " and ends at %" PRId64, row,
                       start, end);
    if (end > csv->n_tokens)
        return bd_fail(err, BD_ERR_FORMAT,
                       "row %" PRId64 " ends at token %" PRId64 ", but '%s' has %" PRId64, row,
                       end, csv->ids_path, csv->n_tokens);
    return BD_OK;
}

// Fails if the table must not have one more row.
static bd_status check_n_documents(const csv_reader *csv, bd_error *err)
{
    int64_t limit = BD_DOLMA_MAX_DOCUMENTS;
    if (csv->n_tokens < limit - BD_DOLMA_MAX_SURPLUS)
        limit = csv->n_tokens + BD_DOLMA_MAX_SURPLUS;
    if (csv->n_rows == limit)
        return bd_fail(err, BD_ERR_FORMAT,
                       "it has more than %" PRId64 " rows, too many for the %" PRId64
                       " tokens of '%s'",
                       limit, csv->n_tokens, csv->ids_path);
    return BD_OK;
}

static bd_status end_row(csv_reader *csv, bd_error *err)
{
    BD_TRY(end_field(csv, err));
    if (csv->column != N_COLUMNS)
        return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " has %d columns, not %d",
                       csv->n_rows + 1, csv->column, N_COLUMNS);
    BD_TRY(check_bounds(csv, err));
    BD_TRY(check_n_documents(csv, err));
    BD_TRY(bd_array_reserve((void **)&csv->ends, &csv->capacity, (size_t)csv->n_rows + 1,
                            sizeof *csv->ends, err));
    csv->ends[csv->n_rows++] = csv->bounds[1];
    csv->bounds[0] = csv->bounds[1] = 0;
    csv->column = 0;
    return BD_OK;
}

// A quote inside quotes either ends the quotation or is the first of two that stand for one; the
// byte after it decides (FIELD_QUOTE_SEEN).
static bd_status take_byte(csv_reader *csv, char c, bd_error *err)
{
    if (csv->state == FIELD_QUOTED && c == '"') {
        csv->state = FIELD_QUOTE_SEEN;
        return BD_OK;
    }
    if (csv->state == FIELD_QUOTED)
        return take_content(csv, c, err);
    if (c == '"' && csv->state != FIELD_PLAIN) {
        const bool doubled = csv->state == FIELD_QUOTE_SEEN;
        csv->state = FIELD_QUOTED;
        return doubled ? take_content(csv, c, err) : BD_OK;
    }
    if (c == ',')
        return end_field(csv, err);
    if (c == '\n')
        return end_row(csv, err);
    csv->state = FIELD_PLAIN;
    return take_content(csv, c, err);
}

static bd_status end_csv(csv_reader *csv, bd_error *err)
{
    if (csv->state == FIELD_QUOTED)
        return bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " ends inside quotes",
                       csv->n_rows + 1);
    if (csv->column > 0 || csv->state != FIELD_BEGINS)
        return end_row(csv, err);
    return BD_OK;
}

static bd_status read_rows(csv_reader *csv, bd_byte_stream *stream, const char *path,
                           char *chunk, bd_error *err)
{
    size_t n = CHUNK_BYTES;
    while (n == CHUNK_BYTES) {
        BD_TRY(bd_byte_stream_read(stream, chunk, CHUNK_BYTES, &n, err));
        bd_status status = BD_OK;
        for (size_t i = 0; i < n && status == BD_OK; i++)
            status = take_byte(csv, chunk[i], err);
        if (status == BD_OK && n < CHUNK_BYTES)
            status = end_csv(csv, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "cannot use '%s'", path);
    }
    return BD_OK;
}

bd_status bd_dolma_index_read(bd_dolma_index *index, const char *path, const char *ids_path,
                              int64_t n_tokens, bd_error *err)
{
    csv_reader csv = {.ids_path = ids_path, .n_tokens = n_tokens};
    bd_byte_stream *stream = NULL;
    bd_status status;
    *index = (bd_dolma_index){0};
    char *chunk = malloc(CHUNK_BYTES);
    if (!chunk) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    status = bd_byte_stream_open(&stream, path, err);
    if (status == BD_OK)
        status = read_rows(&csv, stream, path, chunk, err);
    if (status != BD_OK)
        goto done;
    *index = (bd_dolma_index){csv.ends, csv.n_rows};
    csv.ends = NULL;
done:
    bd_byte_stream_close(stream);
    free(chunk);
    free(csv.ends);
    return status;
}

void bd_dolma_index_release(bd_dolma_index *index)
{
    free(index->ends);
    *index = (bd_dolma_index){0};
}
