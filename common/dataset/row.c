#include "common/dataset/row.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define TABLE_LINE(member, name, bits, fill) {name, bits, fill},
const bd_token_column bd_token_columns[] = {BD_FOR_EACH_TOKEN_COLUMN(TABLE_LINE)};

int bd_token_bits(const bd_dataset_config *config, int column)
{
    const int bits = bd_token_columns[column].bits;
    if (column == BD_COLUMN_loss_mask && !config->loss_mask)
        return 0;
    return bits == BD_BY_DATASET ? 8 * bd_dataset_id_bytes(config) : bits;
}

uint32_t bd_token_fill(int column, const bd_dataset_config *config)
{
    const int64_t fill = bd_token_columns[column].fill;
    return (uint32_t)(fill == BD_BY_DATASET ? config->padding : fill);
}

size_t bd_tokens_bytes(const bd_dataset_config *config, int64_t n)
{
    size_t size_bytes = 0;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        size_bytes += bd_column_bytes(n, bd_token_bits(config, c));
    return size_bytes;
}

// Up to 8 bits from bit `from` on, the first lowest.
static unsigned take_bits(const uint8_t *bits, int64_t from, int n)
{
    const int shift = (int)(from % 8);
    unsigned taken = bits[from / 8];
    if (shift + n > 8)
        taken |= (unsigned)bits[from / 8 + 1] << 8;
    return taken >> shift & (0xFFu >> (8 - n));
}

// Bits [at, at + n) of one byte become the lowest `n` of `value`.
static void put_bits(uint8_t *bits, int64_t at, int n, unsigned value)
{
    const int shift = (int)(at % 8);
    const unsigned mask = (0xFFu >> (8 - n)) << shift;
    uint8_t *byte = &bits[at / 8];
    *byte = (uint8_t)((*byte & ~mask) | value << shift);
}

// How many of `n` bits, at least 1, lie in the byte of bit `at`.
static int bits_in_byte(int64_t at, int64_t n)
{
    const int left = (int)(8 - at % 8);
    return n < left ? (int)n : left;
}

// The bits up to the next whole byte of the target come first, then many whole bytes at once, then
// the rest. Seven bytes at a time: shifted by less than 8, they come from eight.
void bd_bits_copy(void *to, int64_t at, const void *bits, int64_t from, int64_t n)
{
    const int64_t end = at + n;
    while (at < end) {
        if (at % 8 == 0 && from % 8 == 0 && end - at >= 8) {
            const int64_t n_bytes = (end - at) / 8;
            memcpy((uint8_t *)to + at / 8, (const uint8_t *)bits + from / 8, (size_t)n_bytes);
            at += 8 * n_bytes;
            from += 8 * n_bytes;
        } else if (at % 8 == 0 && end - at >= 64) {
            uint64_t word;
            memcpy(&word, (const uint8_t *)bits + from / 8, 8);
            word >>= from % 8;
            memcpy((uint8_t *)to + at / 8, &word, 7);
            at += 56;
            from += 56;
        } else {
            const int n_bits = bits_in_byte(at, end - at);
            put_bits(to, at, n_bits, take_bits(bits, from, n_bits));
            at += n_bits;
            from += n_bits;
        }
    }
}

void bd_bits_fill(void *bits, int64_t from, int64_t to, bool value)
{
    while (from < to) {
        if (from % 8 == 0 && to - from >= 8) {
            memset((uint8_t *)bits + from / 8, value ? 0xFF : 0, (size_t)((to - from) / 8));
            from += (to - from) / 8 * 8;
        } else {
            const int n_bits = bits_in_byte(from, to - from);
            put_bits(bits, from, n_bits, value ? 0xFFu >> (8 - n_bits) : 0);
            from += n_bits;
        }
    }
}

int64_t bd_bits_count(const void *bits, int64_t from, int64_t to)
{
    int64_t n = 0;
    while (from < to) {
        if (from % 8 == 0 && to - from >= 64) {
            uint64_t word;
            memcpy(&word, (const uint8_t *)bits + from / 8, 8);
            n += __builtin_popcountll(word);
            from += 64;
        } else {
            const int n_bits = bits_in_byte(from, to - from);
            n += __builtin_popcount(take_bits(bits, from, n_bits));
            from += n_bits;
        }
    }
    return n;
}

