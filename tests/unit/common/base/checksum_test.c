#include "common/base/checksum.h"

#include <signal.h>
#include <sys/wait.h>

#include "common/base/interrupt.h"
#include "tests/unit/temporary_folder.h"

// Computed by Python's xxhash over byte i = (i * 131 + 7) mod 251; the lengths lie on both
// sides of every change of algorithm inside XXH3.
static const struct vector {
    size_t size_bytes;
    uint64_t xxh3_64;
    const char *xxh3_128;
} vectors[] = {
    {0, UINT64_C(0x2d06800538d394c2), "99aa06d3014798d86001c324468d497f"},
    {1, UINT64_C(0x4c5cca45d0f4811f), "495b62073ef70ca44c5cca45d0f4811f"},
    {3, UINT64_C(0xd079cb72d5dc8fe3), "de0de73b78221781d079cb72d5dc8fe3"},
    {4, UINT64_C(0x142fa07b01613ee8), "2ec1f0e0927bbd72a7f588a0488a2ce1"},
    {8, UINT64_C(0x9f1975fc585fd927), "86352c64c51053a4f169e0e241e43d88"},
    {9, UINT64_C(0x6bf0116fadb4b711), "2da82c32992eb47cecaf34715ab252db"},
    {16, UINT64_C(0x945d7a2e39182d35), "2ea9b26e0de3c1293ad9b09b55ff159d"},
    {17, UINT64_C(0xd1539aca118a0247), "e98962a9feec88ce2aded60943cd42fc"},
    {128, UINT64_C(0x2edf21e7a54f582c), "c2dbaea325ed4288a4623912aab4c938"},
    {129, UINT64_C(0x8bf7e91c7eb2f2d6), "eac1039c6fbf7b8cf316461ff6b978d7"},
    {240, UINT64_C(0x0c9860844b0ad495), "4536dcb050ba614460a06c4f31468cc3"},
    {241, UINT64_C(0x246c5fe4ed1436a3), "b4125661642a66f9246c5fe4ed1436a3"},
    {1024, UINT64_C(0x0b662daec235d4ca), "4b8b4d51d1b23ed30b662daec235d4ca"},
    {1025, UINT64_C(0x13d178f3e2b48e9e), "1c489c9ad8646bff13d178f3e2b48e9e"},
    {4097, UINT64_C(0xb50defd4368a0fd4), "f6338e8c12bf8f38b50defd4368a0fd4"},
    {100000, UINT64_C(0xd61c58ce093c4ea0), "0af6b8609f8d1f2ed61c58ce093c4ea0"},
};
enum { N_VECTORS = sizeof vectors / sizeof vectors[0] };

static unsigned char *pattern(size_t size_bytes)
{
    unsigned char *data = malloc(size_bytes + 1);
    assert_non_null(data);
    for (size_t i = 0; i < size_bytes; i++)
        data[i] = (unsigned char)((i * 131 + 7) % 251);
    return data;
}

static void digest_is_the_canonical_xxh3_128(void **state)
{
    (void)state;
    for (int v = 0; v < N_VECTORS; v++) {
        unsigned char *data = pattern(vectors[v].size_bytes);
        assert_string_equal(bd_digest_of(data, vectors[v].size_bytes).hex, vectors[v].xxh3_128);
        free(data);
    }
}

// Also computed by Python's xxhash, over the same bytes.
static void hash_of_one_piece_is_the_canonical_xxh3_64_with_its_seed(void **state)
{
    (void)state;
    static const struct {
        size_t size_bytes;
        uint64_t seed, expected;
    } seeded[] = {
        {0, 1, UINT64_C(0x4dc5b0cc826f6703)},
        {1, 1, UINT64_C(0x0a187bf012eca100)},
        {4, INT64_MAX, UINT64_C(0x766ea2e5bfbec318)},
        {12, 0, UINT64_C(0x84f3a03b6a8fff7e)},
        {12, 1, UINT64_C(0xc7d394edc5514aae)},
        {12, UINT64_MAX, UINT64_C(0xb6213b5812bd6296)},
        {17, 1, UINT64_C(0xb35b46300a1dcdc5)},
        {129, INT64_MAX, UINT64_C(0x8301a5a82fc55a60)},
        {241, 1, UINT64_C(0xe733411dec6ce2b6)},
        {4097, UINT64_MAX, UINT64_C(0xb53dbb44f66987e6)},
    };
    for (int v = 0; v < N_VECTORS; v++) {
        unsigned char *data = pattern(vectors[v].size_bytes);
        assert_true(bd_hash64(data, vectors[v].size_bytes, 0) == vectors[v].xxh3_64);
        free(data);
    }
    for (size_t i = 0; i < sizeof seeded / sizeof *seeded; i++) {
        unsigned char *data = pattern(seeded[i].size_bytes);
        assert_true(bd_hash64(data, seeded[i].size_bytes, seeded[i].seed) ==
                    seeded[i].expected);
        free(data);
    }
}

