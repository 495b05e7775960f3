#include "common/dataset/shard.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "common/base/threads.h"
#include "tests/unit/temporary_folder.h"

// ---- A small shard: seven rows in batches of three, one or two documents in each --

enum { SEQ_LEN = 8, N_ROWS = 7, BATCH_ROWS = 3, SEPARATOR = 256, PADDING = 5 };

static const char shard_name[] = "00000-00000.arrow";

typedef struct plain_row {
    uint32_t ids[SEQ_LEN];
    int n_segments;
    int32_t bounds[3];
    uint32_t input[2], offset[2], length[2];
    uint64_t position[2];
} plain_row;

typedef struct plain_shard {
    bd_dataset_config config;
    bd_shard_entry entry;  // without size and digest of the file
    int n_rows;
    plain_row rows[N_ROWS];
} plain_shard;

// Rows of |8|, |3|2|, |1|5|, |8|, … tokens.
static plain_shard example(int64_t vocab_size)
{
    static const int lengths[][2] = {{8, 0}, {3, 2}, {1, 5}};
    plain_shard shard = {
        .config = {.seq_len = SEQ_LEN,
                   .vocab_size = vocab_size,
                   .separator = SEPARATOR,
                   .bos = BD_NO_BOS,
                   .padding = PADDING,
                   .batch_rows = BATCH_ROWS,
                   .shuffle = BD_NO_SHUFFLE,
                   .tokenizer = "bytes",
                   .fingerprint = bd_digest_of("f", 1)},
        .entry = {.unit = {0, 0, 1, false}, .records = bd_digest_of("r", 1)},
        .n_rows = N_ROWS,
    };
    bd_figures *figures = &shard.entry.figures;
    uint64_t position = 0;
    for (int r = 0; r < N_ROWS; r++) {
        plain_row *row = &shard.rows[r];
        int used = 0;
        for (int s = 0; s < 2 && lengths[r % 3][s] > 0; s++) {
            const int length = lengths[r % 3][s];
            for (int t = 0; t < length; t++)
                row->ids[used++] =
                    t == length - 1 ? SEPARATOR : (uint32_t)(vocab_size - 1 - 10 * r - t);
            row->bounds[++row->n_segments] = used;
            row->length[s] = (uint32_t)length;
            row->position[s] = position += 100;
            bd_figures_count_segment(figures, 0, length, length - 1);
            bd_figures_count_document(figures, length);
            figures->text += length - 1;
            figures->separators++;
        }
        bd_figures_count_row(figures, SEQ_LEN, used, row->n_segments);
        while (used < SEQ_LEN)
            row->ids[used++] = PADDING;
    }
    return shard;
}

// Rows `first` to `first + n_rows - 1` as one record batch.
static void write_batch(bd_arrow_writer *writer, const plain_shard *shard, int first,
                        int n_rows)
{
    uint16_t narrow[N_ROWS * SEQ_LEN];
    uint32_t wide[N_ROWS * SEQ_LEN], input[2 * N_ROWS], offset[2 * N_ROWS], length[2 * N_ROWS];
    uint64_t position[2 * N_ROWS], checksums[N_ROWS];
    int32_t bounds[3 * N_ROWS], bound_offsets[N_ROWS + 1] = {0},
                                                       segment_offsets[N_ROWS + 1] = {0};
    const bd_row_batch batch = {
        .n_rows = n_rows,
        .ids = bd_dataset_id_bytes(&shard->config) == 2 ? (const void *)narrow : wide,
        .bound_offsets = bound_offsets,
        .bounds = bounds,
        .segment_offsets = segment_offsets,
        .segments = {input, position, offset, length},
        .checksums = checksums,
    };
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    for (int r = 0; r < n_rows; r++) {
        const plain_row *row = &shard->rows[first + r];
        const int bound = bound_offsets[r], segment = segment_offsets[r];
        for (int t = 0; t < SEQ_LEN; t++) {
            narrow[r * SEQ_LEN + t] = (uint16_t)row->ids[t];
            wide[r * SEQ_LEN + t] = row->ids[t];
        }
        memcpy(&bounds[bound], row->bounds, sizeof row->bounds);
        for (int s = 0; s < row->n_segments; s++) {
            input[segment + s] = row->input[s];
            position[segment + s] = row->position[s];
            offset[segment + s] = row->offset[s];
            length[segment + s] = row->length[s];
        }
        bound_offsets[r + 1] = bound + row->n_segments + 1;
        segment_offsets[r + 1] = segment + row->n_segments;
        const bd_row written = bd_row_of_batch(&batch, &shard->config, r);
        checksums[r] = bd_row_checksum(&written, &shard->config, hasher);
    }
    bd_hasher_free(hasher);
    assert_int_equal(bd_arrow_writer_write(writer, &batch, NULL), BD_OK);
}

