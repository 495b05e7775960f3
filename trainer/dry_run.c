#include "trainer/dry_run.h"

#include <inttypes.h>

#include "common/base/clock.h"
#include "common/cli/human.h"
#include "trainer/setup.h"

// ---- The time -----------------------------------------------------------------------------

// The floating-point operations of one step, from the manifests' counts. Layers with a window
// count as if they had none.
static double step_flop(const bd_setup *s)
{
    double n_used = 0, n_pairs = 0, n_rows = 0;
    for (size_t i = 0; i < s->sources.n; i++) {
        const bd_figures *figures = &s->rows.manifests[i].totals;
        n_rows += (double)figures->rows;
        n_used += (double)figures->packed;
        n_pairs += (double)figures->attention_pairs;
    }
    const double share = n_rows > 0 ? (double)s->hyperparameters.batch_rows / n_rows : 0;
    const int64_t pairs = (int64_t)(share * n_pairs);
    const bd_step_work work = {(int64_t)(share * n_used), pairs, pairs};
    return bd_model_flop(&s->run.parameters.config, &work);
}

// Floating-point operations a second of the model's widest linear layer on this backend, which
// nearly all of a step's are like.
static bd_status measure_speed(const bd_setup *s, double *flop_per_second, bd_error *err)
{
    enum { N_TOKENS = 1024, LEAST_NS = 300000000 };
    const bd_model_config *c = &s->run.parameters.config;
    const bd_type type = s->hyperparameters.type;
    const int64_t n_in = c->n_channels, n_out = bd_expanded_width(c);
    const int32_t offsets[] = {0, 2}, values[] = {0, N_TOKENS};
    bd_backend *backend = s->backend;
    const bd_operations *o = backend->operations;
    enum { X, WEIGHT, OUT, OFFSETS, VALUES, N_BLOCKS };
    const size_t bytes[N_BLOCKS] = {
        [X] = (size_t)(N_TOKENS * n_in) * bd_type_bytes(type),
        [WEIGHT] = (size_t)(n_in * n_out) * bd_type_bytes(type),
        [OUT] = (size_t)(N_TOKENS * n_out) * bd_type_bytes(type),
        [OFFSETS] = sizeof offsets,
        [VALUES] = sizeof values,
    };
    void *blocks[N_BLOCKS] = {NULL};
    bd_status status = BD_OK;
    for (int i = 0; status == BD_OK && i < N_BLOCKS; i++)
        status = o->allocate(backend, bytes[i], &blocks[i], err);
    if (status == BD_OK)
        status = o->upload(backend, blocks[OFFSETS], offsets, sizeof offsets, err);
    if (status == BD_OK)
        status = o->upload(backend, blocks[VALUES], values, sizeof values, err);
    const bd_linear_forward_args args = {
        .boundaries = {1, N_TOKENS, blocks[OFFSETS], blocks[VALUES]},
        .type = type,
        .n_in = n_in,
        .n_out = n_out,
        .layout = c->family->layout,
        .x = blocks[X],
        .weight = blocks[WEIGHT],
        .out = blocks[OUT],
    };
    int64_t began = 0, time_ns = 0, n_calls = 0;
    // The first call is not timed: it may load code, or measure by itself.
    for (int64_t i = 0; status == BD_OK && time_ns < LEAST_NS; i++) {
        uint16_t last;
        status = o->linear_forward(backend, &args, err);
        if (status == BD_OK)  // waits for the call
            status = o->download(backend, &last, blocks[OUT], sizeof last, err);
        if (i == 0)
            began = bd_now_ns();
        time_ns = bd_now_ns() - began;
        n_calls = i;
    }
    for (int i = 0; i < N_BLOCKS; i++)
        o->release(backend, blocks[i]);
    *flop_per_second = 2e9 * (double)(N_TOKENS * n_in * n_out) * (double)n_calls /
                       (double)(time_ns > 0 ? time_ns : 1);
    return status;
}

// ---- Printing -----------------------------------------------------------------------------

// Amounts that no integer holds are shown as the largest.
static bd_formatted format_amount(double amount)
{
    return bd_format_count(amount < 0x1p63 ? (uint64_t)amount : UINT64_C(1) << 63);
}

static bd_formatted format_seconds(double seconds)
{
    return bd_format_duration(seconds < 9e9 ? (int64_t)(1e9 * seconds) : INT64_MAX);
}

static void print_model(FILE *out, const bd_setup *s)
{
    const bd_model_config *c = &s->run.parameters.config;
    fprintf(out, "model       %s with %s parameters in %s on %s\n", c->family->name,
            bd_format_exact(s->run.parameters.n_total).text,
            bd_precision_names[s->hyperparameters.type], s->backend->operations->name);
    fprintf(out,
            "            %" PRId64 " layers of %" PRId64 " channels, %" PRId64
            " heads of %" PRId64 " (%" PRId64 " of keys), %" PRId64
            " feed-forward channels, %" PRId64 " ids\n",
            c->n_layers, c->n_channels, c->n_heads, c->head_size, c->n_kv_heads,
            c->n_feed_forward, c->n_vocabulary);
}