int64_t bd_bits_difference(const void *a, int64_t a_from, const void *b, int64_t b_from,
                           int64_t n)
{
    const uint64_t low = UINT64_MAX >> 8;  // as in bd_bits_copy()
    for (int64_t i = 0; i < n;) {
        int64_t n_bits = n - i < 8 ? n - i : 8;
        uint64_t differ;
        if (n - i >= 64) {
            uint64_t left, right;
            memcpy(&left, (const uint8_t *)a + (a_from + i) / 8, 8);
            memcpy(&right, (const uint8_t *)b + (b_from + i) / 8, 8);
            differ = (left >> (a_from + i) % 8 ^ right >> (b_from + i) % 8) & low;
            n_bits = 56;
        } else {
            differ =
                take_bits(a, a_from + i, (int)n_bits) ^ take_bits(b, b_from + i, (int)n_bits);
        }
        if (differ != 0)
            return i + __builtin_ctzll(differ);
        i += n_bits;
    }
    return n;
}

void bd_column_fill(void *column, int64_t from, int64_t to, int bits, uint32_t value)
{
    if (bits == 1)
        bd_bits_fill(column, from, to, value != 0);
    for (int64_t t = from; t < to && bits == 16; t++)
        ((uint16_t *)column)[t] = (uint16_t)value;
    for (int64_t t = from; t < to && bits == 32; t++)
        ((uint32_t *)column)[t] = value;
}

bd_row bd_row_of_batch(const bd_row_batch *batch, const bd_dataset_config *config, int64_t r)
{
    const int64_t bound = batch->bound_offsets[r], segment = batch->segment_offsets[r];
    bd_row row = {
        .n_bounds = batch->bound_offsets[r + 1] - bound,
        .bounds = batch->bounds + bound,
        .n_segments = batch->segment_offsets[r + 1] - segment,
        .segments = {batch->segments.input + segment, batch->segments.position + segment,
                     batch->segments.offset + segment, batch->segments.length + segment},
        .checksum = batch->checksums[r],
    };
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        if (bd_token_bits(config, c) > 0)
            row.columns[c] =
                bd_column_at(batch->columns[c], r * config->seq_len, bd_token_bits(config, c));
    row.mask_bit = (int32_t)(r * config->seq_len % 8);
    return row;
}

// Loops over ids, written once for both widths so that each becomes vector code of its own
// type. The counters are as wide as the ids, too; blocks are so short that none overflows.
enum { COUNT_BLOCK = 1 << 15 };
#define DEFINE_LOOPS(count, largest_of, type)                                      \
    static int64_t count(const type *ids, int64_t n, type id)                      \
    {                                                                              \
        int64_t total = 0;                                                         \
        for (int64_t begin = 0; begin < n; begin += COUNT_BLOCK) {                 \
            const int64_t end = n - begin < COUNT_BLOCK ? n : begin + COUNT_BLOCK; \
            type n_equal = 0;                                                      \
            for (int64_t t = begin; t < end; t++)                                  \
                n_equal = (type)(n_equal + (ids[t] == id));                        \
            total += n_equal;                                                      \
        }                                                                          \
        return total;                                                              \
    }                                                                              \
    static uint32_t largest_of(const type *ids, int64_t n)                         \
    {                                                                              \
        type largest = 0;                                                          \
        for (int64_t t = 0; t < n; t++)                                            \
            largest = ids[t] > largest ? ids[t] : largest;                         \
        return largest;                                                            \
    }
DEFINE_LOOPS(count_narrow, largest_narrow, uint16_t)
DEFINE_LOOPS(count_wide, largest_wide, uint32_t)

