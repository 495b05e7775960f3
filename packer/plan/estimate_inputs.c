#include "packer/plan/estimate_inputs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "packer/input/kinds.h"
#include "packer/input/reader.h"
#include "packer/pack/pack.h"

enum { N_WINDOWS = 32 };

static const double guessed_ratio = 4;  // of the decompressed size to the compressed one

// One task reads this: a unit, a stream of units, or a window of the sample.
typedef struct window {
    size_t first, last;  // inputs
    int64_t begin, end;  // positions of the records in the first and in the last input
    double share;        // bytes after which it ends
    bool is_stream;      // it goes on, slice by slice, each a unit of its own
    bd_lengths *units;   // [n_units], owned; what came of it
    size_t n_units, capacity;
    int64_t n_targets;  // of the documents in `units`, if they are masked
    double read_bytes;
    double unpacked, packed;  // of inputs that do not tell their size
} window;

typedef struct sampling {
    const bd_pack_job *job;
    double *weights;  // [inputs], owned; what each input has, in bytes; or BD_UNKNOWN
    window *windows;  // [n], owned
    size_t n;
    int64_t time_ns;  // atomic
    // The encoder of a packer is large and remembers words, so that packers are passed on from
    // window to window. `lock` guards both.
    bd_unit_packer **idle;  // [n_idle], owned, room for one of each thread
    size_t n_idle;
    pthread_mutex_t lock;
} sampling;

static const bd_input *input_of(const sampling *s, size_t i)
{
    return &s->job->inputs->items[i];
}

static double weight_of(const sampling *s, size_t i, double ratio)
{
    return s->weights[i] == BD_UNKNOWN ? ratio * (double)input_of(s, i)->entry.size_bytes
                                       : s->weights[i];
}

static double total_weight(const sampling *s, double ratio)
{
    double total = 0;
    for (size_t i = 0; i < s->job->inputs->n; i++)
        total += weight_of(s, i, ratio);
    return total;
}

static bool can_begin_anywhere(const bd_input *input)
{
    return !bd_input_is_stream(input);
}

// ---- Reading a window ----------------------------------------------------------------------

// The part of its input's weight that a record has.
static double record_weight(const bd_pack_job *job, const bd_input *input,
                            const bd_record *record)
{
    const bd_input_entry *entry = &input->entry;
    const double n =
        (double)(record->stored_bytes > 0 ? record->stored_bytes : record->size_bytes);
    const char *delimiter = bd_input_options_of(input, &job->reading).delimiter;
    if (input->kind->is_table)
        return (double)entry->weight / (double)entry->extent;
    if (input->kind->has_lines)
        return n + 1;
    if (input->kind == &bd_text_kind && delimiter)
        return n + (double)strlen(delimiter) + 2;
    return n;
}

static bd_status take_record(const bd_pack_job *job, bd_unit_packer *packer, window *w,
                             size_t index, const bd_record *record, bd_error *err)
{
    const bd_input *input = &job->inputs->items[index];
    bd_lengths *lengths = &w->units[w->n_units - 1];
    BD_TRY(bd_unit_packer_add(packer, (int64_t)index, record, err));
    const bd_documents *documents = bd_unit_packer_contents(packer, false).documents;
    for (size_t i = 0; i < documents->n; i++)
        BD_TRY(bd_lengths_append(lengths, documents->items[i].length, err));
    if (job->config.loss_mask && documents->n > 0)  // the bit of what begins a document is 0
        w->n_targets += bd_bits_count(documents->loss_mask, 0, (int64_t)documents->n_tokens);
    bd_unit_packer_clear(packer);
    w->read_bytes += record_weight(job, input, record);
    if (input->entry.weight == BD_UNKNOWN)
        w->unpacked += record_weight(job, input, record);
    return BD_OK;
}

