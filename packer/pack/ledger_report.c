#include "packer/pack/ledger_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "common/dataset/stored_tokenizer.h"
#include "packer/input/bad_records.h"
#include "packer/pack/pack_log.h"

enum { NUMBER_WIDTH = 18, NAME_WIDTH = 25 };

double bd_percent(double part, double whole)
{
    return whole > 0 ? 100.0 * part / whole : 0.0;
}

int bd_report_room(int n)
{
    enum { LEAST = 8 };  // a name of less says nothing
    return n <= BD_REPORT_WIDTH - LEAST ? BD_REPORT_WIDTH - n : LEAST;
}

static double percent(int64_t part, int64_t whole)
{
    return bd_percent((double)part, (double)whole);
}

static void print_pair(FILE *out, const char *left, int64_t left_n, const char *right,
                       int64_t right_n)
{
    fprintf(out, "  %-11s%*s", left, NUMBER_WIDTH, bd_format_exact(left_n).text);
    fprintf(out, "    %-11s%*s\n", right, NUMBER_WIDTH, bd_format_exact(right_n).text);
}

// On the right side alone, if there are any.
static void print_right(FILE *out, const char *right, int64_t n)
{
    if (n > 0)
        fprintf(out, "  %-11s%*s    %-11s%*s\n", "", NUMBER_WIDTH, "", right, NUMBER_WIDTH,
                bd_format_exact(n).text);
}

void bd_report_sources(FILE *out, const bd_source_figures *sources, size_t n, int64_t packed)
{
    if (n > 1)
        fprintf(out, "\n%-28s%14s%18s%10s%10s\n", "Sources", "documents", "tokens packed",
                "share", "left out");
    for (size_t i = 0; n > 1 && i < n; i++) {
        const bd_figures *f = &sources[i].figures;
        const int64_t left_out =
            f->truncated + f->dropped + f->too_short + f->held_out + f->untrained;
        fputs("  ", out);
        const int n_columns = bd_print_name(out, sources[i].name, NAME_WIDTH);
        fprintf(out, "%*s%14s%18s%9.2f%%%9.2f%%\n", NAME_WIDTH + 1 - n_columns, "",
                bd_format_exact(f->documents).text, bd_format_exact(f->packed).text,
                percent(f->packed, packed), percent(left_out, f->packed + left_out));
    }
}

void bd_report_trained(FILE *out, const bd_source_figures *sources, size_t n)
{
    if (n > 1)
        fprintf(out, "\n%-28s%14s%18s%20s\n", "Loss masks", "targets", "masked",
                "share of targets");
    for (size_t i = 0; n > 1 && i < n; i++) {
        const bd_figures *f = &sources[i].figures;
        fputs("  ", out);
        const int n_columns = bd_print_name(out, sources[i].name, NAME_WIDTH);
        fprintf(out, "%*s%14s%18s%19.2f%%\n", NAME_WIDTH + 1 - n_columns, "",
                bd_format_exact(f->targets).text, bd_format_exact(f->masked).text,
                percent(f->targets, f->targets + f->masked));
    }
}

void bd_report_passed_over(FILE *out, const bd_passed_over *passed)
{
    if (passed->n > 0)
        fprintf(out, "%-28s%10s%12s  %s\n", "Passed over", "files", "size", "the first");
    for (size_t i = 0; i < passed->n; i++) {
        const bd_passed_kind *kind = &passed->items[i];
        fputs("  ", out);
        const int n_columns = bd_print_name(out, kind->reason, NAME_WIDTH);
        const int n = fprintf(out, "%*s%10s%12s  ", NAME_WIDTH + 1 - n_columns, "",
                              bd_format_exact(kind->n_files).text,
                              bd_format_bytes((uint64_t)kind->size_bytes).text);
        bd_print_name(out, kind->first, bd_report_room(2 + n_columns + n));
        fputc('\n', out);
    }
}

// The last two names of a path tell enough: gpt2/tokenizer.json.
static const char *end_of_path(const char *path)
{
    const char *at = path + strlen(path);
    int n_slashes = 0;
    while (at > path && n_slashes < 2) {
        at--;
        n_slashes += *at == '/' && at[1] != '\0';
    }
    return n_slashes == 2 ? at + 1 : path;
}

static void print_tokenizer(FILE *out, const bd_dataset_config *config, const char *file,
                            int column)
{
    const bd_formatted known = bd_dataset_tokenizer(config);
    const char *name = file ? end_of_path(file) : known.text;
    char ids[48] = "";
    if (file)
        snprintf(ids, sizeof ids, ", %s ids", bd_format_exact(config->vocab_size).text);
    const int others = (int)(strlen("tokenizer ") + strlen(ids));
    const bool fits = column + 1 + others + bd_text_columns(name) <= BD_REPORT_WIDTH;
    fputs(fits ? " tokenizer " : "\ntokenizer ", out);
    bd_print_name(out, name, bd_report_room(others));
    fprintf(out, "%s\n\n", ids);
}

