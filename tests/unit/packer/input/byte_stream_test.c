#include "packer/input/byte_stream.h"

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include "common/base/interrupt.h"
#include "packer/input/decompressor.h"
#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum {
    CHUNK = 1 << 18,  // what byte_stream.c reads at a time
    MOST = 3 * 1024 * 1024,
};

static const char PATH[] = "input";

// ---- Bytes, and the libraries that compress them ------------------------------------------

typedef struct bytes {
    unsigned char *data;  // owned
    size_t n, capacity;
} bytes;

// Reserves `n` bytes more; they count when the caller adds them to b->n.
static unsigned char *room(bytes *b, size_t n)
{
    if (b->n + n >= b->capacity) {
        b->capacity = 2 * (b->n + n) + 1;
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    return b->data + b->n;
}

static void add(bytes *b, const void *data, size_t n)
{
    if (n > 0)
        memcpy(room(b, n), data, n);
    b->n += n;
}

static void add_zeros(bytes *b, size_t n)
{
    memset(room(b, n), 0, n);
    b->n += n;
}

static void drop(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

static void save(const bytes *b)
{
    write_file(PATH, b->data ? b->data : (const void *)"", b->n);
}

// Words from a small vocabulary: the text compresses, but not to nothing.
static const unsigned char *sample(void)
{
    static unsigned char text[MOST];
    uint64_t seed = 20;
    if (text[0])
        return text;
    for (size_t i = 0; i < MOST;) {
        const uint64_t word = next_random(&seed) % 5000 * 2654435761u;
        for (size_t n = 2 + word % 7, k = 0; k < n && i < MOST; k++)
            text[i++] = (unsigned char)('a' + (word >> (4 * k)) % 16);
        if (i < MOST)
            text[i++] = ' ';
    }
    return text;
}

static void add_gzip(bytes *b, const void *data, size_t n)
{
    z_stream gzip = {0};
    assert_int_equal(deflateInit2(&gzip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    const size_t bound = deflateBound(&gzip, n);
    gzip.next_in = (unsigned char *)data;
    gzip.avail_in = (uInt)n;
    gzip.next_out = room(b, bound);
    gzip.avail_out = (uInt)bound;
    assert_int_equal(deflate(&gzip, Z_FINISH), Z_STREAM_END);
    b->n += bound - gzip.avail_out;
    deflateEnd(&gzip);
}

static void add_bzip2(bytes *b, const void *data, size_t n)
{
    unsigned bound = (unsigned)(n + n / 100 + 600);  // as gzip's manual says
    char *to = (char *)room(b, bound);
    assert_int_equal(BZ2_bzBuffToBuffCompress(to, &bound, (char *)data, (unsigned)n, 9, 0, 0),
                     BZ_OK);
    b->n += bound;
}

static void add_xz(bytes *b, const void *data, size_t n)
{
    const size_t bound = lzma_stream_buffer_bound(n);
    size_t n_out = 0;
    assert_int_equal(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, data, n, room(b, bound),
                                             &n_out, bound),
                     LZMA_OK);
    b->n += n_out;
}

typedef struct frame_options {
    bool untold;     // no content size
    bool unchecked;  // no checksum
    int window_log;  // 0: whatever
} frame_options;

static void add_zstd(bytes *b, const void *data, size_t n, frame_options options)
{
    const size_t bound = ZSTD_compressBound(n);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    assert_non_null(zstd);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, !options.unchecked);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, !options.untold);
    if (options.window_log > 0) {
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, options.window_log);
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_enableLongDistanceMatching, 1);
    }
    ZSTD_inBuffer in = {data, n, 0};
    ZSTD_outBuffer out = {room(b, bound), bound, 0};
    if (!options.untold)
        ZSTD_CCtx_setPledgedSrcSize(zstd, n);
    if (options.window_log > 0)  // in one call it would get a smaller window
        ZSTD_compressStream2(zstd, &out, &in, ZSTD_e_continue);
    assert_int_equal(ZSTD_compressStream2(zstd, &out, &in, ZSTD_e_end), 0);
    b->n += out.pos;
    ZSTD_freeCCtx(zstd);
}

