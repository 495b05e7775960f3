#include "packer/pack_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/json.h"

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

// Where a dataset was packed again from; one that joins several lists them in order.
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

static bd_json *paths(const bd_inputs *inputs)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < inputs->n; i++) {
        bd_json *entry = bd_json_object();
        bd_json_set_string(entry, "name", inputs->items[i].entry.name);
        set_path(entry, "path", inputs->items[i].path);
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
        set_path(entry, "path", input->path);
        bd_json_set_string(entry, "counted_in", bd_input_entry_position_word(&input->entry));
        bd_json_set_integer(entry, "position", place->position);
        bd_json_set_string(entry, "kind", bd_bad_kind_words[place->kind]);
        bd_json_set_string(entry, "problem", place->message);
        bd_json_append(array, entry);
    }
    return array;
}

char *bd_pack_log_tokenizer(const char *folder)
{
    enum { MAX_BYTES = 1 << 28 };  // a line or two for each input
    char *path = bd_path_join(folder, BD_PACK_LOG_NAME), *found = NULL;
    bd_json *json = NULL;
    const char *tokenizer;
    if (path && bd_json_read_file(path, MAX_BYTES, &json, NULL) == BD_OK &&
        bd_json_get_string(json, "tokenizer", &tokenizer, NULL) == BD_OK)
        found = strdup(tokenizer);
    bd_json_free(json);
    free(path);
    return found;
}

bd_status bd_pack_log_publish(const char *folder, const bd_pack_run *run, bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "program", "bindery " BINDERY_VERSION);
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
        bd_json_set(json, "inputs", paths(run->inputs));
    if (run->bad && run->bad->n > 0)
        bd_json_set(json, "bad_records", bad_records(run->bad, run->inputs));
    if (run->repacked_from)
        set_origin(json, run->repacked_from);
    char *text = NULL;
    bd_status status = bd_json_print(json, BD_JSON_INDENTED, &text, err);
    if (status == BD_OK)
        status = bd_file_publish(folder, BD_PACK_LOG_NAME, text, strlen(text), err);
    free(text);
    bd_json_free(json);
    return status;
}
