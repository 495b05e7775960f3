#include "packer/pack/pack_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"

static void set_time(bd_json *json)
{
    char text[32];
    struct tm parts;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &parts) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0)
        bd_json_set_string(json, "finished", text);
}

static void set_host(bd_json *json)
{
    char name[256];
    if (gethostname(name, sizeof name) == 0) {
        name[sizeof name - 1] = '\0';
        bd_json_set_string(json, "host", name);
    }
}

static void set_path(bd_json *json, const char *key, const char *path)
{
    char *absolute = realpath(path, NULL);
    bd_json_set_string(json, key, absolute ? absolute : path);
    free(absolute);
}

// The datasets that this one was packed from; several are listed in order.
static void set_origin(bd_json *json, const bd_joined *from)
{
    if (from->n == 1) {
        set_path(json, "repacked_from", from->items[0].folder);
        return;
    }
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < from->n; i++) {
        bd_json *entry = bd_json_object();
        set_path(entry, "path", from->items[i].folder);
        bd_json_set_integer(entry, "inputs", (int64_t)from->items[i].manifest.n_inputs);
        bd_json_append(array, entry);
    }
    bd_json_set(json, "joined_from", array);
}

static void set_mark(bd_json *json, const bd_file_mark *mark)
{
    bd_json_set_integer(json, "bytes", mark->size_bytes);
    bd_json_set_integer(json, "modified_ns", mark->modified_ns);
    bd_json_set_integer(json, "inode", mark->inode);
}

static bool has_integer(const bd_json *json, const char *key, int64_t expected)
{
    int64_t value;
    return bd_json_get_integer(json, key, INT64_MIN, INT64_MAX, &value, NULL) == BD_OK &&
           value == expected;
}

static bool has_mark(const bd_json *json, const bd_file_mark *mark)
{
    return has_integer(json, "bytes", mark->size_bytes) &&
           has_integer(json, "modified_ns", mark->modified_ns) &&
           has_integer(json, "inode", mark->inode);
}

static bd_json *input_marks_to_json(const bd_inputs *inputs)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input *input = &inputs->items[i];
        bd_json *entry = bd_json_object();
        bd_json_set_string(entry, "name", input->entry.name);
        set_path(entry, "path", input->path);
        if (!bd_input_is_stdin(input))
            set_mark(entry, &input->mark);
        if (input->index) {
            bd_json *index = bd_json_object();
            set_mark(index, &input->index_mark);
            bd_json_set(entry, "index", index);
        }
        bd_json_append(array, entry);
    }
    return array;
}

static bd_json *bad_records(const bd_bad_places *bad, const bd_inputs *inputs)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < bad->n; i++) {
        const bd_bad_place *place = &bad->items[i];
        const bd_input *input = &inputs->items[place->input];
        bd_json *entry = bd_json_object();
        bd_json_set_integer(entry, "input", place->input);
        set_path(entry, "path", input->path);
        bd_json_set_string(entry, "counted_in", bd_position_unit(input->entry.format));
        bd_json_set_integer(entry, "position", place->position);
        bd_json_set_string(entry, "kind", bd_bad_kind_names[place->kind]);
        bd_json_set_string(entry, "problem", place->message);
        bd_json_append(array, entry);
    }
    return array;
}

// NULL if there is none that can be read.
static bd_json *read_log(const char *folder)
{
    enum { MAX_BYTES = 1 << 29 };  // a few lines for each input
    char *path = bd_path_join(folder, BD_PACK_LOG_NAME);
    bd_json *json = NULL;
    if (!path || bd_json_read_file(path, MAX_BYTES, &json, NULL) != BD_OK)
        json = NULL;
    free(path);
    return json;
}

char *bd_pack_log_tokenizer(const char *folder)
{
    bd_json *json = read_log(folder);
    const char *tokenizer;
    char *found = NULL;
    if (json && bd_json_get_string(json, "tokenizer", &tokenizer, NULL) == BD_OK)
        found = strdup(tokenizer);
    bd_json_free(json);
    return found;
}

static bool is_known(const bd_json *entry, const bd_input *input)
{
    const bd_json *index;
    if (!has_mark(entry, &input->mark))
        return false;
    return !input->index || (bd_json_get_object(entry, "index", &index, NULL) == BD_OK &&
                             has_mark(index, &input->index_mark));
}

