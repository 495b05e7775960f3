// kernel_fixture.h - shared by the tests of kernels: awkward batches, random tensors, guarded
// outputs, and a backend for every instruction set and number of threads.
#ifndef BINDERY_TESTS_KERNEL_FIXTURE_H
#define BINDERY_TESTS_KERNEL_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"

// ---- Batches --------------------------------------------------------------------------------

// Owns its boundaries and ids. The boundaries lie in the middle of a larger array, as those of
// a batch lie in a shard: offsets[0] is not 0.
typedef struct batch {
    bd_boundaries boundaries;
    int64_t n_tokens;  // n_rows * seq_len
    int32_t n_vocabulary;
    int32_t *offsets;
    int32_t *values;
    uint32_t *ids;     // [n_tokens], also for padding
    uint16_t *ids_16;  // the same
} batch;

// Four rows of 160: documents of 1, 31, 33, 1, 64 and 30 tokens, which fill the row; one of
// 160; one of 129, then 31 of padding; one of 1, then 159 of padding.
batch awkward_batch(uint64_t seed);

// Rows of random documents, some full, some with padding.
batch random_batch(uint64_t seed, int64_t n_rows, int64_t seq_len);

// Rows of one document each, which fills its row.
batch batch_of_rows(int64_t n_rows, int64_t seq_len);

// One row that is a single document of `length` tokens.
batch batch_of_one(int64_t length);

void batch_release(batch *b);

bool is_padding(const batch *b, int64_t token);

// Returns the tokens where the segment of `token` begins and ends (both in the batch).
int64_t segment_begin(const batch *b, int64_t token);
int64_t segment_end(const batch *b, int64_t token);

// Visits the segments of the batch in order; false after the last.
bool segment_at(const batch *b, int64_t index, int64_t *begin, int64_t *end);

// Says which tokens of a batch are trained, at random, in the bits of a shard: rows follow each
// other without a gap, and other rows lie before and after, with random bits. Every third row has
// no mask. So that nobody relies on them, the bits of a segment's first token and of padding are
// random, too.
typedef struct batch_mask {
    bd_loss_mask mask;
    uint8_t *bits;  // [n_bytes], owned: not a byte more than the rows reach into
    int64_t n_bytes;
    int64_t *offsets;  // [n_rows], owned
    bool *trained;     // [n_tokens], owned: the same, token by token
} batch_mask;

// The first row begins at bit `first_bit`, 0 to 7.
batch_mask random_mask(uint64_t seed, const batch *b, int64_t first_bit);

void mask_release(batch_mask *m);

// Whether the token has a target, and how many targets its segment has; m may be NULL.
bool has_target(const batch *b, const batch_mask *m, int64_t token);
int64_t count_targets(const batch *b, const batch_mask *m, int64_t token);

// ---- Numbers --------------------------------------------------------------------------------

double random_uniform(uint64_t *state);  // in [-1, 1)

// malloc() that cannot fail.
void *get_memory(size_t size_bytes);

// n floats, random in [-scale, scale). Free with free().
float *random_tensor(uint64_t *state, int64_t n, double scale);

// The same with `width` floats per token, and zero in padding.
float *random_activations(uint64_t *state, const batch *b, int64_t width, double scale);

double *to_double(const float *x, int64_t n);

// n floats of NaN with a guard band after them. Release with guarded_free(), which checks it.
float *guarded(int64_t n);
float *guarded_copy(const float *x, int64_t n);
void guarded_free(float *x);

// Tokens of `width` floats moved apart, `stride` from one to the next (0: without gaps), with
// `filler` between them. Release with guarded_free().
float *spread(const float *x, int64_t n_tokens, int64_t width, int64_t stride, float filler);

// The opposite: frees `spread_out`, expects the filler in the gaps, and returns the tokens
// without gaps. Free with free().
float *gather(float *spread_out, int64_t n_tokens, int64_t width, int64_t stride, float filler);

// ---- Backends -------------------------------------------------------------------------------

// Calls `check` with a backend of each instruction set that this machine has, on 2 threads.
void for_each_isa(void (*check)(bd_backend *backend, void *context), void *context);

// Calls `compute` on 1, 2, 3 and 7 threads, for each instruction set; it fills out[n] (given as
// NaN), which must come out the same to the last bit.
void expect_same_for_any_threads(void (*compute)(bd_backend *backend, float *out,
                                                 void *context),
                                 int64_t n, void *context);

// Runs one operation and expects it to succeed.
#define RUN(backend, operation, ...)                                            \
    do {                                                                        \
        bd_error run_err_ = {0};                                                \
        const bd_##operation##_args run_args_ = __VA_ARGS__;                    \
        const bd_status run_status_ =                                           \
            (backend)->operations->operation((backend), &run_args_, &run_err_); \
        if (run_status_ != BD_OK)                                               \
            fail_msg("%s", run_err_.message);                                   \
    } while (0)

// out[i] = activation(x[i]), by a linear layer of one number that multiplies by 1.
void apply_activation(bd_backend *backend, bd_activation activation, int64_t n, const float *x,
                      float *out);

// An activation and its derivative, by the formulas of kernels/activation.h.
double reference_activation(bd_activation activation, double x);
double reference_activation_slope(bd_activation activation, double x);

// ---- Expectations ---------------------------------------------------------------------------

// max |got - wanted| <= tolerance * max |wanted| (NaN never passes); `what` names it.
void expect_close(const char *what, const float *got, const double *wanted, int64_t n,
                  double tolerance);

// Expects the same bits.
void expect_same(const char *what, const float *got, const float *wanted, int64_t n);

// Exactly +0 in the padding of a tensor with `width` floats per token.
void expect_padding_zero(const char *what, const batch *b, const float *x, int64_t width);

// Compares gradients in double with central differences: loss(context) is evaluated with each
// of x[0 … n - 1] (or about `samples` of them) moved by `step` both ways.
void expect_gradient(const char *what, double (*loss)(void *context), void *context, double *x,
                     const double *gradient, int64_t n, int64_t samples, double step,
                     double tolerance);

#endif
