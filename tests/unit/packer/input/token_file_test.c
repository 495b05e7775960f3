#include "packer/input/token_layout.h"

#include <inttypes.h>

#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"

enum { MAX_BYTES = 1 << 17, MAX_DOCUMENTS = 8192, MAX_SEQUENCES = 64, END_OF_TEXT = 50256 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- Bytes of a file, written by hand -------------------------------------------------------

typedef struct bytes {
    size_t n;
    unsigned char data[MAX_BYTES];
} bytes;

static void put(bytes *b, uint64_t value, int width)  // little-endian
{
    assert_true(b->n + (size_t)width <= MAX_BYTES);
    for (int i = 0; i < width; i++)
        b->data[b->n++] = (unsigned char)(i < 8 ? value >> 8 * i : 0);
}

static void save(const bytes *b, const char *path)
{
    write_file(path, b->data, b->n);
}

static uint64_t number_at(const char *data, size_t at, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value |= (uint64_t)(unsigned char)data[at + (size_t)i] << 8 * i;
    return value;
}

// ---- The oracle: plain readers of whole files, from the formats' descriptions ---------------

typedef struct expected_document {
    int64_t position, n_ids;
    size_t at;  // byte of the file of ids
    bool headless;
} expected_document;

typedef struct expected {
    char *file;  // the file of ids, owned
    int width;
    bool indexed;
    int64_t n_tokens;
    int n;
    expected_document documents[MAX_DOCUMENTS];
} expected;

static void expect(expected *e, int64_t position, int64_t n_ids, size_t at, bool headless)
{
    assert_true(e->n < MAX_DOCUMENTS);
    e->documents[e->n++] = (expected_document){position, n_ids, at, headless};
}

static void expect_megatron(expected *e, const char *name)
{
    static const int WIDTHS[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    char path[64];
    size_t n_index, n_file;
    snprintf(path, sizeof path, "%s.idx", name);
    char *index = read_file(path, &n_index);
    snprintf(path, sizeof path, "%s.bin", name);
    *e = (expected){
        .file = read_file(path, &n_file), .width = WIDTHS[(int)index[17]], .indexed = true};
    e->n_tokens = (int64_t)n_file / e->width;
    const size_t n_sequences = number_at(index, 18, 8), n_first = number_at(index, 26, 8);
    const size_t lengths = 34, pointers = lengths + 4 * n_sequences;
    const size_t first = pointers + 8 * n_sequences;
    size_t at = 0;
    for (size_t d = 0; d + 1 < n_first; d++) {
        const size_t begin = number_at(index, first + 8 * d, 8);
        const size_t end = number_at(index, first + 8 * (d + 1), 8);
        if (begin < end)
            at = number_at(index, pointers + 8 * begin, 8);
        int64_t n = 0;
        for (size_t s = begin; s < end; s++)
            n += (int64_t)number_at(index, lengths + 4 * s, 4);
        expect(e, (int64_t)d, n, at, false);
        at += (size_t)n * (size_t)e->width;
    }
    free(index);
}

static void expect_llm_c(expected *e, const char *path)
{
    size_t n_file;
    *e = (expected){.file = read_file(path, &n_file)};
    e->width = number_at(e->file, 0, 4) == 20240520 ? 2 : 4;
    e->n_tokens = (int64_t)number_at(e->file, 8, 4);
    for (int64_t t = 0; t < e->n_tokens; t++) {
        const size_t at = 1024 + (size_t)(t * e->width);
        const bool ends = number_at(e->file, at, e->width) == END_OF_TEXT;
        if (ends)
            expect(e, t, 0, at + (size_t)e->width, false);
        else if (t == 0)
            expect(e, 0, 1, at, true);
        else
            e->documents[e->n - 1].n_ids++;
    }
}

// The test itself has written `ends` into the sidecar.
static void expect_raw(expected *e, const char *path, int width, const int64_t *ends, int n)
{
    size_t n_file;
    *e = (expected){.file = read_file(path, &n_file), .width = width, .indexed = true};
    e->n_tokens = (int64_t)n_file / width;
    for (int d = 0; d < n; d++) {
        const int64_t begin = d == 0 ? 0 : ends[d - 1];
        expect(e, d, ends[d] - begin, (size_t)(begin * width), false);
    }
}

// ---- Slices, compared with the oracle -------------------------------------------------------

static bd_token_file *open_tokens(const char *path, const bd_token_layout *layout,
                                  int raw_id_bytes)
{
    bd_token_file *file;
    bd_error err = {0};
    if (bd_token_file_open(&file, path, layout, raw_id_bytes, END_OF_TEXT, &err) != BD_OK)
        fail_msg("%s", err.message);
    return file;
}

// Reads one slice, whose documents must be those of `e` from `next` on; returns their number.
static int read_slice(bd_token_file *file, const expected *e, int64_t begin, int64_t end,
                      int next)
{
    const int first = next;
    bd_token_file_begin(file, begin, end);
    for (;;) {
        bd_token_document document;
        bool found;
        bd_error err = {0};
        if (bd_token_file_next(file, &document, &found, &err) != BD_OK)
            fail_msg("%s", err.message);
        if (!found)
            return next - first;
        assert_true(next < e->n);
        const expected_document *want = &e->documents[next++];
        assert_int_equal(document.position, want->position);
        assert_int_equal(document.n_ids, want->n_ids);
        assert_int_equal(document.headless, want->headless);
        assert_memory_equal(document.ids, e->file + want->at, (size_t)(want->n_ids * e->width));
        assert_true(begin <= document.position && document.position < end);
    }
}

static void check_partition(bd_token_file *file, const expected *e, int64_t size, bool clamped)
{
    static int counts[MAX_BYTES];
    const int64_t extent = bd_token_file_extent(file);
    int n_slices = 0, next = 0;
    for (int64_t begin = 0; begin < extent; begin += size) {
        const bool past = begin + size > extent;
        const int64_t end = clamped && past ? extent : begin + size;
        next += counts[n_slices++] = read_slice(file, e, begin, end, next);
    }
    assert_int_equal(next, e->n);
    while (n_slices-- > 0) {  // the same slices in reverse order
        const int64_t begin = n_slices * size;
        next -= counts[n_slices];
        assert_int_equal(read_slice(file, e, begin, begin + size, next), counts[n_slices]);
    }
}

static void check_begins(const bd_token_file *file, const expected *e)
{
    for (int d = 0; d < e->n; d++)
        assert_int_equal(bd_token_file_document_begin(file, d),
                         e->documents[d].at / (size_t)e->width);
    assert_int_equal(bd_token_file_document_begin(file, e->n), e->n_tokens);
}

// Checks every partition and releases `e`.
static void check_documents(bd_token_file *file, expected *e)
{
    const int64_t n = e->indexed ? e->n : e->n_tokens;
    assert_int_equal(bd_token_file_n_tokens(file), e->n_tokens);
    assert_int_equal(bd_token_file_id_bytes(file), e->width);
    assert_int_equal(bd_token_file_is_indexed(file), e->indexed);
    assert_int_equal(bd_token_file_extent(file), n);
    if (e->indexed)
        check_begins(file, e);
    bd_token_document document;
    bool found = true;
    assert_int_equal(bd_token_file_next(file, &document, &found, NULL), BD_OK);
    assert_false(found);  // no slice was begun
    const int64_t sizes[] = {1, 2, 3, 7, n > 0 ? n : 1, n + 9};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        check_partition(file, e, sizes[i], true);
        check_partition(file, e, sizes[i], false);
    }
    // After the last position, and outside the file.
    assert_int_equal(read_slice(file, e, n, n, 0), 0);
    assert_int_equal(read_slice(file, e, n, n + 5, 0), 0);
    assert_int_equal(read_slice(file, e, n + 3, n + 5, 0), 0);
    assert_int_equal(read_slice(file, e, 0, 0, 0), 0);
    bd_token_file_close(file);
    free(e->file);
}

static void assert_refused_as(const char *path, const bd_token_layout *layout, int raw_id_bytes,
                              int64_t end_of_text, bd_status status, const char *message)
{
    bd_token_file *file = (bd_token_file *)&file;
    bd_error err = {0};
    assert_int_equal(bd_token_file_open(&file, path, layout, raw_id_bytes, end_of_text, &err),
                     status);
    assert_string_equal(err.message, message);
    assert_null(file);
}

// ---- Megatron -------------------------------------------------------------------------------

typedef struct megatron {
    char magic[10];
    uint64_t version;
    int type, width;
    int n_sequences, n_first;
    int64_t lengths[MAX_SEQUENCES], pointers[MAX_SEQUENCES], first[MAX_SEQUENCES];
    int64_t n_tokens;
    bool modes;
    int64_t says_sequences, says_first;  // added to the counts of the header
} megatron;

static megatron megatron_of(int type, int width)
{
    return (megatron){
        .magic = "MMIDIDX", .version = 1, .type = type, .width = width, .n_first = 1};
}

static void add_sequence(megatron *m, int64_t length)
{
    assert_true(m->n_sequences < MAX_SEQUENCES);
    m->lengths[m->n_sequences] = length;
    m->pointers[m->n_sequences++] = m->n_tokens * m->width;
    m->n_tokens += length;
}

static void end_document(megatron *m)
{
    assert_true(m->n_first < MAX_SEQUENCES);
    m->first[m->n_first++] = m->n_sequences;
}

static void index_bytes(const megatron *m, bytes *b)
{
    b->n = 0;
    for (int i = 0; i < 9; i++)
        put(b, (unsigned char)m->magic[i], 1);
    put(b, m->version, 8);
    put(b, (uint64_t)m->type, 1);
    put(b, (uint64_t)(m->n_sequences + m->says_sequences), 8);
    put(b, (uint64_t)(m->n_first + m->says_first), 8);
    for (int s = 0; s < m->n_sequences; s++)
        put(b, (uint64_t)m->lengths[s], 4);
    for (int s = 0; s < m->n_sequences; s++)
        put(b, (uint64_t)m->pointers[s], 8);
    for (int d = 0; d < m->n_first; d++)
        put(b, (uint64_t)m->first[d], 8);
    for (int s = 0; m->modes && s < m->n_sequences; s++)
        put(b, (uint64_t)s % 2, 1);
}

static void save_megatron(const megatron *m, const char *name)
{
    static bytes b;
    char path[64];
    index_bytes(m, &b);
    snprintf(path, sizeof path, "%s.idx", name);
    save(&b, path);
    b.n = 0;
    for (int64_t t = 0; t < m->n_tokens; t++)
        put(&b, 0xfedcba9876543210u * (uint64_t)(t + 1), m->width);
    snprintf(path, sizeof path, "%s.bin", name);
    save(&b, path);
}

// Documents of 3, 1 + 1, no and 5 tokens.
static megatron small_megatron(int type, int width)
{
    megatron m = megatron_of(type, width);
    add_sequence(&m, 3);
    end_document(&m);
    add_sequence(&m, 1);
    add_sequence(&m, 1);
    end_document(&m);
    end_document(&m);
    add_sequence(&m, 5);
    end_document(&m);
    return m;
}

static const struct {
    int type, width;
} ID_TYPES[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};

static void megatron_documents_are_those_of_every_partition(void **state)
{
    (void)state;
    static expected e;
    for (size_t i = 0; i < COUNT(ID_TYPES); i++) {
        for (int with_empty = 0; with_empty < 16; with_empty++) {
            megatron m = megatron_of(ID_TYPES[i].type, ID_TYPES[i].width);
            m.modes = with_empty % 3 == 0;
            if (with_empty & 1) {  // at the beginning: no sequence, then an empty one
                end_document(&m);
                add_sequence(&m, 0);
                end_document(&m);
            }
            add_sequence(&m, 4);
            add_sequence(&m, 0);
            add_sequence(&m, 1);
            end_document(&m);
            if (with_empty & 2) {
                add_sequence(&m, 0);
                add_sequence(&m, 0);
                end_document(&m);
                end_document(&m);
            }
            add_sequence(&m, 1);
            end_document(&m);
            add_sequence(&m, 9);
            end_document(&m);
            if (with_empty & 4)
                end_document(&m);
            if (with_empty & 8) {
                add_sequence(&m, 0);
                end_document(&m);
            }
            save_megatron(&m, "x");
            const char *path = with_empty % 2 ? "x.bin" : "x.idx";
            expect_megatron(&e, "x");
            bd_token_file *file = open_tokens(path, &bd_megatron_layout, 0);
            assert_string_equal(bd_token_file_path(file), "x.bin");
            assert_string_equal(bd_token_file_sidecar(file), "x.idx");
            check_documents(file, &e);
        }
    }
}

static void random_megatron_files_agree_with_the_oracle(void **state)
{
    (void)state;
    static expected e;
    uint64_t seed = 20;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < 200; round++) {
        const size_t type = next_random(&seed) % COUNT(ID_TYPES);
        megatron m = megatron_of(ID_TYPES[type].type, ID_TYPES[type].width);
        for (int d = random_between(&seed, 0, 12); d > 0; d--) {
            for (int s = random_between(&seed, 0, 3); s > 0; s--)
                add_sequence(&m, random_between(&seed, 0, 1) * random_between(&seed, 0, 9));
            end_document(&m);
        }
        save_megatron(&m, "x");
        expect_megatron(&e, "x");
        check_documents(open_tokens("x.bin", &bd_megatron_layout, 0), &e);
    }
}

