#include "packer/inspect/report_inspection.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text_stream.h"
#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "packer/input/input_options.h"
#include "packer/pack/ledger_report.h"

enum {
    LABEL_WIDTH = 26,
    NUMBER_WIDTH = 18,
    BAR_WIDTH = 18,
    BIN_WIDTH = 2 + 8 + 1 + 9 + 1 + BAR_WIDTH,  // two of them side by side
    TOKENS_IN_A_LINE = 5,
    TOKEN_WIDTH = 8,
};

// ---- Lines ---------------------------------------------------------------------------------

// "about " belongs to the number, so that the columns stay.
static void print_number(FILE *out, const char *label, int64_t n, bool exact)
{
    char number[48];
    snprintf(number, sizeof number, "%s%s", exact ? "" : "about ", bd_format_exact(n).text);
    fprintf(out, "  %-*s%*s", LABEL_WIDTH, label, NUMBER_WIDTH, number);
}

static void print_count(FILE *out, const char *label, int64_t n)
{
    print_number(out, label, n, true);
    fputc('\n', out);
}

// A count that is only worth a line when it is not zero.
static void print_nonzero(FILE *out, const char *label, int64_t n)
{
    if (n != 0)
        print_count(out, label, n);
}

// ---- Documents -----------------------------------------------------------------------------

static void print_documents(FILE *out, const bd_inspection *in, bd_text_style style)
{
    const bd_figures *f = &in->manifest.totals;
    const bool exact = bd_inspection_is_exact(in);
    const int64_t rows_read = in->statistics.figures.rows;
    bd_print_title(out, style, "Documents");
    fputc('\n', out);
    print_count(out, "documents", f->documents);
    print_number(out, "segments", f->segments, true);
    fprintf(out, "    %.2f in a row\n",
            f->rows > 0 ? (double)f->segments / (double)f->rows : 0.0);
    print_nonzero(out, "empty documents", f->empty_documents);
    print_nonzero(out, "split documents", f->split_documents);
    print_nonzero(out, "truncated documents", f->truncated_documents);
    print_nonzero(out, "dropped documents", f->dropped_documents);
    print_nonzero(out, "too short documents", f->too_short_documents);
    print_nonzero(out, "held-out documents", f->held_out_documents);
    print_nonzero(out, "untrained documents", f->untrained_documents);
    print_nonzero(out, "headless documents", f->headless_documents);
    print_nonzero(out, "invalid UTF-8 documents", f->invalid_utf8_documents);
    print_nonzero(out, "bad: no text", f->bad_missing_text);
    print_nonzero(out, "bad: broken JSON or CSV", f->bad_json);
    print_nonzero(out, "bad: not UTF-8", f->bad_utf8);
    print_nonzero(out, "bad: too large", f->bad_too_large);
    print_nonzero(out, "bad: over pattern's limit", f->bad_pattern);
    print_nonzero(out, "separator collisions", f->separator_collisions);
    print_count(out, "longest segment", f->longest_segment);
    const double full = bd_percent((double)in->statistics.padding[0], (double)rows_read);
    print_number(out, "rows without padding", (int64_t)((double)f->rows * full / 100 + 0.5),
                 exact);
    fprintf(out, "    %.1f %% of the rows\n", full);
}

// A piece of a line in which *column is the next; or the beginning of another line.
static void print_piece(FILE *out, int *column, const char *piece)
{
    if (*column + (int)strlen(piece) > BD_REPORT_WIDTH) {
        *column = fprintf(out, "\n  ") - 1;
        piece += strspn(piece, " ");
    }
    *column += fprintf(out, "%s", piece);
}

static void print_lengths(FILE *out, const bd_inspection *in, bd_text_style style)
{
    const bd_quantiles *q = &in->lengths;
    fputc('\n', out);
    bd_print_title(out, style, "Document lengths");
    int column = (int)strlen("Document lengths") + fprintf(out, q->exact ? " " : " about");
    char piece[48];
    for (int i = 0; i < BD_N_QUANTILES - 1; i++) {
        snprintf(piece, sizeof piece, "%sp%d %" PRId64, i == 0 ? " " : "  ",
                 bd_quantile_percents[i], q->values[i]);
        print_piece(out, &column, piece);
    }
    snprintf(piece, sizeof piece, "%smax %" PRId64, q->max_exact ? "  " : " about ",
             q->values[BD_N_QUANTILES - 1]);
    print_piece(out, &column, piece);
    fputc('\n', out);
}

// ---- Histograms ----------------------------------------------------------------------------

typedef struct bin_range {
    int first, last;  // of the bins that are not empty; last < first if all are
    int64_t largest;
} bin_range;