static bd_status sample_slice(const bd_pack_job *job, bd_unit_packer *packer, window *w,
                              size_t index, bd_reader *reader, bd_slice slice, bd_error *err)
{
    const bd_input *input = &job->inputs->items[index];
    const int64_t extent = input->entry.extent, begin = slice.begin;
    if (extent != BD_UNKNOWN && slice.end > extent)
        slice.end = extent;
    slice.begin = bd_input_group_begin(input, begin);
    bd_reader_begin(reader, slice);
    while (w->read_bytes < w->share) {
        bd_record record;
        bool found;
        BD_TRY(bd_reader_next(reader, &record, &found, err));
        if (!found)
            break;
        if (record.position >= begin)
            BD_TRY(take_record(job, packer, w, index, &record, err));
    }
    return BD_OK;
}

static bd_status begin_unit(window *w, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&w->units, &w->capacity, w->n_units + 1, sizeof *w->units,
                            err));
    w->units[w->n_units++] = (bd_lengths){0};
    return BD_OK;
}

static bd_status sample_stream(const bd_pack_job *job, bd_unit_packer *packer, window *w,
                               bd_reader *reader, bd_error *err)
{
    const bd_input *input = &job->inputs->items[w->first];
    bool last = false;
    for (int64_t slice = 0; !last; slice++) {
        BD_TRY(begin_unit(w, err));
        BD_TRY(sample_slice(job, packer, w, w->first, reader,
                            bd_input_entry_slice(&input->entry, slice), err));
        BD_TRY(bd_reader_is_last(reader, &last, err));
    }
    return BD_OK;
}

static bd_status sample_input(const bd_pack_job *job, bd_unit_packer *packer, window *w,
                              size_t index, bd_error *err)
{
    const bd_input *input = &job->inputs->items[index];
    const bd_slice slice = {index == w->first ? w->begin : 0,
                            index == w->last ? w->end : INT64_MAX};
    bd_reader *reader;
    BD_TRY(bd_reader_open(&reader, input, &job->reading, err));
    const bd_status status = w->is_stream
                                 ? sample_stream(job, packer, w, reader, err)
                                 : sample_slice(job, packer, w, index, reader, slice, err);
    if (input->entry.weight == BD_UNKNOWN)
        w->packed += (double)bd_reader_consumed(reader);
    bd_reader_close(reader);
    return status;
}

static bd_status take_packer(sampling *s, bd_unit_packer **packer, bd_error *err)
{
    pthread_mutex_lock(&s->lock);
    *packer = s->n_idle > 0 ? s->idle[--s->n_idle] : NULL;
    pthread_mutex_unlock(&s->lock);
    return *packer ? BD_OK : bd_unit_packer_new(packer, s->job, err);
}

static void return_packer(sampling *s, bd_unit_packer *packer)
{
    bd_unit_packer_clear(packer);
    pthread_mutex_lock(&s->lock);
    s->idle[s->n_idle++] = packer;
    pthread_mutex_unlock(&s->lock);
}

static bd_status do_window(void *context, int64_t number, bd_error *err)
{
    sampling *s = context;
    window *w = &s->windows[number];
    bd_unit_packer *packer;
    const int64_t begun = bd_now_ns();
    BD_TRY(take_packer(s, &packer, err));
    bd_status status = w->is_stream ? BD_OK : begin_unit(w, err);
    for (size_t i = w->first; status == BD_OK && i <= w->last && w->read_bytes < w->share; i++)
        status = sample_input(s->job, packer, w, i, err);
    return_packer(s, packer);
    __atomic_fetch_add(&s->time_ns, bd_now_ns() - begun, __ATOMIC_RELAXED);
    return status;
}

// ---- How much there is ---------------------------------------------------------------------