static void files_without_tokens_keep_their_empty_documents(void **state)
{
    (void)state;
    static expected e;
    megatron m = megatron_of(4, 4);
    for (int d = 0; d < 4; d++) {
        save_megatron(&m, "x");
        expect_megatron(&e, "x");
        assert_int_equal(e.n, d);
        check_documents(open_tokens("x.bin", &bd_megatron_layout, 0), &e);
        if (d == 1)
            add_sequence(&m, 0);
        end_document(&m);
    }
}

typedef struct lie {
    const char *message;
    void (*tell)(megatron *m);
} lie;

static void tell_magic(megatron *m)
{
    m->magic[8] = 1;
}

static void tell_version(megatron *m)
{
    m->version = 2;
}

static void tell_float(megatron *m)
{
    m->type = 7;
}

static void tell_unknown_type(megatron *m)
{
    m->type = 9;
}

static void tell_more_sequences(megatron *m)
{
    m->says_sequences = INT64_MAX - 4;
}

static void tell_fewer_sequences(megatron *m)
{
    m->says_sequences = -1;
}

static void tell_more_documents(megatron *m)
{
    m->says_first = 1;
}

static void tell_no_document_index(megatron *m)
{
    *m = megatron_of(8, 2);
    m->n_first = 0;
}

static void tell_negative_length(megatron *m)
{
    m->lengths[1] = -1;
}