int64_t bd_ids_count(const void *ids, int id_bytes, int64_t from, int64_t to, uint32_t id)
{
    if (id_bytes == 4)
        return count_wide((const uint32_t *)ids + from, to - from, id);
    return id > UINT16_MAX
               ? 0
               : count_narrow((const uint16_t *)ids + from, to - from, (uint16_t)id);
}

int64_t bd_separator_collisions(const bd_row *row, const bd_dataset_config *config, int64_t s)
{
    const int64_t from = row->bounds[s], to = row->bounds[s + 1];
    const int64_t offset = row->segments.offset[s];
    const bool has_context_or_bos = offset > 0 || config->bos != BD_NO_BOS;
    const bool has_end = offset + (to - from) == row->segments.length[s];
    return bd_ids_count(row->ids, bd_dataset_id_bytes(config), from + has_context_or_bos,
                        to - has_end, (uint32_t)config->separator);
}

static void hash_segments(bd_hasher *hasher, const bd_row *row)
{
    enum { RECORD_BYTES = 20, N_RECORDS = 64 };  // many at a time: a hasher likes long pieces
    unsigned char records[N_RECORDS * RECORD_BYTES];
    for (int64_t begin = 0; begin < row->n_segments; begin += N_RECORDS) {
        const int64_t left = row->n_segments - begin;
        const int64_t end = left < N_RECORDS ? row->n_segments : begin + N_RECORDS;
        unsigned char *record = records;
        for (int64_t s = begin; s < end; s++, record += RECORD_BYTES) {
            memcpy(record, &row->segments.input[s], 4);
            memcpy(record + 4, &row->segments.position[s], 8);
            memcpy(record + 12, &row->segments.offset[s], 4);
            memcpy(record + 16, &row->segments.length[s], 4);
        }
        bd_hasher_add(hasher, records, (size_t)(record - records));
    }
}

// Bits [from, from + n), moved to where they begin a byte, so that a row has the same checksum
// wherever in the batch it lies. The spare bits of the last byte are 0.
static void hash_bits(bd_hasher *hasher, const void *bits, int64_t from, int64_t n)
{
    enum { N_BYTES = 1024 };
    uint8_t moved[N_BYTES];
    for (int64_t begin = 0; begin < n; begin += 8 * N_BYTES) {
        const int64_t left = n - begin, n_bits = left < 8 * N_BYTES ? left : 8 * N_BYTES;
        const size_t n_bytes = bd_column_bytes(n_bits, 1);
        moved[n_bytes - 1] = 0;
        bd_bits_copy(moved, 0, bits, from + begin, n_bits);
        bd_hasher_add(hasher, moved, n_bytes);
    }
}

uint64_t bd_row_checksum(const bd_row *row, const bd_dataset_config *config, bd_hasher *hasher)
{
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const int bits = bd_token_bits(config, c);
        if (bits == 1)
            hash_bits(hasher, row->columns[c], row->mask_bit, config->seq_len);
        else if (bits > 1)
            bd_hasher_add(hasher, row->columns[c], bd_column_bytes(config->seq_len, bits));
        if (c == BD_COLUMN_ids) {  // boundaries and segments follow the ids
            bd_hasher_add(hasher, row->bounds, (size_t)row->n_bounds * sizeof *row->bounds);
            hash_segments(hasher, row);
        }
    }
    return bd_hasher_take64(hasher);
}

static bd_status check_ids(const bd_row *row, const bd_dataset_config *config, bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(config);
    const int64_t n = config->seq_len, used = row->bounds[row->n_bounds - 1];
    const uint32_t largest =
        id_bytes == 2 ? largest_narrow(row->ids, n) : largest_wide(row->ids, n);
    for (int64_t t = 0; largest >= config->vocab_size && t < n; t++)
        if (bd_id_at(row->ids, id_bytes, t) == largest)
            return bd_fail(err, BD_ERR_FORMAT,
                           "R3: token %" PRId64 " has id %u, the vocabulary %" PRId64, t,
                           largest, config->vocab_size);
    if (bd_ids_count(row->ids, id_bytes, used, n, (uint32_t)config->padding) != n - used)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R3: a token after the last boundary %" PRId64 " is not padding", used);
    return BD_OK;
}

