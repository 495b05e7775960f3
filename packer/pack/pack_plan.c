#include "packer/pack/pack_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "packer/input/kinds.h"

// ---- Writing -------------------------------------------------------------------------------

// Files of nothing but ids do not say how wide an id is.
static bool has_raw_ids(const bd_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++)
        if (strcmp(inputs->items[i].entry.format, bd_tokens_name) == 0)
            return true;
    return false;
}

// The form of the records, where it is not one text: its fields, and all of the chat format.
static void form_to_json(const bd_input_options *reading, bd_json *json)
{
    if (reading->form == BD_FORM_TEXT)
        return;
    bd_json *fields = bd_json_array();
    for (int i = 0; i < BD_MAX_FORM_FIELDS && reading->fields[i]; i++)
        bd_json_append(fields, bd_json_string(reading->fields[i]));
    bd_json_set_string(json, "form", bd_record_form_names[reading->form]);
    bd_json_set(json, "fields", fields);
    if (!reading->chat)
        return;
    bd_json *chat = bd_json_object();
    bd_json_set(chat, "format", bd_json_share(bd_chat_format_json(reading->chat)));
    bd_json_set(chat, "train_roles", bd_chat_format_trained_roles(reading->chat));
    bd_json_set_string(chat, "train_turn_end", bd_turn_ends_names[reading->turn_ends]);
    bd_json_set(json, "chat", chat);
}

static bd_json *reading_to_json(const bd_pack_job *job)
{
    const bd_input_options *reading = &job->reading;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "text_field", reading->text_field);
    if (reading->delimiter)
        bd_json_set_string(json, "delimiter", reading->delimiter);
    else
        bd_json_set_null(json, "delimiter");
    bd_json_set_string(json, "invalid_utf8", bd_utf8_policy_names[reading->utf8_policy]);
    bd_json_set_string(json, "special_tokens",
                       bd_special_tokens_names[reading->special_tokens]);
    bd_json_set_string(json, "separator", bd_separator_mode_names[reading->separator]);
    bd_json_set_string(json, "bad_records", bd_bad_policy_names[reading->bad_records]);
    bd_json_set_integer(json, "max_bad", reading->max_bad);
    bd_json_set_integer(json, "unit_size", reading->unit_bytes);
    bd_json_set_integer(json, "max_document_bytes", reading->max_document_bytes);
    if (job->limit == BD_NO_LIMIT)
        bd_json_set_null(json, "limit");
    else
        bd_json_set_integer(json, "limit", job->limit);
    if (has_raw_ids(job->inputs))
        bd_json_set_integer(json, "id_bytes", reading->raw_id_bytes);
    form_to_json(reading, json);
    return json;
}

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
    if (input->mask_column)
        bd_json_set_string(json, "mask_column", input->mask_column);
    return json;
}

// Takes over the references to all but `config`. `joined` may be NULL.
static bd_json *plan_to_json(const bd_dataset_config *config, bd_json *reading, bd_json *joined,
                             bd_json *inputs)
{
    bd_json *plan = bd_json_object();
    bd_json_set_string(plan, "format", bd_dataset_format(config));
    bd_json_set(plan, "packing", bd_dataset_config_to_json(config));
    bd_json_set(plan, "reading", reading);
    if (joined)
        bd_json_set(plan, "joined", joined);
    bd_json_set(plan, "inputs", inputs);
    return plan;
}

bd_json *bd_pack_plan_to_json(const bd_pack_job *job, const bd_dataset_config *config)
{
    bd_json *inputs = bd_json_array();
    for (size_t i = 0; i < job->inputs->n; i++)
        bd_json_append(inputs, input_to_json(&job->inputs->items[i]));
    return plan_to_json(config, reading_to_json(job), NULL, inputs);
}