static void tell_long_length(megatron *m)
{
    m->lengths[3] = INT32_MAX;
}

static void tell_negative_pointer(megatron *m)
{
    m->pointers[2] = INT64_MIN;
}

static void tell_far_pointer(megatron *m)
{
    m->pointers[2] = INT64_MAX;
}

static void tell_odd_pointer(megatron *m)
{
    m->pointers[2] = 7;
}

static void tell_apart_in_document(megatron *m)
{
    m->pointers[2] = 10;
}

static void tell_overlapping_documents(megatron *m)
{
    m->pointers[3] = 8;
}

static void tell_gap_between_documents(megatron *m)
{
    m->lengths[3] = 4;
    m->pointers[3] = 12;
}

static void tell_gap_before_the_first(megatron *m)
{
    m->lengths[0] = 2;
    m->pointers[0] = 2;
}

static void tell_bytes_left_over(megatron *m)
{
    m->lengths[3] = 4;
}

static void tell_first_of_all(megatron *m)
{
    m->first[0] = 1;
}

static void tell_decreasing(megatron *m)
{
    m->first[2] = 0;
}

static void tell_negative_entry(megatron *m)
{
    m->first[1] = INT64_MIN;
}

static void tell_too_many(megatron *m)
{
    m->first[4] = 5;
}

static void tell_too_few(megatron *m)
{
    m->first[4] = 3;
}