static void print_run(FILE *out, const bd_setup *s)
{
    const bd_hyperparameters *h = &s->hyperparameters;
    const int64_t seq_len = bd_rows_config(&s->rows)->seq_len;
    const double per_step = (double)(h->batch_rows * seq_len);
    fprintf(out,
            "run         %s steps of %" PRId64 " rows of %" PRId64 " tokens: %s tokens a step, "
            "%s in all, %.3g passes over the data\n",
            bd_format_exact(h->n_steps).text, h->batch_rows, seq_len,
            bd_format_exact(h->batch_rows * seq_len).text,
            format_amount(per_step * (double)h->n_steps).text,
            (double)h->n_steps * (double)h->batch_rows / (double)bd_rows_count(&s->rows));
}

static void print_memory(FILE *out, const bd_setup *s, const bd_training_size *size,
                         size_t free_bytes)
{
    const char *title = s->group->n_ranks > 1 ? "a rank" : "memory";
    for (int kind = 0; kind < BD_N_MEMORY_KINDS; kind++) {
        fprintf(out, "%-12s%-12s %10s", kind == 0 ? title : "", bd_memory_kind_names[kind],
                bd_format_bytes(size->memory.of[kind]).text);
        if (kind == BD_MEMORY_ACTIVATIONS)
            fprintf(out, "  of %" PRId64 " rows at a time", size->model.max_rows);
        if (kind == BD_MEMORY_LOGITS)
            fputs("  of one row at a time", out);
        fputc('\n', out);
        if (kind == BD_MEMORY_GRADIENTS)
            fprintf(out, "%-12s%-12s %10s\n", "", "optimizer",
                    bd_format_bytes(size->optimizer_bytes).text);
    }
    fprintf(out, "%-12s%-12s %10s", "", "in all", bd_format_bytes(size->total_bytes).text);
    if (free_bytes != SIZE_MAX)
        fprintf(out, ", %s are free", bd_format_bytes(free_bytes).text);
    fputc('\n', out);
}

// Measures the run as it would be with other options, and says what it takes then.
static bd_status suggest(FILE *out, const bd_setup *s, const bd_hyperparameters *other,
                         const char *options, size_t free_bytes, bd_error *err)
{
    bd_training_size size;
    BD_TRY(bd_training_measure(&size, other, &s->run.parameters,
                               bd_rows_config(&s->rows)->seq_len, s->group, err));
    fprintf(out, "            %s takes %s%s\n", options, bd_format_bytes(size.total_bytes).text,
            size.total_bytes <= free_bytes ? ", which fits" : "");
    return BD_OK;
}

static bd_status print_remedies(FILE *out, const bd_setup *s, size_t free_bytes, bd_error *err)
{
    bd_hyperparameters other = s->hyperparameters;
    fputs("\nIt does not fit. What would help:\n", out);
    other.recomputes = true;
    if (!s->hyperparameters.recomputes)
        BD_TRY(suggest(out, s, &other, "--recompute", free_bytes, err));
    other.micro_batch_rows = 1;
    if (s->hyperparameters.micro_batch_rows > 1)
        BD_TRY(suggest(out, s, &other, "--recompute --micro-batch 1", free_bytes, err));
    fputs("            shorter rows (bindery repack --seq-len), a smaller --preset, or more "
          "ranks (mpirun), which\n            share the optimizer's part\n",
          out);
    return BD_OK;
}

static bd_status print_time(FILE *out, const bd_setup *s, bd_error *err)
{
    const double flop = step_flop(s);
    const double n_steps = (double)(s->hyperparameters.n_steps - s->begin_step);
    const double peak = 1e12 * s->options->peak_tflops;
    double speed;
    BD_TRY(measure_speed(s, &speed, err));
    speed *= s->group->n_ranks;
    fprintf(out, "work        %sFLOP a step, without padding\n", format_amount(flop).text);
    fprintf(out, "time        about %s at %sFLOP/s, the speed of its matrix products here\n",
            format_seconds(n_steps * flop / speed).text, format_amount(speed).text);
    if (peak > 0)
        fprintf(out, "            %s at 40 %% of --peak-tflops\n",
                format_seconds(n_steps * flop / (0.4 * peak)).text);
    return BD_OK;
}

static bd_status report(FILE *out, const bd_setup *s, bool *fits, bd_error *err)
{
    bd_training_size size;
    size_t free_bytes;
    BD_TRY(bd_training_measure(&size, &s->hyperparameters, &s->run.parameters,
                               bd_rows_config(&s->rows)->seq_len, s->group, err));
    BD_TRY(s->backend->operations->free_memory(s->backend, &free_bytes, err));
    *fits = size.total_bytes <= free_bytes;
    if (!bd_setup_is_first(s))
        return BD_OK;
    print_model(out, s);
    print_run(out, s);
    print_memory(out, s, &size, free_bytes);
    return *fits ? print_time(out, s, err) : print_remedies(out, s, free_bytes, err);
}

bd_status bd_train_dry_run(FILE *out, const bd_train_options *options, bd_group *group,
                           bool *fits, bd_error *err)
{
    bd_setup s;
    bd_status status = bd_setup_describe(&s, options, group, err);
    if (status == BD_OK)
        status = report(out, &s, fits, err);
    status = bd_group_agree(group, status, err);
    bd_setup_close(&s);
    return status;
}
