#include "packer/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/format.h"
#include "common/terminal.h"

enum { NUMBER_WIDTH = 18, BAR_WIDTH = 40 };

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void print_pair(FILE *out, const char *left, int64_t left_n, const char *right,
                       int64_t right_n)
{
    fprintf(out, "  %-11s%*s", left, NUMBER_WIDTH, bd_format_exact(left_n).text);
    fprintf(out, "    %-11s%*s\n", right, NUMBER_WIDTH, bd_format_exact(right_n).text);
}

static bd_status print_sources(FILE *out, const bd_manifest *manifest, bd_error *err)
{
    bd_source_figures *sources;
    size_t n;
    BD_TRY(bd_manifest_sources(manifest, &sources, &n, err));
    if (n > 1)
        fprintf(out, "\n%-28s%14s%18s%10s%10s\n", "Sources", "documents", "tokens packed",
                "share", "left out");
    for (size_t i = 0; n > 1 && i < n; i++) {
        const bd_figures *f = &sources[i].figures;
        const int64_t left_out = f->truncated + f->dropped + f->too_short + f->held_out;
        fputs("  ", out);
        bd_print_safely(out, sources[i].name, strlen(sources[i].name), false);
        fprintf(out, "%*s%14s%18s%9.2f%%%9.2f%%\n",
                strlen(sources[i].name) < 26 ? (int)(26 - strlen(sources[i].name)) : 1, "",
                bd_format_exact(f->documents).text, bd_format_exact(f->packed).text,
                percent(f->packed, manifest->totals.packed),
                percent(left_out, f->packed + left_out));
    }
    free(sources);
    return BD_OK;
}

bd_status bd_report_ledger(FILE *out, const bd_manifest *manifest, bd_error *err)
{
    const bd_figures *f = &manifest->totals;
    const int64_t cells = f->packed + f->padding;
    fprintf(out, "%s row%s of %" PRId64 " tokens in %zu shard%s, %s, tokenizer %s\n\n",
            bd_format_exact(f->rows).text, f->rows == 1 ? "" : "s", manifest->packing.seq_len,
            manifest->n_shards, manifest->n_shards == 1 ? "" : "s",
            bd_strategy_words[manifest->packing.strategy], manifest->packing.tokenizer);
    fprintf(out, "Tokens in                        Tokens out\n");
    print_pair(out, "text", f->text, "packed", f->packed);
    print_pair(out, "bos", f->bos, "truncated", f->truncated);
    print_pair(out, "separators", f->separators, "dropped", f->dropped);
    if (f->too_short > 0)
        print_pair(out, "repeated", f->repeated, "too short", f->too_short);
    else
        fprintf(out, "  %-11s%*s\n", "repeated", NUMBER_WIDTH,
                bd_format_exact(f->repeated).text);
    if (f->held_out > 0)
        fprintf(out, "  %-11s%*s    %-11s%*s\n", "", NUMBER_WIDTH, "", "held out", NUMBER_WIDTH,
                bd_format_exact(f->held_out).text);
    print_pair(out, "sum", f->text + f->bos + f->separators + f->repeated, "sum",
               f->packed + f->truncated + f->dropped + f->too_short + f->held_out);
    fprintf(out, "\n  padding    %*s    %.4f %% of the rows\n", NUMBER_WIDTH,
            bd_format_exact(f->padding).text, percent(f->padding, cells));
    fprintf(out, "  targets    %*s    %.4f %% of the rows\n", NUMBER_WIDTH,
            bd_format_exact(f->targets).text, percent(f->targets, cells));
    return print_sources(out, manifest, err);
}

static void print_count(FILE *out, const char *label, int64_t n)
{
    fprintf(out, "  %-26s%*s\n", label, NUMBER_WIDTH, bd_format_exact(n).text);
}

// A count that is only worth a line when it is not zero.
static void print_nonzero(FILE *out, const char *label, int64_t n)
{
    if (n != 0)
        print_count(out, label, n);
}

static void print_histogram(FILE *out, const char *title, const int64_t *bins)
{
    int64_t largest = 0;
    int first = BD_HISTOGRAM_BINS, last = -1;
    for (int i = 0; i < BD_HISTOGRAM_BINS; i++) {
        largest = bins[i] > largest ? bins[i] : largest;
        if (bins[i] > 0) {
            first = i < first ? i : first;
            last = i;
        }
    }
    fprintf(out, "\n%s\n", title);
    for (int i = first; i <= last; i++) {
        char range[48];
        snprintf(range, sizeof range, "%" PRId64 " - %" PRId64, INT64_C(1) << i,
                 (INT64_C(2) << i) - 1);
        fprintf(out, "  %-20s%14s  ", i == 0 ? "1" : range, bd_format_exact(bins[i]).text);
        const int length = (int)((double)bins[i] / (double)largest * BAR_WIDTH + 0.5);
        for (int c = 0; c < length; c++)
            fputc('#', out);
        fputc('\n', out);
    }
}

void bd_report_figures(FILE *out, const bd_manifest *manifest)
{
    const bd_figures *f = &manifest->totals;
    // A plain causal mask over whole rows would visit this many pairs.
    const double causal = (double)f->rows * (double)manifest->packing.seq_len *
                          (double)(manifest->packing.seq_len + 1) / 2.0;
    fprintf(out, "Documents\n");
    print_count(out, "documents", f->documents);
    print_count(out, "segments", f->segments);
    print_nonzero(out, "empty documents", f->empty_documents);
    print_nonzero(out, "split documents", f->split_documents);
    print_nonzero(out, "truncated documents", f->truncated_documents);
    print_nonzero(out, "dropped documents", f->dropped_documents);
    print_nonzero(out, "too short documents", f->too_short_documents);
    print_nonzero(out, "held-out documents", f->held_out_documents);
    print_nonzero(out, "headless documents", f->headless_documents);
    print_nonzero(out, "invalid UTF-8 documents", f->invalid_utf8_documents);
    print_nonzero(out, "separator collisions", f->separator_collisions);
    print_count(out, "longest segment", f->longest_segment);
    fprintf(out, "  %-26s%*s    %.1f %% of a plain causal mask's\n", "attention pairs",
            NUMBER_WIDTH, bd_format_exact(f->attention_pairs).text,
            causal > 0 ? 100.0 * (double)f->attention_pairs / causal : 0.0);
    print_histogram(out, "Document lengths (tokens)", f->document_lengths);
    print_histogram(out, "Segments per row", f->segments_per_row);
}