static void add_skippable(bytes *b, unsigned char kind, size_t n)
{
    const unsigned char head[] = {
        (unsigned char)(0x50 + kind), 0x2a, 0x4d, 0x18, (unsigned char)n,
        (unsigned char)(n >> 8),      0,    0};
    add(b, head, sizeof head);
    for (size_t i = 0; i < n; i++)
        add(b, "\xfd", 1);
}

// ---- Reading -------------------------------------------------------------------------------

typedef struct outcome {
    bd_status status;
    const bd_decompressor *compression;
    bytes content;  // as far as it was read
    bd_error err;
} outcome;

static outcome read_pieces(const char *path, size_t piece)
{
    outcome o = {0};
    bd_byte_stream *stream;
    size_t got = 0;
    o.status = bd_byte_stream_open(&stream, path, &o.err);
    if (o.status != BD_OK) {
        assert_null(stream);
        return o;
    }
    o.compression = bd_byte_stream_compression(stream);
    int64_t consumed = 0;
    char *buffer = malloc(piece);  // a byte too many would be noticed
    assert_non_null(buffer);
    do {
        o.status = bd_byte_stream_read(stream, buffer, piece, &got, &o.err);
        add(&o.content, buffer, got);
        assert_true(bd_byte_stream_consumed(stream) >= consumed);
        consumed = bd_byte_stream_consumed(stream);
    } while (o.status == BD_OK && got == piece);
    struct stat info;
    if (o.status == BD_OK && stat(path, &info) == 0)
        assert_int_equal(consumed, info.st_size);
    if (o.status == BD_OK) {  // further reads return the end again
        assert_int_equal(bd_byte_stream_read(stream, buffer, 1, &got, NULL), BD_OK);
        assert_int_equal(got, 0);
    }
    bd_byte_stream_close(stream);
    free(buffer);
    return o;
}

static void assert_holds(const char *path, size_t piece, const void *data, size_t n)
{
    outcome o = read_pieces(path, piece);
    if (o.status != BD_OK)
        fail_msg("pieces of %zu: %s", piece, o.err.message);
    assert_int_equal(o.content.n, n);
    if (n > 0)
        assert_memory_equal(o.content.data, data, n);
    drop(&o.content);
}