static void every_lie_of_a_megatron_index_is_named(void **state)
{
    (void)state;
    static const lie LIES[] = {
        {"not a Megatron index", tell_magic},
        {"its version is 2, not 1", tell_version},
        {"its type 7 is a float, which cannot be an id", tell_float},
        {"its type 9 is unknown", tell_unknown_type},
        {"9223372036854775807 sequences and a document index of 5 do not make its 122 bytes",
         tell_more_sequences},
        {"3 sequences and a document index of 5 do not make its 122 bytes",
         tell_fewer_sequences},
        {"4 sequences and a document index of 6 do not make its 122 bytes",
         tell_more_documents},
        {"its document index is empty", tell_no_document_index},
        {"sequence 1 has a length of -1", tell_negative_length},
        {"sequence 3 (2147483647 ids from byte 10 on) does not lie inside 'x.bin', which has "
         "20 bytes",
         tell_long_length},
        {"sequence 2 (1 ids from byte -9223372036854775808 on) does not lie inside 'x.bin', "
         "which has 20 bytes",
         tell_negative_pointer},
        {"sequence 2 (1 ids from byte 9223372036854775807 on) does not lie inside 'x.bin', "
         "which has 20 bytes",
         tell_far_pointer},
        {"sequence 2 begins at byte 7, which is inside an id", tell_odd_pointer},
        {"sequence 2 begins at byte 10, but the one before it in the same document ends at 8",
         tell_apart_in_document},
        {"sequence 3 begins at byte 8, but the document before it ends at 10",
         tell_overlapping_documents},
        {"byte 10 of 'x.bin' belongs to no document: sequence 3 begins at byte 12",
         tell_gap_between_documents},
        {"byte 0 of 'x.bin' belongs to no document: sequence 0 begins at byte 2",
         tell_gap_before_the_first},
        {"byte 18 of 'x.bin' belongs to no document: it has 20 bytes", tell_bytes_left_over},
        {"entry 0 of its document index is 1, not 0", tell_first_of_all},
        {"entry 2 of its document index is 0, less than the one before it (1)",
         tell_decreasing},
        {"entry 1 of its document index is -9223372036854775808, less than the one before it "
         "(0)",
         tell_negative_entry},
        {"entry 4 of its document index is 5, but there are 4 sequences", tell_too_many},
        {"its document index ends with 3 (entry 4), but there are 4 sequences", tell_too_few},
    };
    for (size_t i = 0; i < COUNT(LIES); i++) {
        char message[512];
        megatron m = small_megatron(8, 2);
        LIES[i].tell(&m);
        save_megatron(&m, "x");
        snprintf(message, sizeof message, "cannot use 'x.idx': %s", LIES[i].message);
        assert_refused_as("x.bin", &bd_megatron_layout, 0, 0, BD_ERR_FORMAT, message);
    }
}

