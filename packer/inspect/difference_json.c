#include "packer/inspect/difference_json.h"

static bd_json *config_difference_to_json(const bd_difference *d, const bd_inspection *a,
                                          const bd_inspection *b)
{
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "same", d->config_is_same);
    bd_json_set(json, "a", bd_dataset_config_to_json(&a->manifest.config));
    bd_json_set(json, "b", bd_dataset_config_to_json(&b->manifest.config));
    return json;
}

static bd_json *input_difference_to_json(const bd_difference *d)
{
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "same", d->inputs_only[0] == 0 && d->inputs_only[1] == 0);
    bd_json_set_integer(json, "in_both", d->inputs_in_both);
    bd_json_set_integer(json, "only_in_a", d->inputs_only[0]);
    bd_json_set_integer(json, "only_in_b", d->inputs_only[1]);
    return json;
}

static bd_json *figures_to_json(const bd_difference *d, const bd_inspection *a,
                                const bd_inspection *b)
{
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "same", d->figures_are_same);
    bd_json_set(json, "a",
                bd_figures_to_json(&a->manifest.totals, a->manifest.config.loss_mask));
    bd_json_set(json, "b",
                bd_figures_to_json(&b->manifest.totals, b->manifest.config.loss_mask));
    return json;
}

static bd_json *counts_to_json(const bd_difference *d)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "in_both", d->documents_in_both);
    bd_json_set_integer(json, "changed", d->documents_changed);
    bd_json_set_integer(json, "only_in_a", d->documents_only[0]);
    bd_json_set_integer(json, "only_in_b", d->documents_only[1]);
    return json;
}

static bd_json *documents_to_json(const bd_difference *d)
{
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "same", d->documents_are_same);
    bd_json_set_bool(json, "rows_read", !d->files_are_same);
    if (d->counted)
        bd_json_set(json, "counts", counts_to_json(d));
    else
        bd_json_set_null(json, "counts");
    return json;
}

bd_json *bd_difference_to_json(const bd_difference *difference, const bd_inspection *a,
                               const bd_inspection *b)
{
    const bd_difference *d = difference;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.0");
    bd_json_set_string(json, "a", a->path);
    bd_json_set_string(json, "b", b->path);
    bd_json_set_bool(json, "same", bd_difference_is_none(d));
    bd_json_set(json, "packing", config_difference_to_json(d, a, b));
    bd_json_set(json, "inputs", input_difference_to_json(d));
    bd_json_set(json, "figures", figures_to_json(d, a, b));
    bd_json_set(json, "documents", documents_to_json(d));
    return json;
}