static void assert_measures(int64_t limit, int64_t expected)
{
    bd_error err = {0};
    int64_t size = -9;
    if (bd_byte_stream_measure(PATH, limit, &size, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(size, expected);
}

// The file at PATH gives these bytes for every size of a read, and this measured size.
static void assert_content(const void *data, size_t n)
{
    const size_t pieces[] = {1, 7, 31, 4099, CHUNK - 1, CHUNK, CHUNK + 1, n, n + 1};
    for (size_t i = n > 100000 ? 3 : 0; i < sizeof pieces / sizeof *pieces; i++)
        if (pieces[i] > 0)
            assert_holds(PATH, pieces[i], data, n);
    assert_measures(INT64_MAX, (int64_t)n);
    assert_measures((int64_t)n, (int64_t)n);
    if (n > 0)
        assert_measures((int64_t)n - 1, -1);
}

// The file at PATH is refused with the same words for every size of a read.
static void assert_refused(bd_status status, const char *words)
{
    const size_t pieces[] = {1, 31, CHUNK, 4 * CHUNK};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        outcome o = read_pieces(PATH, pieces[i]);
        assert_int_equal(o.status, status);
        if (!strstr(o.err.message, words) || !strstr(o.err.message, "cannot read 'input': "))
            fail_msg("pieces of %zu: '%s' does not say '%s'", pieces[i], o.err.message, words);
        drop(&o.content);
    }
}

static void assert_measure_refused(bd_status expected, const char *words)
{
    bd_error err = {0};
    int64_t size;
    assert_int_equal(bd_byte_stream_measure(PATH, INT64_MAX, &size, &err), expected);
    if (!strstr(err.message, words))
        fail_msg("'%s' does not say '%s'", err.message, words);
}

// ---- Valid files ---------------------------------------------------------------------------

// clang-format off
static const unsigned char by_gzip[] = {  // printf … | gzip -n
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48,
    0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0xc8, 0x40, 0xa2, 0xb8, 0x00, 0xe7, 0x42,
    0x6e, 0x52, 0x14, 0x00, 0x00, 0x00};
static const unsigned char by_gzip_empty[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x03, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
static const unsigned char by_zstd[] = {  // zstd of a file
    0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x14, 0x75, 0x00, 0x00, 0x40, 0x68, 0x65,
    0x6c, 0x6c, 0x6f, 0x2c, 0x20, 0x0a, 0x01, 0x00, 0xe2, 0x8a, 0x11, 0x21,
    0x69, 0x9d, 0x87};
static const unsigned char by_zstd_pipe[] = {  // zstd of a pipe: no content size
    0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x75, 0x00, 0x00, 0x40, 0x68, 0x65,
    0x6c, 0x6c, 0x6f, 0x2c, 0x20, 0x0a, 0x01, 0x00, 0xe2, 0x8a, 0x11, 0x21,
    0x69, 0x9d, 0x87};
static const unsigned char by_zstd_unchecked[] = {  // zstd --no-check
    0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x75, 0x00, 0x00, 0x40, 0x68, 0x65,
    0x6c, 0x6c, 0x6f, 0x2c, 0x20, 0x0a, 0x01, 0x00, 0xe2, 0x8a, 0x11};
static const unsigned char by_zstd_empty[] = {
    0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x00, 0x01, 0x00, 0x00, 0x99, 0xe9, 0xd8,
    0x51};
// pzstd: a skippable frame comes first.
static const unsigned char by_pzstd[] = {
    0x50, 0x2a, 0x4d, 0x18, 0x04, 0x00, 0x00, 0x00, 0x1b, 0x00, 0x00, 0x00,
    0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x75, 0x00, 0x00, 0x40, 0x68, 0x65,
    0x6c, 0x6c, 0x6f, 0x2c, 0x20, 0x0a, 0x01, 0x00, 0xe2, 0x8a, 0x11, 0x21,
    0x69, 0x9d, 0x87};
// clang-format on

static void files_made_by_the_real_programs_are_read(void **state)
{
    (void)state;
    static const struct {
        const void *file;
        size_t size;
        const bd_decompressor *compression;
        const char *text;
    } made[] = {
        {by_gzip, sizeof by_gzip, &bd_gzip, "hello, hello, hello\n"},
        {by_gzip_empty, sizeof by_gzip_empty, &bd_gzip, ""},
        {by_zstd, sizeof by_zstd, &bd_zstd, "hello, hello, hello\n"},
        {by_zstd_pipe, sizeof by_zstd_pipe, &bd_zstd, "hello, hello, hello\n"},
        {by_zstd_unchecked, sizeof by_zstd_unchecked, &bd_zstd, "hello, hello, hello\n"},
        {by_zstd_empty, sizeof by_zstd_empty, &bd_zstd, ""},
        {by_pzstd, sizeof by_pzstd, &bd_zstd, "hello, hello, hello\n"},
        {"hello\n", 6, NULL, "hello\n"},
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        write_file(PATH, made[i].file, made[i].size);
        assert_content(made[i].text, strlen(made[i].text));
        outcome o = read_pieces(PATH, 100);
        assert_ptr_equal(o.compression, made[i].compression);
        assert_ptr_equal(bd_decompressor_of(made[i].file, made[i].size), made[i].compression);
        drop(&o.content);
    }
    assert_string_equal(bd_compression_name(NULL), "none");
}

static void every_size_comes_back_from_every_compression(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 2, 3, 4, 31, 33, CHUNK - 1, CHUNK, CHUNK + 1, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bytes files[7] = {0};
        add(&files[0], sample(), sizes[i]);
        add_gzip(&files[1], sample(), sizes[i]);
        add_zstd(&files[2], sample(), sizes[i], (frame_options){0});
        add_zstd(&files[3], sample(), sizes[i], (frame_options){.untold = true});
        add_zstd(&files[4], sample(), sizes[i], (frame_options){.unchecked = true});
        add_bzip2(&files[5], sample(), sizes[i]);
        add_xz(&files[6], sample(), sizes[i]);
        for (int k = 0; k < 7; k++) {
            save(&files[k]);
            assert_content(sample(), sizes[i]);
            drop(&files[k]);
        }
    }
}

// Compressed so little that the file itself takes several chunks.
static void files_of_several_chunks_are_read(void **state)
{
    (void)state;
    bytes noise = {0}, gzip = {0}, zstd = {0}, bzip2 = {0}, xz = {0};
    uint64_t seed = 21;
    for (size_t i = 0; i < 3 * CHUNK + 5; i += 8) {
        const uint64_t random = next_random(&seed);
        add(&noise, &random, 8);
    }
    for (size_t i = 0; i < noise.n;) {  // members and frames that end anywhere in a chunk
        const size_t left = noise.n - i, size = (size_t)random_between(&seed, 0, 70000);
        const size_t n = size < left ? size : left;
        add_gzip(&gzip, noise.data + i, n);
        add_zstd(&zstd, noise.data + i, n, (frame_options){.unchecked = i % 2 == 0});
        add_bzip2(&bzip2, noise.data + i, n);
        add_xz(&xz, noise.data + i, n);
        add_zeros(&xz, 4 * (i % 3));  // padding
        i += n;
    }
    save(&gzip);
    assert_content(noise.data, noise.n);
    save(&zstd);
    assert_content(noise.data, noise.n);
    save(&bzip2);
    assert_content(noise.data, noise.n);
    save(&xz);
    assert_content(noise.data, noise.n);
    drop(&bzip2);
    drop(&xz);
    drop(&noise);
    drop(&gzip);
    drop(&zstd);
}

static void members_and_frames_follow_each_other(void **state)
{
    (void)state;
    bytes b = {0};
    const unsigned char *text = sample();
    add_gzip(&b, text, 1000);
    add_gzip(&b, text, 0);
    add_gzip(&b, text + 1000, 1);
    add_gzip(&b, text + 1001, 70000);
    save(&b);
    assert_content(text, 71001);
    for (size_t n = 1; n < 4 * CHUNK; n = n * 700 + 11) {
        bytes padded = {0};
        add(&padded, b.data, b.n);
        add_zeros(&padded, n);
        save(&padded);
        assert_content(text, 71001);
        drop(&padded);
    }
    drop(&b);

    add_skippable(&b, 0, 4);
    add_zstd(&b, text, 1000, (frame_options){0});
    add_skippable(&b, 15, 0);
    add_zstd(&b, text, 0, (frame_options){0});
    add_zstd(&b, text + 1000, 1, (frame_options){.unchecked = true});
    add_skippable(&b, 7, 5000);
    add_zstd(&b, text + 1001, 70000, (frame_options){0});
    add_skippable(&b, 3, 1);
    save(&b);
    assert_content(text, 71001);
    add_zstd(&b, text + 71001, 33, (frame_options){.untold = true});
    save(&b);
    assert_content(text, 71034);
    drop(&b);

    add_skippable(&b, 1, 33);
    save(&b);
    assert_content("", 0);
    drop(&b);
}

// A frame of one raw block "hello", without its size and with the given window.
static void save_frame_with_window(unsigned char window)
{
    const unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, window, 0x29,
                                   0x00, 0x00, 'h',  'e',  'l',  'l',    'o'};
    write_file(PATH, frame, sizeof frame);
}

