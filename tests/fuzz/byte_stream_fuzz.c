// Reading a file gives the same bytes for every size of a read, and measuring it gives their
// number. The input is the file itself.
#include <string.h>

#include "packer/input/byte_stream.h"
#include "packer/input/decompressor.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 21, MAX_PIECE = 509 };

typedef struct result {
    bd_status status;
    const bd_decompressor *compression;
    size_t n;  // at most LIMIT + 1, which means that there may be more
} result;

// Reads at most LIMIT + 1 bytes into `out`.
static result read_pieces(char *out, size_t piece)
{
    result r = {0};
    bd_error err = {0};
    bd_byte_stream *stream;
    REQUIRE(bd_byte_stream_open(&stream, memory_file_path(), &err) == BD_OK);
    r.compression = bd_byte_stream_compression(stream);
    size_t wanted, got;
    do {
        wanted = LIMIT + 1 - r.n < piece ? LIMIT + 1 - r.n : piece;
        r.status = bd_byte_stream_read(stream, out + r.n, wanted, &got, &err);
        REQUIRE(got <= wanted);
        r.n += got;
    } while (r.status == BD_OK && got == wanted && r.n <= LIMIT);
    REQUIRE((r.status == BD_OK) == (err.message[0] == '\0'));
    bd_byte_stream_close(stream);
    return r;
}

// Checks the measured size if reading met the end or damage before the limit.
static void check_measure(const result *r)
{
    int64_t measured = 0;
    const bd_status status = bd_byte_stream_measure(memory_file_path(), LIMIT, &measured, NULL);
    if (r->status == BD_OK)
        REQUIRE(status == BD_OK && measured == (int64_t)r->n);
    else if (!r->compression->measure)
        REQUIRE(status == r->status);
    else if (status == BD_OK)  // a size that a frame states
        REQUIRE(measured >= -1 && measured <= LIMIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char whole[LIMIT + 1], pieced[LIMIT + 1];
    memory_file_set(data, size);
    const result all = read_pieces(whole, sizeof whole);
    const result some = read_pieces(pieced, 1 + size % MAX_PIECE);
    REQUIRE(all.compression == bd_decompressor_of(data, size));
    REQUIRE(all.compression == some.compression);
    if (some.n + MAX_PIECE > LIMIT)  // not every way of reading meets the damage
        return 0;
    REQUIRE(all.status == some.status);
    if (all.status == BD_OK)
        REQUIRE(all.n == some.n && memcmp(whole, pieced, all.n) == 0);
    if (!all.compression)
        REQUIRE(all.status == BD_OK && all.n == size && memcmp(whole, data, size) == 0);
    check_measure(&all);
    return 0;
}
