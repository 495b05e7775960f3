#include "trainer/data/rows.h"

#include "tests/unit/random.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

enum { N_DOCUMENTS = 600 };

static const packed_as PLAIN = {
    .seq_len = 32, .batch_rows = 3, .unit_bytes = 4000, .vocab_size = 257};

// Hundreds of blocks in a few shards; both have the same rows.
static void open_both(bd_rows *plain, bd_rows *compressed)
{
    static int lengths[N_DOCUMENTS];
    uint64_t random = 20240616;
    for (int i = 0; i < N_DOCUMENTS; i++)
        lengths[i] = random_between(&random, 0, 60);
    packed_as zstd = PLAIN;
    zstd.codec = BD_SHARD_ZSTD;
    pack_documents(plain, "plain", lengths, N_DOCUMENTS, PLAIN);
    pack_documents(compressed, "compressed", lengths, N_DOCUMENTS, zstd);
    assert_int_equal(bd_rows_count(plain), bd_rows_count(compressed));
    assert_true(bd_rows_count(plain) > 4 * BD_WINDOW_BLOCKS * PLAIN.batch_rows);
    assert_true(plain->n_shards > 2);
}

static void assert_same_row(const bd_row *a, const bd_row *b)
{
    assert_memory_equal(a->ids, b->ids, 2 * (size_t)PLAIN.seq_len);
    assert_int_equal(a->n_bounds, b->n_bounds);
    assert_memory_equal(a->bounds, b->bounds, (size_t)a->n_bounds * sizeof *a->bounds);
}

// Returns how many record batches of its shards are in memory.
static size_t count_loaded(const bd_rows *rows)
{
    size_t n = 0;
    for (size_t s = 0; s < rows->n_shards; s++)
        for (int64_t i = 0; i < bd_arrow_reader_n_batches(rows->shards[s].reader); i++)
            n += bd_arrow_reader_batch(rows->shards[s].reader, i)->ids != NULL;
    return n;
}

static void compressed_rows_are_the_same_with_few_blocks_in_memory(void **state)
{
    (void)state;
    bd_error err;
    bd_rows plain, compressed;
    bd_hasher *hasher = bd_hasher_new();
    uint64_t random = 20240617;
    open_both(&plain, &compressed);
    assert_int_equal(count_loaded(&compressed), 0);
    const int64_t n = bd_rows_count(&plain);
    size_t most = 0;
    for (int64_t i = 0; i < 3 * n; i++) {
        const int64_t number = i < n ? i : (int64_t)random_between(&random, 0, (int32_t)n - 1);
        bd_row a, b;
        check(bd_rows_row(&plain, number, hasher, &a, &err), &err);
        check(bd_rows_row(&compressed, number, hasher, &b, &err), &err);
        assert_same_row(&a, &b);
        const size_t loaded = count_loaded(&compressed);
        assert_int_equal(loaded, compressed.window->n);
        most = loaded > most ? loaded : most;
    }
    assert_int_equal(most, BD_WINDOW_BLOCKS);
    bd_rows_close(&plain);
    bd_rows_close(&compressed);
    bd_hasher_free(hasher);
}

// Rows of one block follow each other in a batch: they are copied nevertheless, since the block
// may be freed while the batch is used.
static void a_batch_outlives_its_blocks(void **state)
{
    (void)state;
    bd_error err;
    bd_rows plain, compressed;
    bd_hasher *hasher = bd_hasher_new();
    bd_batch batch = {0}, other = {0};
    bd_row row;
    open_both(&plain, &compressed);
    const int64_t first[] = {3, 4, 5};
    check(bd_batch_load(&batch, &compressed, first, 3, hasher, &err), &err);
    for (int64_t number = 0; number < bd_rows_count(&compressed); number++)
        check(bd_batch_load(&other, &compressed, &number, 1, hasher, &err), &err);
    for (int64_t r = 0; r < 3; r++) {
        check(bd_rows_row(&plain, first[r], hasher, &row, &err), &err);
        assert_memory_equal((const uint16_t *)batch.ids + r * PLAIN.seq_len, row.ids,
                            2 * (size_t)PLAIN.seq_len);
    }
    bd_batch_release(&batch);
    bd_batch_release(&other);
    bd_rows_close(&plain);
    bd_rows_close(&compressed);
    bd_hasher_free(hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(compressed_rows_are_the_same_with_few_blocks_in_memory),
        test_inside_folder(a_batch_outlives_its_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
