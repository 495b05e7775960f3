#include "trainer/report/run_page.h"

#include <stdlib.h>

#include "common/base/file.h"
#include "common/page/page.h"

extern const bd_page_part bd_run_page_html;
extern const bd_page_part bd_run_page_style;
extern const bd_page_part bd_run_page_curves;
extern const bd_page_part bd_run_page_script;

static bd_json *evals_to_json(const bd_run_summary *run)
{
    bd_json *evals = bd_json_array();
    for (size_t i = 0; i < run->n_evals; i++) {
        bd_json *eval = bd_json_object();
        bd_json_set_string(eval, "dataset", run->evals[i].dataset);
        bd_json_set(eval, "loss", bd_curve_to_json(&run->evals[i].loss));
        bd_json_append(evals, eval);
    }
    return evals;
}

static bd_json *samples_to_json(const bd_run_summary *run)
{
    bd_json *samples = bd_json_array();
    const int64_t n = run->n_samples;
    for (int64_t i = n - 1; i >= 0 && i >= n - BD_RUN_SAMPLES; i--) {
        const bd_run_sample *sample = &run->samples[i % BD_RUN_SAMPLES];
        bd_json *json = bd_json_object();
        bd_json_set_integer(json, "step", sample->step);
        bd_json_set_string(json, "prompt", sample->prompt);
        bd_json_set_string(json, "text", sample->text);
        bd_json_set_bool(json, "cut", sample->cut);
        bd_json_append(samples, json);
    }
    return samples;
}

static bd_json *run_to_json(const bd_run_summary *run)
{
    bd_json *json = bd_json_object();
    char *name = bd_path_last_name(run->folder);
    bd_json_set_string(json, "name", name && *name ? name : run->folder);
    free(name);
    bd_json_set_string(json, "path", run->folder);
    bd_json_set_integer(json, "steps", run->n_steps);
    bd_json_set_integer(json, "last_step", run->last_step);
    bd_json_set_real(json, "tokens", run->tokens);
    bd_json_set_real(json, "seconds", run->seconds);
    bd_json_set_figure(json, "last_loss", run->last_loss);
    bd_json_set_figure(json, "last_smoothed_loss", run->last_smoothed_loss);
    bd_json_set(json, "loss", bd_curve_to_json(&run->loss));
    bd_json_set(json, "smoothed_loss", bd_curve_to_json(&run->smoothed_loss));
    bd_json_set(json, "learning_rate", bd_curve_to_json(&run->learning_rate));
    bd_json_set(json, "gradient_norm", bd_curve_to_json(&run->gradient_norm));
    bd_json_set(json, "tokens_per_second", bd_curve_to_json(&run->tokens_per_second));
    bd_json_set(json, "flops", bd_curve_to_json(&run->flops));
    bd_json_set(json, "mfu", bd_curve_to_json(&run->mfu));
    bd_json_set(json, "evals", evals_to_json(run));
    bd_json_set_bool(json, "more_evals", run->more_evals);
    bd_json_set(json, "samples", samples_to_json(run));
    bd_json_set_integer(json, "n_samples", run->n_samples);
    if (run->checkpoint_step < 0)
        bd_json_set_null(json, "checkpoint_step");
    else
        bd_json_set_integer(json, "checkpoint_step", run->checkpoint_step);
    if (run->settings)
        bd_json_set(json, "settings", bd_json_share(run->settings));
    else
        bd_json_set_null(json, "settings");
    return json;
}

bd_status bd_run_page_publish(bd_run_summary *const *runs, size_t n_runs, const char *path,
                              bool overwrite, size_t *size_bytes, bd_error *err)
{
    static const bd_page_part *const styles[] = {&bd_run_page_style};
    static const bd_page_part *const scripts[] = {&bd_run_page_curves, &bd_run_page_script};
    bd_json *data = bd_json_object(), *array = bd_json_array();
    for (size_t i = 0; i < n_runs; i++)
        bd_json_append(array, run_to_json(runs[i]));
    bd_json_set(data, "runs", array);
    const bd_page page = {
        .title = runs[0]->folder,
        .body = &bd_run_page_html,
        .styles = styles,
        .n_styles = sizeof styles / sizeof styles[0],
        .scripts = scripts,
        .n_scripts = sizeof scripts / sizeof scripts[0],
        .data = data,
    };
    const bd_status status = bd_page_publish(&page, path, overwrite, size_bytes, err);
    bd_json_free(data);
    return status;
}
