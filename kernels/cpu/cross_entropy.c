#include "kernels/cross_entropy.h"

#include <math.h>
#include <string.h>

#include "common/base/token_ids.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

// Each lane of a block is summed in float, and these sums in double (kernels/summation.h).
enum { LANES = 64, LOGITS_PER_BLOCK = 2048, LOGITS_PER_CHUNK = 65536 };

static float largest_logit(const float *x, int64_t n)
{
    float lanes[LANES];
    for (int j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; i++)
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    for (int j = 1; j < LANES; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

// Sum of exp(x[i] - top); with `store`, x[i] becomes its exponential.
static double sum_of_exponentials(float *x, int64_t n, float top, int store)
{
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += LOGITS_PER_BLOCK) {
        const int64_t end = bd_min(begin + LOGITS_PER_BLOCK, n);
        float lanes[LANES] = {0};
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) {
            float e[LANES];
            for (int j = 0; j < LANES; j++) {
                e[j] = bd_exp(x[i + j] - top);
                lanes[j] += e[j];
            }
            if (store)
                memcpy(x + i, e, sizeof e);
        }
        for (; i < end; i++) {
            const float e = bd_exp(x[i] - top);
            lanes[0] += e;
            if (store)
                x[i] = e;
        }
        for (int j = 0; j < LANES; j++)
            sum += (double)lanes[j];
    }
    return sum;
}

// Returns the loss of a token; with want_gradient, its logits become their gradient. Both are
// divided by `divisor`.
static float one_token(const bd_cross_entropy_args *a, float *logits, uint32_t target,
                       double divisor)
{
    const int64_t n = a->n_vocabulary;
    const float top = largest_logit(logits, n);
    const float of_target = logits[target];
    const double sum = sum_of_exponentials(logits, n, top, a->want_gradient);
    const double lse = log(sum) + (double)top;
    if (a->want_gradient) {
        const double scale = (double)a->gradient_scale / divisor;
        const double weight = 1.0 + 2.0 * (double)a->z_loss * lse;  // of the softmax
        const float factor = (float)(scale * weight / sum);
        const float above = bd_exp(of_target - top);
        for (int64_t i = 0; i < n; i++)
            logits[i] *= factor;
        logits[target] = (float)(scale * ((double)above / sum * weight - 1.0));
    }
    return (float)((lse - (double)of_target) / divisor);
}

static void token_loop(const void *context, int64_t first, int64_t last)
{
    const bd_cross_entropy_args *a = context;
    const int32_t *counted = NULL;  // the segment whose targets were counted last
    double divisor = 1.0;
    for (int64_t token = first; token < last; token++) {
        const int64_t r = token / a->boundaries.seq_len, t = token % a->boundaries.seq_len;
        float *logits = bd_floats_out(a->logits, token * bd_stride(a->stride, a->n_vocabulary));
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&a->boundaries, r, &n_segments);
        const int is_used = t < bd_row_used(&a->boundaries, r);
        const int32_t *segment = is_used ? bd_segment_around(bounds, n_segments, t) : NULL;
        if (segment && t + 1 < segment[1] && bd_token_is_trained(&a->mask, r, t + 1)) {
            const uint32_t target = bd_id_at(a->ids, a->id_bytes, token + 1);
            if (a->per_document && segment != counted) {
                divisor = (double)bd_count_targets(&a->mask, r, segment[0], segment[1]);
                counted = segment;
            }
            a->losses[token] = one_token(a, logits, target, divisor);
        } else {
            a->losses[token] = 0.0f;
            if (a->want_gradient)
                memset(logits, 0, (size_t)a->n_vocabulary * sizeof *logits);
        }
    }
}

BD_CPU_OPERATION(cross_entropy)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const int64_t tokens_per_chunk = bd_ceil_divide(LOGITS_PER_CHUNK, args->n_vocabulary);
    return bd_cpu_for(backend, n_tokens, tokens_per_chunk, token_loop, args, err);
}