// Writes the rows with the given metadata.
static void write_with_metadata(const char *folder, const plain_shard *shard,
                                const char *metadata)
{
    bd_arrow_writer *writer;
    bd_error err = {0};
    bd_arrow_writer_open(&writer, in(folder, shard_name), &shard->config, metadata,
                         shard->config.codec == BD_SHARD_ZSTD, &err);
    assert_string_equal(err.message, "");
    for (int r = 0; r < shard->n_rows; r += BATCH_ROWS)
        write_batch(writer, shard, r,
                    shard->n_rows - r < BATCH_ROWS ? shard->n_rows - r : BATCH_ROWS);
    assert_int_equal(bd_arrow_writer_close(writer, NULL), BD_OK);
    bd_arrow_writer_free(writer);
}

static char *metadata_of(const plain_shard *shard)
{
    char *text;
    bd_json *json = bd_shard_metadata(&shard->config, &shard->entry);
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    bd_json_free(json);
    return text;
}

static void write_shard(const char *folder, const plain_shard *shard)
{
    char *metadata = metadata_of(shard);
    write_with_metadata(folder, shard, metadata);
    free(metadata);
}

// The shard's entry in a manifest; borrows both.
static bd_manifest manifest_of(const plain_shard *shard, bd_shard_entry *entry)
{
    *entry = shard->entry;
    return (bd_manifest){.config = shard->config, .shards = entry, .n_shards = 1};
}

static bool row_equals(const bd_row *row, const plain_row *expected, int id_bytes)
{
    const size_t n = (size_t)expected->n_segments;
    for (int t = 0; t < SEQ_LEN; t++)
        if (bd_id_at(row->ids, id_bytes, t) != expected->ids[t])
            return false;
    return row->n_segments == expected->n_segments &&
           row->n_bounds == expected->n_segments + 1 &&
           memcmp(row->bounds, expected->bounds, (n + 1) * sizeof *row->bounds) == 0 &&
           memcmp(row->segments.input, expected->input, n * sizeof *expected->input) == 0 &&
           memcmp(row->segments.position, expected->position, n * sizeof *expected->position) ==
               0 &&
           memcmp(row->segments.offset, expected->offset, n * sizeof *expected->offset) == 0 &&
           memcmp(row->segments.length, expected->length, n * sizeof *expected->length) == 0;
}

static bd_shard opened(const char *folder)
{
    bd_shard shard;
    bd_error err = {0};
    bd_shard_open(&shard, folder, shard_name, &err);
    assert_string_equal(err.message, "");
    return shard;
}

// ---- Writing and reading ----------------------------------------------------------

static void assert_same_config(const bd_dataset_config *here, const bd_dataset_config *there)
{
    bd_json *a = bd_dataset_config_to_json(here), *b = bd_dataset_config_to_json(there);
    char where[256] = "";
    bd_json_difference(a, b, where, sizeof where);
    assert_string_equal(where, "");
    bd_json_free(a);
    bd_json_free(b);
}

static void assert_same_entry(const bd_shard_entry *here, const bd_shard_entry *there)
{
    assert_int_equal(here->unit.input, there->unit.input);
    assert_int_equal(here->unit.slice, there->unit.slice);
    assert_int_equal(here->unit.n_inputs, there->unit.n_inputs);
    assert_true(here->unit.last == there->unit.last);
    assert_string_equal(here->records.hex, there->records.hex);
    assert_memory_equal(&here->figures, &there->figures, sizeof here->figures);
}