static void windows_up_to_2_gib_are_allowed(void **state)
{
    (void)state;
    bytes b = {0};
    add_zstd(&b, sample(), MOST, (frame_options){.window_log = 28, .untold = true});
    assert_int_equal(b.data[5], (28 - 10) << 3);  // it really asks for such a window
    save(&b);
    assert_holds(PATH, 4099, sample(), MOST);
    assert_measures(MOST, MOST);
    drop(&b);
    save_frame_with_window((28 - 10) << 3 | 7);
    assert_holds(PATH, 3, "hello", 5);
    save_frame_with_window((31 - 10) << 3);
    outcome o = read_pieces(PATH, 100);  // if the system has that much memory
    if (o.status != BD_ERR_MEMORY)
        assert_int_equal(o.status, BD_OK);
    drop(&o.content);
    const unsigned char larger[] = {(31 - 10) << 3 | 1, (32 - 10) << 3, 0xff};
    for (size_t i = 0; i < sizeof larger; i++) {
        save_frame_with_window(larger[i]);
        assert_refused(BD_ERR_UNSUPPORTED, "near byte 0: a zstd frame that needs a window of");
        assert_measure_refused(BD_ERR_UNSUPPORTED, "window");
    }
}

// ---- Damage --------------------------------------------------------------------------------

