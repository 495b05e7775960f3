#include "packer/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "common/manifest.h"

static bd_json *input_to_json(const bd_input *input)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "name", input->name);
    bd_json_set_string(json, "source", BD_DEFAULT_SOURCE);
    bd_json_set_string(json, "format", bd_input_format_words[input->format]);
    bd_json_set_integer(json, "bytes", input->size_bytes);
    bd_json_set_string(json, "edges", input->edges.hex);
    return json;
}

static bd_json *reading_to_json(const bd_pack_job *job)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "text_field", job->text_field);
    if (job->delimiter)
        bd_json_set_string(json, "delimiter", job->delimiter);
    else
        bd_json_set_null(json, "delimiter");
    bd_json_set_string(json, "invalid_utf8", bd_utf8_policy_words[job->utf8_policy]);
    bd_json_set_integer(json, "unit_size", job->unit_bytes);
    bd_json_set_integer(json, "max_document_bytes", job->max_document_bytes);
    return json;
}

bd_json *bd_plan_to_json(const bd_pack_job *job)
{
    bd_json *inputs = bd_json_array();
    for (size_t i = 0; i < job->inputs->n; i++)
        bd_json_append(inputs, input_to_json(&job->inputs->items[i]));
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", BD_FORMAT_VERSION);
    bd_json_set(json, "packing", bd_packing_to_json(&job->packing));
    bd_json_set(json, "reading", reading_to_json(job));
    bd_json_set(json, "inputs", inputs);
    return json;
}

bd_status bd_plan_print(const bd_json *plan, char **text, bd_error *err)
{
    char *printed;
    BD_TRY(bd_json_print(plan, BD_JSON_INDENTED, &printed, err));
    const int n = asprintf(text, "%s\n", printed);
    free(printed);
    return n >= 0 ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the plan");
}

static bd_status cuts_from_json(bd_plan_cuts *cuts, const bd_json *json, bd_error *err)
{
    const bd_json *reading;
    BD_TRY(bd_format_check(json, err));
    BD_TRY(bd_json_get_object(json, "reading", &reading, err));
    cuts->text_is_whole = bd_json_is_null(reading, "delimiter");
    return bd_json_get_integer(reading, "unit_size", 1, INT64_MAX, &cuts->unit_bytes, err);
}

bd_status bd_plan_read_cuts(bd_plan_cuts *cuts, const char *folder, bd_error *err)
{
    bd_json *json = NULL;
    char *path = bd_path_join(folder, BD_PLAN_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = bd_json_read_file(path, BD_MAX_PLAN_BYTES, &json, err);
    if (status == BD_OK) {
        status = cuts_from_json(cuts, json, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "cannot use '%s'", path);
    }
    bd_json_free(json);
    free(path);
    return status;
}