// A flipped bit of the index is noticed, unless the index stays valid: a document may end
// elsewhere, ids may have another type of the same width.
static void a_wrong_bit_in_a_megatron_index_is_refused_or_means_what_it_says(void **state)
{
    (void)state;
    static bytes b;
    static expected e;
    const megatron m = small_megatron(8, 2);
    save_megatron(&m, "x");
    index_bytes(&m, &b);
    const size_t document_index = b.n - 8 * (size_t)m.n_first;
    int n_accepted = 0;
    for (size_t bit = 0; bit < 8 * b.n; bit++) {
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        save(&b, "x.idx");
        bd_token_file *file;
        bd_error err = {0};
        if (bd_token_file_open(&file, "x.bin", &bd_megatron_layout, 0, 0, &err) == BD_OK) {
            n_accepted++;
            assert_true(bit / 8 == 17 || bit / 8 >= document_index);
            expect_megatron(&e, "x");
            check_documents(file, &e);
        } else {
            assert_int_equal(err.status, BD_ERR_FORMAT);
            assert_non_null(strstr(err.message, "cannot use 'x.idx': "));
        }
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    // In the document index 0, 1, 3, 3, 4, the 1 may become 0 or 3, and the first 3 may become
    // 1 or 2; any other bit breaks the order, or an end.
    assert_int_equal(n_accepted, 4);
}

static void a_megatron_pair_that_was_cut_is_refused(void **state)
{
    (void)state;
    static bytes b;
    bd_token_file *file;
    bd_error err;
    megatron m = small_megatron(4, 4);
    m.modes = true;
    save_megatron(&m, "x");
    index_bytes(&m, &b);
    for (size_t n = b.n; n-- > 0;) {
        assert_int_equal(truncate("x.idx", (off_t)n), 0);
        const bd_status status =
            bd_token_file_open(&file, "x.idx", &bd_megatron_layout, 0, 0, &err);
        // It is also complete without the modes.
        assert_int_equal(status, n == b.n - (size_t)m.n_sequences ? BD_OK : BD_ERR_FORMAT);
        if (status == BD_OK)
            bd_token_file_close(file);
        else
            assert_non_null(strstr(err.message, "cannot use 'x.idx': "));
    }
    save(&b, "x.idx");
    for (off_t n = m.n_tokens * m.width; n-- > 0;) {
        assert_int_equal(truncate("x.bin", n), 0);
        assert_int_equal(bd_token_file_open(&file, "x.idx", &bd_megatron_layout, 0, 0, &err),
                         BD_ERR_FORMAT);
        assert_non_null(strstr(err.message, " does not lie inside 'x.bin'"));
    }
    assert_int_equal(unlink("x.bin"), 0);
    assert_refused_as("x.idx", &bd_megatron_layout, 0, 0, BD_ERR_IO,
                      "cannot open 'x.bin': No such file or directory");
    write_text("x", "MMIDIDX");
    assert_refused_as("x", &bd_megatron_layout, 0, 0, BD_ERR_ARGUMENT,
                      "cannot use 'x': Megatron's files are named NAME.bin and NAME.idx");
}

// The file is mapped: bytes that open() has checked may change later.
static void an_index_that_changes_later_is_refused_then(void **state)
{
    (void)state;
    static bytes b;
    static const struct {
        int entry;
        int64_t value, begin;
    } CHANGES[] = {{1, -1, -1}, {1, INT64_MAX, -1}, {1, 5, -1}, {2, 0, 0}};
    for (size_t i = 0; i < COUNT(CHANGES); i++) {
        megatron m = small_megatron(8, 2);
        save_megatron(&m, "x");
        bd_token_file *file = open_tokens("x.bin", &bd_megatron_layout, 0);
        m.first[CHANGES[i].entry] = CHANGES[i].value;
        index_bytes(&m, &b);
        FILE *index = fopen("x.idx", "r+b");  // not cut in between, which is another test
        assert_non_null(index);
        assert_int_equal(fwrite(b.data, 1, b.n, index), b.n);
        assert_int_equal(fclose(index), 0);
        assert_int_equal(bd_token_file_document_begin(file, CHANGES[i].entry),
                         CHANGES[i].begin);
        bd_token_file_begin(file, 0, 4);
        bd_token_document document;
        bool found = true;
        bd_error err = {0};
        int64_t n_ids = 0;
        while (found && bd_token_file_next(file, &document, &found, &err) == BD_OK)
            n_ids += document.n_ids;
        assert_true(n_ids <= 10);
        assert_int_equal(err.status, BD_ERR_FORMAT);
        char message[128];
        snprintf(message, sizeof message,
                 "cannot use 'x.idx': document %d was changed while it was being read",
                 CHANGES[i].entry - 1);
        assert_string_equal(err.message, message);
        bd_token_file_close(file);
    }
}

// ---- llm.c ----------------------------------------------------------------------------------

static void llm_c_bytes(bytes *b, int width, const uint32_t *ids, int n)
{
    b->n = 0;
    put(b, width == 2 ? 20240520 : 20240801, 4);
    put(b, width == 2 ? 1 : 7, 4);
    put(b, (uint64_t)n, 4);
    put(b, 0, 253 * 4);
    for (int t = 0; t < n; t++)
        put(b, ids[t], width);
}

static void check_llm_c(const uint32_t *ids, int n)
{
    static bytes b;
    static expected e;
    for (int width = 2; width <= 4; width += 2) {
        llm_c_bytes(&b, width, ids, n);
        save(&b, "x.bin");
        expect_llm_c(&e, "x.bin");
        bd_token_file *file = open_tokens("x.bin", &bd_llm_c_layout, 0);
        assert_string_equal(bd_token_file_path(file), "x.bin");
        assert_null(bd_token_file_sidecar(file));
        check_documents(file, &e);
    }
}

static void llm_c_documents_follow_their_end_of_text(void **state)
{
    (void)state;
    enum { E = END_OF_TEXT, HALF = END_OF_TEXT + 65536 };  // HALF's lower half equals E's
    static const uint32_t IDS[] = {E, 1, 2, E, E, 3, 0, 7, E, HALF, E, E};
    static const uint32_t HEADLESS[] = {4, 5, E, 6, E};
    static const uint32_t NONE[] = {9, 8, 7, 6, 5, 4, 3, 2};
    check_llm_c(IDS, COUNT(IDS));
    for (int n = 0; n <= (int)COUNT(HEADLESS); n++)
        check_llm_c(HEADLESS, n);
    check_llm_c(NONE, COUNT(NONE));
    check_llm_c((uint32_t[]){E}, 1);
}

// One end-of-text token, or two, at every place of a few of the searched blocks.
static void no_end_of_text_is_overlooked(void **state)
{
    (void)state;
    uint32_t ids[200];
    for (int at = 0; at < (int)COUNT(ids); at++) {
        for (int t = 0; t < (int)COUNT(ids); t++)
            ids[t] = END_OF_TEXT + (t % 2 ? 1 : -1);
        ids[at] = ids[at * 7 % (int)COUNT(ids)] = END_OF_TEXT;
        check_llm_c(ids, at % 3 ? (int)COUNT(ids) : at + 1);
    }
}

static void random_llm_c_files_agree_with_the_oracle(void **state)
{
    (void)state;
    uint64_t seed = 21;
    uint32_t ids[300];
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < 60; round++) {
        const int rare = random_between(&seed, 1, 60);
        for (size_t t = 0; t < COUNT(ids); t++)
            ids[t] = next_random(&seed) % (uint64_t)rare == 0 ? END_OF_TEXT : (uint32_t)t;
        check_llm_c(ids, random_between(&seed, 0, (int)COUNT(ids)));
    }
}