bd_status bd_pack_plan_print(const bd_json *plan, char **text, bd_error *err)
{
    char *printed;
    BD_TRY(bd_json_print(plan, BD_JSON_INDENTED, &printed, err));
    // The manifest lists the inputs and the shards, and must be readable as well.
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

// ---- Reading -------------------------------------------------------------------------------

// Words that a plan of an older format lacks, and how such a plan is read.
static const struct {
    const char *key, *word;
} later_words[] = {
    {"separator", "append"}, {"bad_records", "error"}, {"special_tokens", "token"}};

static bd_status get_word(const bd_json *reading, const char *key, const char *const words[],
                          int *value, bd_error *err)
{
    for (size_t i = 0; i < sizeof later_words / sizeof *later_words; i++)
        if (strcmp(later_words[i].key, key) == 0 && bd_json_is_null(reading, key)) {
            for (*value = 0; strcmp(words[*value], later_words[i].word) != 0;)
                ++*value;
            return BD_OK;
        }
    return bd_json_get_word(reading, key, words, value, err);
}

// How inputs are cut into units: all that a dataset needs that is only continued or removed.
static bd_status cuts_from_json(const bd_json *json, int64_t *unit_bytes, int64_t *limit,
                                bd_error *err)
{
    *limit = BD_NO_LIMIT;
    if (!bd_json_is_null(json, "limit"))
        BD_TRY(bd_json_get_integer(json, "limit", 1, INT64_MAX, limit, err));
    return bd_json_get_integer(json, "unit_size", 1, BD_MAX_UNIT_BYTES, unit_bytes, err);
}

// Reads the format of chats, and which roles and ends of turns are trained.
static bd_status chat_from_json(bd_pack_plan_part *part, const bd_json *json, bd_error *err)
{
    const bd_json *format, *roles;
    char names[1024] = "";
    size_t n = 0;
    int turn_ends;
    BD_TRY(bd_json_get_object(json, "format", &format, err));
    BD_TRY(bd_chat_format_from_json(&part->chat, format, err));
    part->reading.chat = part->chat;
    BD_TRY(bd_json_get_array(json, "train_roles", &roles, err));
    for (size_t i = 0; i < bd_json_length(roles) && n < sizeof names; i++) {
        const char *name;
        BD_TRY(bd_json_as_string(bd_json_at(roles, i), &name, err));
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? "," : "", name);
    }
    if (n >= sizeof names)
        return bd_fail(err, BD_ERR_FORMAT, "'train_roles' has too many names");
    BD_TRY(bd_chat_format_train_roles(part->chat, names, err));
    BD_TRY(bd_json_get_word(json, "train_turn_end", bd_turn_ends_names, &turn_ends, err));
    part->reading.turn_ends = (bd_turn_ends)turn_ends;
    return BD_OK;
}