static bin_range occupied_bins(const int64_t *bins)
{
    bin_range range = {BD_HISTOGRAM_BINS, -1, 0};
    for (int i = 0; i < BD_HISTOGRAM_BINS; i++)
        if (bins[i] > 0) {
            range.first = i < range.first ? i : range.first;
            range.last = i;
            range.largest = bins[i] > range.largest ? bins[i] : range.largest;
        }
    return range;
}

// One bin: where it begins, how many, a bar; then spaces to the next column if `filled`.
static void print_bin(FILE *out, const int64_t *bins, bin_range range, int bin, bool filled,
                      bd_text_style style)
{
    enum { MOST_DIGITS_BIN = 26 };  // below 100 million
    char low[16];
    if (bin <= MOST_DIGITS_BIN)
        snprintf(low, sizeof low, "%d", 1 << bin);
    else
        snprintf(low, sizeof low, "2^%d", bin);
    fprintf(out, "  %8s%c%9s%s", low, bin == 0 ? ' ' : '+',
            bd_format_count((uint64_t)bins[bin]).text, filled || bins[bin] > 0 ? " " : "");
    bd_print_bar(out, style, (double)bins[bin] / (double)range.largest, BAR_WIDTH, filled);
}

static void print_histograms(FILE *out, const bd_inspection *in, bd_text_style style)
{
    const bd_figures *f = &in->manifest.totals;
    const bin_range lengths = occupied_bins(f->document_lengths);
    const bin_range segments = occupied_bins(f->segments_per_row);
    if (lengths.last < lengths.first || segments.last < segments.first)
        return;
    fprintf(out, "  %8s %9s %*s  %8s %9s\n", "tokens", "documents", BAR_WIDTH, "", "segments",
            "rows");
    int length = lengths.first, n = segments.first;
    for (; length <= lengths.last || n <= segments.last; length++, n++) {
        if (length <= lengths.last)
            print_bin(out, f->document_lengths, lengths, length, n <= segments.last, style);
        else
            fprintf(out, "%*s", BIN_WIDTH, "");
        if (n <= segments.last)
            print_bin(out, f->segments_per_row, segments, n, false, style);
        fputc('\n', out);
    }
}

// ---- Attention -----------------------------------------------------------------------------

// A document shorter than a tile takes a whole one: that may be more than the plain mask does.
static void print_saved(FILE *out, double visited, double plain)
{
    const double saved = plain > 0 ? 100.0 - bd_percent(visited, plain) : 0.0;
    fprintf(out, "    %.1f %% %s\n", saved < 0 ? -saved : saved, saved < 0 ? "more" : "saved");
}

static void print_attention(FILE *out, const bd_inspection *in, bd_text_style style)
{
    const bd_figures *f = &in->manifest.totals;
    fputc('\n', out);
    bd_print_title(out, style, "Attention");
    fputs(", and what the boundaries save of a plain causal mask's\n", out);
    print_number(out, "pairs", f->attention_pairs, true);
    print_saved(out, (double)f->attention_pairs, bd_inspection_causal_pairs(in));
    for (int i = 0; i < BD_N_TILE_SIZES; i++) {
        char label[32];
        snprintf(label, sizeof label, "tiles of %" PRId64, bd_tile_sizes[i]);
        print_number(out, label, in->tiles[i], bd_inspection_is_exact(in));
        print_saved(out, (double)in->tiles[i], (double)in->causal_tiles[i]);
    }
}

// ---- Tokens --------------------------------------------------------------------------------

// The token as text, in quotes. Malloc'd; NULL if it has no text, if the text is too wide, or if
// memory has run out: then its id is printed.
static char *token_text(const bd_inspection *in, uint32_t id)
{
    size_t n_bytes = 0;
    const char *bytes =
        in->tokenizer ? in->tokenizer->kind->token_bytes(in->tokenizer, id, &n_bytes) : NULL;
    bd_text_stream stream;
    if (!bytes || !bd_text_stream_open(&stream))
        return NULL;
    fputc('"', stream.file);
    bd_print_safely(stream.file, bytes, n_bytes, false);
    fputc('"', stream.file);
    char *text = bd_text_stream_close(&stream, NULL);
    if (text && bd_text_columns(text) <= TOKEN_WIDTH)
        return text;
    free(text);
    return NULL;
}

static void print_token(FILE *out, const bd_inspection *in, const bd_frequent_token *token)
{
    char *text = token_text(in, token->id);
    char id[16];
    snprintf(id, sizeof id, "<%u>", token->id);
    const char *shown = text ? text : id;
    const int n = bd_text_columns(shown);
    fprintf(out, "  %s%*s%4.1f%%", shown, n < TOKEN_WIDTH ? TOKEN_WIDTH - n : 0, "",
            bd_percent((double)token->count, (double)in->tokens_counted));
    free(text);
}