// A compressed input does not say how much it holds. It is measured if it may be small enough to be
// read completely, or if the file is too small for an estimate from a part of it.
static bd_status measure(const bd_input *input, int64_t sample_bytes, double *weight,
                         bd_error *err)
{
    enum { SMALL_BYTES = 1 << 20 };
    const int64_t size = input->entry.size_bytes;
    int64_t n = BD_UNKNOWN;
    if (size <= SMALL_BYTES)
        BD_TRY(bd_byte_stream_measure(input->path, BD_MAX_UNIT_BYTES, &n, err));
    else if (guessed_ratio * (double)size <= (double)sample_bytes)
        BD_TRY(bd_byte_stream_measure(input->path, sample_bytes, &n, err));
    *weight = (double)n;
    return BD_OK;
}

static bd_status find_weights(sampling *s, int64_t sample_bytes, bool *all_known, bd_error *err)
{
    const bd_inputs *inputs = s->job->inputs;
    *all_known = true;
    s->weights = malloc((inputs->n + 1) * sizeof *s->weights);
    if (!s->weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", inputs->n);
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input *input = &inputs->items[i];
        s->weights[i] = (double)input->entry.weight;
        if (bd_input_is_stdin(input))
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "standard input cannot be read twice: give files");
        if (input->entry.weight == BD_UNKNOWN)
            BD_TRY(measure(input, sample_bytes, &s->weights[i], err));
        *all_known &= s->weights[i] != BD_UNKNOWN;
    }
    return BD_OK;
}

// ---- Where the windows lie -----------------------------------------------------------------

static bd_status add_window(sampling *s, size_t *capacity, window w, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&s->windows, capacity, s->n + 1, sizeof *s->windows, err));
    s->windows[s->n++] = w;
    return BD_OK;
}

// One for each unit of the plan.
static bd_status plan_all(sampling *s, bd_error *err)
{
    bd_units units;
    size_t capacity = 0;
    BD_TRY(bd_pack_job_units(s->job, &units, err));
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < units.n; i++) {
        const bd_unit *unit = &units.items[i].unit;
        const size_t first = (size_t)unit->input;
        const bd_slice slice = bd_input_entry_slice(&input_of(s, first)->entry, unit->slice);
        const bool is_group = unit->n_inputs > 1;
        status = add_window(s, &capacity,
                            (window){.first = first,
                                     .last = first + (size_t)unit->n_inputs - 1,
                                     .begin = slice.begin,
                                     .end = is_group ? INT64_MAX : slice.end,
                                     .share = 1e300,
                                     .is_stream = units.items[i].is_stream},
                            err);
    }
    bd_units_release(&units);
    return status;
}

// A window ends where the next one begins.
static void end_window(const sampling *s, size_t k)
{
    window *w = &s->windows[k];
    const window *next = k + 1 < s->n ? w + 1 : NULL;
    w->last = next ? next->first : s->job->inputs->n - 1;
    w->end = next ? next->begin : INT64_MAX;
    if (!next || next->begin > 0)
        return;
    if (next->first == w->first) {
        w->share = 0;
    } else {
        w->last = next->first - 1;
        w->end = INT64_MAX;
    }
}

static bd_status plan_windows(sampling *s, double total, double sample_bytes, bd_error *err)
{
    const double share = sample_bytes / N_WINDOWS;
    size_t capacity = 0, input = 0;
    double before = 0;  // weight of the inputs before it
    for (int k = 0; k < N_WINDOWS; k++) {
        const double at = total * k / N_WINDOWS;
        while (input + 1 < s->job->inputs->n &&
               before + weight_of(s, input, guessed_ratio) <= at)
            before += weight_of(s, input++, guessed_ratio);
        const bd_input *in = input_of(s, input);
        const double weight = weight_of(s, input, guessed_ratio);
        const bool again = s->n > 0 && s->windows[s->n - 1].first == input;
        if (again && !can_begin_anywhere(in)) {
            s->windows[s->n - 1].share += share;
            continue;
        }
        const int64_t begin = can_begin_anywhere(in) && weight > 0
                                  ? (int64_t)((at - before) / weight * (double)in->entry.extent)
                                  : 0;
        BD_TRY(add_window(s, &capacity,
                          (window){.first = input, .begin = begin, .share = share}, err));
    }
    for (size_t k = 0; k < s->n; k++)
        end_window(s, k);
    return BD_OK;
}

