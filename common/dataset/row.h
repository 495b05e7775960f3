// row.h - rows as they lie in memory and in Arrow buffers, and the rules that each obeys.
//
//   ids        [n_rows][seq_len]           a a a a a | b | c c c c c | p p p
//   boundaries  row-local, as stored       0           6   8           14
//   segments    one per interval           A           B   C
//   loss_mask   1: the token is trained    0 0 1 1 1 1 0 1 0 1 1 1 1 1 0 0 0
//
// A bd_row_batch is what one record batch holds; a bd_row points into it.
//
// A shard's columns are, in this order: the ids, the boundaries, the segments, every other
// column of tokens as the table below lists it, and the checksum, which is over all before it.
#ifndef BINDERY_COMMON_DATASET_ROW_H
#define BINDERY_COMMON_DATASET_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/base/token_ids.h"
#include "common/dataset/config.h"

// The table of what a token has. Each line is a column of the shard with seq_len values in
// every row, and a member of every struct that holds tokens:
//   X(member, name in the shard, bits of a value, value in padding)
// BD_BY_DATASET stands where the dataset decides: ids have 16 or 32 bits, as its vocabulary
// needs, and padding has an id of its own. Only datasets with loss masks have `loss_mask`; in
// the structs of others that member is NULL, and its values have 0 bits.
#define BD_FOR_EACH_TOKEN_COLUMN(X)                   \
    X(ids, "input_ids", BD_BY_DATASET, BD_BY_DATASET) \
    X(loss_mask, "loss_mask", 1, 0)

enum { BD_BY_DATASET = -1 };

#define BD_TOKEN_COLUMN_INDEX(member, name, bits, fill) BD_COLUMN_##member,
#define BD_TOKEN_COLUMN_READ(member, name, bits, fill)  const void *member;
#define BD_TOKEN_COLUMN_WRITE(member, name, bits, fill) void *member;

enum { BD_FOR_EACH_TOKEN_COLUMN(BD_TOKEN_COLUMN_INDEX) BD_N_TOKEN_COLUMNS };

// The members by which a struct has its tokens: each column by its name, or all to loop over.
#define BD_TOKENS_BY(member, type)           \
    union {                                  \
        struct {                             \
            BD_FOR_EACH_TOKEN_COLUMN(member) \
        };                                   \
        type columns[BD_N_TOKEN_COLUMNS];    \
    }
#define BD_TOKENS          BD_TOKENS_BY(BD_TOKEN_COLUMN_READ, const void *)
#define BD_WRITABLE_TOKENS BD_TOKENS_BY(BD_TOKEN_COLUMN_WRITE, void *)

typedef struct bd_token_column {
    const char *name;
    int bits;
    int64_t fill;
} bd_token_column;
extern const bd_token_column bd_token_columns[BD_N_TOKEN_COLUMNS];

// The bits of a value in a column of the dataset, 0 if the dataset does not have it, and the
// value that padding has.
int bd_token_bits(const bd_dataset_config *config, int column);
uint32_t bd_token_fill(int column, const bd_dataset_config *config);

// Bytes of `n` values of a column of `bits`; of all columns of a dataset's `n` tokens.
static inline size_t bd_column_bytes(int64_t n, int bits)
{
    return (size_t)(n * bits + 7) / 8;
}
size_t bd_tokens_bytes(const bd_dataset_config *config, int64_t n);

// Where the value of token t of a column lies: the byte in which it begins. A value of 1 bit is
// bit t % 8 of that byte, counted from the lowest.
static inline const void *bd_column_at(const void *column, int64_t t, int bits)
{
    return (const char *)column + t * bits / 8;
}

// The same as bd_column_copy() and bd_column_fill() for values of 1 bit. Other bits of the first
// and the last byte stay as they are, and no byte without a bit to read or write is touched.
void bd_bits_copy(void *to, int64_t at, const void *bits, int64_t from, int64_t n);
void bd_bits_fill(void *bits, int64_t from, int64_t to, bool value);
// How many of the bits [from, to) are set; whether bit t is; the first i < n for which bit a_from + i
// of `a` differs from bit b_from + i of `b`, n if there is none.
int64_t bd_bits_count(const void *bits, int64_t from, int64_t to);
int64_t bd_bits_difference(const void *a, int64_t a_from, const void *b, int64_t b_from,
                           int64_t n);