static void assert_comes_back(const char *folder, const plain_shard *written)
{
    write_shard(folder, written);
    bd_shard shard = opened(folder);
    assert_same_config(&shard.config, &written->config);
    assert_same_entry(&shard.entry, &written->entry);
    assert_int_equal(shard.entry.size_bytes, 0);
    assert_string_equal(shard.entry.digest.hex, "");
    bd_hasher *hasher = bd_hasher_new();
    for (int r = 0; r < N_ROWS; r++) {
        bd_row row;
        assert_int_equal(bd_shard_row(&shard, r, hasher, &row, NULL), BD_OK);
        assert_true(row_equals(&row, &written->rows[r], bd_dataset_id_bytes(&shard.config)));
    }
    bd_hasher_free(hasher);
    bd_shard_close(&shard);
    bd_shard_close(&shard);
}

static void rows_come_back_as_they_were_written(void **state)
{
    for (int64_t vocab_size = 257; vocab_size < 100000; vocab_size += 70000) {
        plain_shard written = example(vocab_size);
        assert_comes_back(*state, &written);
        written.config.codec = BD_SHARD_ZSTD;
        assert_comes_back(*state, &written);
    }
    bd_shard_close(&(bd_shard){0});
}

static void rows_point_into_the_mapping(void **state)
{
    const plain_shard written = example(257);
    write_shard(*state, &written);
    bd_shard shard = opened(*state);
    bd_hasher *hasher = bd_hasher_new();
    const char *begin = shard.file.data, *end = begin + shard.file.size_bytes;
    for (int r = 0; r < N_ROWS; r++) {
        bd_row row;
        assert_int_equal(bd_shard_row(&shard, r, hasher, &row, NULL), BD_OK);
        const void *const pointers[] = {row.ids,
                                        row.bounds,
                                        row.segments.input,
                                        row.segments.position,
                                        row.segments.offset,
                                        row.segments.length};
        for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
            assert_true(begin <= (const char *)pointers[i] && (const char *)pointers[i] < end);
        if (r % BATCH_ROWS == 0)  // the columns begin at their buffers
            for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
                assert_int_equal((uintptr_t)pointers[i] % 8, 0);
    }
    bd_hasher_free(hasher);
    bd_shard_close(&shard);
}

// This also shows that it is compressed at all.
static void rows_of_a_compressed_shard_lie_outside_the_mapping(void **state)
{
    plain_shard written = example(257);
    written.config.codec = BD_SHARD_ZSTD;
    write_shard(*state, &written);
    bd_shard shard = opened(*state);
    const char *begin = shard.file.data, *end = begin + shard.file.size_bytes;
    for (int64_t i = 0; i < bd_arrow_reader_n_batches(shard.reader); i++) {
        const char *ids = bd_arrow_reader_batch(shard.reader, i)->ids;
        assert_true(ids < begin || ids >= end);
    }
    bd_shard_close(&shard);
}

static void assert_same_bytes_again(const char *folder, const plain_shard *written)
{
    size_t n, m;
    write_shard(folder, written);
    char *first = read_file(in(folder, shard_name), &n);
    write_shard(folder, written);
    char *second = read_file(in(folder, shard_name), &m);
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n);
    free(first);
    free(second);
}

static void same_rows_give_the_same_bytes(void **state)
{
    plain_shard written = example(257);
    assert_same_bytes_again(*state, &written);
    written.config.codec = BD_SHARD_ZSTD;
    assert_same_bytes_again(*state, &written);
}

static void shard_without_rows_is_a_shard(void **state)
{
    plain_shard written = example(257);
    written.n_rows = 0;
    written.entry.figures = (bd_figures){.dropped = 3, .text = 2, .separators = 1};
    write_shard(*state, &written);
    bd_shard shard = opened(*state);
    assert_int_equal(shard.entry.figures.rows, 0);
    assert_int_equal(bd_arrow_reader_n_batches(shard.reader), 0);
    bd_shard_close(&shard);
}

// ---- Several threads --------------------------------------------------------------

typedef struct reading {
    const bd_shard *shard;
    const plain_shard *written;
} reading;