static void every_lie_of_an_llm_c_header_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t value;
        const char *message;
    } LIES[] = {
        {0, 20240522, "not a file of tokens for llm.c"},
        {0, 20240801, "its version is 1, not 7"},
        {4, 2, "its version is 2, not 1"},
        {8, 4, "4 tokens of 2 bytes and a header do not make its 1030 bytes"},
        {8, 2, "2 tokens of 2 bytes and a header do not make its 1030 bytes"},
        {8, UINT32_MAX, "-1 tokens of 2 bytes and a header do not make its 1030 bytes"},
        {8, INT32_MAX, "2147483647 tokens of 2 bytes and a header do not make its 1030 bytes"},
    };
    static bytes b;
    for (size_t i = 0; i < COUNT(LIES); i++) {
        char message[256];
        llm_c_bytes(&b, 2, (uint32_t[]){END_OF_TEXT, 1, 2}, 3);
        const size_t n = b.n;
        b.n = LIES[i].at;
        put(&b, LIES[i].value, 4);
        b.n = n;
        save(&b, "x.bin");
        snprintf(message, sizeof message, "cannot use 'x.bin': %s", LIES[i].message);
        assert_refused_as("x.bin", &bd_llm_c_layout, 0, END_OF_TEXT, BD_ERR_FORMAT, message);
    }
}

static void an_llm_c_file_that_was_cut_is_refused(void **state)
{
    (void)state;
    static bytes b;
    llm_c_bytes(&b, 4, (uint32_t[]){END_OF_TEXT, 1, 2}, 3);
    save(&b, "x.bin");
    for (size_t n = b.n; n-- > 0;) {
        assert_int_equal(truncate("x.bin", (off_t)n), 0);
        bd_token_file *file;
        bd_error err = {0};
        assert_int_equal(
            bd_token_file_open(&file, "x.bin", &bd_llm_c_layout, 0, END_OF_TEXT, &err),
            BD_ERR_FORMAT);
        assert_non_null(strstr(err.message, "cannot use 'x.bin': "));
    }
    assert_refused_as("x.bin", &bd_llm_c_layout, 0, END_OF_TEXT, BD_ERR_FORMAT,
                      "cannot use 'x.bin': its 0 bytes are less than llm.c's header");
}

static void an_end_of_text_that_no_id_can_be_is_refused(void **state)
{
    (void)state;
    static bytes b;
    bd_token_file *file;
    bd_error err;
    llm_c_bytes(&b, 2, (uint32_t[]){UINT16_MAX}, 1);
    save(&b, "x.bin");
    assert_int_equal(bd_token_file_open(&file, "x.bin", &bd_llm_c_layout, 0, UINT16_MAX, &err),
                     BD_OK);
    bd_token_file_close(file);
    assert_refused_as("x.bin", &bd_llm_c_layout, 0, 65536, BD_ERR_ARGUMENT,
                      "cannot use 'x.bin': its ids of 2 bytes cannot hold the end-of-text "
                      "token's, 65536");
    assert_refused_as("x.bin", &bd_llm_c_layout, 0, -1, BD_ERR_ARGUMENT,
                      "cannot use 'x.bin': its ids of 2 bytes cannot hold the end-of-text "
                      "token's, -1");
    llm_c_bytes(&b, 4, (uint32_t[]){UINT32_MAX}, 1);
    save(&b, "x.bin");
    assert_int_equal(bd_token_file_open(&file, "x.bin", &bd_llm_c_layout, 0, UINT32_MAX, &err),
                     BD_OK);
    bd_token_file_close(file);
    assert_refused_as("x.bin", &bd_llm_c_layout, 0, INT64_C(1) << 32, BD_ERR_ARGUMENT,
                      "cannot use 'x.bin': its ids of 4 bytes cannot hold the end-of-text "
                      "token's, 4294967296");
}

// ---- Raw ids --------------------------------------------------------------------------------

static void save_ids(const char *path, int width, int64_t n)
{
    static bytes b;
    b.n = 0;
    for (int64_t t = 0; t < n; t++)
        put(&b, 0x89abcdefu * (uint64_t)(t + 1), width);
    save(&b, path);
}

static void save_ends(const char *path, const int64_t *ends, int n)
{
    static bytes b;
    b.n = 0;
    for (int d = 0; d < n; d++)
        put(&b, (uint64_t)ends[d], 8);
    save(&b, path);
}

