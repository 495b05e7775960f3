#include "trainer/dry_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/cli/human.h"
#include "trainer/data/step_work.h"
#include "trainer/setup.h"
#include "trainer/weights/kept_state.h"

// ---- Work ---------------------------------------------------------------------------------

// The work of a step whose rows are the average ones of the datasets, in the shares in which
// they are mixed. Manifests do not know windows: layers with one count as if they had none.
static bd_step_work step_work(const bd_setup *s)
{
    double n_used = 0, n_pairs = 0, n_shares = 0;
    for (size_t i = 0; i < s->rows.n_datasets; i++) {
        const bd_figures *figures = &s->rows.manifests[i].totals;
        const double share = (double)s->rows.shares[i];
        n_shares += share;
        n_used += share * (double)figures->packed / (double)figures->rows;
        n_pairs += share * (double)figures->attention_pairs / (double)figures->rows;
    }
    const double n_rows = (double)s->hyperparameters.batch_rows / n_shares;
    const int64_t pairs = (int64_t)(n_rows * n_pairs);
    return (bd_step_work){(int64_t)(n_rows * n_used), pairs, pairs};
}

// FLOP of Muon's iterations on the matrices of a slice. The two symmetric products of each count
// half.
static double muon_flop(const bd_setup *s, bd_rank_slice slice)
{
    const bd_parameters *parameters = &s->run.parameters;
    double flop = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *matrix = &parameters->items[i];
        if (matrix->offset < slice.begin || matrix->offset >= slice.end ||
            !bd_moved_by_muon(s->hyperparameters.optimizer, matrix))
            continue;
        const double a = (double)matrix->shape[0], b = (double)matrix->shape[1];
        const double narrow = a < b ? a : b, wide = a < b ? b : a;
        flop += BD_MUON_ITERATIONS * narrow * narrow * (3 * wide + narrow);
    }
    return flop;
}

// What a step computes that is no part of the model's mathematics, and so not of MFU: layers that
// are computed again, and Muon, for which all ranks wait until the one with the most is done.
static bd_status count_more_flop(const bd_setup *s, const bd_step_work *work, double *flop,
                                 bd_error *err)
{
    const bd_hyperparameters *h = &s->hyperparameters;
    const int32_t n_ranks = s->group->n_ranks;
    bd_model_config layers = s->run.parameters.config;
    layers.n_vocabulary = 0;  // the head is not computed again
    *flop = h->recomputes ? bd_model_flop(&layers, work) / 3 : 0;
    int64_t *bounds = calloc((size_t)n_ranks + 1, sizeof *bounds);
    if (!bounds)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the slices of %d ranks",
                       (int)n_ranks);
    bd_optimizer_divide(h->optimizer, &s->run.parameters, n_ranks, bounds);
    double most = 0;
    for (int32_t r = 0; r < n_ranks; r++)
        most = fmax(most, muon_flop(s, bd_rank_slice_of(bounds, r)));
    *flop += most * n_ranks;
    free(bounds);
    return BD_OK;
}

// ---- Speed --------------------------------------------------------------------------------