// Three compressed pieces of the sample, end to end: `ends[k]` is where the k-th ends in the
// file, and `sizes[k]` how much of the sample the pieces up to it contain.
typedef struct pieces {
    bytes file;
    size_t ends[4], sizes[4];
} pieces;

static const bd_decompressor *const COMPRESSIONS[] = {&bd_gzip, &bd_zstd, &bd_bzip2, &bd_xz};

static pieces three_pieces(const bd_decompressor *compression)
{
    pieces p = {.sizes = {0, 200, 200, 233}};
    for (int k = 1; k <= 3; k++) {
        const unsigned char *begin = sample() + p.sizes[k - 1];
        const size_t n = p.sizes[k] - p.sizes[k - 1];
        if (compression == &bd_gzip)
            add_gzip(&p.file, begin, n);
        else if (compression == &bd_bzip2)
            add_bzip2(&p.file, begin, n);
        else if (compression == &bd_xz)
            add_xz(&p.file, begin, n);
        else if (k == 2)
            add_skippable(&p.file, 2, 9);
        else
            add_zstd(&p.file, begin, n, (frame_options){0});
        p.ends[k] = p.file.n;
    }
    return p;
}

static void file_cut_anywhere_is_refused_or_ends_with_a_whole_frame(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof COMPRESSIONS / sizeof *COMPRESSIONS; c++) {
        const bd_decompressor *compression = COMPRESSIONS[c];
        pieces p = three_pieces(compression);
        for (size_t cut = 0; cut < p.file.n; cut++) {
            write_file(PATH, p.file.data, cut);
            const bool marked = bd_decompressor_of(p.file.data, cut) != NULL;
            int whole = -1;
            for (int k = 0; k < 4; k++)
                if (cut == p.ends[k])
                    whole = k;
            if (whole >= 0) {
                assert_content(sample(), p.sizes[whole]);
            } else if (marked) {
                assert_refused(BD_ERR_FORMAT, "near byte");
                assert_measure_refused(BD_ERR_FORMAT, "near byte");
            } else {
                assert_content(p.file.data, cut);
            }
        }
        drop(&p.file);
    }
}

static void flipped_bit_never_gives_other_bytes(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof COMPRESSIONS / sizeof *COMPRESSIONS; c++) {
        const bd_decompressor *compression = COMPRESSIONS[c];
        pieces p = three_pieces(compression);
        size_t n_refused = 0;
        for (size_t bit = 0; bit < 8 * p.file.n; bit++) {
            p.file.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            save(&p.file);
            outcome o = read_pieces(PATH, 100);
            const bool plain = o.status == BD_OK && o.compression == NULL;
            if (plain)
                assert_true(bit < 8 * BD_MAGIC_BYTES);
            else if (o.status == BD_OK)
                assert_true(o.content.n == p.sizes[3] &&
                            memcmp(o.content.data, sample(), o.content.n) == 0);
            n_refused += o.status != BD_OK;
            drop(&o.content);
            p.file.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        assert_true(n_refused > 4 * p.file.n);
        drop(&p.file);
    }
}

static void bytes_after_the_last_frame_are_refused(void **state)
{
    (void)state;
    // The last two are the magic number of zstd 0.7's frames and one byte of a known magic
    // number.
    static const char *const garbage[] = {"\n", "abc", "garbage", "\x27\xb5\x2f\xfd\x01",
                                          "\x1f"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        for (size_t c = 0; c < sizeof COMPRESSIONS / sizeof *COMPRESSIONS; c++) {
            const bd_decompressor *compression = COMPRESSIONS[c];
            pieces p = three_pieces(compression);
            char words[100];
            snprintf(words, sizeof words, "near byte %zu: bytes after a%s %s", p.file.n,
                     compression == &bd_xz ? "n" : "", compression->name);
            add(&p.file, garbage[i], strlen(garbage[i]));
            save(&p.file);
            assert_refused(BD_ERR_FORMAT, words);
            assert_measure_refused(BD_ERR_FORMAT, words);
            drop(&p.file);
        }
    pieces p = three_pieces(&bd_zstd);
    add_zeros(&p.file, 1);
    save(&p.file);
    assert_refused(BD_ERR_FORMAT, "bytes after a zstd frame");
    drop(&p.file);
    p = three_pieces(&bd_gzip);
    add_zeros(&p.file, CHUNK);
    char words[100];
    snprintf(words, sizeof words, "near byte %zu: bytes after the zeros", p.file.n);
    add_gzip(&p.file, "", 0);
    save(&p.file);
    assert_refused(BD_ERR_FORMAT, words);
    drop(&p.file);
}

// A dictionary of 1 GiB, which no file needs and every reader would have to allocate.
static void xz_file_that_needs_much_memory_is_refused(void **state)
{
    (void)state;
    lzma_options_lzma options;
    assert_false(lzma_lzma_preset(&options, 1));
    options.dict_size = UINT32_C(1) << 30;
    unsigned char file[1000];
    size_t n = 0;
    const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, NULL}};
    assert_int_equal(lzma_stream_buffer_encode((lzma_filter *)filters, LZMA_CHECK_CRC32, NULL,
                                               sample(), 100, file, &n, sizeof file),
                     LZMA_OK);
    write_file(PATH, file, n);
    assert_refused(BD_ERR_UNSUPPORTED, "xz data that needs more than 512 MiB of memory");
}