static void print_frequent_tokens(FILE *out, const bd_inspection *in, bd_text_style style)
{
    if (in->n_frequent == 0)
        return;
    fputc('\n', out);
    bd_print_title(out, style, "Frequent tokens");
    fputs(bd_inspection_is_exact(in) ? "\n" : ", about\n", out);
    for (size_t i = 0; i < in->n_frequent; i++) {
        const bool ends = (i + 1) % TOKENS_IN_A_LINE == 0 || i + 1 == in->n_frequent;
        print_token(out, in, &in->frequent[i]);
        fputc(ends ? '\n' : ' ', out);
    }
}

// ---- Repeated documents --------------------------------------------------------------------

static void print_place(FILE *out, const bd_inspection *in,
                        const bd_repeated_document *document)
{
    const bd_manifest *manifest = &in->manifest;
    char place[96];
    const int n = fprintf(out, "  %8s x %s tokens: ", bd_format_exact(document->count).text,
                          bd_format_exact(document->n_tokens).text);
    const bool known = document->input < manifest->n_inputs;
    const bd_input_entry *input = known ? &manifest->inputs[document->input] : NULL;
    snprintf(place, sizeof place, " %s %" PRIu64 ", %s:%" PRId64,
             known ? bd_position_unit(input->format) : "position", document->position,
             bd_inspection_shard_name(in, document->shard).text, document->row);
    if (known)
        bd_print_name(out, input->name, bd_report_room(n + (int)strlen(place)));
    else
        fprintf(out, "input %u,", document->input);
    fprintf(out, "%s\n", place);
}

static void print_duplicates(FILE *out, const bd_inspection *in, bd_text_style style)
{
    const bd_duplicates *d = &in->duplicates;
    if (!in->has_duplicates)
        return;
    const int64_t repeated = d->documents - d->distinct;
    fputc('\n', out);
    bd_print_title(out, style, "Repeated documents");
    fputc('\n', out);
    print_number(out, "distinct documents", d->distinct, d->exact);
    if (!d->exact)
        fprintf(out, "    %.1f %% more or less", 100 * d->error);
    fputc('\n', out);
    print_number(out, "repeats", repeated, d->exact);
    fprintf(out, "    %.1f %% of the documents\n",
            bd_percent((double)repeated, (double)d->documents));
    if (d->exact) {
        print_number(out, "tokens of repeats", d->repeated_tokens, true);
        fprintf(out, "    %.1f %% of the documents'\n",
                bd_percent((double)d->repeated_tokens, (double)d->tokens));
    }
    for (size_t i = 0; i < d->n_most; i++)
        print_place(out, in, &d->most[i]);
}

// ---- All of it -----------------------------------------------------------------------------

static void print_reading(FILE *out, const bd_inspection *in)
{
    const int64_t rows = in->statistics.figures.rows;
    fputc('\n', out);
    if (in->rows_read == BD_ROWS_SCANNED)
        fprintf(out, "Counted again from all %s rows: they agree with the %s\n",
                bd_format_exact(rows).text, in->is_shard ? "metadata" : "manifest");
    else if (in->rows_read == BD_ROWS_ALL)
        fprintf(out, "Lengths, tiles and tokens are those of all %s rows\n",
                bd_format_exact(rows).text);
    else
        fprintf(out,
                "About: lengths from a histogram, the rest from %s rows in %s shard%s;\n"
                "--scan counts all\n",
                bd_format_exact(rows).text, bd_format_exact(in->shards_read).text,
                in->shards_read == 1 ? "" : "s");
    if (in->is_shard)
        fputs("A shard alone: what its inputs and sources are, only the manifest tells\n", out);
}

void bd_report_inspection(FILE *out, const bd_inspection *inspection, bd_text_style style)
{
    bd_report_tokens(out, &inspection->manifest, inspection->tokenizer_file);
    bd_report_bad_records(out, &inspection->manifest.totals);
    bd_report_sources(out, inspection->sources, inspection->n_sources,
                      inspection->manifest.totals.packed);
    if (inspection->manifest.config.loss_mask)
        bd_report_trained(out, inspection->sources, inspection->n_sources);
    bd_report_added_tokens(out, &inspection->manifest.totals.added, inspection->tokenizer);
    fputc('\n', out);
    if (inspection->manifest.passed_over.n > 0) {
        bd_report_passed_over(out, &inspection->manifest.passed_over);
        fputc('\n', out);
    }
    print_documents(out, inspection, style);
    print_lengths(out, inspection, style);
    print_histograms(out, inspection, style);
    print_attention(out, inspection, style);
    print_frequent_tokens(out, inspection, style);
    print_duplicates(out, inspection, style);
    print_reading(out, inspection);
}