static bd_status read_rows(void *context, int64_t index, bd_error *err)
{
    const reading *r = context;
    bd_hasher *hasher = bd_hasher_new();
    bd_status status = BD_OK;
    for (int i = 0; status == BD_OK && i < 50; i++) {
        bd_row row;
        const int64_t n = (index + i) % N_ROWS;
        status = bd_shard_row(r->shard, n, hasher, &row, err);
        if (status == BD_OK && !row_equals(&row, &r->written->rows[n], 2))
            status = bd_fail(err, BD_ERR_FORMAT, "row %" PRId64 " differs", n);
    }
    bd_hasher_free(hasher);
    return status;
}

static bd_status open_and_read_rows(void *context, int64_t index, bd_error *err)
{
    bd_shard shard;
    BD_TRY(bd_shard_open(&shard, context, shard_name, err));
    const plain_shard written = example(257);
    const bd_status status = read_rows(&(reading){&shard, &written}, index, err);
    bd_shard_close(&shard);
    return status;
}

static void one_shard_is_read_by_four_threads(void **state)
{
    const plain_shard written = example(257);
    write_shard(*state, &written);
    bd_shard shard = opened(*state);
    reading context = {&shard, &written};
    bd_threads *threads;
    bd_error err = {0};
    assert_int_equal(bd_threads_new(&threads, 4, NULL), BD_OK);
    bd_threads_run(threads, read_rows, &context, 200, &err);
    assert_string_equal(err.message, "");
    bd_threads_run(threads, open_and_read_rows, *state, 40, &err);
    assert_string_equal(err.message, "");
    bd_threads_free(threads);
    bd_shard_close(&shard);
}

// ---- Damage -----------------------------------------------------------------------

static void change_byte(const char *path, size_t at, int change)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, (long)at, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, (long)at, SEEK_SET);
    fputc(byte ^ change, file);
    fclose(file);
}

// Where the parts of row r begin in the file, and their sizes.
typedef struct place {
    size_t at, size_bytes;
} place;

static void places_of_row(const bd_shard *shard, int r, place places[7])
{
    const bd_row_batch *batch = bd_arrow_reader_batch(shard->reader, r / BATCH_ROWS);
    const bd_row row = bd_row_of_batch(batch, &shard->config, r % BATCH_ROWS);
    const size_t n = (size_t)row.n_segments;
    const struct {
        const void *data;
        size_t size_bytes;
    } parts[7] = {{row.ids, 2 * SEQ_LEN},
                  {row.bounds, 4 * (n + 1)},
                  {row.segments.input, 4 * n},
                  {row.segments.position, 8 * n},
                  {row.segments.offset, 4 * n},
                  {row.segments.length, 4 * n},
                  {batch->checksums + r % BATCH_ROWS, 8}};
    for (int i = 0; i < 7; i++)
        places[i] =
            (place){(size_t)((const char *)parts[i].data - (const char *)shard->file.data),
                    parts[i].size_bytes};
}

static void changed_byte_of_a_row_is_blamed_on_that_row_alone(void **state)
{
    const plain_shard written = example(257);
    const char *path = in(*state, shard_name);
    write_shard(*state, &written);
    bd_hasher *hasher = bd_hasher_new();
    for (int r = 0; r < N_ROWS; r++) {
        place places[7];
        bd_shard shard = opened(*state);
        places_of_row(&shard, r, places);
        bd_shard_close(&shard);
        for (int i = 0; i < 7; i++)
            for (size_t b = 0; b < places[i].size_bytes; b++) {
                change_byte(path, places[i].at + b, 0x10);
                shard = opened(*state);
                for (int other = 0; other < N_ROWS; other++) {
                    char expected[5000] = "";
                    bd_row row;
                    bd_error err = {0};
                    const bd_status status = bd_shard_row(&shard, other, hasher, &row, &err);
                    assert_int_equal(status, other == r ? BD_ERR_FORMAT : BD_OK);
                    if (other == r)
                        snprintf(expected, sizeof expected,
                                 "'%s', row %d: R7: the checksum does not match the row", path,
                                 r);
                    assert_string_equal(err.message, expected);
                }
                bd_shard_close(&shard);
                change_byte(path, places[i].at + b, 0x10);
            }
    }
    bd_hasher_free(hasher);
}