static inline bool bd_bit_at(const void *bits, int64_t t)
{
    return ((const uint8_t *)bits)[t / 8] >> t % 8 & 1;
}

// Copies tokens [from, from + n) of a column to where token `at` of another one lies.
static inline void bd_column_copy(void *to, int64_t at, const void *column, int64_t from,
                                  int64_t n, int bits)
{
    if (bits == 1)
        bd_bits_copy(to, at, column, from, n);
    else if (bits > 1)
        memcpy((char *)to + at * bits / 8, bd_column_at(column, from, bits),
               bd_column_bytes(n, bits));
}

// Gives tokens [from, to) of a column one value.
void bd_column_fill(void *column, int64_t from, int64_t to, int bits, uint32_t value);

// The columns of `documents`, one entry per segment; see schemas/shard-v1.md.
typedef struct bd_segments {
    const uint32_t *input;
    const uint64_t *position;
    const uint32_t *offset;  // of the segment in its document, tokens
    const uint32_t *length;  // of the whole document, tokens
} bd_segments;

// All pointers are borrowed from the maker of the batch.
typedef struct bd_row_batch {
    int64_t n_rows;
    BD_TOKENS;                       // [n_rows][seq_len]
    const int32_t *bound_offsets;    // [n_rows + 1] into bounds
    const int32_t *bounds;           // cu_seqlens of all rows
    const int32_t *segment_offsets;  // [n_rows + 1] into segments
    bd_segments segments;
    const uint64_t *checksums;  // [n_rows]
} bd_row_batch;

typedef struct bd_row {
    BD_TOKENS;              // [seq_len]
    int32_t mask_bit;       // 0 to 7: bit mask_bit + t of loss_mask is that of token t
    int64_t n_bounds;       // n_segments + 1 in a row that obeys the rules
    const int32_t *bounds;  // [n_bounds]
    int64_t n_segments;
    bd_segments segments;  // [n_segments]
    uint64_t checksum;     // as stored
} bd_row;

// How many segments all rows of a batch have together.
static inline size_t bd_row_batch_n_segments(const bd_row_batch *batch)
{
    return (size_t)(batch->segment_offsets[batch->n_rows] - batch->segment_offsets[0]);
}

// Row r of a batch.
bd_row bd_row_of_batch(const bd_row_batch *batch, const bd_dataset_config *config, int64_t r);

// How many of ids[from … to - 1] are `id`.
int64_t bd_ids_count(const void *ids, int id_bytes, int64_t from, int64_t to, uint32_t id);

// Rule 4 of a row: a token is a target, to be predicted from the tokens before it, unless it is
// the first of its segment or the row's loss mask says that it is not trained. Whether token t
// is a target of segment s; how many targets s has.
static inline bool bd_row_is_target(const bd_row *row, int64_t s, int64_t t)
{
    return row->bounds[s] < t && t < row->bounds[s + 1] &&
           (!row->loss_mask || bd_bit_at(row->loss_mask, row->mask_bit + t));
}
static inline int64_t bd_row_targets(const bd_row *row, int64_t s)
{
    const int64_t first = row->bounds[s] + 1, end = row->bounds[s + 1];
    return row->loss_mask
               ? bd_bits_count(row->loss_mask, row->mask_bit + first, row->mask_bit + end)
               : end - first;
}

// Tokens of segment s that are text and yet have the separator's id (rule 2 of a row: they are
// counted and mean nothing). Context, BOS and the document's own separator are not text.
int64_t bd_separator_collisions(const bd_row *row, const bd_dataset_config *config, int64_t s);

// The row's own checksum, to be compared with the stored one. The hasher must be fresh.
uint64_t bd_row_checksum(const bd_row *row, const bd_dataset_config *config, bd_hasher *hasher);

// Checks every rule of a row, R1 to R10 of schemas/shard-v1.md. BD_ERR_FORMAT begins its
// message with the rule: "R3: token 17 has id 300, the vocabulary 257".
bd_status bd_row_check(const bd_row *row, const bd_dataset_config *config, bd_hasher *hasher,
                       bd_error *err);

#endif
