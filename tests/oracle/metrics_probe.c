// Usage: metrics_probe DIR AFTER LAST
//
// Writes the records of a run into DIR, as if it had been resumed after step AFTER: steps up to
// LAST, an evaluation after every fifth, a sample after every seventh. The figures depend only
// on the step. Step 3 has no targets.
#include <stdio.h>
#include <stdlib.h>

#include "trainer/metrics/metrics.h"

static void require(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "metrics_probe: %s\n", err->message);
    exit(2);
}

static void write_step(bd_metrics *metrics, int64_t step)
{
    bd_error err;
    const double share = 1.0 / (double)step;
    const bd_step_result result = {
        .step = step,
        .loss = step == 3 ? 0 : 3 + share,
        .gradient_norm = 1 + share,
        .learning_rate = 1e-3 * share,
        .n_targets = step == 3 ? 0 : 90,
        .n_tokens = 100,
        .work = {.n_used = 91, .n_pairs = 1000 + step},
    };
    require(bd_metrics_write(metrics, &result, 1000000 * (1 + step % 3), &err), &err);
}

static void write_events(bd_metrics *metrics, int64_t step)
{
    bd_error err;
    char text[100];
    snprintf(text, sizeof text, "# <b>step %d</b>\n\xc3\xa9 \xff", (int)step);
    const bd_eval_value losses[] = {{"held out", 4 + 1.0 / (double)step, 1000},
                                    {"<i>b</i>", 5, 10}};
    const bd_sample_value samples[] = {{"Once", text}, {"", "second"}};
    if (step % 5 == 0)
        require(bd_metrics_write_eval(metrics, step, losses, 2, &err), &err);
    if (step % 7 == 0)
        require(bd_metrics_write_samples(metrics, step, samples, 2, &err), &err);
}

int main(int argc, char **argv)
{
    bd_error err;
    bd_metrics *metrics;
    if (argc != 4)
        return 2;
    const int64_t after = atol(argv[2]), last = atol(argv[3]);
    const bd_model_config config = {.family = &bd_family_opt,
                                    .n_layers = 1,
                                    .n_channels = 8,
                                    .n_heads = 1,
                                    .n_kv_heads = 1,
                                    .head_size = 8,
                                    .n_vocabulary = 10};
    require(bd_metrics_open(&metrics, argv[1], after, &config, 1e9, &err), &err);
    for (int64_t step = after + 1; step <= last; step++) {
        write_step(metrics, step);
        write_events(metrics, step);
    }
    bd_metrics_close(metrics);
    return 0;
}
