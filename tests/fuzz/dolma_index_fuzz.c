// A table made of any bytes gives the ends that a plain reader of its fields finds, or both
// refuse it.
//
//   bytes 0, 1   tokens
//   the rest     the table, not compressed
#include "packer/input/dolma_index.h"

#include <string.h>

#include "packer/input/byte_stream.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FIELD = 4096, MAX_ROWS = 4096, N_COLUMNS = 5 };

// ---- The plain reader ----------------------------------------------------------------------

typedef struct text {
    const char *data;
    size_t n, at;
} text;

typedef struct field {
    char content[MAX_FIELD];
    size_t n;
    bool last;  // the last field of its row
} field;

static bool sees(const text *t, char c)
{
    return t->at < t->n && t->data[t->at] == c;
}

// Reads a field and its delimiter. Returns false if a quote is never closed.
static bool take_field(text *t, field *f)
{
    f->n = 0;
    if (sees(t, '"')) {
        const char *from = t->data + t->at + 1, *const end = t->data + t->n;
        for (;; from++) {
            if (from == end)
                return false;
            if (*from == '"' && (from + 1 == end || from[1] != '"'))
                break;
            from += *from == '"';  // a doubled quote
            f->content[f->n++] = *from;
        }
        t->at = (size_t)(from + 1 - t->data);
    }
    while (t->at < t->n && !sees(t, ',') && !sees(t, '\n'))
        f->content[f->n++] = t->data[t->at++];
    f->last = !sees(t, ',');
    t->at++;
    return true;
}

static bool is_number(const field *f, int64_t *number)
{
    char digits[20] = {0};
    if (f->n < 1 || f->n > 18)
        return false;
    memcpy(digits, f->content, f->n);
    *number = strtoll(digits, NULL, 10);
    return strspn(digits, "0123456789") == f->n;
}

// Returns the number of rows, or -1 if the table is invalid.
static int64_t read_plainly(text *t, int64_t n_tokens, int64_t *ends)
{
    int64_t n_rows = 0, before = 0;
    while (t->at < t->n) {
        static field f;
        int64_t bounds[2];
        for (int column = 0; column < N_COLUMNS; column++) {
            if (!take_field(t, &f) || f.last != (column == N_COLUMNS - 1))
                return -1;
            if (column < 2 && !is_number(&f, &bounds[column]))
                return -1;
        }
        if (bounds[0] != before || bounds[1] < before || bounds[1] > n_tokens)
            return -1;
        before = ends[n_rows++] = bounds[1];
    }
    return n_rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int64_t ends[MAX_ROWS];
    if (size < 2 || size > MAX_FIELD || bd_decompressor_of(data + 2, size - 2) != NULL)
        return 0;
    const int64_t n_tokens = data[0] + 256 * data[1];
    text table = {(const char *)data + 2, size - 2, 0};
    memory_file_set(table.data, table.n);
    bd_dolma_index index;
    bd_error err = {0};
    const bd_status status =
        bd_dolma_index_read(&index, memory_file_path(), "fuzz.npy", n_tokens, &err);
    const int64_t n_rows = read_plainly(&table, n_tokens, ends);
    REQUIRE((status == BD_OK) == (n_rows >= 0));
    if (status == BD_OK)
        REQUIRE(index.n_documents == n_rows &&
                (n_rows == 0 || memcmp(index.ends, ends, (size_t)n_rows * sizeof *ends) == 0));
    else
        REQUIRE(status == BD_ERR_FORMAT && strstr(err.message, "cannot use '") != NULL);
    bd_dolma_index_release(&index);
    return 0;
}