static bd_status check_segment(const bd_row *row, const bd_dataset_config *config, int64_t s,
                               bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(config);
    const int64_t from = row->bounds[s], to = row->bounds[s + 1], n = to - from;
    const int64_t offset = row->segments.offset[s], length = row->segments.length[s];
    if (offset + n > length)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R4: segment %" PRId64 " covers tokens %" PRId64 " to %" PRId64
                       " of a document of %" PRId64,
                       s, offset, offset + n, length);
    if (n < 2 && length > 1)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R4: segment %" PRId64 " has one token of a document of %" PRId64, s,
                       length);
    if (offset + n == length && bd_id_at(row->ids, id_bytes, to - 1) != config->separator)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R5: segment %" PRId64 " ends its document without the separator", s);
    if (offset == 0 && config->bos != BD_NO_BOS &&
        bd_id_at(row->ids, id_bytes, from) != config->bos)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R6: segment %" PRId64 " begins its document without the BOS token", s);
    return BD_OK;
}

// R10, where the boundaries are known to be sound.
static bd_status check_mask(const bd_row *row, const bd_dataset_config *config, bd_error *err)
{
    const int64_t begin = row->mask_bit, used = row->bounds[row->n_bounds - 1];
    for (int64_t s = 0; s < row->n_segments; s++)
        if (bd_bit_at(row->loss_mask, begin + row->bounds[s]))
            return bd_fail(err, BD_ERR_FORMAT,
                           "R10: token %d, the first of segment %" PRId64
                           ", is marked as trained",
                           row->bounds[s], s);
    if (bd_bits_count(row->loss_mask, begin + used, begin + config->seq_len) > 0)
        return bd_fail(err, BD_ERR_FORMAT, "R10: padding is marked as trained");
    return BD_OK;
}

bd_status bd_row_check(const bd_row *row, const bd_dataset_config *config, bd_hasher *hasher,
                       bd_error *err)
{
    // The checksum comes first: if it is right, the row was written wrong, not damaged later.
    if (bd_row_checksum(row, config, hasher) != row->checksum)
        return bd_fail(err, BD_ERR_FORMAT, "R7: the checksum does not match the row");
    if (row->n_bounds < 2 || row->bounds[0] != 0)
        return bd_fail(err, BD_ERR_FORMAT, "R1: cu_seqlens has %" PRId64 " entries%s",
                       row->n_bounds, row->n_bounds < 2 ? "" : " and does not begin with 0");
    for (int64_t k = 1; k < row->n_bounds; k++)
        if (row->bounds[k] <= row->bounds[k - 1] || row->bounds[k] > config->seq_len)
            return bd_fail(err, BD_ERR_FORMAT, "R1: boundary %" PRId64 " is %d after %d", k,
                           row->bounds[k], row->bounds[k - 1]);
    if (row->n_segments != row->n_bounds - 1)
        return bd_fail(err, BD_ERR_FORMAT, "R2: %" PRId64 " documents for %" PRId64 " segments",
                       row->n_segments, row->n_bounds - 1);
    BD_TRY(check_ids(row, config, err));
    for (int64_t s = 0; s < row->n_segments; s++)
        BD_TRY(check_segment(row, config, s, err));
    bd_document_place before =
        bd_dataset_place(config, row->segments.input[0], row->segments.position[0]);
    for (int64_t s = 1; s < row->n_segments; s++) {
        const bd_document_place place =
            bd_dataset_place(config, row->segments.input[s], row->segments.position[s]);
        if (bd_document_place_compare(&before, &place) >= 0)
            return bd_fail(
                err, BD_ERR_FORMAT,
                "R8: segment %" PRId64 " is not of a later document than the one before", s);
        before = place;
    }
    if (config->max_documents > 0 && row->n_segments > config->max_documents)
        return bd_fail(err, BD_ERR_FORMAT,
                       "R9: %" PRId64 " segments, max_documents is %" PRId64, row->n_segments,
                       config->max_documents);
    return config->loss_mask ? check_mask(row, config, err) : BD_OK;
}