// The speed in FLOP/s of the model's widest linear layer on this backend, or of a part of it that
// takes little memory. Nearly all of a step's operations are of this kind. 0 if even that takes
// more than half of `free_bytes`.
static bd_status measure_speed(const bd_setup *s, size_t free_bytes, double *flop_per_second,
                               bd_error *err)
{
    enum { N_TOKENS = 1024, LEAST_NS = 300000000, MOST_WEIGHTS = 1 << 26, MOST_OUT = 1 << 16 };
    const bd_model_config *c = &s->run.parameters.config;
    const bd_type type = s->hyperparameters.type;
    const int64_t n_in = c->n_channels;
    const int64_t most_out = MOST_WEIGHTS / n_in < MOST_OUT ? MOST_WEIGHTS / n_in : MOST_OUT;
    const int64_t n_out = bd_expanded_width(c) < most_out ? bd_expanded_width(c) : most_out;
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
    *flop_per_second = 0;
    if (bytes[X] + bytes[WEIGHT] + bytes[OUT] > free_bytes / 2)
        return BD_OK;
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

// ---- The ranks ----------------------------------------------------------------------------

// What a rank tells the others.
typedef struct rank_place {
    char host[256];
    uint64_t free_bytes;  // of its backend's memory
    double flop_per_second;
} rank_place;

// Ranks of one machine share its memory; a device is taken to belong to one rank.
static bool share_memory(const bd_setup *s, const rank_place *places, int32_t a, int32_t b)
{
    return a == b || (s->backend->operations->works_on_host &&
                      strcmp(places[a].host, places[b].host) == 0);
}

// Fills places [n_ranks] with what each rank has in *mine.
static bd_status collect_places(bd_group *group, const rank_place *mine, rank_place *places,
                                bd_error *err)
{
    if (group->n_ranks > 1)
        return group->operations->collect(group, mine, sizeof *mine, places, err);
    *places = *mine;
    return BD_OK;
}

// All ranks measure their speed at the same time, as they will compute.
static bd_status ask_ranks(const bd_setup *s, rank_place *places, bd_error *err)
{
    bd_group *group = s->group;
    rank_place mine = {.host = ""};
    size_t free_bytes = 0, n_sharing = 0;
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        mine.host[0] = '\0';  // such ranks count as on one machine
    bd_status status = s->backend->operations->free_memory(s->backend, &free_bytes, err);
    BD_TRY(bd_group_agree(group, status, err));
    mine.free_bytes = free_bytes;
    // Nobody takes memory before all have asked how much is free.
    BD_TRY(collect_places(group, &mine, places, err));
    for (int32_t r = 0; r < group->n_ranks; r++)
        n_sharing += share_memory(s, places, group->rank, r);
    status = measure_speed(s, free_bytes / n_sharing, &mine.flop_per_second, err);
    BD_TRY(bd_group_agree(group, status, err));
    return collect_places(group, &mine, places, err);
}

// The memory that comes closest to its limit, or exceeds it by the most: that of a machine whose
// ranks share it, or of one rank's device.
typedef struct tightest {
    int32_t rank;      // that takes the most of it
    bd_run_size size;  // of that rank
    int32_t n_ranks;   // that share the memory
    size_t needed, free_bytes;
} tightest;

static double left_over(const tightest *memory)
{
    return (double)memory->free_bytes - (double)memory->needed;
}

static bd_status find_tightest(const bd_setup *s, const bd_hyperparameters *h,
                               const rank_place *places, tightest *found, bd_error *err)
{
    const int32_t n_ranks = s->group->n_ranks;
    bd_run_size *sizes = calloc((size_t)n_ranks, sizeof *sizes);
    bd_status status = sizes ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the ranks");
    for (int32_t r = 0; r < n_ranks && status == BD_OK; r++)
        status = bd_setup_measure(s, h, r, &sizes[r], err);
    for (int32_t r = 0; r < n_ranks && status == BD_OK; r++) {
        tightest here = {.rank = r, .size = sizes[r], .free_bytes = SIZE_MAX};
        for (int32_t other = 0; other < n_ranks; other++) {
            if (!share_memory(s, places, r, other))
                continue;
            if (!bd_size_add(here.needed, sizes[other].total, &here.needed))
                here.needed = SIZE_MAX;
            if (places[other].free_bytes < here.free_bytes)
                here.free_bytes = places[other].free_bytes;
            here.n_ranks++;
        }
        const double more = r == 0 ? 0 : left_over(&here) - left_over(found);
        if (r == 0 || more < 0 || (more == 0 && here.size.total > found->size.total))
            *found = here;
    }
    free(sizes);
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

static void print_amount(FILE *out, const char *title, const char *kind, size_t size_bytes,
                         const char *note)
{
    fprintf(out, "%-12s%-12s %10s%s%s\n", title, kind, bd_format_bytes(size_bytes).text,
            note[0] ? "  " : "", note);
}

static void print_memory(FILE *out, const bd_setup *s, const tightest *memory)
{
    const bd_run_size *size = &memory->size;
    const bool on_host = s->backend->operations->works_on_host;
    char title[16] = "memory", rows[64];
    if (s->group->n_ranks > 1)
        snprintf(title, sizeof title, "rank %d", (int)memory->rank);
    snprintf(rows, sizeof rows, "of %" PRId64 " rows at a time", size->training.model.max_rows);
    for (int kind = 0; kind < BD_N_MEMORY_KINDS; kind++) {
        print_amount(out, kind == 0 ? title : "", bd_memory_kind_names[kind],
                     size->training.memory.of[kind],
                     kind == BD_MEMORY_ACTIVATIONS ? rows
                     : kind == BD_MEMORY_LOGITS    ? "of one row at a time"
                                                   : "");
        if (kind == BD_MEMORY_GRADIENTS)
            print_amount(out, "", "optimizer", size->training.optimizer_bytes, "");
    }
    if (size->scratch > 0)
        print_amount(out, "", "scratch", size->scratch, "of the device, about");
    if (size->samples > 0)
        print_amount(out, "", "samples", size->samples, "at most, of --sample-every");
    if (size->copies > 0 && on_host)
        print_amount(out, "", "checkpoint", size->copies, "copied while it is written");
    fprintf(out, "%-12s%-12s %10s", "", "in all", bd_format_bytes(size->total).text);
    if (memory->n_ranks > 1)
        fprintf(out, "; the %d ranks on its machine take %s", (int)memory->n_ranks,
                bd_format_bytes(memory->needed).text);
    if (memory->free_bytes != SIZE_MAX)
        fprintf(out, ", %s are free", bd_format_bytes(memory->free_bytes).text);
    fputc('\n', out);
    if (size->copies > 0 && !on_host)
        print_amount(out, "", "checkpoint", size->copies, "of the host's memory");
}

// Measures the run as it would be with other options, and says what it takes then.
static bd_status suggest(FILE *out, const bd_setup *s, const bd_hyperparameters *other,
                         const char *options, const rank_place *places, bd_error *err)
{
    tightest memory;
    BD_TRY(find_tightest(s, other, places, &memory, err));
    fprintf(out, "            %s takes %s%s\n", options, bd_format_bytes(memory.needed).text,
            memory.needed <= memory.free_bytes ? ", which fits" : "");
    return BD_OK;
}

static bd_status print_remedies(FILE *out, const bd_setup *s, const rank_place *places,
                                bd_error *err)
{
    const bool recomputes = s->hyperparameters.recomputes;
    bd_hyperparameters other = s->hyperparameters;
    fputs("\nIt does not fit. What would help:\n", out);
    other.recomputes = true;
    if (!recomputes)
        BD_TRY(suggest(out, s, &other, "--recompute", places, err));
    other.micro_batch_rows = 1;
    if (s->hyperparameters.micro_batch_rows > 1)
        BD_TRY(suggest(out, s, &other,
                       recomputes ? "--micro-batch 1" : "--recompute --micro-batch 1", places,
                       err));
    fputs(
        "            shorter rows (bindery repack --seq-len), a smaller --preset, or ranks on "
        "more machines or\n            devices (mpirun), which share the optimizer's part\n",
        out);
    return BD_OK;
}

static bd_status print_time(FILE *out, const bd_setup *s, const rank_place *places,
                            bd_error *err)
{
    const bd_step_work work = step_work(s);
    const bd_model_config *config = &s->run.parameters.config;
    const double flop = bd_model_flop(config, &work);
    const double n_steps = (double)(s->hyperparameters.n_steps - s->begin_step);
    const double peak = 1e12 * s->options->peak_tflops;
    const char *bound = config->window > 0 ? "at most " : "";
    const bool by_muon = s->hyperparameters.optimizer == BD_OPTIMIZER_MUON;
    double more, speed = 0;
    bool all_measured = true;
    BD_TRY(count_more_flop(s, &work, &more, err));
    for (int32_t r = 0; r < s->group->n_ranks; r++) {
        speed += places[r].flop_per_second;
        all_measured = all_measured && places[r].flop_per_second > 0;
    }
    fprintf(out, "work        %s%sFLOP a step, without padding", bound,
            format_amount(flop).text);
    if (more > 0)
        fprintf(out, "; %sFLOP more %s", format_amount(more).text,
                !by_muon                        ? "to recompute layers"
                : s->hyperparameters.recomputes ? "to recompute layers and for Muon"
                                                : "for Muon");
    fputc('\n', out);
    if (all_measured)
        fprintf(out,
                "time        %sabout %s at %sFLOP/s, the speed of its matrix products here\n",
                bound, format_seconds(n_steps * (flop + more) / speed).text,
                format_amount(speed).text);
    if (peak > 0)
        fprintf(out, "%-12s%s%s at 40 %% of --peak-tflops\n", all_measured ? "" : "time", bound,
                format_seconds(n_steps * (flop + more) / (0.4 * peak)).text);
    return BD_OK;
}

// Every rank finds the same answer in *fits; rank 0 prints it.
static bd_status report(FILE *out, const bd_setup *s, const rank_place *places, bool *fits,
                        bd_error *err)
{
    tightest memory;
    BD_TRY(find_tightest(s, &s->hyperparameters, places, &memory, err));
    *fits = memory.needed <= memory.free_bytes;
    if (!bd_setup_is_first(s))
        return BD_OK;
    print_model(out, s);
    print_run(out, s);
    print_memory(out, s, &memory);
    BD_TRY(print_time(out, s, places, err));
    return *fits ? BD_OK : print_remedies(out, s, places, err);
}

bd_status bd_train_dry_run(FILE *out, const bd_train_options *options, bd_group *group,
                           bool *fits, bd_error *err)
{
    bd_setup s;
    bd_status status = bd_setup_describe(&s, options, group, err);
    rank_place *places = calloc((size_t)group->n_ranks, sizeof *places);
    if (status == BD_OK && !places)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %d ranks", (int)group->n_ranks);
    status = bd_group_agree(group, status, err);
    if (status == BD_OK)
        status = bd_group_agree(group, ask_ranks(&s, places, err), err);
    if (status == BD_OK)
        status = bd_group_agree(group, report(out, &s, places, fits, err), err);
    free(places);
    bd_setup_close(&s);
    return status;
}
