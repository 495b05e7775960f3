#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

// `gap` numbers lie between the tokens' logits and must not be changed.
static void check_cross_entropy(const batch *b, int64_t n_vocabulary, int64_t gap,
                                int32_t id_bytes, int want_gradient, double scale, float z_loss)
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
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_vocabulary = n_vocabulary,
        .stride = stride,
        .want_gradient = want_gradient,
        .gradient_scale = 1.0f / 321.0f,
        .z_loss = z_loss,
        .logits = logits,
        .losses = losses,
    };
    bd_cross_entropy_args d = a;
    d.boundaries = boundaries_on_device(b);
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
        check_cross_entropy(&b, n_vocabulary, 0, which % 2 == 0 ? 2 : 4, 1, 1.0, 0.0f);
        check_cross_entropy(&b, n_vocabulary, 7, which % 2 == 0 ? 4 : 2, which % 2, 60.0, 0.0f);
        check_cross_entropy(&b, n_vocabulary, 64 - n_vocabulary % 64, 4, 1, 1.0, 0.0f);
        check_cross_entropy(&b, n_vocabulary, 7, 2, 1, 60.0, 1e-2f);
        batch_release(&b);
    }
}
