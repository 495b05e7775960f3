// statistics.h - what rows tell beyond the figures: every document length, tiles of attention,
// padding per row, how often each token occurs. Adds one row at a time; sums can be merged.
//
// All of it is a sum over rows: a document is counted where it begins (offset 0), since each of
// its pieces knows the whole length.
#ifndef BINDERY_PACKER_INSPECT_STATISTICS_H
#define BINDERY_PACKER_INSPECT_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/config.h"
#include "common/dataset/figures.h"
#include "common/dataset/row.h"

enum {
    BD_EXACT_LENGTHS = 1 << 18,           // documents up to this length are counted one by one
    BD_MAX_COUNTED_VOCABULARY = 1 << 22,  // tokens of a larger one are not counted
    BD_PADDING_BINS = BD_HISTOGRAM_BINS + 1,
    BD_N_TILE_SIZES = 2,
    BD_N_QUANTILES = 6,  // p1, p10, p50, p90, p99 and the maximum
};
extern const int64_t bd_tile_sizes[BD_N_TILE_SIZES];  // 64 and 128 tokens
extern const int bd_quantile_percents[BD_N_QUANTILES];

typedef struct bd_statistics {
    bd_dataset_config config;
    // Rows, segments, documents, packed, padding, targets, repeated, longest segment, attention
    // pairs and both histograms; the rest stays 0.
    bd_figures figures;
    int64_t *lengths;                   // [BD_EXACT_LENGTHS + 1], owned; documents by length
    int64_t longer[BD_HISTOGRAM_BINS];  // documents longer than that, in powers of two
    int64_t longest_document;           // tokens, 0 if there is none
    int64_t most_segments;              // in a row
    int64_t padding[BD_PADDING_BINS];   // rows by padding: none, then from 2^(i-1) to 2^i - 1
    int64_t tiles[BD_N_TILE_SIZES];     // that a kernel visits, cut from a segment's start
    int64_t *token_counts;  // [vocab_size], owned; of tokens that are not padding. NULL if the
                            // vocabulary is too large
    uint32_t *recent;       // owned; two tables of counts that are not in token_counts yet
    int64_t n_recent;       // tokens in them
} bd_statistics;

// Memory: 2 MiB for the lengths and 8 bytes for each token of the vocabulary (16 more for each
// of 65,536 if ids have 2 bytes). On failure *statistics is empty.
bd_status bd_statistics_init(bd_statistics *statistics, const bd_dataset_config *config,
                             bd_error *err);

// Counts a row whose boundaries and lengths obey R1, R2 and R4. Ids that are not in the
// vocabulary are not counted.
void bd_statistics_add_row(bd_statistics *statistics, const bd_row *row);

// total += part, of the same config. The part is then only good for releasing.
void bd_statistics_merge(bd_statistics *total, bd_statistics *part);

// To be called before token_counts are read.
void bd_statistics_settle(bd_statistics *statistics);

void bd_statistics_release(bd_statistics *statistics);  // safe when empty and safe twice

// The tiles of `tile` x `tile` that causal attention visits in a segment of `length` tokens.
int64_t bd_segment_tiles(int64_t length, int64_t tile);

// ---- Quantiles: the smallest length that at least so many percent of the documents do not
// exceed.
typedef struct bd_quantiles {
    int64_t values[BD_N_QUANTILES];  // tokens; all 0 if there are no documents
    bool exact;                      // every one of them but the maximum
    bool max_exact;
} bd_quantiles;

// From the counts: exact up to BD_EXACT_LENGTHS, beyond it interpolated.
bd_quantiles bd_statistics_quantiles(const bd_statistics *statistics);

// From the figures' histogram, interpolated inside its powers of two.
bd_quantiles bd_figures_quantiles(const bd_figures *figures);

#endif