// Tells whether every row and all metadata are unchanged.
static bool is_unharmed(const bd_shard *shard, const plain_shard *written)
{
    bd_hasher *hasher = bd_hasher_new();
    const bd_shard_entry *entry = &shard->entry;
    bool same = memcmp(&entry->figures, &written->entry.figures, sizeof entry->figures) == 0 &&
                strcmp(entry->records.hex, written->entry.records.hex) == 0;
    for (int r = 0; same && r < N_ROWS; r++) {
        bd_row row;
        // A refused row is noticed damage, so no changed value is used.
        if (bd_shard_row(shard, r, hasher, &row, NULL) == BD_OK)
            same = row_equals(&row, &written->rows[r], 2);
    }
    bd_hasher_free(hasher);
    return same;
}

// Also in headers, metadata, footer and padding: a changed byte is refused or does not matter.
// One bit of each byte is flipped; of every third byte with BINDERY_TEST_BRIEF, and every bit
// with BINDERY_TEST_LONG.
static void assert_changes_are_noticed(const char *folder, const plain_shard *written)
{
    bd_shard_entry entry;
    const bd_manifest manifest = manifest_of(written, &entry);
    const char *path = in(folder, shard_name);
    const bool every_bit = getenv("BINDERY_TEST_LONG") != NULL;
    const size_t step = getenv("BINDERY_TEST_BRIEF") && !every_bit ? 3 : 1;
    size_t n;
    write_shard(folder, written);
    free(read_file(path, &n));
    size_t n_refused = 0;
    for (size_t at = 0; at < n; at += step)
        for (int change = every_bit ? 1 : 1 << at % 8; change < 256;
             change = every_bit ? 2 * change : 256) {
            bd_shard shard;
            bd_error err = {0};
            change_byte(path, at, change);
            const bd_status status = bd_shard_open_entry(&shard, folder, &manifest, 0, &err);
            if (status == BD_OK) {
                if (!is_unharmed(&shard, written))
                    fail_msg("byte %zu changed by %02x goes unnoticed", at, change);
                bd_shard_close(&shard);
            } else {
                assert_non_null(strstr(err.message, shard_name));
                n_refused++;
            }
            change_byte(path, at, change);
        }
    assert_true(n_refused * step > 500);
}

static void no_changed_byte_of_the_file_changes_what_is_read(void **state)
{
    plain_shard written = example(257);
    assert_changes_are_noticed(*state, &written);
    written.config.codec = BD_SHARD_ZSTD;
    assert_changes_are_noticed(*state, &written);
}

// Cut at every seventh byte, or at every byte with BINDERY_TEST_LONG.
static void file_that_was_cut_is_refused(void **state)
{
    const plain_shard written = example(257);
    const char *path = in(*state, shard_name);
    write_shard(*state, &written);
    size_t n;
    char *text = read_file(path, &n);
    const size_t step = getenv("BINDERY_TEST_LONG") ? 1 : 7;
    for (size_t kept = 0; kept < n; kept += step) {
        bd_shard shard;
        write_file(path, text, kept);
        assert_int_equal(bd_shard_open(&shard, *state, shard_name, NULL), BD_ERR_FORMAT);
        assert_null(shard.reader);
        assert_null(shard.file.data);
        assert_null(shard.path);
    }
    free(text);
}

// ---- Other files, and other shards -------------------------------------------------

static void refuses(const char *folder, bd_status status, const char *why)
{
    bd_shard shard;
    bd_error err = {0};
    char expected[5000];
    snprintf(expected, sizeof expected, "cannot use '%s/%s': %s", folder, shard_name, why);
    assert_int_equal(bd_shard_open(&shard, folder, shard_name, &err), status);
    assert_int_equal(strncmp(err.message, expected, strlen(expected)), 0);
    assert_null(shard.path);
}

static void file_that_is_not_a_shard_is_refused(void **state)
{
    const char *path = in(*state, shard_name);
    bd_shard shard;
    bd_error err;
    char expected[5000];
    snprintf(expected, sizeof expected, "cannot open '%s': No such file or directory", path);
    assert_int_equal(bd_shard_open(&shard, *state, shard_name, &err), BD_ERR_IO);
    assert_string_equal(err.message, expected);
    write_file(path, "", 0);
    refuses(*state, BD_ERR_FORMAT, "S1: not an Arrow file: it is empty");
    write_file(path, "ARROW1", 6);
    refuses(*state, BD_ERR_FORMAT, "S1: not an Arrow file: ");
    static char zeros[10000];
    write_file(path, zeros, sizeof zeros);
    refuses(*state, BD_ERR_FORMAT, "S1: not an Arrow file: ");
}

