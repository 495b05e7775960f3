#include "packer/pack/pack_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"

static bd_json *input_to_json(const bd_input *input)
{
    bd_json *json = bd_json_object();
    bd_input_entry_to_json(&input->entry, json);
    if (bd_input_is_stdin(input))
        bd_json_set_null(json, "edges");
    else
        bd_json_set_string(json, "edges", input->edges.hex);
    if (input->own.text_field)
        bd_json_set_string(json, "text_field", input->own.text_field);
    if (input->own.delimiter)
        bd_json_set_string(json, "delimiter", input->own.delimiter);
    return json;
}

static bd_json *reading_to_json(const bd_pack_job *job)
{
    const bd_reading *reading = &job->reading;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "text_field", reading->text_field);
    if (reading->delimiter)
        bd_json_set_string(json, "delimiter", reading->delimiter);
    else
        bd_json_set_null(json, "delimiter");
    bd_json_set_string(json, "invalid_utf8", bd_utf8_policy_words[reading->utf8_policy]);
    bd_json_set_string(json, "special_tokens",
                       bd_special_tokens_names[reading->special_tokens]);
    bd_json_set_string(json, "separator", bd_separator_mode_words[reading->separator]);
    bd_json_set_string(json, "bad_records", bd_bad_policy_words[reading->bad_records]);
    bd_json_set_integer(json, "max_bad", reading->max_bad);
    bd_json_set_integer(json, "unit_size", reading->unit_bytes);
    bd_json_set_integer(json, "max_document_bytes", reading->max_document_bytes);
    if (job->limit == BD_NO_LIMIT)
        bd_json_set_null(json, "limit");
    else
        bd_json_set_integer(json, "limit", job->limit);
    return json;
}

bd_json *bd_plan_to_json(const bd_pack_job *job, const bd_packing *packing)
{
    bd_json *inputs = bd_json_array();
    for (size_t i = 0; i < job->inputs->n; i++)
        bd_json_append(inputs, input_to_json(&job->inputs->items[i]));
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", BD_FORMAT_VERSION);
    bd_json_set(json, "packing", bd_packing_to_json(packing));
    bd_json_set(json, "reading", reading_to_json(job));
    bd_json_set(json, "inputs", inputs);
    return json;
}

bd_status bd_plan_print(const bd_json *plan, char **text, bd_error *err)
{
    char *printed;
    BD_TRY(bd_json_print(plan, BD_JSON_INDENTED, &printed, err));
    // The manifest will list the inputs and the shards besides, and must be readable as well.
    const bool too_large = strlen(printed) > BD_MAX_PLAN_BYTES / 4;
    const int n = asprintf(text, "%s\n", printed);
    free(printed);
    if (n < 0)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan");
    if (too_large) {
        free(*text);
        return bd_fail(err, BD_ERR_UNSUPPORTED, "the inputs are too many for one plan");
    }
    return BD_OK;
}

static bd_status cuts_from_json(bd_plan_cuts *cuts, const bd_json *reading, bd_error *err)
{
    cuts->text_is_whole = bd_json_is_null(reading, "delimiter");
    cuts->limit = BD_NO_LIMIT;
    if (!bd_json_is_null(reading, "limit"))
        BD_TRY(bd_json_get_integer(reading, "limit", 1, INT64_MAX, &cuts->limit, err));
    return bd_json_get_integer(reading, "unit_size", 1, BD_MAX_UNIT_BYTES, &cuts->unit_bytes,
                               err);
}

static bd_status check_plan(const bd_json *plan, bd_error *err)
{
    const bd_json *reading;
    bd_plan_cuts cuts;
    BD_TRY(bd_format_check(plan, err));
    BD_TRY(bd_json_get_object(plan, "reading", &reading, err));
    return cuts_from_json(&cuts, reading, err);
}

