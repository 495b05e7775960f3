// A run's metrics.jsonl made of any bytes: either it is refused with the number of a line, or
// every value that a page shows of it is a number.
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/run_summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// JSON cannot represent numbers that are not finite.
static void check_curve(const bd_curve *curve)
{
    char *text;
    bd_json *json = bd_curve_to_json(curve);
    REQUIRE(curve->n_buckets <= BD_CURVE_BUCKETS);
    REQUIRE(bd_json_print(json, BD_JSON_COMPACT, &text, NULL) == BD_OK);
    free(text);
    bd_json_free(json);
}

static void check_summary(const bd_run_summary *summary)
{
    const bd_curve *const all[] = {
        &summary->loss,          &summary->smoothed_loss,     &summary->learning_rate,
        &summary->gradient_norm, &summary->tokens_per_second, &summary->flops,
        &summary->mfu,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check_curve(all[i]);
    for (size_t i = 0; i < summary->n_evals; i++)
        check_curve(&summary->evals[i].loss);
    REQUIRE(summary->n_evals <= BD_RUN_DATASETS);
    REQUIRE(summary->checkpoint_step == -1 && !summary->settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *folder;
    if (!folder)
        folder = folder_with(BD_METRICS_NAME);
    bd_run_summary *summary;
    bd_error err = {0};
    memory_file_set(data, size);
    if (bd_run_summary_new(&summary, folder, &err) == BD_OK)
        check_summary(summary);
    else
        REQUIRE(strstr(err.message, BD_METRICS_NAME "', line "));
    bd_run_summary_free(summary);
    return 0;
}
