#include "packer/inspect/report_difference.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "packer/pack/ledger_report.h"

static void print_title(FILE *out, bd_text_style style, const char *title, const char *verdict)
{
    bd_print_title(out, style, title);
    fprintf(out, "%s\n", verdict);
}

static void print_path(FILE *out, const char *label, const char *path)
{
    fprintf(out, "%s  ", label);
    bd_print_safely(out, path, strlen(path), false);
    fputc('\n', out);
}

// ---- Packing -------------------------------------------------------------------------------

static bd_status print_member(FILE *out, const char *key, const bd_json *a, const bd_json *b,
                              bd_error *err)
{
    char *text[2] = {NULL, NULL};
    bd_status status = bd_json_print(a, BD_JSON_COMPACT, &text[0], err);
    if (status == BD_OK)
        status = bd_json_print(b, BD_JSON_COMPACT, &text[1], err);
    if (status == BD_OK && strcmp(text[0], text[1]) != 0)
        fprintf(out, "  %-22s%s, then %s\n", key, text[0], text[1]);
    free(text[0]);
    free(text[1]);
    return status;
}

// Both have the same keys in the same order: they were made by the same function.
static bd_status print_config(FILE *out, const bd_dataset_config *a, const bd_dataset_config *b,
                              bd_error *err)
{
    bd_json *left = bd_dataset_config_to_json(a), *right = bd_dataset_config_to_json(b);
    bd_status status = BD_OK;
    bd_json_member m = bd_json_first(left), n = bd_json_first(right);
    while (status == BD_OK && m.key && n.key) {
        status = print_member(out, m.key, m.value, n.value, err);
        m = bd_json_next(left, m);
        n = bd_json_next(right, n);
    }
    bd_json_free(left);
    bd_json_free(right);
    return status;
}

// ---- Figures -------------------------------------------------------------------------------

static int64_t figure(const bd_figures *figures, size_t i)
{
    int64_t value;
    memcpy(&value, (const char *)figures + bd_figure_fields[i].offset, sizeof value);
    return value;
}

static void print_figures(FILE *out, const bd_figures *a, const bd_figures *b)
{
    fprintf(out, "  %-24s%17s%17s%12s%8s\n", "", "A", "B", "difference", "");
    for (size_t i = 0; i < bd_n_figure_fields; i++) {
        const int64_t left = figure(a, i), right = figure(b, i);
        if (left == 0 && right == 0)
            continue;
        fprintf(out, "  %-24s%17s%17s", bd_figure_fields[i].name, bd_format_exact(left).text,
                bd_format_exact(right).text);
        if (left != right) {
            const int64_t by = right > left ? right - left : left - right;
            char difference[40];
            snprintf(difference, sizeof difference, "%c%s", right > left ? '+' : '-',
                     bd_format_count((uint64_t)by).text);
            fprintf(out, "%12s", difference);
        }
        if (left != right && left > 0)
            fprintf(out, "%+7.1f%%", 100.0 * (double)(right - left) / (double)left);
        fputc('\n', out);
    }
}

// ---- Documents -----------------------------------------------------------------------------

static void print_count_line(FILE *out, const char *label, int64_t n)
{
    fprintf(out, "  %-24s%17s\n", label, bd_format_exact(n).text);
}

static void print_shared_documents(FILE *out, const bd_difference *d)
{
    if (d->counted) {
        print_count_line(out, "the same in both", d->documents_in_both);
        print_count_line(out, "with other tokens", d->documents_changed);
        print_count_line(out, "only in A", d->documents_only[0]);
        print_count_line(out, "only in B", d->documents_only[1]);
    } else if (!d->documents_are_same) {
        fputs("  too many to tell which: see --memory\n", out);
    }
    if (d->files_are_same)
        fputs("  the checksums of all shards are the same: no row was read\n", out);
}

static const char *verdict(bool same)
{
    return same ? ": the same" : ": different";
}

bd_status bd_report_difference(FILE *out, const bd_difference *difference,
                               const bd_inspection *a, const bd_inspection *b,
                               bd_text_style style, bd_error *err)
{
    const bd_difference *d = difference;
    print_path(out, "A", a->path);
    print_path(out, "B", b->path);
    fputc('\n', out);
    print_title(out, style, "Packing", verdict(d->config_is_same));
    BD_TRY(print_config(out, &a->manifest.config, &b->manifest.config, err));
    print_title(out, style, "Inputs",
                verdict(d->inputs_only[0] == 0 && d->inputs_only[1] == 0));
    print_count_line(out, "in both, by name", d->inputs_in_both);
    print_count_line(out, "only in A", d->inputs_only[0]);
    print_count_line(out, "only in B", d->inputs_only[1]);
    print_title(out, style, "Figures", verdict(d->figures_are_same));
    print_figures(out, &a->manifest.totals, &b->manifest.totals);
    print_title(out, style, "Documents and their tokens", verdict(d->documents_are_same));
    print_shared_documents(out, d);
    fprintf(out, "\nThe datasets are %s\n",
            bd_difference_is_none(d) ? "the same" : "different");
    return BD_OK;
}
