// A Parquet file of any bytes: its footer gives possible numbers, or is refused with a reason;
// and the bytes before the footer change nothing.
//
// byte 0     the number of columns, and the chosen ones
//   the rest   the file's end
#include "packer/input/parquet_footer.h"

#include <string.h>

#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_BEFORE = 5 };

typedef struct footer {
    bd_status status;
    bd_parquet_chunk *chunks;  // owned
    size_t n;
} footer;

static footer read_footer(const uint8_t *data, size_t size, int64_t n_columns, int64_t column)
{
    footer f = {0};
    bd_error err = {0};
    f.status = bd_parquet_footer_read(data, size, n_columns, column, &f.chunks, &f.n, &err);
    const bool is_refused = f.status == BD_ERR_FORMAT || f.status == BD_ERR_UNSUPPORTED;
    REQUIRE(f.status == BD_OK || (is_refused && err.message[0]));
    for (size_t i = 0; f.status == BD_OK && i < f.n; i++)
        REQUIRE(f.chunks[i].n_rows >= 0 && f.chunks[i].encoded_bytes >= 0 &&
                f.chunks[i].stored_bytes >= 0 && (size_t)f.chunks[i].stored_bytes <= size);
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const int64_t n_columns = 1 + data[0] % 4, column = data[0] / 4 % n_columns;
    uint8_t *longer = malloc(size + N_BEFORE);
    REQUIRE(longer);
    memset(longer, 'x', N_BEFORE);
    memcpy(longer + N_BEFORE, data + 1, size - 1);
    bd_error err = {0};
    const bd_status checked = bd_parquet_check(data + 1, size - 1, &err);
    REQUIRE(checked == BD_OK || err.message[0]);
    if (checked == BD_OK)
        REQUIRE(bd_parquet_check(longer, size - 1 + N_BEFORE, NULL) == BD_OK);
    footer here = read_footer(data + 1, size - 1, n_columns, column);
    footer there = read_footer(longer, size - 1 + N_BEFORE, n_columns, column);
    if (here.status == BD_OK) {
        REQUIRE(there.status == BD_OK && there.n == here.n);
        REQUIRE(here.n == 0 ||
                memcmp(here.chunks, there.chunks, here.n * sizeof *here.chunks) == 0);
    }
    free(longer);
    if (here.status == BD_OK)
        free(here.chunks);
    if (there.status == BD_OK)
        free(there.chunks);
    return 0;
}
