// How fitting becomes cheap. The row that a length goes to stays the choice until it holds no
// more of that length, so the segments of one length visit the rows in the order of choice and
// fill each as far as they can. Rows with the same history have the same room and take equally
// many, so neighbouring ones are moved together, as a block. At most two blocks per different
// length describe any number of rows. No row is looked at by itself until the segments, in
// input order, are dealt out to the places that were found for their lengths.
//
//          waiting                                 open: room >= length
//   +---------+------+-----+-----+      +--------------+------------+-----+
//   |   17    |  3   |  3  | ... |      | length + 7   |   length   | ... |   room
//   +---------+------+-----+-----+      +--------------+------------+-----+
//    ^ heap, most room on top            ^ heap, the strategy's choice on top
//
// Invariant: a block in either heap can take a segment of some length, an open one of the
// length that is being served. Serving a length takes blocks from the open ones and gives them,
// with less room, to the waiting ones, unless they are full. Going on to a shorter length opens
// those that hold it; one that was open and not served holds it all the more. The strategies
// differ in the order of the open heap and in nothing else.
#include "packer/pack/fit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Neighbouring rows, in order of opening, that hold the same lengths.
typedef struct block {
    int32_t room;        // free tokens in each
    int32_t n_segments;  // in each
    int32_t first_row;
    int32_t n_rows;
} block;

// Whether `a` belongs above `b` in a heap.
typedef bool block_order(const block *a, const block *b);

typedef struct heap {
    block *blocks;  // owned
    int32_t n;
    block_order *above;
} heap;

// Rows that take `per_row` segments of one length each. Dealing out consumes it: `row` advances
// to `end_row`, and `left` counts down what `row` still takes.
typedef struct deal {
    int32_t row;
    int32_t end_row;
    int32_t per_row;
    int32_t left;
} deal;

// One number per length that occurs: first how many segments have it, then the deal that its
// next segment takes from. A table in pages, since rows may be long and lengths few.
enum { PAGE_BITS = 10, PAGE_LENGTHS = 1 << PAGE_BITS };

typedef struct length_table {
    int32_t **pages;  // [n_pages], owned; NULL where no length occurs
    int32_t n_pages;
    int32_t n_lengths;  // different ones
} length_table;

typedef struct fit {
    int32_t seq_len;
    int32_t max_segments;  // in a row
    int32_t n_rows;
    heap waiting, open;  // see above
    deal *deals;         // of one length after the other, longest first
    int64_t n_deals;
    int64_t deals_capacity;
} fit;

static int32_t *length_slot(const length_table *table, int32_t length)
{
    return &table->pages[length >> PAGE_BITS][length & (PAGE_LENGTHS - 1)];
}

static bd_status count_lengths(length_table *table, const int32_t *lengths, int64_t n,
                               int32_t seq_len, bd_error *err)
{
    table->n_pages = (seq_len >> PAGE_BITS) + 1;
    table->pages = calloc((size_t)table->n_pages, sizeof *table->pages);
    if (!table->pages)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to count lengths up to %d", seq_len);

    for (int64_t i = 0; i < n; i++) {
        const int32_t length = lengths[i];
        if (length < 1 || length > seq_len)
            return bd_fail(err, BD_ERR_ARGUMENT, "segment %lld has length %d, not 1 to %d",
                           (long long)i, length, seq_len);
        int32_t **page = &table->pages[length >> PAGE_BITS];
        if (!*page && !(*page = calloc(PAGE_LENGTHS, sizeof **page)))
            return bd_fail(err, BD_ERR_MEMORY, "no memory to count lengths near %d", length);
        table->n_lengths += (*length_slot(table, length))++ == 0;
    }
    return BD_OK;
}

static void length_table_release(length_table *table)
{
    for (int32_t p = 0; table->pages && p < table->n_pages; p++)
        free(table->pages[p]);
    free(table->pages);
    *table = (length_table){0};
}

