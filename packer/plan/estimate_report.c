#include "packer/plan/estimate_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/cli/human.h"

static const char bold[] = "\x1b[1m", no_color[] = "\x1b[0m";

// ---- From what was laid out to all there is ------------------------------------------------

// The figures of one way to pack.
typedef struct prediction {
    const bd_estimate *estimate;
    bd_figures figures;
    int64_t time_ns, disk_bytes;
    double padding_share, cut_share, attention_saved;  // 0 to 1
} prediction;

static int64_t scaled(int64_t n, double factor)
{
    const double product = (double)n * factor;
    return factor == 1 ? n : product < 9e18 ? llround(product) : INT64_MAX;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static bd_figures scale_figures(const bd_figures *f, double factor)
{
    return (bd_figures){
        .rows = scaled(f->rows, factor),
        .segments = scaled(f->segments, factor),
        .documents = scaled(f->documents, factor),
        .packed = scaled(f->packed, factor),
        .padding = scaled(f->padding, factor),
        .repeated = scaled(f->repeated, factor),
        .truncated = scaled(f->truncated, factor),
        .dropped = scaled(f->dropped, factor),
        .split_documents = scaled(f->split_documents, factor),
        .truncated_documents = scaled(f->truncated_documents, factor),
        .dropped_documents = scaled(f->dropped_documents, factor),
        .attention_pairs = scaled(f->attention_pairs, factor),
    };
}

static prediction predict(const bd_forecast *forecast, size_t index)
{
    const bd_estimate *estimate = &forecast->estimates->items[index];
    const bd_figures *f = &estimate->figures;
    const int64_t work_ns = forecast->read_time_ns + estimate->time_ns;
    const int64_t n_busy =
        forecast->n_units < forecast->n_threads ? forecast->n_units : forecast->n_threads;
    prediction p = {
        .estimate = estimate,
        .figures = scale_figures(f, forecast->factor),
        .time_ns = scaled(work_ns, forecast->factor) / (n_busy > 0 ? n_busy : 1),
        .padding_share = share((double)f->padding, (double)(f->padding + f->packed)),
        .cut_share = bd_estimate_cut_share(estimate),
        .attention_saved = f->rows > 0 ? 1 - share((double)f->attention_pairs,
                                                   bd_estimate_causal_pairs(estimate))
                                       : 0,
    };
    p.disk_bytes = bd_estimate_disk_bytes(&estimate->config, &p.figures, forecast->n_units);
    return p;
}

// One sentence, without a full stop.
static void print_reason(const prediction *p, char *text, size_t size)
{
    static const char *const cut[] = {[BD_LONG_SPLIT] = "split",
                                      [BD_LONG_TRUNCATE] = "truncated",
                                      [BD_LONG_DROP] = "dropped"};
    const bd_dataset_config *config = &p->estimate->config;
    const char *how = config->strategy == BD_STRATEGY_CONCAT
                          ? "makes more than 5 % fewer rows than the others"
                          : "makes the fewest rows among those that keep documents together";
    const char *length = p->cut_share <= 0.01
                             ? "the shortest rows here that keep 99 % of the documents whole"
                             : "the rows here that keep the most documents whole";
    snprintf(text, size, "%s (%.2f %% are %s); %s %s, %.2f %% padding", length,
             100 * p->cut_share, cut[config->long_policy], bd_strategy_names[config->strategy],
             how, 100 * p->padding_share);
}

enum { REASON_BYTES = 256 };

// ---- For people ----------------------------------------------------------------------------

// The tokens of all there is that are trained.
static int64_t all_targets(const bd_forecast *forecast)
{
    return llround((double)forecast->n_targets * forecast->factor);
}

static void print_basis(FILE *out, const bd_forecast *forecast)
{
    const bd_formatted documents = bd_format_exact(forecast->n_documents);
    if (forecast->is_dataset)
        fprintf(out, "From all %s documents of the dataset, shard by shard: exact\n",
                documents.text);
    else if (forecast->is_exact)
        fprintf(out, "From all %s documents of the inputs, unit by unit: exact\n",
                documents.text);
    else
        fprintf(out,
                "From a sample: %s documents, %s of about %s, read in %" PRId64 " places\n",
                documents.text, bd_format_bytes((uint64_t)forecast->read_bytes).text,
                bd_format_bytes((uint64_t)forecast->total_bytes).text, forecast->n_windows);
    if (forecast->n_targets >= 0)
        fprintf(out, "%s%s targets: the tokens that are trained, of documents kept whole\n",
                forecast->is_exact ? "" : "About ",
                bd_format_exact(all_targets(forecast)).text);
    if (forecast->n_left_out > 0)
        fprintf(out, "%s documents that were dropped when it was packed are not counted\n",
                bd_format_exact(forecast->n_left_out).text);
}

// A sentence over as many lines as it needs.
static void print_wrapped(FILE *out, const char *text)
{
    enum { WIDTH = 78 };
    int column = 0;
    while (*text) {
        int n = 0;
        while (text[n] && text[n] != ' ')
            n++;
        if (column > 0 && column + 1 + n > WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column > 0 ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

// The index of the recommended way; past the last one if none is recommended.
static size_t recommend(const bd_forecast *forecast)
{
    return forecast->most_tokens > 0
               ? bd_estimates_recommend(forecast->estimates, forecast->most_tokens)
               : forecast->estimates->n;
}

static void print_recommendation(FILE *out, const bd_forecast *forecast, size_t recommended)
{
    char reason[REASON_BYTES], sentence[REASON_BYTES + 64];
    if (recommended == forecast->estimates->n) {
        print_wrapped(out,
                      "Which rows suit depends on the model: say with --context N how many "
                      "positions it has (1k, 2k, ...), and one of these is recommended.");
        return;
    }
    const prediction p = predict(forecast, recommended);
    print_reason(&p, reason, sizeof reason);
    snprintf(sentence, sizeof sentence, "* --seq-len %" PRId64 " --strategy %s: %s.",
             p.estimate->config.seq_len, bd_strategy_names[p.estimate->config.strategy],
             reason);
    print_wrapped(out, sentence);
}

void bd_forecast_print(FILE *out, const bd_forecast *forecast, bool color)
{
    const size_t recommended = recommend(forecast);
    print_basis(out, forecast);
    fprintf(out, "\n%8s  %-9s%12s%9s%9s%10s%12s%9s\n", "seq_len", "strategy", "rows", "padding",
            "cut", "attention", "time", "disk");
    for (size_t i = 0; i < forecast->estimates->n; i++) {
        const prediction p = predict(forecast, i);
        const bool is_recommended = i == recommended;
        fprintf(out, "%s%c%7" PRId64 "  %-9s%12s%7.2f %%%7.2f %%%8.1f %%%12s%9s%s\n",
                color && is_recommended ? bold : "", is_recommended ? '*' : ' ',
                p.estimate->config.seq_len, bd_strategy_names[p.estimate->config.strategy],
                bd_format_exact(p.figures.rows).text, 100 * p.padding_share, 100 * p.cut_share,
                -100 * p.attention_saved, bd_format_duration(p.time_ns).text,
                bd_format_bytes((uint64_t)p.disk_bytes).text,
                color && is_recommended ? no_color : "");
    }
    fputc('\n', out);
    print_recommendation(out, forecast, recommended);
}

// ---- For scripts ---------------------------------------------------------------------------

static bd_json *prediction_to_json(const prediction *p)
{
    const bd_figures *f = &p->figures;
    const bd_dataset_config *config = &p->estimate->config;
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "seq_len", config->seq_len);
    bd_json_set_string(json, "strategy", bd_strategy_names[config->strategy]);
    bd_json_set_integer(json, "rows", f->rows);
    bd_json_set_integer(json, "segments", f->segments);
    bd_json_set_integer(json, "documents", f->documents);
    bd_json_set_integer(json, "packed", f->packed);
    bd_json_set_integer(json, "padding", f->padding);
    bd_json_set_integer(json, "repeated", f->repeated);
    bd_json_set_integer(json, "truncated", f->truncated);
    bd_json_set_integer(json, "dropped", f->dropped);
    bd_json_set_integer(json, "split_documents", f->split_documents);
    bd_json_set_integer(json, "truncated_documents", f->truncated_documents);
    bd_json_set_integer(json, "dropped_documents", f->dropped_documents);
    bd_json_set_integer(json, "attention_pairs", f->attention_pairs);
    bd_json_set_real(json, "padding_share", p->padding_share);
    bd_json_set_real(json, "cut_share", p->cut_share);
    bd_json_set_real(json, "attention_saved", p->attention_saved);
    bd_json_set_real(json, "seconds", (double)p->time_ns / 1e9);
    bd_json_set_integer(json, "disk_bytes", p->disk_bytes);
    return json;
}

static bd_json *sample_to_json(const bd_forecast *forecast)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "windows", forecast->n_windows);
    bd_json_set_integer(json, "documents", forecast->n_documents);
    bd_json_set_integer(json, "read_bytes", llround(forecast->read_bytes));
    bd_json_set_integer(json, "total_bytes", llround(forecast->total_bytes));
    return json;
}

static bd_json *advice_to_json(const bd_forecast *forecast, size_t recommended)
{
    char reason[REASON_BYTES];
    bd_json *advice = bd_json_object();
    const prediction p = predict(forecast, recommended);
    print_reason(&p, reason, sizeof reason);
    bd_json_set_integer(advice, "seq_len", p.estimate->config.seq_len);
    bd_json_set_string(advice, "strategy", bd_strategy_names[p.estimate->config.strategy]);
    bd_json_set_string(advice, "reason", reason);
    return advice;
}

bd_json *bd_forecast_to_json(const bd_forecast *forecast)
{
    const size_t recommended = recommend(forecast);
    const bd_dataset_config *config = &forecast->estimates->items[0].config;
    bd_json *json = bd_json_object(), *ways = bd_json_array();
    bd_json_set_string(json, "format", "1.1");
    bd_json_set_string(json, "of", forecast->is_dataset ? "dataset" : "inputs");
    bd_json_set_bool(json, "exact", forecast->is_exact);
    if (forecast->is_exact)
        bd_json_set_null(json, "sample");
    else
        bd_json_set(json, "sample", sample_to_json(forecast));
    bd_json_set_string(json, "long", bd_long_policy_names[config->long_policy]);
    if (config->max_documents > 0)
        bd_json_set_integer(json, "max_documents", config->max_documents);
    else
        bd_json_set_null(json, "max_documents");
    bd_json_set_integer(json, "units", forecast->n_units);
    bd_json_set_integer(json, "threads", forecast->n_threads);
    bd_json_set_integer(json, "left_out_documents", forecast->n_left_out);
    if (forecast->n_targets >= 0)
        bd_json_set_integer(json, "targets", all_targets(forecast));
    for (size_t i = 0; i < forecast->estimates->n; i++) {
        const prediction p = predict(forecast, i);
        bd_json_append(ways, prediction_to_json(&p));
    }
    bd_json_set(json, "estimates", ways);
    if (recommended < forecast->estimates->n)
        bd_json_set(json, "recommendation", advice_to_json(forecast, recommended));
    else
        bd_json_set_null(json, "recommendation");
    return json;
}