static void failure_is_repeated_by_every_later_read(void **state)
{
    (void)state;
    char buffer[1000], first[sizeof((bd_error *)0)->message];
    size_t got;
    bd_byte_stream *stream;
    bd_error err;
    for (size_t c = 0; c < sizeof COMPRESSIONS / sizeof *COMPRESSIONS; c++) {
        const bd_decompressor *compression = COMPRESSIONS[c];
        pieces p = three_pieces(compression);
        write_file(PATH, p.file.data, p.ends[1] - 1);
        assert_int_equal(bd_byte_stream_open(&stream, PATH, NULL), BD_OK);
        assert_int_equal(bd_byte_stream_read(stream, buffer, 1000, &got, &err), BD_ERR_FORMAT);
        assert_int_equal(got, 0);
        strcpy(first, err.message);
        snprintf(buffer, sizeof buffer,
                 "cannot read 'input': near byte %zu: the file is cut short", p.ends[1] - 1);
        assert_string_equal(first, buffer);
        assert_int_equal(bd_byte_stream_read(stream, buffer, 1, &got, &err), BD_ERR_FORMAT);
        assert_string_equal(err.message, first);
        assert_int_equal(bd_byte_stream_read(stream, buffer, 1, &got, NULL), BD_ERR_FORMAT);
        bd_byte_stream_close(stream);
        drop(&p.file);
    }
    bd_byte_stream_close(NULL);
}

// ---- Frames with false headers -------------------------------------------------------------

// A frame whose header states `n_content` in 8 bytes and whose only raw block is "hello".
static void add_lying_frame(bytes *b, uint64_t n_content)
{
    add(b, "\x28\xb5\x2f\xfd\xc0\x00", 6);
    for (int i = 0; i < 8; i++)
        add(b, &(unsigned char){(unsigned char)(n_content >> (8 * i))}, 1);
    add(b, "\x29\0\0hello", 8);
}

static void sizes_that_frames_tell_are_believed_until_decompressing(void **state)
{
    (void)state;
    bytes b = {0};
    add_lying_frame(&b, 5);
    add_lying_frame(&b, 5);
    save(&b);
    assert_content("hellohello", 10);
    drop(&b);
    add_lying_frame(&b, 5);
    add_lying_frame(&b, 6);
    save(&b);
    assert_measures(11, 11);
    assert_measures(10, -1);
    assert_refused(BD_ERR_FORMAT, "near byte");
    drop(&b);
}

static void sum_of_sizes_does_not_wrap(void **state)
{
    (void)state;
    const uint64_t lies[] = {(uint64_t)INT64_MAX - 4, INT64_MAX, (uint64_t)INT64_MAX + 1,
                             UINT64_MAX - 4, UINT64_MAX - 2};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        bytes b = {0};
        add_lying_frame(&b, 5);
        add_lying_frame(&b, lies[i]);
        save(&b);
        assert_measures(INT64_MAX, -1);
        assert_refused(BD_ERR_FORMAT, "near byte");
        drop(&b);
    }
}