static bool most_room(const block *a, const block *b)
{
    return a->room > b->room;
}

static bool opened_first(const block *a, const block *b)
{
    return a->first_row < b->first_row;
}

static bool least_room(const block *a, const block *b)
{
    return a->room != b->room ? a->room < b->room : opened_first(a, b);
}

static void heap_push(heap *h, block added)
{
    block *blocks = h->blocks;
    int32_t at = h->n++;
    while (at > 0 && h->above(&added, &blocks[(at - 1) / 2])) {
        blocks[at] = blocks[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    blocks[at] = added;
}

static block heap_pop(heap *h)
{
    block *blocks = h->blocks;
    const block top = blocks[0];
    const int32_t n = --h->n;
    const block moved = blocks[n];
    int32_t at = 0;
    for (int32_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && h->above(&blocks[child + 1], &blocks[child]))
            child++;
        if (!h->above(&blocks[child], &moved))
            break;
        blocks[at] = blocks[child];
        at = child;
    }
    blocks[at] = moved;
    return top;
}

// False: no memory.
static bool deals_append(fit *f, const block *served, int32_t per_row)
{
    if (f->n_deals == f->deals_capacity) {
        const int64_t capacity = 2 * f->deals_capacity + 64;
        deal *deals = realloc(f->deals, (size_t)capacity * sizeof *deals);
        if (!deals)
            return false;
        f->deals = deals;
        f->deals_capacity = capacity;
    }
    const int32_t end_row = served->first_row + served->n_rows;
    f->deals[f->n_deals++] = (deal){served->first_row, end_row, per_row, per_row};
    return true;
}

// How many more segments of a length each row of the block takes.
static int32_t capacity_for(const fit *f, const block *b, int32_t length)
{
    const int32_t by_room = b->room / length, by_number = f->max_segments - b->n_segments;
    return by_room < by_number ? by_room : by_number;
}

// New rows, as many as `count` segments need.
static void open_rows(fit *f, int32_t length, int32_t count)
{
    block opened = {.room = f->seq_len, .first_row = f->n_rows};
    opened.n_rows = (count - 1) / capacity_for(f, &opened, length) + 1;
    f->n_rows += opened.n_rows;
    heap_push(&f->open, opened);
}

// Finds rows for `count` segments of one length, shorter than all before. False: no memory.
static bool fit_length(fit *f, int32_t length, int32_t count)
{
    while (f->waiting.n > 0 && f->waiting.blocks[0].room >= length)
        heap_push(&f->open, heap_pop(&f->waiting));

    while (count > 0) {
        if (f->open.n == 0)
            open_rows(f, length, count);
        block *chosen = &f->open.blocks[0];

        // The last segments may be too few to fill one row; that row is then served by itself.
        const int32_t fits = capacity_for(f, chosen, length);
        const int32_t per_row = count < fits ? count : fits;
        const int32_t wanted = count / per_row;
        const int32_t n_rows = wanted < chosen->n_rows ? wanted : chosen->n_rows;
        const block served = {.room = chosen->room - per_row * length,
                              .n_segments = chosen->n_segments + per_row,
                              .first_row = chosen->first_row,
                              .n_rows = n_rows};
        if (!deals_append(f, &served, per_row))
            return false;
        count -= n_rows * per_row;

        // The rest of the block stays on top: every other block lies before it or after it.
        chosen->first_row += n_rows;
        chosen->n_rows -= n_rows;
        if (chosen->n_rows == 0)
            heap_pop(&f->open);
        if (served.room > 0 && served.n_segments < f->max_segments)
            heap_push(&f->waiting, served);
    }
    return true;
}

// Serves all lengths, longest first, and leaves in the table where each one's deals begin.
static bd_status fit_lengths(fit *f, length_table *table, bd_error *err)
{
    // Serving a length leaves at most two blocks more than before. Each block that it passes
    // becomes one block or, being full, none; it ends inside one, cut into rows served in full,
    // one row served in part, and, unless the block is new, others.
    const size_t max_blocks = 2 * (size_t)table->n_lengths;
    f->waiting.blocks = malloc(max_blocks * sizeof *f->waiting.blocks);
    f->open.blocks = malloc(max_blocks * sizeof *f->open.blocks);
    bool ok = f->waiting.blocks && f->open.blocks;

    for (int32_t p = table->n_pages - 1; ok && p >= 0; p--) {
        int32_t *page = table->pages[p];
        for (int32_t i = PAGE_LENGTHS - 1; ok && page && i >= 0; i--) {
            if (page[i] == 0)
                continue;
            const int32_t count = page[i];
            page[i] = (int32_t)f->n_deals;  // in range: a deal serves at least one segment
            ok = fit_length(f, (p << PAGE_BITS) + i, count);
        }
    }
    if (!ok)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to fit %d different lengths into rows",
                       table->n_lengths);
    return BD_OK;
}

