// Usage: table_probe < LIST
//
// Reads many tables as `pack` does, one child for each, and prints the result for a test. A
// line of the list is FORMAT (parquet, file or stream; with -json after it, the rows are read as
// JSON), the field and the path, separated by tabs; a line of the answer is one of
//
//   rows ID_BYTES N HASH  N rows; the hash is XXH3-64 over each row's bytes and its length as 8
//                         bytes, little-endian, -1 for a row without a value
//   refused MESSAGE
//   crashed SIGNAL
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/checksum.h"
#include "packer/input/arrow_columns.h"

enum { ALLOWANCE_BYTES = 1 << 26 };

static bd_columns_format format_named(const char *word)
{
    if (strncmp(word, "parquet", 7) == 0)
        return BD_COLUMNS_PARQUET;
    return strncmp(word, "file", 4) == 0 ? BD_COLUMNS_ARROW_FILE : BD_COLUMNS_ARROW_STREAM;
}

static bd_status read_rows(bd_columns *columns, bd_hasher *hasher, int64_t *n_rows,
                           bd_error *err)
{
    for (int64_t g = 0; g < bd_columns_n_groups(columns); g++) {
        bd_column_values values;
        BD_TRY(bd_columns_read(columns, g, &values, err));
        for (int64_t i = 0; i < values.n_rows; i++) {
            const bd_value *row = &values.rows[i];
            const int64_t length = row->data ? row->size_bytes : -1;
            if (length > 0)
                bd_hasher_add(hasher, row->data, (size_t)length);
            bd_hasher_add(hasher, &length, sizeof length);
        }
        *n_rows += values.n_rows;
    }
    return BD_OK;
}

static void read_table(const char *format, const char *field, const char *path)
{
    bd_columns *columns = NULL;
    bd_error err = {0};
    int64_t n_rows = 0;
    bd_hasher *hasher = bd_hasher_new();
    bd_status status = (strchr(format, '-') ? bd_columns_open_json : bd_columns_open)(
        &columns, path, format_named(format), field, ALLOWANCE_BYTES, &err);
    if (status == BD_OK)
        status = read_rows(columns, hasher, &n_rows, &err);
    if (status == BD_OK)
        printf("rows %d %" PRId64 " %" PRIu64 "\n", bd_columns_id_bytes(columns), n_rows,
               bd_hasher_take64(hasher));
    else
        printf("refused %s\n", err.message);
    bd_columns_close(columns);
    bd_hasher_free(hasher);
}

// A crash ends only the child of one table.
static void read_in_child(const char *format, const char *field, const char *path)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        read_table(format, field, path);
        fflush(stdout);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0)
        exit(2);
    if (WIFSIGNALED(status))
        printf("crashed %d\n", WTERMSIG(status));
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = line;
        const char *format = strsep(&rest, "\t"), *field = strsep(&rest, "\t");
        if (!rest)
            return 2;
        read_in_child(format, field, rest);
    }
    free(line);
    return 0;
}