// ---- What came of them ---------------------------------------------------------------------

// All windows of a sample become one unit.
static bd_status join_windows(bd_length_sample *sample, const sampling *s, bd_error *err)
{
    size_t capacity = 0;
    for (size_t k = 0; k < s->n; k++) {
        window *w = &s->windows[k];
        for (size_t u = 0; u < w->n_units; u++) {
            sample->n_documents += (int64_t)w->units[u].n;
            if (sample->is_all || sample->n_units == 0) {
                BD_TRY(bd_array_reserve((void **)&sample->units, &capacity, sample->n_units + 1,
                                        sizeof *sample->units, err));
                sample->units[sample->n_units++] = w->units[u];
                w->units[u] = (bd_lengths){0};
                continue;
            }
            for (size_t i = 0; i < w->units[u].n; i++)
                BD_TRY(bd_lengths_append(&sample->units[0], w->units[u].items[i], err));
            bd_lengths_release(&w->units[u]);
        }
    }
    return BD_OK;
}

static void count_sampled_bytes(bd_length_sample *sample, const sampling *s)
{
    double unpacked = 0, packed = 0;
    for (size_t k = 0; k < s->n; k++) {
        sample->read_bytes += s->windows[k].read_bytes;
        sample->n_targets += s->windows[k].n_targets;
        unpacked += s->windows[k].unpacked;
        packed += s->windows[k].packed;
    }
    const double ratio = packed > 0 ? unpacked / packed : guessed_ratio;
    sample->total_bytes = sample->is_all ? sample->read_bytes : total_weight(s, ratio);
    sample->n_windows = sample->is_all ? 0 : (int64_t)s->n;
    sample->time_ns = s->time_ns;
}

static void release_sampling(sampling *s)
{
    for (size_t k = 0; k < s->n; k++) {
        for (size_t u = 0; u < s->windows[k].n_units; u++)
            bd_lengths_release(&s->windows[k].units[u]);
        free(s->windows[k].units);
    }
    for (size_t k = 0; k < s->n_idle; k++)
        bd_unit_packer_free(s->idle[k]);
    free(s->idle);
    free(s->windows);
    free(s->weights);
    pthread_mutex_destroy(&s->lock);
}

bd_status bd_length_sample_take(bd_length_sample *sample, const bd_pack_job *job,
                                int64_t sample_bytes, int n_threads, bd_error *err)
{
    sampling s = {.job = job, .lock = PTHREAD_MUTEX_INITIALIZER};
    bd_threads *threads = NULL;
    bool all_known = false;
    double total = 0;
    *sample = (bd_length_sample){0};
    bd_status status = find_weights(&s, sample_bytes, &all_known, err);
    if (status == BD_OK) {
        total = total_weight(&s, guessed_ratio);
        sample->is_all = all_known && total <= (double)sample_bytes;
        status = sample->is_all ? plan_all(&s, err)
                                : plan_windows(&s, total, (double)sample_bytes, err);
    }
    if (status == BD_OK && !(s.idle = calloc((size_t)n_threads, sizeof *s.idle)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %d threads", n_threads);
    if (status == BD_OK)
        status = bd_threads_new(&threads, n_threads, err);
    if (status == BD_OK)
        status = bd_threads_run(threads, do_window, &s, (int64_t)s.n, err);
    if (status == BD_OK) {
        count_sampled_bytes(sample, &s);
        status = join_windows(sample, &s, err);
    }
    bd_threads_free(threads);
    release_sampling(&s);
    if (status != BD_OK)
        bd_length_sample_release(sample);
    return status;
}

void bd_length_sample_release(bd_length_sample *sample)
{
    for (size_t i = 0; i < sample->n_units; i++)
        bd_lengths_release(&sample->units[i]);
    free(sample->units);
    *sample = (bd_length_sample){0};
}