// The inverse of form_to_json().
static bd_status form_from_json(bd_pack_plan_part *part, const bd_json *json, bd_error *err)
{
    bd_input_options *reading = &part->reading;
    const bd_json *fields, *chat;
    int form;
    if (bd_json_is_null(json, "form"))
        return BD_OK;
    BD_TRY(bd_json_get_word(json, "form", bd_record_form_names, &form, err));
    reading->form = (bd_record_form)form;
    BD_TRY(bd_json_get_array(json, "fields", &fields, err));
    const size_t n = form == BD_FORM_COMPLETION ? 2 : 1;
    if (form == BD_FORM_TEXT || bd_json_length(fields) != n)
        return bd_fail(err, BD_ERR_FORMAT, "'fields' has %zu names for the form '%s'",
                       bd_json_length(fields), bd_record_form_names[form]);
    for (size_t i = 0; i < n; i++)
        BD_TRY(bd_json_as_string(bd_json_at(fields, i), &reading->fields[i], err));
    if (form != BD_FORM_MESSAGES)
        return BD_OK;
    BD_TRY(bd_json_get_object(json, "chat", &chat, err));
    const bd_status status = chat_from_json(part, chat, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'chat'");
}

// The inverse of reading_to_json(). How many records may be bad is not read: no shard depends
// on it.
static bd_status part_from_json(bd_pack_plan_part *part, const bd_json *json,
                                const bd_dataset_config *config, bd_error *err)
{
    bd_input_options *reading = &part->reading;
    int utf8_policy, special_tokens, separator, bad_records;
    part->json = json;
    BD_TRY(cuts_from_json(json, &reading->unit_bytes, &part->limit, err));
    BD_TRY(bd_json_get_string(json, "text_field", &reading->text_field, err));
    if (!bd_json_is_null(json, "delimiter"))
        BD_TRY(bd_json_get_string(json, "delimiter", &reading->delimiter, err));
    BD_TRY(form_from_json(part, json, err));
    BD_TRY(get_word(json, "invalid_utf8", bd_utf8_policy_names, &utf8_policy, err));
    BD_TRY(get_word(json, "special_tokens", bd_special_tokens_names, &special_tokens, err));
    BD_TRY(get_word(json, "separator", bd_separator_mode_names, &separator, err));
    BD_TRY(get_word(json, "bad_records", bd_bad_policy_names, &bad_records, err));
    reading->utf8_policy = (bd_utf8_policy)utf8_policy;
    reading->special_tokens = (bd_special_tokens)special_tokens;
    reading->separator = (bd_separator_mode)separator;
    reading->bad_records = (bd_bad_policy)bad_records;
    int64_t id_bytes = bd_dataset_id_bytes(config);
    part->has_id_bytes = !bd_json_is_null(json, "id_bytes");
    if (part->has_id_bytes)
        BD_TRY(bd_json_get_integer(json, "id_bytes", 2, 4, &id_bytes, err));
    reading->raw_id_bytes = (int)id_bytes;
    reading->end_of_text = config->separator;
    return bd_json_get_integer(json, "max_document_bytes", 1, UINT32_MAX,
                               &reading->max_document_bytes, err);
}

bd_status bd_pack_plan_load(const char *folder, bd_json **plan, bd_error *err)
{
    const bd_json *reading;
    int64_t unit_bytes, limit;
    *plan = NULL;
    char *path = bd_path_join(folder, BD_PLAN_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = bd_json_read_file(path, BD_MAX_PLAN_BYTES, plan, err);
    if (status == BD_OK) {
        status = bd_format_check(*plan, err);
        if (status == BD_OK)
            status = bd_json_get_object(*plan, "reading", &reading, err);
        if (status == BD_OK)
            status = cuts_from_json(reading, &unit_bytes, &limit, err);
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

bd_status bd_pack_plan_entries(const bd_json *plan, bd_input_entry **entries, size_t *n,
                               int64_t *unit_bytes, bd_error *err)
{
    const bd_json *inputs, *reading;
    int64_t limit;
    *entries = NULL;
    *n = 0;
    BD_TRY(bd_json_get_object(plan, "reading", &reading, err));
    BD_TRY(cuts_from_json(reading, unit_bytes, &limit, err));
    BD_TRY(bd_json_get_array(plan, "inputs", &inputs, err));
    *entries = calloc(bd_json_length(inputs) + 1, sizeof **entries);
    if (!*entries)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    for (; *n < bd_json_length(inputs); ++*n)
        BD_TRY(bd_input_entry_from_json(&(*entries)[*n], bd_json_at(inputs, *n), err));
    return BD_OK;
}

// Every input belongs to one part, and every part has one.
static bd_status get_parts(bd_pack_plan *plan, const bd_dataset_config *config, size_t n_inputs,
                           bd_error *err)
{
    const bd_json *joined = NULL;
    if (!bd_json_is_null(plan->json, "joined"))
        BD_TRY(bd_json_get_array(plan->json, "joined", &joined, err));
    const size_t n = joined ? bd_json_length(joined) : 1;
    if (joined && (n == 0 || n > n_inputs))
        return bd_fail(err, BD_ERR_FORMAT, "'joined' has %zu entries for %zu inputs", n,
                       n_inputs);
    plan->parts = calloc(n, sizeof *plan->parts);
    if (!plan->parts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan");
    size_t n_before = 0;
    for (plan->n_parts = 0; plan->n_parts < n; plan->n_parts++) {
        bd_pack_plan_part *part = &plan->parts[plan->n_parts];
        const bd_json *json = joined ? bd_json_at(joined, plan->n_parts) : plan->json, *reading;
        int64_t n_own = (int64_t)n_inputs;
        bd_status status = BD_OK;
        if (joined)
            status = bd_json_get_integer(json, "inputs", 1, (int64_t)(n_inputs - n_before),
                                         &n_own, err);
        if (status == BD_OK)
            status = bd_json_get_object(json, "reading", &reading, err);
        if (status == BD_OK)
            status = part_from_json(part, reading, config, err);
        if (status != BD_OK) {
            bd_chat_format_free(part->chat);  // this part is not counted yet
            return joined ? bd_error_prefix(err, status, "'joined[%zu]'", plan->n_parts)
                          : status;
        }
        part->first_input = n_before;
        part->n_inputs = (size_t)n_own;
        n_before += part->n_inputs;
    }
    return n_before == n_inputs
               ? BD_OK
               : bd_fail(err, BD_ERR_FORMAT, "'joined' tells of %zu inputs, and there are %zu",
                         n_before, n_inputs);
}

bd_status bd_pack_plan_read(bd_pack_plan *plan, const char *folder,
                            const bd_dataset_config *config, size_t n_inputs, bd_error *err)
{
    *plan = (bd_pack_plan){.folder = folder};
    BD_TRY(bd_pack_plan_load(folder, &plan->json, err));
    const bd_status status = get_parts(plan, config, n_inputs, err);
    if (status != BD_OK) {
        bd_error_prefix(err, status, "cannot use '%s/" BD_PLAN_NAME "'", folder);
        bd_pack_plan_release(plan);
    }
    return status;
}

void bd_pack_plan_release(bd_pack_plan *plan)
{
    for (size_t i = 0; i < plan->n_parts; i++)
        bd_chat_format_free(plan->parts[i].chat);
    bd_json_free(plan->json);
    free(plan->parts);
    *plan = (bd_pack_plan){0};
}

size_t bd_pack_plan_find_part(const bd_pack_plan *plan, size_t input)
{
    size_t low = 0, high = plan->n_parts;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (plan->parts[middle].first_input <= input)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bd_status get_text_or_null(const bd_json *json, const char *key, const char **text,
                                  bd_error *err)
{
    *text = NULL;
    return bd_json_is_null(json, key) ? BD_OK : bd_json_get_string(json, key, text, err);
}

bd_status bd_pack_plan_input(const bd_pack_plan *plan, size_t index, bd_planned_input *input,
                             bd_error *err)
{
    const bd_json *inputs;
    BD_TRY(bd_json_get_array(plan->json, "inputs", &inputs, err));
    if (index >= bd_json_length(inputs))
        return bd_fail(err, BD_ERR_FORMAT, "the plan does not have it");
    const bd_json *json = bd_json_at(inputs, index);
    BD_TRY(get_text_or_null(json, "edges", &input->edges, err));
    BD_TRY(get_text_or_null(json, "text_field", &input->text_field, err));
    BD_TRY(get_text_or_null(json, "mask_column", &input->mask_column, err));
    return get_text_or_null(json, "delimiter", &input->delimiter, err);
}

bd_status bd_pack_plan_complete_entry(const bd_pack_plan_part *part, bd_input_entry *entry,
                                      bd_error *err)
{
    if (entry->stride > 0 || entry->n_starts > 0)
        return BD_OK;
    if (part->reading.delimiter || strcmp(entry->format, "text") != 0) {
        entry->stride = part->reading.unit_bytes;
        return BD_OK;
    }
    entry->starts = calloc(1, sizeof *entry->starts);  // the file is one document
    if (!entry->starts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    entry->n_starts = 1;
    return BD_OK;
}

// ---- Joining -------------------------------------------------------------------------------

bd_status bd_pack_plan_join(const bd_pack_plan *const *plans, size_t n,
                            const bd_dataset_config *config, bd_json **joined, bd_error *err)
{
    bd_json *inputs = bd_json_array(), *parts = bd_json_array();
    for (size_t i = 0; i < n; i++) {
        const bd_json *own;
        const bd_pack_plan_part *last = &plans[i]->parts[plans[i]->n_parts - 1];
        const size_t n_inputs = last->first_input + last->n_inputs;
        bd_status status = bd_json_get_array(plans[i]->json, "inputs", &own, err);
        if (status == BD_OK && bd_json_length(own) != n_inputs)
            status = bd_fail(err, BD_ERR_FORMAT, "'inputs' has %zu entries, the manifest %zu",
                             bd_json_length(own), n_inputs);
        if (status != BD_OK) {
            bd_json_free(inputs);
            bd_json_free(parts);
            *joined = NULL;
            return bd_error_prefix(err, status, "cannot use '%s/" BD_PLAN_NAME "'",
                                   plans[i]->folder);
        }
        for (size_t k = 0; k < n_inputs; k++)
            bd_json_append(inputs, bd_json_share(bd_json_at(own, k)));
        for (size_t k = 0; k < plans[i]->n_parts; k++) {
            bd_json *part = bd_json_object();
            bd_json_set_integer(part, "inputs", (int64_t)plans[i]->parts[k].n_inputs);
            bd_json_set(part, "reading", bd_json_share(plans[i]->parts[k].json));
            bd_json_append(parts, part);
        }
    }
    const bool is_one = bd_json_length(parts) == 1;
    *joined = plan_to_json(config, bd_json_share(plans[0]->parts[0].json),
                           is_one ? NULL : bd_json_share(parts), inputs);
    bd_json_free(parts);
    return BD_OK;
}

// ---- Comparing -----------------------------------------------------------------------------

// The keys of an input that depend on its contents. All others say which input it is and how it
// is read.
static const char *const content_keys[] = {"compression", "bytes",  "weight", "extent",
                                           "stride",      "starts", "edges",  NULL};
static const char *const no_keys[] = {NULL};

static bd_json *copy_without(const bd_json *object, const char *const *keys)
{
    bd_json *copy = bd_json_object();
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m)) {
        const char *const *key = keys;
        while (*key && strcmp(*key, m.key) != 0)
            key++;
        if (!*key)
            bd_json_set(copy, m.key, bd_json_share(m.value));
    }
    return copy;
}

// How much of a plan is compared.
typedef enum scope {
    WHAT_IS_READ,        // and how
    AND_ITS_CONTENTS,    // those of the inputs as well
    AND_THE_BAD_RECORDS  // how many are allowed: everything but the format's version
} scope;

// `other` is the reading of the plan to compare with. Plans of older versions do not say
// `id_bytes`, so it is compared only where both plans have it.
static bd_json *copy_reading(const bd_json *reading, const bd_json *other, scope how_much)
{
    const bool have_id_bytes =
        !bd_json_is_null(reading, "id_bytes") && other && !bd_json_is_null(other, "id_bytes");
    const char *left_out[3] = {NULL};
    size_t n = 0;
    if (!have_id_bytes)
        left_out[n++] = "id_bytes";
    if (how_much < AND_THE_BAD_RECORDS)
        left_out[n++] = "max_bad";
    bd_json *copy = copy_without(reading, left_out);
    for (size_t i = 0; i < sizeof later_words / sizeof *later_words; i++)
        if (bd_json_is_null(copy, later_words[i].key))
            bd_json_set_string(copy, later_words[i].key, later_words[i].word);
    if (how_much == AND_THE_BAD_RECORDS && bd_json_is_null(copy, "max_bad"))
        bd_json_set_integer(copy, "max_bad", 0);
    return copy;
}

// The part of `plan` that is compared with `other`. The version of the format is left out.
static bd_json *simplify(const bd_json *plan, const bd_json *other, scope how_much)
{
    static const char *const replaced[] = {"format", "reading", "inputs", NULL};
    const bd_json *reading, *other_reading = NULL, *inputs;
    bd_json *copy = copy_without(plan, replaced);
    if (bd_json_get_object(other, "reading", &other_reading, NULL) != BD_OK)
        other_reading = NULL;
    if (bd_json_get_object(plan, "reading", &reading, NULL) == BD_OK)
        bd_json_set(copy, "reading", copy_reading(reading, other_reading, how_much));
    if (bd_json_get_array(plan, "inputs", &inputs, NULL) != BD_OK)
        return copy;
    bd_json *simple = bd_json_array();
    for (size_t i = 0; i < bd_json_length(inputs); i++)
        bd_json_append(simple, copy_without(bd_json_at(inputs, i),
                                            how_much == WHAT_IS_READ ? content_keys : no_keys));
    bd_json_set(copy, "inputs", simple);
    return copy;
}

static bool plans_differ(const bd_json *here, const bd_json *there, scope how_much, char *where,
                         size_t where_size)
{
    bd_json *a = simplify(here, there, how_much), *b = simplify(there, here, how_much);
    const bool found = bd_json_difference(a, b, where, where_size);
    bd_json_free(a);
    bd_json_free(b);
    return found;
}

bd_plan_difference bd_pack_plan_compare(const bd_json *here, const bd_json *there, char *where,
                                        size_t where_size)
{
    *where = '\0';
    return plans_differ(here, there, WHAT_IS_READ, where, where_size) ? BD_PLANS_DIFFER
           : plans_differ(here, there, AND_ITS_CONTENTS, where, where_size)
               ? BD_PLANS_READ_CHANGED
           : plans_differ(here, there, AND_THE_BAD_RECORDS, where, where_size)
               ? BD_PLANS_ALLOW_OTHERS
               : BD_PLANS_ARE_SAME;
}