bd_status bd_plan_read(const char *folder, bd_json **plan, bd_error *err)
{
    *plan = NULL;
    char *path = bd_path_join(folder, BD_PLAN_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = bd_json_read_file(path, BD_MAX_PLAN_BYTES, plan, err);
    if (status == BD_OK) {
        status = check_plan(*plan, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "cannot use '%s'", path);
    }
    if (status != BD_OK) {
        bd_json_free(*plan);
        *plan = NULL;
    }
    free(path);
    return status;
}

// ---- Its parts -----------------------------------------------------------------------------

static bd_status part_from_json(bd_plan_part *part, const bd_json *json, size_t n_left,
                                bd_error *err)
{
    int64_t n_inputs;
    BD_TRY(bd_json_get_integer(json, "inputs", 1, (int64_t)n_left, &n_inputs, err));
    BD_TRY(bd_json_get_object(json, "reading", &part->reading, err));
    part->n_inputs = (size_t)n_inputs;
    return cuts_from_json(&part->cuts, part->reading, err);
}

// Every input belongs to one part, and every part has one.
static bd_status get_joined(bd_plan_parts *parts, size_t n_inputs, bd_error *err)
{
    const bd_json *joined;
    size_t n_before = 0;
    BD_TRY(bd_json_get_array(parts->plan, "joined", &joined, err));
    const size_t n = bd_json_length(joined);
    if (n == 0 || n > n_inputs)
        return bd_fail(err, BD_ERR_FORMAT, "'joined' has %zu entries for %zu inputs", n,
                       n_inputs);
    parts->items = calloc(n, sizeof *parts->items);
    if (!parts->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan");
    for (parts->n = 0; parts->n < n; parts->n++) {
        bd_plan_part *part = &parts->items[parts->n];
        part->first_input = n_before;
        const bd_status status =
            part_from_json(part, bd_json_at(joined, parts->n), n_inputs - n_before, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'joined[%zu]'", parts->n);
        n_before += part->n_inputs;
    }
    return n_before == n_inputs
               ? BD_OK
               : bd_fail(err, BD_ERR_FORMAT, "'joined' tells of %zu inputs, and there are %zu",
                         n_before, n_inputs);
}

static bd_status get_parts(bd_plan_parts *parts, size_t n_inputs, bd_error *err)
{
    if (!bd_json_is_null(parts->plan, "joined"))
        return get_joined(parts, n_inputs, err);
    parts->items = calloc(1, sizeof *parts->items);
    if (!parts->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan");
    parts->n = 1;
    parts->items->n_inputs = n_inputs;
    BD_TRY(bd_json_get_object(parts->plan, "reading", &parts->items->reading, err));
    return cuts_from_json(&parts->items->cuts, parts->items->reading, err);
}

bd_status bd_plan_read_parts(bd_plan_parts *parts, const char *folder, size_t n_inputs,
                             bd_error *err)
{
    *parts = (bd_plan_parts){0};
    BD_TRY(bd_plan_read(folder, &parts->plan, err));
    const bd_status status = get_parts(parts, n_inputs, err);
    if (status != BD_OK) {
        bd_error_prefix(err, status, "cannot use '%s/" BD_PLAN_NAME "'", folder);
        bd_plan_parts_release(parts);
    }
    return status;
}

size_t bd_plan_find_part(const bd_plan_parts *parts, size_t input)
{
    size_t low = 0, high = parts->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (parts->items[middle].first_input <= input)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void bd_plan_parts_release(bd_plan_parts *parts)
{
    bd_json_free(parts->plan);
    free(parts->items);
    *parts = (bd_plan_parts){0};
}

bd_status bd_plan_complete_entry(const bd_plan_cuts *cuts, bd_input_entry *entry, bd_error *err)
{
    if (entry->stride > 0 || entry->n_starts > 0)
        return BD_OK;
    if (!cuts->text_is_whole || strcmp(entry->format, "text") != 0) {
        entry->stride = cuts->unit_bytes;
        return BD_OK;
    }
    entry->starts = calloc(1, sizeof *entry->starts);
    if (!entry->starts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    entry->n_starts = 1;
    return BD_OK;
}
