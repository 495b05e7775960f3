// estimate.h - what packing would give, from the lengths of documents alone: the same layout
// code that packs, for several row lengths and strategies at once.
#ifndef BINDERY_PACKER_PLAN_ESTIMATE_H
#define BINDERY_PACKER_PLAN_ESTIMATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/config.h"
#include "common/dataset/figures.h"

// The lengths of the documents of one unit, in the order in which they are packed.
typedef struct bd_lengths {
    uint32_t *items;  // [n], owned; tokens, BOS and separator included
    size_t n, capacity;
} bd_lengths;

bd_status bd_lengths_append(bd_lengths *lengths, uint32_t length, bd_error *err);
void bd_lengths_release(bd_lengths *lengths);  // safe on an empty struct and safe twice

// One way to pack, and its figures so far. Only these are filled: rows, segments, documents,
// repeated, packed, padding, targets, truncated and dropped tokens and documents, split documents,
// longest segment, attention pairs, and the histograms.
typedef struct bd_estimate {
    bd_dataset_config config;
    bd_figures figures;
    int64_t n_cut;    // documents that do not stay whole: split, truncated or dropped
    int64_t time_ns;  // that laying out took, all threads together
} bd_estimate;

enum { BD_MAX_ESTIMATES = 96 };

// Every row length with every strategy.
typedef struct bd_estimates {
    bd_estimate items[BD_MAX_ESTIMATES];  // [n]; by seq_len, then by strategy
    size_t n;
    pthread_mutex_t lock;  // over what is added up
} bd_estimates;

// seq_lens [n_seq_lens], at most a third of BD_MAX_ESTIMATES. All other options are those of
// `config`; BD_LONG_ERROR counts as BD_LONG_SPLIT.
void bd_estimates_init(bd_estimates *estimates, const bd_dataset_config *config,
                       const int64_t *seq_lens, size_t n_seq_lens);

// Lays out one unit in way `index` and adds what comes of it; any number of threads at once.
// Memory: 70 bytes per segment.
bd_status bd_estimates_add(bd_estimates *estimates, size_t index, const bd_lengths *lengths,
                           bd_error *err);

// Four powers of two around the lengths of the documents: up to twice the first that holds nine
// of ten. Entry i of the histogram counts lengths from 2^i to 2^(i+1) - 1.
enum { BD_DEFAULT_SEQ_LENS = 4 };
void bd_default_seq_lens(const int64_t histogram[BD_HISTOGRAM_BINS],
                         int64_t seq_lens[BD_DEFAULT_SEQ_LENS]);

// Documents that do not stay whole, as a share of all.
double bd_estimate_cut_share(const bd_estimate *estimate);

// Pairs of a plain causal mask over all rows.
double bd_estimate_causal_pairs(const bd_estimate *estimate);

// Bytes of uncompressed shards with these figures: what the columns hold, and about what Arrow
// writes around them.
int64_t bd_estimate_disk_bytes(const bd_dataset_config *config, const bd_figures *figures,
                               int64_t n_shards);

// The way to recommend: the shortest rows that keep 99 of 100 documents whole (or the longest
// of those that keep the most), filled by whichever of best-fit and first-fit makes fewer rows;
// concat only if it saves more than 5 of 100 rows. Only rows of at most `most_tokens` are
// recommended; at least one row length must be so short.
size_t bd_estimates_recommend(const bd_estimates *estimates, int64_t most_tokens);

#endif