// Goes through the segments rather than the deals, so that row_of is written front to back.
// number [f->n_rows] is scratch: the number of each row, once it has one.
static void deal_out(const fit *f, const length_table *table, const int32_t *lengths, int64_t n,
                     int32_t *number, int32_t *row_of)
{
    memset(number, -1, (size_t)f->n_rows * sizeof *number);
    int32_t n_numbered = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t *slot = length_slot(table, lengths[i]);
        deal *d = &f->deals[*slot];
        const int32_t row = d->row;
        if (--d->left == 0) {
            d->left = d->per_row;
            if (++d->row == d->end_row)
                ++*slot;
        }
        if (number[row] < 0)
            number[row] = n_numbered++;
        row_of[i] = number[row];
    }
}

// `choice` orders the rows that hold a segment; the topmost gets it.
static bd_status fit_segments(const int32_t *lengths, int64_t n, int32_t seq_len,
                              int32_t max_segments, block_order *choice, int32_t *row_of,
                              int32_t *n_rows, bd_error *err)
{
    if (seq_len < 1)
        return bd_fail(err, BD_ERR_ARGUMENT, "rows of %d tokens", seq_len);
    if (max_segments < 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "rows of %d segments", max_segments);
    if (n < 0 || n > INT32_MAX)
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot fit %lld segments at once, at most %d",
                       (long long)n, INT32_MAX);
    if (n == 0) {
        *n_rows = 0;
        return BD_OK;
    }

    length_table table = {0};
    fit f = {.seq_len = seq_len,
             .max_segments = max_segments > 0 ? max_segments : INT32_MAX,
             .waiting.above = most_room,
             .open.above = choice};
    int32_t *number = NULL;
    bd_status status = count_lengths(&table, lengths, n, seq_len, err);
    if (status != BD_OK)
        goto done;
    status = fit_lengths(&f, &table, err);
    if (status != BD_OK)
        goto done;
    number = malloc((size_t)f.n_rows * sizeof *number);
    if (!number) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to number %d rows", f.n_rows);
        goto done;
    }
    deal_out(&f, &table, lengths, n, number, row_of);
    *n_rows = f.n_rows;

done:
    free(number);
    free(f.deals);
    free(f.open.blocks);
    free(f.waiting.blocks);
    length_table_release(&table);
    return status;
}

bd_status bd_fit_best(const int32_t *lengths, int64_t n, int32_t seq_len, int32_t max_segments,
                      int32_t *row_of, int32_t *n_rows, bd_error *err)
{
    return fit_segments(lengths, n, seq_len, max_segments, least_room, row_of, n_rows, err);
}

bd_status bd_fit_first(const int32_t *lengths, int64_t n, int32_t seq_len, int32_t max_segments,
                       int32_t *row_of, int32_t *n_rows, bd_error *err)
{
    return fit_segments(lengths, n, seq_len, max_segments, opened_first, row_of, n_rows, err);
}