void bd_report_tokens(FILE *out, const bd_manifest *manifest, const char *tokenizer_file)
{
    const bd_figures *f = &manifest->totals;
    const int64_t cells = f->packed + f->padding;
    const int column = fprintf(out, "%s row%s of %" PRId64 " tokens in %zu shard%s, %s,",
                               bd_format_exact(f->rows).text, f->rows == 1 ? "" : "s",
                               manifest->config.seq_len, manifest->n_shards,
                               manifest->n_shards == 1 ? "" : "s",
                               bd_strategy_names[manifest->config.strategy]);
    print_tokenizer(out, &manifest->config, tokenizer_file, column);
    fprintf(out, "Tokens in                        Tokens out\n");
    print_pair(out, "text", f->text, "packed", f->packed);
    print_pair(out, "bos", f->bos, "truncated", f->truncated);
    print_pair(out, "separators", f->separators, "dropped", f->dropped);
    if (f->too_short > 0)
        print_pair(out, "repeated", f->repeated, "too short", f->too_short);
    else
        fprintf(out, "  %-11s%*s\n", "repeated", NUMBER_WIDTH,
                bd_format_exact(f->repeated).text);
    print_right(out, "held out", f->held_out);
    print_right(out, "untrained", f->untrained);
    print_pair(out, "sum", f->text + f->bos + f->separators + f->repeated, "sum",
               f->packed + f->truncated + f->dropped + f->too_short + f->held_out +
                   f->untrained);
    fprintf(out, "\n  padding    %*s    %.4f %% of the rows\n", NUMBER_WIDTH,
            bd_format_exact(f->padding).text, percent(f->padding, cells));
    fprintf(out, "  targets    %*s    %.4f %% of the rows\n", NUMBER_WIDTH,
            bd_format_exact(f->targets).text, percent(f->targets, cells));
    if (manifest->config.loss_mask)
        fprintf(out, "  masked     %*s    %.4f %% of the rows\n", NUMBER_WIDTH,
                bd_format_exact(f->masked).text, percent(f->masked, cells));
}

// Prints which kinds of bad records there are, and their share: people look for this when a corpus
// is not as it should be.
void bd_report_bad_records(FILE *out, const bd_figures *figures)
{
    bd_figures f = *figures;
    const int64_t n = bd_figures_bad_records(&f);
    if (n == 0)
        return;
    fprintf(out, "  bad records%*s    %.4f %% of the records, left out:\n", NUMBER_WIDTH,
            bd_format_exact(n).text, percent(n, n + bd_figures_documents_read(&f)));
    for (int kind = BD_BAD_NONE + 1; bd_bad_kind_names[kind]; kind++) {
        const int64_t of_kind = *bd_figures_bad(&f, (bd_bad_kind)kind);
        if (of_kind > 0)
            fprintf(out, "  %-11s%*s    %s\n", "", NUMBER_WIDTH, bd_format_exact(of_kind).text,
                    bd_bad_kind_names[kind]);
    }
}

static void print_added_token(FILE *out, int64_t count, uint32_t id,
                              const bd_tokenizer *tokenizer)
{
    size_t n = 0;
    const char *bytes = tokenizer ? bd_token_name(tokenizer, id, &n) : NULL;
    char *name = bytes ? strndup(bytes, n) : NULL;
    const int n_columns =
        fprintf(out, "  %*s    %u", NUMBER_WIDTH + 11, bd_format_exact(count).text, id);
    if (name) {
        fputs("  \"", out);
        bd_print_name(out, name, bd_report_room(n_columns + (int)strlen("  \"\"")));
        fputc('"', out);
    }
    fputc('\n', out);
    free(name);
}

void bd_report_added_tokens(FILE *out, const bd_added_counts *added,
                            const bd_tokenizer *tokenizer)
{
    bd_added_counts left = *added;
    if (left.n == 0)
        return;
    fputs("\nAdded tokens in the text\n", out);
    for (int32_t k = 0; k < left.n; k++) {
        int32_t most = 0;
        for (int32_t i = 1; i < left.n; i++)
            if (left.counts[i] > left.counts[most])
                most = i;
        print_added_token(out, left.counts[most], left.ids[most], tokenizer);
        left.counts[most] = 0;
    }
    if (left.other > 0)
        fprintf(out, "  %*s    others\n", NUMBER_WIDTH + 11, bd_format_exact(left.other).text);
}

static void report_added_tokens(FILE *out, const char *folder, const bd_manifest *manifest)
{
    const bd_tokenizer *tokenizer = NULL;
    if (manifest->totals.added.n > 0)
        bd_stored_tokenizer_open(&tokenizer, folder, &manifest->config, NULL);
    bd_report_added_tokens(out, &manifest->totals.added, tokenizer);
    bd_tokenizer_close(tokenizer);
}

bd_status bd_report_ledger(FILE *out, const char *folder, const bd_manifest *manifest,
                           bd_error *err)
{
    bd_source_figures *sources;
    size_t n;
    BD_TRY(bd_manifest_sources(manifest, &sources, &n, err));
    char *tokenizer_file = bd_pack_log_tokenizer(folder);
    bd_report_tokens(out, manifest, tokenizer_file);
    free(tokenizer_file);
    bd_report_bad_records(out, &manifest->totals);
    bd_report_sources(out, sources, n, manifest->totals.packed);
    if (manifest->config.loss_mask)
        bd_report_trained(out, sources, n);
    report_added_tokens(out, folder, manifest);
    free(sources);
    return BD_OK;
}