static uint32_t crc32_of(const char *data, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < 8 * n; i++) {
        const uint32_t bit = (unsigned char)data[i / 8] >> i % 8 & 1;
        crc = crc >> 1 ^ ((crc ^ bit) & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

// A gzip file of one block that is not compressed.
static void save_csv(const char *path, const char *text)
{
    static bytes b;
    const size_t n = strlen(text);
    assert_true(n <= UINT16_MAX);
    b.n = 0;
    put(&b, 0x088b1f, 4);
    put(&b, 0, 6);
    put(&b, 1, 1);  // the last block
    put(&b, n, 2);
    put(&b, ~n, 2);
    for (size_t i = 0; i < n; i++)
        put(&b, (unsigned char)text[i], 1);
    put(&b, crc32_of(text, n), 4);
    put(&b, n, 4);
    save(&b, path);
}

static const int64_t ENDS[] = {0, 0, 3, 3, 4, 12, 12, 17, 17, 17};

static void raw_documents_end_where_the_index_says(void **state)
{
    (void)state;
    static expected e;
    for (int width = 2; width <= 4; width += 2) {
        for (int n = 0; n <= (int)COUNT(ENDS); n++) {
            save_ids("x.ds", width, n == 0 ? 0 : ENDS[n - 1]);
            save_ends("x.ds.index", ENDS, n);
            expect_raw(&e, "x.ds", width, ENDS, n);
            bd_token_file *file = open_tokens("x.ds", &bd_raw_layout, width);
            assert_string_equal(bd_token_file_path(file), "x.ds");
            assert_string_equal(bd_token_file_sidecar(file), "x.ds.index");
            check_documents(file, &e);
        }
    }
}

static void raw_documents_end_where_the_table_says(void **state)
{
    (void)state;
    static const char ROWS[] = "0,0,a,s,1\r\n0,0,,,\r\n0,3,\"b,\n\"\"7,9\"\"\",s\"t,3\n"
                               "3,3,\"\",\"\",\"\"\n\"3\",\"4\",c,s,5\n4,12,d,\"s\"x,6\n"
                               "12,12,e,s,7\n12,17,f,s,\"8\n\"\r\n17,17,g,s,9\n17,17,h,s,";
    static expected e;
    for (int width = 2; width <= 4; width += 2) {
        save_ids("part-0.npy", width, 17);
        save_csv("part-0.csv.gz", ROWS);
        expect_raw(&e, "part-0.npy", width, ENDS, COUNT(ENDS));
        bd_token_file *file = open_tokens("part-0.npy", &bd_raw_layout, width);
        assert_string_equal(bd_token_file_path(file), "part-0.npy");
        assert_string_equal(bd_token_file_sidecar(file), "part-0.csv.gz");
        check_documents(file, &e);
    }
    save_ids("part-0.npy", 2, 0);
    save_csv("part-0.csv.gz", "");
    expect_raw(&e, "part-0.npy", 2, ENDS, 0);
    check_documents(open_tokens("part-0.npy", &bd_raw_layout, 2), &e);
}

static void every_lie_of_an_index_of_ends_is_named(void **state)
{
    (void)state;
    static const struct {
        int64_t ends[3];
        const char *message;
    } LIES[] = {
        {{5, 4, 9}, "entry 1 is 4, less than the one before it (5)"},
        {{5, 10, 9}, "entry 1 is 10, but 'x.ds' has 9 tokens"},
        {{-1, 5, 9}, "entry 0 is 18446744073709551615, but 'x.ds' has 9 tokens"},
        {{1, 5, 8}, "it ends at token 8, but 'x.ds' has 9: the rest belongs to no document"},
    };
    save_ids("x.ds", 2, 9);
    for (size_t i = 0; i < COUNT(LIES); i++) {
        char message[256];
        save_ends("x.ds.index", LIES[i].ends, 3);
        snprintf(message, sizeof message, "cannot use 'x.ds.index': %s", LIES[i].message);
        assert_refused_as("x.ds", &bd_raw_layout, 2, 0, BD_ERR_FORMAT, message);
    }
    save_ends("x.ds.index", (int64_t[]){2, 5, 9}, 3);
    bd_token_file_close(open_tokens("x.ds", &bd_raw_layout, 2));
    for (off_t n = 24; n-- > 0;) {
        bd_token_file *file;
        bd_error err = {0};
        assert_int_equal(truncate("x.ds.index", n), 0);
        assert_int_equal(bd_token_file_open(&file, "x.ds", &bd_raw_layout, 2, 0, &err),
                         BD_ERR_FORMAT);
        assert_non_null(strstr(err.message, "cannot use 'x.ds.index': it"));
    }
}

static void a_table_that_was_cut_or_ends_early_is_refused(void **state)
{
    (void)state;
    static const char *const EARLY[] = {"", "0,8,a,b,1\n"};
    save_ids("x.npy", 2, 9);
    for (int end = 0; end <= 8; end += 8) {
        char message[256];
        save_csv("x.csv.gz", EARLY[end / 8]);
        snprintf(message, sizeof message,
                 "cannot use 'x.csv.gz': it ends at token %d, but 'x.npy' has 9: the rest "
                 "belongs to no document",
                 end);
        assert_refused_as("x.npy", &bd_raw_layout, 2, 0, BD_ERR_FORMAT, message);
    }
    save_csv("x.csv.gz", "0,4,a,b,1\n4,10,a,b,1\n");
    assert_refused_as("x.npy", &bd_raw_layout, 2, 0, BD_ERR_FORMAT,
                      "cannot use 'x.csv.gz': row 2 ends at token 10, but 'x.npy' has 9");
    save_csv("x.csv.gz", "0,4,a,b,1\n4,9,a,b,1\n");
    bd_token_file_close(open_tokens("x.npy", &bd_raw_layout, 2));
    struct stat info;
    assert_int_equal(stat("x.csv.gz", &info), 0);
    for (off_t n = info.st_size; n-- > 0;) {
        bd_token_file *file;
        bd_error err = {0};
        assert_int_equal(truncate("x.csv.gz", n), 0);
        assert_int_equal(bd_token_file_open(&file, "x.npy", &bd_raw_layout, 2, 0, &err),
                         BD_ERR_FORMAT);
    }
}

static void raw_ids_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    save_ids("x.npy", 2, 9);
    assert_refused_as("x.npy", &bd_raw_layout, 2, 0, BD_ERR_FORMAT,
                      "cannot use 'x.npy': nothing says where its documents end (no "
                      "'x.npy.index')");
    save_ends("x.npy.index", (int64_t[]){9}, 1);
    bd_token_file_close(open_tokens("x.npy", &bd_raw_layout, 2));
    assert_refused_as("x.npy", &bd_raw_layout, 4, 0, BD_ERR_FORMAT,
                      "cannot use 'x.npy': its 18 bytes are no whole number of ids of 4 "
                      "bytes");
    static const int WIDTHS[] = {0, 1, 3, 8, -2};
    for (size_t i = 0; i < COUNT(WIDTHS); i++) {
        char message[128];
        snprintf(message, sizeof message,
                 "cannot use 'x.npy': raw ids have 2 or 4 bytes, not %d", WIDTHS[i]);
        assert_refused_as("x.npy", &bd_raw_layout, WIDTHS[i], 0, BD_ERR_ARGUMENT, message);
    }
    for (off_t n = 18; n-- > 0;) {
        bd_token_file *file;
        assert_int_equal(truncate("x.npy", n), 0);
        assert_int_equal(bd_token_file_open(&file, "x.npy", &bd_raw_layout, 2, 0, NULL),
                         BD_ERR_FORMAT);
    }
    write_text("x.npy", "\x93NUMPY\1\1");
    save_ends("x.npy.index", (int64_t[]){4}, 1);
    assert_refused_as("x.npy", &bd_raw_layout, 2, 0, BD_ERR_FORMAT,
                      "cannot use 'x.npy': it has a NumPy header; only ids without one are "
                      "read");
}

// ---- Recognising ----------------------------------------------------------------------------

// In the order in which the kinds of input are tried.
static void assert_recognised(const char *path, bool is_known, const bd_token_layout *right)
{
    bool known = false;
    bd_error err = {0};
    for (size_t i = 0; bd_input_kinds[i] && !known; i++) {
        const bd_token_layout *layout = bd_input_kinds[i]->tokens;
        if (layout && layout->recognise(path, &known, &err) != BD_OK)
            fail_msg("%s", err.message);
        if (known)
            assert_ptr_equal(layout, right);
    }
    assert_int_equal(known, is_known);
}

static void files_are_recognised_by_content(void **state)
{
    (void)state;
    static bytes b;
    const megatron m = small_megatron(8, 2);
    save_megatron(&m, "pair");
    assert_recognised("pair.bin", true, &bd_megatron_layout);
    assert_recognised("pair.idx", true, &bd_megatron_layout);
    write_text("pair.idx", "MMIDIDX");  // two bytes are missing
    assert_recognised("pair.bin", false, &bd_megatron_layout);
    assert_recognised("pair.idx", false, &bd_megatron_layout);

    llm_c_bytes(&b, 2, NULL, 0);
    save(&b, "llm.bin");
    assert_recognised("llm.bin", true, &bd_llm_c_layout);
    llm_c_bytes(&b, 4, NULL, 0);
    save(&b, "llm.tokens");
    save_ends("llm.tokens.index", NULL, 0);  // its own bytes come first
    assert_recognised("llm.tokens", true, &bd_llm_c_layout);
    save_megatron(&m, "llm");
    save(&b, "llm.bin");  // ids that look like llm.c's header
    assert_recognised("llm.bin", true, &bd_megatron_layout);

    write_text("x.ds", "");
    write_text("x.npy", "some ids");
    assert_recognised("x.ds", false, &bd_raw_layout);
    assert_recognised("x.npy", false, &bd_raw_layout);
    write_text("x.ds.index", "");
    write_text("x.csv.gz", "");
    assert_recognised("x.ds", true, &bd_raw_layout);
    assert_recognised("x.npy", true, &bd_raw_layout);
    write_text("x.txt", "some text");
    assert_recognised("x.txt", false, &bd_raw_layout);
}

static void only_regular_files_are_opened(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("pipe.bin", 0666), 0);
    write_text("x.bin", "some ids");
    assert_int_equal(mkfifo("x.idx", 0666), 0);
    assert_int_equal(mkfifo("x.bin.index", 0666), 0);
    alarm(20);  // opening a pipe waits for its writer
    assert_recognised("pipe.bin", false, &bd_raw_layout);
    assert_recognised("x.bin", false, &bd_raw_layout);
    assert_recognised(".", false, &bd_raw_layout);
    assert_refused_as("x.bin", &bd_megatron_layout, 0, 0, BD_ERR_IO,
                      "cannot read 'x.idx': not a regular file");
    alarm(0);
    bd_token_file_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(megatron_documents_are_those_of_every_partition),
        test_inside_folder(random_megatron_files_agree_with_the_oracle),
        test_inside_folder(files_without_tokens_keep_their_empty_documents),
        test_inside_folder(every_lie_of_a_megatron_index_is_named),
        test_inside_folder(a_wrong_bit_in_a_megatron_index_is_refused_or_means_what_it_says),
        test_inside_folder(a_megatron_pair_that_was_cut_is_refused),
        test_inside_folder(an_index_that_changes_later_is_refused_then),
        test_inside_folder(llm_c_documents_follow_their_end_of_text),
        test_inside_folder(no_end_of_text_is_overlooked),
        test_inside_folder(random_llm_c_files_agree_with_the_oracle),
        test_inside_folder(every_lie_of_an_llm_c_header_is_named),
        test_inside_folder(an_llm_c_file_that_was_cut_is_refused),
        test_inside_folder(an_end_of_text_that_no_id_can_be_is_refused),
        test_inside_folder(raw_documents_end_where_the_index_says),
        test_inside_folder(raw_documents_end_where_the_table_says),
        test_inside_folder(every_lie_of_an_index_of_ends_is_named),
        test_inside_folder(a_table_that_was_cut_or_ends_early_is_refused),
        test_inside_folder(raw_ids_that_cannot_be_read_are_refused),
        test_inside_folder(files_are_recognised_by_content),
        test_inside_folder(only_regular_files_are_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
