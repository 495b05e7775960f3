// A batch arrives as it was, whether or not it was sent ahead, and no lane is overwritten while
// it is read.
#include "trainer/data/batch_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 12 };

// ---- A backend with memory of its own that watches the lanes --------------------------------

typedef enum lane_state { LANE_FREE, LANE_SENDING, LANE_READ } lane_state;

static lane_state lanes[BD_TRANSFER_SLOTS];
static int n_sent;

static bd_status allocate(bd_backend *backend, size_t size_bytes, void **memory, bd_error *err)
{
    (void)backend;
    (void)err;
    *memory = calloc(1, size_bytes);
    return *memory ? BD_OK : BD_ERR_MEMORY;
}

static void release(bd_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static bd_status send(bd_backend *backend, int lane, void *to, const void *from,
                      size_t size_bytes, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_not_equal(lanes[lane], LANE_READ);
    lanes[lane] = LANE_SENDING;
    n_sent++;
    memcpy(to, from, size_bytes);
    return BD_OK;
}

static bd_status arrive(bd_backend *backend, int lane, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_equal(lanes[lane], LANE_SENDING);
    lanes[lane] = LANE_READ;
    return BD_OK;
}

static bd_status leave(bd_backend *backend, int lane, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_equal(lanes[lane], LANE_READ);
    lanes[lane] = LANE_FREE;
    return BD_OK;
}

static const bd_operations operations = {.name = "watching",
                                         .allocate = allocate,
                                         .release = release,
                                         .send = send,
                                         .arrive = arrive,
                                         .leave = leave};
static bd_backend backend = {&operations};

// ---- Batches --------------------------------------------------------------------------------

// Rows of 4 tokens whose boundaries lie somewhere in a longer array, as the loader's do.
static const uint16_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const int32_t offsets[] = {3, 5, 8, 11};
static const int32_t values[] = {-1, -1, -1, 0, 4, 0, 1, 3, 0, 2, 4};
static const int32_t whole_offsets[] = {0, 2, 4, 6};
static const int32_t whole_values[] = {0, 4, 0, 3, 0, 4};

static bd_model_batch rows(int64_t first, int64_t n)
{
    const bd_boundaries boundaries = {n, 4, offsets + first, values};
    return (bd_model_batch){.ids = ids + 4 * first,
                            .id_bytes = sizeof *ids,
                            .attention = boundaries,
                            .positions = boundaries,
                            .targets = boundaries};
}

static void assert_same_boundaries(const bd_boundaries *staged, const bd_boundaries *host)
{
    assert_int_equal(staged->n_rows, host->n_rows);
    assert_int_equal(staged->seq_len, host->seq_len);
    assert_int_equal(staged->offsets[0], 0);
    for (int64_t r = 0; r < host->n_rows; r++) {
        int64_t n_staged, n_host;
        const int32_t *here = bd_row_bounds(staged, r, &n_staged);
        const int32_t *there = bd_row_bounds(host, r, &n_host);
        assert_int_equal(n_staged, n_host);
        assert_memory_equal(here, there, (size_t)(n_host + 1) * sizeof *there);
    }
}

// Brings the batch over, looks at it, and lets it go.
static void use(bd_staging *staging, const bd_model_batch *host)
{
    bd_model_batch staged;
    assert_int_equal(bd_stage(staging, host, &staged, NULL), BD_OK);
    assert_ptr_not_equal(staged.ids, host->ids);
    assert_int_equal(staged.id_bytes, host->id_bytes);
    assert_memory_equal(staged.ids, host->ids,
                        (size_t)(host->attention.n_rows * 4 * host->id_bytes));
    assert_same_boundaries(&staged.attention, &host->attention);
    assert_same_boundaries(&staged.positions, &host->positions);
    assert_same_boundaries(&staged.targets, &host->targets);
    assert_int_equal(bd_stage_done(staging, NULL), BD_OK);
}

static int open_staging(void **state)
{
    static bd_staging staging;
    memset(lanes, 0, sizeof lanes);
    *state = &staging;
    return bd_staging_init(&staging, &backend, MAX_TOKENS, NULL) == BD_OK ? 0 : -1;
}

static int close_staging(void **state)
{
    bd_staging_release(*state);
    bd_staging_release(*state);
    return 0;
}

// ---- Tests ----------------------------------------------------------------------------------

static void batches_arrive_one_by_one(void **state)
{
    for (int64_t n = 1; n <= 3; n++)
        for (int64_t first = 0; first + n <= 3; first++) {
            const bd_model_batch batch = rows(first, n);
            use(*state, &batch);
        }
}

static void what_was_sent_ahead_is_not_sent_again(void **state)
{
    const bd_model_batch batches[] = {rows(0, 1), rows(1, 2), rows(0, 3), rows(2, 1)};
    assert_int_equal(bd_stage_ahead(*state, &batches[0], NULL), BD_OK);
    for (int i = 0; i < 4; i++) {
        const int before = n_sent;
        use(*state, &batches[i]);
        assert_int_equal(n_sent, before);
        if (i < 3)
            assert_int_equal(bd_stage_ahead(*state, &batches[i + 1], NULL), BD_OK);
    }
}

static void another_batch_than_was_sent_ahead_is_sent_instead(void **state)
{
    const bd_model_batch ahead = rows(0, 2), used = rows(1, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bd_stage_ahead(*state, &ahead, NULL), BD_OK);
        use(*state, &used);
    }
}

static void boundaries_that_differ_stay_different(void **state)
{
    const bd_boundaries whole = {3, 4, whole_offsets, whole_values};
    for (int which = 0; which < 3; which++) {
        bd_model_batch batch = rows(0, 3);
        if (which == 0)
            batch.attention = whole;
        else if (which == 1)
            batch.positions = whole;
        else
            batch.targets = whole;
        assert_int_equal(bd_stage_ahead(*state, &batch, NULL), BD_OK);
        use(*state, &batch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_arrive_one_by_one, open_staging, close_staging),
        cmocka_unit_test_setup_teardown(what_was_sent_ahead_is_not_sent_again, open_staging,
                                        close_staging),
        cmocka_unit_test_setup_teardown(another_batch_than_was_sent_ahead_is_sent_instead,
                                        open_staging, close_staging),
        cmocka_unit_test_setup_teardown(boundaries_that_differ_stay_different, open_staging,
                                        close_staging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