static void frame_without_its_size_is_decompressed_to_measure(void **state)
{
    (void)state;
    bytes b = {0};
    add_zstd(&b, sample(), 5000, (frame_options){0});
    add_zstd(&b, sample() + 5000, MOST - 5000, (frame_options){.untold = true});
    b.data[b.n - 1] ^= 1;  // its checksum, which is only checked by decompressing everything
    save(&b);
    assert_measures(4999, -1);
    assert_measures(5000, -1);
    assert_measures(MOST / 2, -1);
    assert_measures(MOST - 2, -1);
    assert_measure_refused(BD_ERR_FORMAT, "checksum");
    drop(&b);
    add_gzip(&b, sample(), MOST);
    b.data[b.n - 1] ^= 1;
    save(&b);
    assert_measures(0, -1);
    assert_measures(MOST / 2, -1);
    assert_measure_refused(BD_ERR_FORMAT, "incorrect length check");
    drop(&b);
}

static void frame_that_needs_a_dictionary_is_unsupported(void **state)
{
    (void)state;
    unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x22, 0x00, 0x01, 5,
                             0x29, 0x00, 0x00, 'h',  'e',  'l',  'l',  'o'};
    write_file(PATH, frame, sizeof frame);
    assert_refused(BD_ERR_UNSUPPORTED, "near byte 0: a zstd frame that needs a dictionary");
    assert_measure_refused(BD_ERR_UNSUPPORTED, "dictionary");
    frame[6] = 0;  // a dictionary id of zero means none
    write_file(PATH, frame, sizeof frame);
    assert_content("hello", 5);
}

static void damaged_header_or_block_is_refused_in_both_ways(void **state)
{
    (void)state;
    unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x28, 5,   0x29,
                             0,    0,    'h',  'e',  'l',  'l', 'o'};
    write_file(PATH, frame, sizeof frame);  // a reserved bit of the descriptor
    assert_refused(BD_ERR_FORMAT, "near byte 0: the header of a zstd frame is damaged");
    assert_measure_refused(BD_ERR_FORMAT, "near byte 0: the header of a zstd frame is damaged");
    frame[4] = 0x20;
    frame[6] = 0x2f;
    write_file(PATH, frame, sizeof frame);
    assert_refused(BD_ERR_FORMAT, "near byte");
    assert_measure_refused(BD_ERR_FORMAT, "near byte 9: a zstd block of a kind that does not");
}

// libzstd accepts such a frame if it can decode it in one call, and refuses it otherwise.
static void verdict_does_not_depend_on_how_much_is_read_at_once(void **state)
{
    (void)state;
    enum { SIZE = 200000, BLOCK = SIZE << 3 | 1 << 1 | 1 };  // more than a block may have
    // clang-format off
    const unsigned char frame[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0xa0, SIZE & 255, SIZE >> 8 & 255, SIZE >> 16, 0,
        BLOCK & 255, BLOCK >> 8 & 255, BLOCK >> 16, 'a'};
    // clang-format on
    write_file(PATH, frame, sizeof frame);
    assert_measures(INT64_MAX, SIZE);
    assert_refused(BD_ERR_FORMAT, "near byte");
}

// ---- Interrupts ----------------------------------------------------------------------------

// Tells whether reading and measuring `PATH` end as interrupted; in a process of its own, since
// a signal that was noted once stays noted.
static void assert_heeds_interrupt(void)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bd_byte_stream *stream;
        char byte;
        size_t n;
        int64_t size;
        bd_interrupt_catch();
        if (bd_byte_stream_open(&stream, PATH, NULL) != BD_OK)
            _exit(1);
        raise(SIGINT);
        const bd_status read = bd_byte_stream_read(stream, &byte, 1, &n, NULL);
        const bd_status measured = bd_byte_stream_measure(PATH, INT64_MAX, &size, NULL);
        _exit(read == BD_ERR_INTERRUPTED && measured == BD_ERR_INTERRUPTED ? 0 : 2);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void an_interrupt_ends_decompression(void **state)
{
    (void)state;
    bytes b = {0};
    add_gzip(&b, sample(), MOST);
    save(&b);
    assert_heeds_interrupt();
    drop(&b);
    for (int untold = 0; untold < 2; untold++) {
        add_zstd(&b, sample(), MOST, (frame_options){.untold = untold});
        save(&b);
        assert_heeds_interrupt();
        drop(&b);
    }
}

