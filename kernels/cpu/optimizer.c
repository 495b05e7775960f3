#include "kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/type.h"

enum { PER_CHUNK = 16384 };

typedef struct adamw_loop_args {
    const bd_adamw_args *step;
    float rate, v_factor;  // the factors that depend only on the step, computed in double
} adamw_loop_args;

// Updates elements first … last - 1, which lie in one part.
static void adamw_stretch(const adamw_loop_args *a, int64_t first, int64_t last,
                          const bd_adamw_part *part)
{
    const double part_rate = (double)a->step->learning_rate * (double)part->rate_factor;
    const float decay = (float)(1.0 - part_rate * (double)part->weight_decay);
    const float beta1 = a->step->beta1, beta2 = a->step->beta2;
    const float scale = a->step->gradient_scale, epsilon = a->step->epsilon;
    const float rate = a->rate * part->rate_factor, v_factor = a->v_factor;
    const float *gradient = a->step->gradient;
    float *restrict parameter = a->step->parameter;
    float *restrict m = a->step->m;
    float *restrict v = a->step->v;
    for (int64_t i = first; i < last; i++) {
        const float g = scale * gradient[i];
        m[i] = beta1 * m[i] + (1.0f - beta1) * g;
        v[i] = beta2 * v[i] + (1.0f - beta2) * (g * g);
        parameter[i] = parameter[i] * decay - rate * m[i] / (sqrtf(v[i] * v_factor) + epsilon);
    }
    for (int64_t i = first; a->step->rounded && i < last; i++)
        a->step->rounded[i] = bd_bf16_of_float(parameter[i]);
}

// The part that element i lies in.
static int64_t adamw_part_of(const bd_adamw_args *step, int64_t i)
{
    int64_t low = 0, high = step->n_parts - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (step->parts[middle].end <= i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void adamw_loop(const void *context, int64_t first, int64_t last)
{
    const adamw_loop_args *a = context;
    const bd_adamw_part *part = a->step->parts + adamw_part_of(a->step, first);
    for (int64_t i = first; i < last; part++) {
        const int64_t end = bd_min(part->end, last);
        adamw_stretch(a, i, end, part);
        i = end;
    }
}

BD_CPU_OPERATION(adamw)
{
    const double rate = (double)args->learning_rate;
    const double step = (double)args->step;
    const adamw_loop_args loop = {
        .step = args,
        .rate = (float)(rate / (1.0 - pow((double)args->beta1, step))),
        .v_factor = (float)(1.0 / (1.0 - pow((double)args->beta2, step))),
    };
    return bd_cpu_for(backend, args->n, PER_CHUNK, adamw_loop, &loop, err);
}

// ---- The norm -------------------------------------------------------------------------------

enum { MAX_PARTS = 512, LANES = 16 };

typedef struct squares_loop_args {
    const float *x;
    int64_t per_part;
    double *parts;  // [MAX_PARTS]
} squares_loop_args;

static void squares_loop(const void *context, int64_t first, int64_t last)
{
    const squares_loop_args *a = context;
    double lanes[LANES] = {0};
    int64_t i = first;
    for (; i + LANES <= last; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] += (double)a->x[i + j] * (double)a->x[i + j];
    for (; i < last; i++)
        lanes[0] += (double)a->x[i] * (double)a->x[i];
    for (int j = 1; j < LANES; j++)
        lanes[0] += lanes[j];
    a->parts[first / a->per_part] = lanes[0];
}

BD_CPU_OPERATION(sum_of_squares)
{
    double parts[MAX_PARTS];
    int64_t per_part = bd_ceil_divide(args->n, MAX_PARTS);
    if (per_part < PER_CHUNK)
        per_part = PER_CHUNK;
    const squares_loop_args loop = {args->x, per_part, parts};
    BD_TRY(bd_cpu_for(backend, args->n, per_part, squares_loop, &loop, err));
    double sum = 0.0;
    for (int64_t i = 0; i < bd_ceil_divide(args->n, per_part); i++)
        sum += parts[i];
    *args->sum = sum;
    return BD_OK;
}

// ---- The average ----------------------------------------------------------------------------

static void average_loop(const void *context, int64_t first, int64_t last)
{
    const bd_average_args *a = context;
    float *average = a->average;
    for (int64_t i = first; a->parameter && i < last; i++)
        average[i] += a->rate * (a->parameter[i] - average[i]);
    if (a->copy)
        memcpy(bd_floats_out(a->copy, first), average + first,
               (size_t)(last - first) * sizeof *average);
}

BD_CPU_OPERATION(average)
{
    return bd_cpu_for(backend, args->n, PER_CHUNK, average_loop, args, err);
}
