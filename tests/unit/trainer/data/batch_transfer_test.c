// A batch arrives unchanged, whatever is sent and used in between, and no slot is overwritten
// while it is in use.
#include "trainer/data/batch_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 12 };

// ---- A backend with memory of its own that checks the slots ---------------------------------

typedef enum slot_state { SLOT_FREE, SLOT_SENDING, SLOT_READ } slot_state;

static slot_state slots[BD_TRANSFER_SLOTS];

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

static bd_status send(bd_backend *backend, int slot, void *to, const void *from,
                      size_t size_bytes, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_not_equal(slots[slot], SLOT_READ);
    slots[slot] = SLOT_SENDING;
    memcpy(to, from, size_bytes);
    return BD_OK;
}

static bd_status arrive(bd_backend *backend, int slot, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_equal(slots[slot], SLOT_SENDING);
    slots[slot] = SLOT_READ;
    return BD_OK;
}

static bd_status leave(bd_backend *backend, int slot, bd_error *err)
{
    (void)backend;
    (void)err;
    assert_int_equal(slots[slot], SLOT_READ);
    slots[slot] = SLOT_FREE;
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
    return bd_model_batch_of(ids + 4 * first, sizeof *ids, boundaries);
}

// Their masks begin at bits 29, 33 and 37 of a longer array; the one in the middle may have none.
static const uint8_t mask_bits[] = {0xff, 0xff, 0xff, 0x5a, 0x96, 0x3c, 0xff};
static const int64_t mask_offsets[] = {29, 33, 37}, without_middle[] = {29, BD_ALL_TRAINED, 37};

static bd_model_batch masked_rows(int64_t first, int64_t n, const int64_t *its_offsets)
{
    bd_model_batch batch = rows(first, n);
    batch.mask = (bd_loss_mask){mask_bits, its_offsets + first};
    return batch;
}

static void assert_same_mask(const bd_model_batch *there, const bd_model_batch *host)
{
    assert_int_equal(there->mask.bits != NULL, host->mask.bits != NULL);
    for (int64_t r = 0; r < host->attention.n_rows; r++) {
        assert_int_equal(bd_row_has_mask(&there->mask, r), bd_row_has_mask(&host->mask, r));
        for (int64_t t = 0; t < host->attention.seq_len; t++)
            assert_int_equal(bd_token_is_trained(&there->mask, r, t),
                             bd_token_is_trained(&host->mask, r, t));
    }
}

static void assert_same_boundaries(const bd_boundaries *there, const bd_boundaries *host)
{
    assert_int_equal(there->n_rows, host->n_rows);
    assert_int_equal(there->seq_len, host->seq_len);
    assert_int_equal(there->offsets[0], 0);
    for (int64_t r = 0; r < host->n_rows; r++) {
        int64_t n_there, n_host;
        const int32_t *received = bd_row_bounds(there, r, &n_there);
        const int32_t *sent = bd_row_bounds(host, r, &n_host);
        assert_int_equal(n_there, n_host);
        assert_memory_equal(received, sent, (size_t)(n_host + 1) * sizeof *sent);
    }
}

static bd_sent_batch send_batch(bd_batch_transfer *transfer, const bd_model_batch *host)
{
    bd_sent_batch sent;
    assert_int_equal(bd_batch_send(transfer, host, &sent, NULL), BD_OK);
    assert_true(bd_is_sent(&sent));
    return sent;
}

// Receives a batch that was sent, checks it, and finishes it.
static void use_sent(bd_batch_transfer *transfer, const bd_sent_batch *sent,
                     const bd_model_batch *host)
{
    bd_model_batch there;
    assert_int_equal(bd_batch_receive(transfer, sent, &there, NULL), BD_OK);
    assert_ptr_not_equal(there.ids, host->ids);
    assert_int_equal(there.id_bytes, host->id_bytes);
    assert_memory_equal(there.ids, host->ids,
                        (size_t)(host->attention.n_rows * 4 * host->id_bytes));
    assert_same_mask(&there, host);
    assert_same_boundaries(&there.attention, &host->attention);
    assert_same_boundaries(&there.positions, &host->positions);
    assert_same_boundaries(&there.query_positions, &host->query_positions);
    assert_same_boundaries(&there.targets, &host->targets);
    assert_int_equal(bd_batch_finish(transfer, sent, NULL), BD_OK);
}

static void use(bd_batch_transfer *transfer, const bd_model_batch *host)
{
    const bd_sent_batch sent = send_batch(transfer, host);
    use_sent(transfer, &sent, host);
}

static int open_transfer(void **state)
{
    static bd_batch_transfer transfer;
    memset(slots, 0, sizeof slots);
    *state = &transfer;
    return bd_batch_transfer_init(&transfer, &backend, MAX_TOKENS, NULL) == BD_OK ? 0 : -1;
}

static int close_transfer(void **state)
{
    bd_batch_transfer_release(*state);
    bd_batch_transfer_release(*state);
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

static void a_batch_is_sent_to_the_other_slot_while_one_is_read(void **state)
{
    const bd_model_batch batches[] = {rows(0, 1), rows(1, 2), rows(0, 3), rows(2, 1)};
    bd_sent_batch sent = send_batch(*state, &batches[0]);
    for (int i = 0; i < 3; i++) {
        const bd_sent_batch next = send_batch(*state, &batches[i + 1]);
        assert_int_not_equal(next.slot, sent.slot);
        use_sent(*state, &sent, &batches[i]);
        sent = next;
    }
}

static void a_batch_that_was_sent_ahead_stays_while_others_are_used(void **state)
{
    const bd_model_batch ahead = rows(0, 2), others[] = {rows(1, 2), rows(2, 1)};
    for (int i = 0; i < 3; i++) {
        const bd_sent_batch sent = send_batch(*state, &ahead);
        for (int k = 0; k < 3; k++)
            use(*state, &others[k % 2]);
        use_sent(*state, &sent, &ahead);
    }
}

static void boundaries_that_differ_stay_different(void **state)
{
    const bd_boundaries whole = {3, 4, whole_offsets, whole_values};
    for (int which = 0; which < BD_BATCH_BOUNDARIES; which++) {
        bd_model_batch batch = rows(0, 3);
        batch.boundaries[which] = whole;
        use(*state, &batch);
    }
}

// Whole bytes are sent, those of the rows alone: bits of other rows around them do not count.
static void masks_arrive_with_their_rows(void **state)
{
    for (int64_t n = 1; n <= 3; n++)
        for (int64_t first = 0; first + n <= 3; first++) {
            const bd_model_batch all = masked_rows(first, n, mask_offsets);
            const bd_model_batch some = masked_rows(first, n, without_middle);
            use(*state, &all);
            use(*state, &some);
        }
    const bd_model_batch none = rows(0, 3);  // in the slot where others had a mask
    use(*state, &none);
    use(*state, &none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_arrive_one_by_one, open_transfer,
                                        close_transfer),
        cmocka_unit_test_setup_teardown(a_batch_is_sent_to_the_other_slot_while_one_is_read,
                                        open_transfer, close_transfer),
        cmocka_unit_test_setup_teardown(a_batch_that_was_sent_ahead_stays_while_others_are_used,
                                        open_transfer, close_transfer),
        cmocka_unit_test_setup_teardown(boundaries_that_differ_stay_different, open_transfer,
                                        close_transfer),
        cmocka_unit_test_setup_teardown(masks_arrive_with_their_rows, open_transfer,
                                        close_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