// ---- Other than files ----------------------------------------------------------------------

static void refuses_to_open(const char *path, const char *words)
{
    bd_byte_stream *stream;
    bd_error err;
    int64_t size;
    assert_int_equal(bd_byte_stream_open(&stream, path, &err), BD_ERR_IO);
    assert_string_equal(err.message, words);
    assert_null(stream);
    assert_int_equal(bd_byte_stream_measure(path, 1, &size, &err), BD_ERR_IO);
    assert_string_equal(err.message, words);
}

static void only_a_regular_file_is_opened_by_name(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    alarm(20);  // waiting for somebody to write into the FIFO would be a failure, too
    refuses_to_open("fifo", "cannot read 'fifo': not a regular file");
    refuses_to_open(".", "cannot read '.': it is a folder");
    refuses_to_open("/dev/null", "cannot read '/dev/null': not a regular file");
    refuses_to_open("missing", "cannot open 'missing': No such file or directory");
    alarm(0);
}

static void on_alarm(int number)
{
    (void)number;
}

// A child writes into a pipe, a few bytes at a time, while signals interrupt us.
static void assert_comes_through_pipe(const bytes *file, size_t step, const void *data,
                                      size_t n)
{
    int ends[2];
    const int kept = dup(STDIN_FILENO);  // -1 if the test was started without one
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        for (size_t at = 0; at < file->n; at += step) {
            if (at < 5 * step)
                usleep(2000);
            const size_t left = file->n - at;
            if (write(ends[1], file->data + at, left < step ? left : step) < 0)
                _exit(1);
        }
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    if (ends[0] != STDIN_FILENO)
        close(ends[0]);
    struct sigaction action = {.sa_handler = on_alarm}, before;  // no SA_RESTART
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    outcome o = read_pieces("-", 4099);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    const bool still_open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    close(STDIN_FILENO);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(o.status, BD_OK);
    assert_true(still_open);
    assert_int_equal(o.content.n, n);
    if (n > 0)
        assert_memory_equal(o.content.data, data, n);
    drop(&o.content);
}

static void standard_input_is_read_from_a_pipe(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 31, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bytes files[3] = {0};
        add(&files[0], sample(), sizes[i]);
        add_gzip(&files[1], sample(), sizes[i]);
        add_zstd(&files[2], sample(), sizes[i], (frame_options){0});
        for (int k = 0; k < 3; k++) {
            assert_comes_through_pipe(&files[k], sizes[i] < 100 ? 1 : 997, sample(), sizes[i]);
            drop(&files[k]);
        }
    }
}

static void standard_input_is_not_measured(void **state)
{
    (void)state;
    bd_error err;
    int64_t size;
    assert_int_equal(bd_byte_stream_measure("-", 1, &size, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot measure standard input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(files_made_by_the_real_programs_are_read),
        test_inside_folder(every_size_comes_back_from_every_compression),
        test_inside_folder(files_of_several_chunks_are_read),
        test_inside_folder(members_and_frames_follow_each_other),
        test_inside_folder(windows_up_to_2_gib_are_allowed),
        test_inside_folder(file_cut_anywhere_is_refused_or_ends_with_a_whole_frame),
        test_inside_folder(flipped_bit_never_gives_other_bytes),
        test_inside_folder(bytes_after_the_last_frame_are_refused),
        test_inside_folder(xz_file_that_needs_much_memory_is_refused),
        test_inside_folder(failure_is_repeated_by_every_later_read),
        test_inside_folder(sizes_that_frames_tell_are_believed_until_decompressing),
        test_inside_folder(sum_of_sizes_does_not_wrap),
        test_inside_folder(frame_without_its_size_is_decompressed_to_measure),
        test_inside_folder(frame_that_needs_a_dictionary_is_unsupported),
        test_inside_folder(damaged_header_or_block_is_refused_in_both_ways),
        test_inside_folder(verdict_does_not_depend_on_how_much_is_read_at_once),
        test_inside_folder(an_interrupt_ends_decompression),
        test_inside_folder(only_a_regular_file_is_opened_by_name),
        test_inside_folder(standard_input_is_read_from_a_pipe),
        test_inside_folder(standard_input_is_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
