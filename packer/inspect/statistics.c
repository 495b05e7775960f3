#include "packer/inspect/statistics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

const int64_t bd_tile_sizes[BD_N_TILE_SIZES] = {64, 128};
const int bd_quantile_percents[BD_N_QUANTILES] = {1, 10, 50, 90, 99, 100};

enum {
    NARROW_IDS = 65536,  // every id of 2 bytes has a place in a table of this size
    N_TABLES = 2,        // a token that follows itself does not wait for its own count
};

static const int64_t most_recent = UINT32_MAX / 2;

static bool is_narrow(const bd_statistics *s)
{
    return bd_dataset_id_bytes(&s->config) == 2;
}

bd_status bd_statistics_init(bd_statistics *statistics, const bd_dataset_config *config,
                             bd_error *err)
{
    *statistics = (bd_statistics){.config = *config};
    bd_statistics *s = statistics;
    const bool counts_tokens = config->vocab_size <= BD_MAX_COUNTED_VOCABULARY;
    s->lengths = calloc(BD_EXACT_LENGTHS + 1, sizeof *s->lengths);
    if (counts_tokens)
        s->token_counts = calloc((size_t)config->vocab_size, sizeof *s->token_counts);
    if (is_narrow(s))
        s->recent = calloc((size_t)N_TABLES * NARROW_IDS, sizeof *s->recent);
    if (!s->lengths || (counts_tokens && !s->token_counts) || (is_narrow(s) && !s->recent)) {
        bd_statistics_release(s);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the statistics");
    }
    return BD_OK;
}

void bd_statistics_release(bd_statistics *statistics)
{
    free(statistics->lengths);
    free(statistics->token_counts);
    free(statistics->recent);
    *statistics = (bd_statistics){0};
}

// ---- Rows ----------------------------------------------------------------------------------

int64_t bd_segment_tiles(int64_t length, int64_t tile)
{
    const int64_t n = (length + tile - 1) / tile;
    return n * (n + 1) / 2;
}

void bd_statistics_settle(bd_statistics *statistics)
{
    bd_statistics *s = statistics;
    if (s->n_recent == 0)
        return;
    for (int64_t id = 0; id < s->config.vocab_size; id++)
        s->token_counts[id] += (int64_t)s->recent[id] + s->recent[NARROW_IDS + id];
    memset(s->recent, 0, (size_t)N_TABLES * NARROW_IDS * sizeof *s->recent);
    s->n_recent = 0;
}

static void count_narrow(bd_statistics *s, const uint16_t *ids, int64_t n)
{
    uint32_t *even = s->recent, *odd = s->recent + NARROW_IDS;
    int64_t t = 0;
    for (; t + 1 < n; t += 2) {
        even[ids[t]]++;
        odd[ids[t + 1]]++;
    }
    if (t < n)
        even[ids[t]]++;
    s->n_recent += n;
    if (s->n_recent > most_recent)  // a row has at most 2^30 tokens
        bd_statistics_settle(s);
}

static void count_row_tokens(bd_statistics *s, const bd_row *row)
{
    const int64_t used = row->bounds[row->n_segments];
    if (is_narrow(s)) {
        count_narrow(s, row->ids, used);
        return;
    }
    const uint32_t *ids = row->ids;
    for (int64_t t = 0; s->token_counts && t < used; t++)
        if (ids[t] < s->config.vocab_size)
            s->token_counts[ids[t]]++;
}

static void count_in_statistics(bd_statistics *s, int64_t length)
{
    bd_figures_count_document(&s->figures, length);
    if (length <= BD_EXACT_LENGTHS)
        s->lengths[length]++;
    else
        s->longer[bd_bit_width((uint64_t)length) - 1]++;
    if (length > s->longest_document)
        s->longest_document = length;
}