void bd_pack_log_compare(const char *folder, const bd_inputs *inputs, bool *same,
                         bool *is_updating)
{
    bd_json *json = read_log(folder);
    const bd_json *entries = NULL;
    *is_updating = false;
    if (json && bd_json_get_bool(json, "updating", is_updating, NULL) != BD_OK)
        *is_updating = false;
    if (json && bd_json_get_array(json, "inputs", &entries, NULL) != BD_OK)
        entries = NULL;
    const bool match = entries && bd_json_length(entries) == inputs->n;
    for (size_t i = 0; i < inputs->n; i++)
        same[i] = bd_input_is_stdin(&inputs->items[i]) ||
                  (match && is_known(bd_json_at(entries, i), &inputs->items[i]));
    bd_json_free(json);
}

static bd_json *new_log(void)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "program", "bindery " BINDERY_VERSION);
    return json;
}

// Frees `json`. With `there` an existing log stays.
static bd_status publish_log(bd_json *json, const char *folder, bool *there, bd_error *err)
{
    char *text = NULL;
    bd_status status = bd_json_print(json, BD_JSON_INDENTED, &text, err);
    if (status == BD_OK)
        status = there ? bd_file_publish_new(folder, BD_PACK_LOG_NAME, text, strlen(text),
                                             there, err)
                       : bd_file_publish(folder, BD_PACK_LOG_NAME, text, strlen(text), err);
    free(text);
    bd_json_free(json);
    return status;
}

bd_status bd_pack_log_begin(const char *folder, const bd_inputs *inputs, const char *tokenizer,
                            const bd_bad_places *bad, bool *there, bd_error *err)
{
    bd_json *json = new_log();
    set_host(json);
    if (tokenizer)
        bd_json_set_string(json, "tokenizer", tokenizer);
    bd_json_set(json, "inputs", input_marks_to_json(inputs));
    if (bad->n > 0)
        bd_json_set(json, "bad_records", bad_records(bad, inputs));
    return publish_log(json, folder, there, err);
}

static bd_status read_place(bd_bad_place *place, const bd_json *json, const bd_inputs *inputs)
{
    const char *problem;
    int kind;
    BD_TRY(bd_json_get_integer(json, "input", 0, (int64_t)inputs->n - 1, &place->input, NULL));
    BD_TRY(bd_json_get_integer(json, "position", 0, INT64_MAX, &place->position, NULL));
    BD_TRY(bd_json_get_word(json, "kind", bd_bad_kind_names, &kind, NULL));
    BD_TRY(bd_json_get_string(json, "problem", &problem, NULL));
    place->kind = (bd_bad_kind)kind;
    snprintf(place->message, sizeof place->message, "%s", problem);
    return BD_OK;
}

bd_status bd_pack_log_bad_places(const char *folder, const bd_inputs *inputs,
                                 bd_bad_places *places, bd_error *err)
{
    bd_json *json = read_log(folder);
    const bd_json *entries;
    bd_bad_place place;
    bd_status status = BD_OK;
    if (json && bd_json_get_array(json, "bad_records", &entries, NULL) == BD_OK)
        for (size_t i = 0; status == BD_OK && i < bd_json_length(entries); i++)
            if (read_place(&place, bd_json_at(entries, i), inputs) == BD_OK)
                status = bd_bad_places_add(places, &place, err);
    bd_json_free(json);
    return status;
}

bd_status bd_pack_log_begin_update(const char *folder, bd_error *err)
{
    bd_json *json = new_log();
    bd_json_set_bool(json, "updating", true);
    return publish_log(json, folder, NULL, err);
}

bd_status bd_pack_log_publish(const char *folder, const bd_pack_log *run, bd_error *err)
{
    bd_json *json = new_log();
    set_time(json);
    set_host(json);
    bd_json_set_integer(json, "threads", run->n_threads);
    bd_json_set_integer(json, "ranks", run->n_ranks);
    bd_json_set_real(json, "seconds", (double)run->elapsed_ns / 1e9);
    bd_json_set_integer(json, "units", run->n_units);
    bd_json_set_integer(json, "units_continued", run->n_continued);
    if (run->tokenizer)
        bd_json_set_string(json, "tokenizer", run->tokenizer);
    if (run->inputs)
        bd_json_set(json, "inputs", input_marks_to_json(run->inputs));
    if (run->bad && run->bad->n > 0)
        bd_json_set(json, "bad_records", bad_records(run->bad, run->inputs));
    if (run->repacked_from)
        set_origin(json, run->repacked_from);
    return publish_log(json, folder, NULL, err);
}