// Adds the vector's bytes in pieces of 0, 1, 2, … times `step`.
static void add_in_pieces(bd_hasher *hasher, const struct vector *vector, size_t step)
{
    unsigned char *data = pattern(vector->size_bytes);
    for (size_t at = 0, i = 0; at < vector->size_bytes; i++) {
        const size_t left = vector->size_bytes - at, wanted = i * step;
        const size_t n = wanted < left ? wanted : left;
        bd_hasher_add(hasher, data + at, n);
        at += n;
    }
    free(data);
}

static void pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 3, 64, 1000};
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    for (int v = 0; v < N_VECTORS; v++) {
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            add_in_pieces(hasher, &vectors[v], steps[s]);
            assert_string_equal(bd_hasher_take128(hasher).hex, vectors[v].xxh3_128);
            add_in_pieces(hasher, &vectors[v], steps[s]);
            assert_true(bd_hasher_take64(hasher) == vectors[v].xxh3_64);
        }
    }
    bd_hasher_free(hasher);
}

static void taking_leaves_the_hasher_as_new(void **state)
{
    (void)state;
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    for (int i = 0; i < 2; i++) {
        bd_hasher_add(hasher, "something", 9);
        bd_hasher_take64(hasher);
        assert_true(bd_hasher_take64(hasher) == vectors[0].xxh3_64);
        bd_hasher_add(hasher, "something", 9);
        bd_hasher_take128(hasher);
        assert_string_equal(bd_hasher_take128(hasher).hex, vectors[0].xxh3_128);
    }
    bd_hasher_free(hasher);
    bd_hasher_free(NULL);
}

static void digest_is_read_only_in_its_one_form(void **state)
{
    (void)state;
    static const char good[] = "0123456789abcdef0123456789abcdef";
    static const char *const bad[] = {
        "",
        "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0",
        "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef0123456789abcdeg",
        " 123456789abcdef0123456789abcdef",
        "0x23456789abcdef0123456789abcdef",
    };
    bd_digest digest;
    bd_error err;
    assert_int_equal(bd_digest_parse(&digest, good, &err), BD_OK);
    assert_string_equal(digest.hex, good);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(bd_digest_parse(&digest, bad[i], &err), BD_ERR_FORMAT);
        assert_string_equal(digest.hex, good);
    }
    assert_string_equal(err.message,
                        "'0x23456789abcdef0123456789abcdef' is not a checksum of 32 digits");
}

static void file_has_the_digest_of_its_bytes(void **state)
{
    static const size_t sizes[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3000000};
    const char *path = in(*state, "file");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *data = pattern(sizes[i]);
        write_file(path, data, sizes[i]);
        bd_digest digest;
        int64_t size_bytes;
        assert_int_equal(bd_digest_file(path, &digest, &size_bytes, NULL), BD_OK);
        assert_int_equal(size_bytes, sizes[i]);
        assert_string_equal(digest.hex, bd_digest_of(data, sizes[i]).hex);
        free(data);
    }
}

static void file_that_cannot_be_read_is_named(void **state)
{
    char expected[5000];
    bd_digest digest;
    bd_error err;
    int64_t size_bytes;
    const char *missing = in(*state, "missing"), *folder = *state;
    assert_int_equal(bd_digest_file(missing, &digest, &size_bytes, &err), BD_ERR_IO);
    snprintf(expected, sizeof expected, "cannot open '%s': No such file or directory", missing);
    assert_string_equal(err.message, expected);
    assert_int_equal(bd_digest_file(folder, &digest, &size_bytes, &err), BD_ERR_IO);
    snprintf(expected, sizeof expected, "cannot read '%s': it is a folder", folder);
    assert_string_equal(err.message, expected);
}

static void only_a_regular_file_has_a_digest(void **state)
{
    const char *fifo = in(*state, "fifo");
    const char *const paths[] = {fifo, "/dev/zero"};
    assert_int_equal(mkfifo(fifo, 0600), 0);
    alarm(20);  // waiting for a writer, or for an end that never comes, would be a failure, too
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        bd_digest digest;
        bd_error err;
        int64_t size_bytes;
        assert_int_equal(bd_digest_file(paths[i], &digest, &size_bytes, &err), BD_ERR_IO);
        assert_non_null(strstr(err.message, "not a regular file"));
    }
    alarm(0);
}

static void an_interrupt_ends_the_reading_of_a_file(void **state)
{
    const char *path = in(*state, "file");
    write_file(path, "some", 4);
    const pid_t child = fork();  // a signal that was noted once stays noted
    assert_true(child >= 0);
    if (child == 0) {
        bd_digest digest;
        int64_t size_bytes;
        bd_interrupt_catch();
        raise(SIGINT);
        _exit(bd_digest_file(path, &digest, &size_bytes, NULL) == BD_ERR_INTERRUPTED ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_is_the_canonical_xxh3_128),
        cmocka_unit_test(hash_of_one_piece_is_the_canonical_xxh3_64_with_its_seed),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
        cmocka_unit_test(taking_leaves_the_hasher_as_new),
        cmocka_unit_test(digest_is_read_only_in_its_one_form),
        test_in_folder(file_has_the_digest_of_its_bytes),
        test_in_folder(file_that_cannot_be_read_is_named),
        test_in_folder(only_a_regular_file_has_a_digest),
        test_in_folder(an_interrupt_ends_the_reading_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