void bd_statistics_add_row(bd_statistics *statistics, const bd_row *row)
{
    bd_statistics *s = statistics;
    const int64_t seq_len = s->config.seq_len, used = row->bounds[row->n_segments];
    bd_figures_count_row(&s->figures, seq_len, used, row->n_segments);
    s->padding[bd_bit_width((uint64_t)(seq_len - used))]++;
    if (row->n_segments > s->most_segments)
        s->most_segments = row->n_segments;
    for (int64_t k = 0; k < row->n_segments; k++) {
        const int64_t length = row->bounds[k + 1] - row->bounds[k];
        bd_figures_count_segment(&s->figures, row->segments.offset[k], length,
                                 bd_row_targets(row, k));
        for (int i = 0; i < BD_N_TILE_SIZES; i++)
            s->tiles[i] += bd_segment_tiles(length, bd_tile_sizes[i]);
        if (row->segments.offset[k] == 0)
            count_in_statistics(s, row->segments.length[k]);
    }
    count_row_tokens(s, row);
}

static void add_all(int64_t *total, const int64_t *part, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        total[i] += part[i];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void bd_statistics_merge(bd_statistics *total, bd_statistics *part)
{
    bd_statistics_settle(part);
    bd_figures_add(&total->figures, &part->figures, NULL);  // counts of rows in memory fit
    add_all(total->lengths, part->lengths, BD_EXACT_LENGTHS + 1);
    add_all(total->longer, part->longer, BD_HISTOGRAM_BINS);
    add_all(total->padding, part->padding, BD_PADDING_BINS);
    add_all(total->tiles, part->tiles, BD_N_TILE_SIZES);
    if (total->token_counts)
        add_all(total->token_counts, part->token_counts, total->config.vocab_size);
    total->longest_document = larger(total->longest_document, part->longest_document);
    total->most_segments = larger(total->most_segments, part->most_segments);
}

// ---- Quantiles -----------------------------------------------------------------------------

typedef __int128 wide;  // bins that a file claims may be anything: 64 bits could overflow

// Which of `n` values in ascending order, from 1 on, is the quantile.
static wide rank_of(int percent, wide n)
{
    const wide rank = (n * percent + 99) / 100;
    return rank < 1 ? 1 : rank;
}

// The value of rank `rank` in powers of two, as if the values of each lay evenly in it.
static int64_t interpolate(const int64_t *bins, wide rank)
{
    wide before = 0;
    for (int i = 0; i < BD_HISTOGRAM_BINS; i++) {
        if (before + bins[i] >= rank) {
            const double low = (double)(INT64_C(1) << i);  // as wide as it is high
            return (int64_t)(low + low * ((double)(rank - before) - 0.5) / (double)bins[i]);
        }
        before += bins[i];
    }
    return 0;
}

static wide sum(const int64_t *bins)
{
    wide n = 0;
    for (int i = 0; i < BD_HISTOGRAM_BINS; i++)
        n += bins[i];
    return n;
}

bd_quantiles bd_statistics_quantiles(const bd_statistics *statistics)
{
    const bd_statistics *s = statistics;
    bd_quantiles q = {.exact = true, .max_exact = true};
    const int64_t n = s->figures.documents;
    int64_t length = 0, so_far = 0;
    for (int i = 0; n > 0 && i < BD_N_QUANTILES - 1; i++) {
        const wide rank = rank_of(bd_quantile_percents[i], n);
        while (so_far < rank && length < BD_EXACT_LENGTHS)
            so_far += s->lengths[++length];
        q.exact = q.exact && so_far >= rank;
        q.values[i] = so_far >= rank ? length : interpolate(s->longer, rank - so_far);
    }
    q.values[BD_N_QUANTILES - 1] = s->longest_document;
    return q;
}

bd_quantiles bd_figures_quantiles(const bd_figures *figures)
{
    // A document that is whole in its row is a segment.
    const bool all_whole = figures->split_documents == 0 && figures->truncated_documents == 0;
    const wide n = sum(figures->document_lengths);
    bd_quantiles q = {.exact = n == 0, .max_exact = all_whole};
    for (int i = 0; n > 0 && i < BD_N_QUANTILES; i++)
        q.values[i] =
            interpolate(figures->document_lengths, rank_of(bd_quantile_percents[i], n));
    for (int i = 0; all_whole && i < BD_N_QUANTILES; i++)
        if (i == BD_N_QUANTILES - 1 || q.values[i] > figures->longest_segment)
            q.values[i] = figures->longest_segment;
    return q;
}
