#include "packer/plan/estimate.h"

#include <assert.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/dataset/row.h"
#include "packer/pack/layout.h"

enum { N_STRATEGIES = BD_STRATEGY_CONCAT + 1 };

bd_status bd_lengths_append(bd_lengths *lengths, uint32_t length, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&lengths->items, &lengths->capacity, lengths->n + 1,
                            sizeof *lengths->items, err));
    lengths->items[lengths->n++] = length;
    return BD_OK;
}

void bd_lengths_release(bd_lengths *lengths)
{
    free(lengths->items);
    *lengths = (bd_lengths){0};
}

// ---- Laying out ----------------------------------------------------------------------------

void bd_estimates_init(bd_estimates *estimates, const bd_dataset_config *config,
                       const int64_t *seq_lens, size_t n_seq_lens)
{
    assert(n_seq_lens * N_STRATEGIES <= BD_MAX_ESTIMATES);
    *estimates = (bd_estimates){.lock = PTHREAD_MUTEX_INITIALIZER};
    for (size_t i = 0; i < n_seq_lens; i++)
        for (int strategy = 0; strategy < N_STRATEGIES; strategy++) {
            bd_dataset_config *p = &estimates->items[estimates->n++].config;
            *p = *config;
            p->seq_len = seq_lens[i];
            p->strategy = (bd_strategy)strategy;
            if (p->long_policy == BD_LONG_ERROR)
                p->long_policy = BD_LONG_SPLIT;
            p->batch_rows = bd_dataset_default_batch_rows(p);
        }
}

// Returns how many documents do not stay whole. (One can be truncated and split.)
static int64_t count_layout(bd_figures *figures, const bd_layout *layout,
                            const uint32_t *lengths, int64_t seq_len)
{
    int64_t n_cut = layout->dropped_documents;
    figures->truncated = layout->truncated;
    figures->truncated_documents = layout->truncated_documents;
    figures->dropped = layout->dropped;
    figures->dropped_documents = layout->dropped_documents;
    figures->split_documents = layout->split_documents;
    for (int64_t row = 0; row < layout->n_rows; row++) {
        const int64_t begin = layout->row_begins[row], end = layout->row_begins[row + 1];
        int64_t used = 0;
        for (int64_t p = begin; p < end; p++) {
            const bd_piece *piece = &layout->pieces[p];
            bd_figures_count_segment(figures, piece->offset, piece->length, piece->length - 1);
            used += piece->length;
            if (piece->offset > 0)
                continue;
            bd_figures_count_document(figures, lengths[piece->document]);
            n_cut += (uint32_t)piece->length < lengths[piece->document];
        }
        bd_figures_count_row(figures, seq_len, used, end - begin);
    }
    return n_cut;
}

bd_status bd_estimates_add(bd_estimates *estimates, size_t index, const bd_lengths *lengths,
                           bd_error *err)
{
    bd_estimate *estimate = &estimates->items[index];
    bd_figures figures = {0};
    bd_layout layout;
    const int64_t begun = bd_now_ns();
    BD_TRY(bd_layout_make(&layout, lengths->items, lengths->n, &estimate->config, err));
    const int64_t time_ns = bd_now_ns() - begun;
    const int64_t n_cut =
        count_layout(&figures, &layout, lengths->items, estimate->config.seq_len);
    bd_layout_release(&layout);
    pthread_mutex_lock(&estimates->lock);
    const bd_status status = bd_figures_add(&estimate->figures, &figures, err);
    estimate->n_cut += n_cut;
    estimate->time_ns += time_ns;
    pthread_mutex_unlock(&estimates->lock);
    return status;
}

// ---- Reading the result --------------------------------------------------------------------

void bd_default_seq_lens(const int64_t histogram[BD_HISTOGRAM_BINS],
                         int64_t seq_lens[BD_DEFAULT_SEQ_LENS])
{
    enum { FIRST_BIN = 7, LAST_BIN = 19 };  // the longest from 256 to 1 M tokens
    int64_t n = 0, below = 0;
    int bin = 0;
    for (int i = 0; i < BD_HISTOGRAM_BINS; i++)
        n += histogram[i];
    while (bin < BD_HISTOGRAM_BINS - 1 && below + histogram[bin] < n - n / 10)
        below += histogram[bin++];
    bin = bin < FIRST_BIN ? FIRST_BIN : bin > LAST_BIN ? LAST_BIN : bin;
    for (int i = 0; i < BD_DEFAULT_SEQ_LENS; i++)
        seq_lens[i] = INT64_C(1) << (bin - 1 + i);
}

double bd_estimate_cut_share(const bd_estimate *estimate)
{
    const int64_t n = estimate->figures.documents + estimate->figures.dropped_documents;
    return n > 0 ? (double)estimate->n_cut / (double)n : 0;
}

double bd_estimate_causal_pairs(const bd_estimate *estimate)
{
    const double n = (double)estimate->config.seq_len;
    return (double)estimate->figures.rows * n * (n + 1) / 2;
}

int64_t bd_estimate_disk_bytes(const bd_dataset_config *config, const bd_figures *figures,
                               int64_t n_shards)
{
    // checksum, and an entry more in cu_seqlens than segments, with two list offsets
    enum { ROW_BYTES = 8 + 4 + 4 + 4, SEGMENT_BYTES = 4 + 4 + 8 + 4 + 4 };
    // What Arrow writes around the columns, and the metadata: measured on shards of one batch and
    // of 27.
    enum { BATCH_BYTES = 640, SHARD_BYTES = 3250 };
    const double row = (double)bd_tokens_bytes(config, config->seq_len) + ROW_BYTES;
    const double n_batches = (double)(figures->rows / config->batch_rows) + (double)n_shards;
    const double n = (double)figures->rows * row + (double)figures->segments * SEGMENT_BYTES +
                     n_batches * BATCH_BYTES + (double)n_shards * SHARD_BYTES;
    return n < 9e18 ? (int64_t)n : INT64_MAX;
}

size_t bd_estimates_recommend(const bd_estimates *estimates, int64_t most_tokens)
{
    const bd_estimate *items = estimates->items;
    size_t best = 0;
    for (size_t i = N_STRATEGIES; i < estimates->n && items[i].config.seq_len <= most_tokens &&
                                  bd_estimate_cut_share(&items[best]) > 0.01;
         i += N_STRATEGIES)
        if (bd_estimate_cut_share(&items[i]) <= bd_estimate_cut_share(&items[best]))
            best = i;
    const bd_estimate *of_length = &items[best];
    int chosen = BD_STRATEGY_BEST_FIT;
    if (of_length[BD_STRATEGY_FIRST_FIT].figures.rows < of_length[chosen].figures.rows)
        chosen = BD_STRATEGY_FIRST_FIT;
    if ((double)of_length[BD_STRATEGY_CONCAT].figures.rows <
        0.95 * (double)of_length[chosen].figures.rows)
        chosen = BD_STRATEGY_CONCAT;
    return best + (size_t)chosen;
}
