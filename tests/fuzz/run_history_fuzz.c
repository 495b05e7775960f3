// A run's metrics.jsonl made of any bytes: either it is refused with the number of a line, or
// everything that a page shows of it is a number.
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/run_summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// JSON has no way to write what is not a finite number.
static void check_series(const bd_series *series)
{
    char *text;
    bd_json *json = bd_series_to_json(series);
    REQUIRE(series->n_buckets <= BD_SERIES_BUCKETS);
    REQUIRE(bd_json_print(json, BD_JSON_COMPACT, &text, NULL) == BD_OK);
    free(text);
    bd_json_free(json);
}

static void check_history(const bd_run_history *history)
{
    const bd_series *const all[] = {
        &history->loss,          &history->smoothed_loss,     &history->learning_rate,
        &history->gradient_norm, &history->tokens_per_second, &history->flops,
        &history->mfu,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check_series(all[i]);
    for (size_t i = 0; i < history->n_evals; i++)
        check_series(&history->evals[i].loss);
    REQUIRE(history->n_evals <= BD_RUN_DATASETS);
    REQUIRE(history->checkpoint_step == -1 && !history->settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *folder;
    if (!folder)
        folder = folder_with(BD_METRICS_NAME);
    bd_run_history *history;
    bd_error err = {0};
    memory_file_set(data, size);
    if (bd_run_history_new(&history, folder, &err) == BD_OK)
        check_history(history);
    else
        REQUIRE(strstr(err.message, BD_METRICS_NAME "', line "));
    bd_run_history_free(history);
    return 0;
}
