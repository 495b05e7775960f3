#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

// Which loss of the batch's tokens.
typedef struct wanted_loss {
    const batch_mask *mask;
    int per_document;
    float z_loss;
} wanted_loss;

// `gap` numbers lie between the tokens' logits and must not be changed.
static void check_cross_entropy(const batch *b, int64_t n_vocabulary, int64_t gap,
                                int32_t id_bytes, int want_gradient, double scale,
                                wanted_loss wanted)
{
    uint64_t seed = 19;
    const int64_t stride = n_vocabulary + gap;
    const int64_t n_spread = b->n_tokens * stride;
    float *losses = guarded(b->n_tokens), *logits = random_tensor(&seed, n_spread, scale);
    for (int64_t i = 0; i < n_spread; i++)
        if (i % stride >= n_vocabulary)
            logits[i] = 1e-3f;  // no larger than a gradient
    bd_cross_entropy_args a = {
        .boundaries = b->boundaries,
        .mask = wanted.mask ? wanted.mask->mask : (bd_loss_mask){0},
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_vocabulary = n_vocabulary,
        .stride = stride,
        .want_gradient = want_gradient,
        .per_document = wanted.per_document,
        .gradient_scale = 1.0f / 321.0f,
        .z_loss = wanted.z_loss,
        .logits = logits,
        .losses = losses,
    };
    bd_cross_entropy_args d = a;
    d.boundaries = boundaries_on_device(b);
    d.mask = mask_on_device(b, wanted.mask);
    d.ids = ids_on_device(b, id_bytes);
    d.logits = floats_on_device(logits, n_spread);
    d.losses = floats_on_device(NULL, b->n_tokens);
    RUN(cpu, cross_entropy, a);
    RUN(cuda, cross_entropy, d);
    compare("gradient of the logits", d.logits, logits, n_spread,
            want_gradient ? few_roundings : 0.0);
    compare_padded("losses", b, d.losses, losses, 1, few_roundings);
    release_device();
    free(logits);
    guarded_free(losses);
}

void cross_entropy_agrees(void)
{
    static const int64_t vocabularies[] = {50, 257, 1003};
    for (int which = 0; which < N_BATCHES; which++) {
        batch b = make_batch(which);
        const int64_t n_vocabulary = vocabularies[which % 3];
        const wanted_loss plain = {0}, drawn = {.z_loss = 1e-2f}, by_document = {0, 1, 0.0f};
        check_cross_entropy(&b, n_vocabulary, 0, which % 2 == 0 ? 2 : 4, 1, 1.0, plain);
        check_cross_entropy(&b, n_vocabulary, 7, which % 2 == 0 ? 4 : 2, which % 2, 60.0,
                            plain);
        check_cross_entropy(&b, n_vocabulary, 64 - n_vocabulary % 64, 4, 1, 1.0, by_document);
        check_cross_entropy(&b, n_vocabulary, 7, 2, 1, 60.0, drawn);
        batch_release(&b);
    }
}

// Rows that begin inside a byte, and segments whose bits are more bytes than a warp has lanes.
void cross_entropy_agrees_with_masks(void)
{
    static const int64_t lengths[] = {7, 9, 1001};
    for (int i = 0; i < 3; i++) {
        batch b = random_batch((uint64_t)(60 + i), i < 2 ? 7 : 3, lengths[i]);
        batch_mask mask = random_mask((uint64_t)(70 + i), &b, i);
        for (int per_document = 0; per_document < 2; per_document++)
            check_cross_entropy(&b, 50, 7 * per_document, 2, 1, 8.0,
                                (wanted_loss){&mask, per_document, 1e-2f});
        check_cross_entropy(&b, 64, 0, 4, 0, 8.0, (wanted_loss){&mask, 1, 0.0f});
        mask_release(&mask);
        batch_release(&b);
    }
}