static void metadata_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *metadata;
        bd_status status;
        const char *why;
    } cases[] = {
        {"", BD_ERR_FORMAT, "S1: metadata: line 1"},
        {"{", BD_ERR_FORMAT, "S1: metadata: line 1"},
        {"{}", BD_ERR_FORMAT, "S1: metadata: 'format' is not a string"},
        {"{\"format\":\"3.0\"}", BD_ERR_UNSUPPORTED, "S1: metadata: format '3.0' is not one"},
        {"{\"format\":\"2.0\",\"packing\":{}}", BD_ERR_FORMAT,
         "S1: metadata: format '2.0' contradicts 'loss_mask'"},
        {"{\"format\":\"1.0\"}", BD_ERR_FORMAT, "S1: metadata: 'packing' is not an object"},
    };
    const plain_shard written = example(257);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_with_metadata(*state, &written, cases[i].metadata);
        refuses(*state, cases[i].status, cases[i].why);
    }
}

// Removes `part` from the text, which must contain it.
static void take_out(char *text, const char *part)
{
    char *at = strstr(text, part);
    assert_non_null(at);
    memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

static void shard_of_format_1_0_is_read(void **state)
{
    static const char *const added[] = {
        ",\"max_documents\":null,\"min_tokens\":0,\"shuffle\":null,\"holdout\":0",
        ",\"part\":\"all\",\"codec\":\"none\"",
        ",\"last\":true",
        ",\"records\":\"\"",
        ",\"positions\":\"\"",
        ",\"bad_missing_text\":0,\"bad_json\":0,\"bad_utf8\":0,\"bad_too_large\":0"
        ",\"bad_pattern\":0",
        ",\"too_short\":0,\"held_out\":0",
        ",\"too_short_documents\":0,\"held_out_documents\":0,\"headless_documents\":0"};
    plain_shard written = example(257);
    written.entry.unit.last = true;
    written.entry.records = (bd_digest){""};
    char *metadata = metadata_of(&written);
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        take_out(metadata, added[i]);
    memcpy(strstr(metadata, "\"" BD_FORMAT_VERSION "\""), "\"1.0\"", 5);
    write_with_metadata(*state, &written, metadata);
    bd_shard shard = opened(*state);
    assert_same_config(&shard.config, &written.config);
    assert_same_entry(&shard.entry, &written.entry);
    bd_shard_close(&shard);
    bd_shard_entry entry;
    const bd_manifest manifest = manifest_of(&written, &entry);
    assert_int_equal(bd_shard_open_entry(&shard, *state, &manifest, 0, NULL), BD_OK);
    bd_shard_close(&shard);
    free(metadata);
}

static void writer_that_cannot_write_says_so(void **state)
{
    const plain_shard written = example(257);
    bd_arrow_writer *writer = NULL;
    bd_error err;
    assert_int_equal(bd_arrow_writer_open(&writer, in(*state, "missing/file"), &written.config,
                                          "{}", false, &err),
                     BD_ERR_IO);
    assert_null(writer);
    assert_int_equal(strncmp(err.message, "cannot write an Arrow file: ", 28), 0);
    bd_arrow_writer_free(NULL);
    bd_arrow_reader_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(rows_come_back_as_they_were_written),
        test_in_folder(rows_point_into_the_mapping),
        test_in_folder(rows_of_a_compressed_shard_lie_outside_the_mapping),
        test_in_folder(same_rows_give_the_same_bytes),
        test_in_folder(shard_without_rows_is_a_shard),
        test_in_folder(one_shard_is_read_by_four_threads),
        test_in_folder(changed_byte_of_a_row_is_blamed_on_that_row_alone),
        test_in_folder(no_changed_byte_of_the_file_changes_what_is_read),
        test_in_folder(file_that_was_cut_is_refused),
        test_in_folder(file_that_is_not_a_shard_is_refused),
        test_in_folder(metadata_that_is_none_is_refused),
        test_in_folder(shard_of_format_1_0_is_read),
        test_in_folder(writer_that_cannot_write_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
