#include "common/cli/settings_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/base/file.h"
#include "common/base/memory.h"

static bd_status fail_memory(bd_error *err)
{
    return bd_fail(err, BD_ERR_MEMORY, "no memory for settings");
}

// ---- The settings -------------------------------------------------------------------------

bd_status bd_settings_file_add(bd_settings_file *file, const char *name, bd_setting **setting,
                               bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&file->items, &file->capacity, file->n + 1,
                            sizeof *file->items, err));
    char *copy = strdup(name);
    if (!copy)
        return fail_memory(err);
    *setting = &file->items[file->n++];
    **setting = (bd_setting){.name = copy};
    return BD_OK;
}

bd_status bd_setting_add(bd_setting *setting, const char *value, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&setting->values, &setting->capacity, setting->n + 1,
                            sizeof *setting->values, err));
    char *copy = strdup(value);
    if (!copy)
        return fail_memory(err);
    setting->values[setting->n++] = copy;
    return BD_OK;
}

void bd_settings_file_drop_last(bd_settings_file *file)
{
    bd_setting *last = &file->items[--file->n];
    for (size_t i = 0; i < last->n; i++)
        free(last->values[i]);
    free(last->values);
    free(last->name);
}

void bd_settings_file_release(bd_settings_file *file)
{
    while (file->n > 0)
        bd_settings_file_drop_last(file);
    free(file->items);
    free(file->path);
    *file = (bd_settings_file){0};
}

// ---- Reading ------------------------------------------------------------------------------
// libyaml hands over one event after the other, so that no alias is ever expanded and no tree
// is built. The first event that is not allowed here ends the reading.

typedef struct yaml_reader {
    bd_settings_file *file;
    yaml_parser_t parser;
    yaml_event_t event;  // the current one
    const char *text;
    size_t size_bytes;
    bd_error *err;
} yaml_reader;

static bd_status fail_at_line(const yaml_reader *r, size_t line, const char *what)
{
    return bd_fail(r->err, BD_ERR_FORMAT, "%s:%zu: %s", r->file->path, line, what);
}

static bd_status fail_at_event(const yaml_reader *r, const char *what)
{
    return fail_at_line(r, r->event.start_mark.line + 1, what);
}

static bd_status next_event(yaml_reader *r)
{
    const yaml_parser_t *parser = &r->parser;
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return BD_OK;
    if (parser->error == YAML_MEMORY_ERROR)
        return fail_memory(r->err);
    size_t line = parser->problem_mark.line + 1;
    if (parser->error ==
        YAML_READER_ERROR) {  // bytes that are not text: only their offset is known
        line = 1;
        for (size_t i = 0; i < parser->problem_offset && i < r->size_bytes; i++)
            line += r->text[i] == '\n';
    }
    return fail_at_line(r, line, parser->problem ? parser->problem : "it is not YAML");
}

static bd_status refuse_features(const yaml_reader *r, const yaml_char_t *anchor,
                                 const yaml_char_t *tag)
{
    if (anchor)
        return fail_at_event(r, "anchors are not supported: write the value where it is used");
    if (tag)
        return fail_at_event(r,
                             "tags are not supported: the option knows the type of its value");
    return BD_OK;
}

// The current event is a scalar that is a text without a NUL.
static bd_status check_scalar(const yaml_reader *r, const char *expected)
{
    const yaml_event_t *event = &r->event;
    if (event->type == YAML_ALIAS_EVENT)
        return fail_at_event(r, "aliases are not supported: write the value where it is used");
    if (event->type != YAML_SCALAR_EVENT)
        return fail_at_event(r, expected);
    BD_TRY(refuse_features(r, event->data.scalar.anchor, event->data.scalar.tag));
    if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
        return fail_at_event(r, "a value cannot contain a NUL");
    return BD_OK;
}

// A value that YAML calls null was most likely forgotten.
static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    const char *value = (const char *)event->data.scalar.value;
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value, words[i]) == 0)
            return true;
    return false;
}

static bd_status add_value(yaml_reader *r, bd_setting *setting, const char *expected)
{
    BD_TRY(check_scalar(r, expected));
    if (is_null(&r->event))
        return fail_at_event(r, "a value is missing (an empty text is written '')");
    return bd_setting_add(setting, (const char *)r->event.data.scalar.value, r->err);
}

static bd_status read_value_list(yaml_reader *r, bd_setting *setting)
{
    const yaml_event_t *event = &r->event;
    BD_TRY(
        refuse_features(r, event->data.sequence_start.anchor, event->data.sequence_start.tag));
    setting->is_list = true;
    BD_TRY(next_event(r));
    while (r->event.type != YAML_SEQUENCE_END_EVENT) {
        BD_TRY(add_value(r, setting, "a list holds plain values, not lists or mappings"));
        BD_TRY(next_event(r));
    }
    return BD_OK;
}

// The current event is a name.
static bd_status read_yaml_setting(yaml_reader *r)
{
    bd_setting *setting;
    BD_TRY(check_scalar(r, "expected the name of an option"));
    BD_TRY(bd_settings_file_add(r->file, (const char *)r->event.data.scalar.value, &setting,
                                r->err));
    setting->line = r->event.start_mark.line + 1;
    BD_TRY(next_event(r));
    return r->event.type == YAML_SEQUENCE_START_EVENT
               ? read_value_list(r, setting)
               : add_value(r, setting, "the value of an option cannot be a mapping");
}

static bd_status read_mapping(yaml_reader *r)
{
    const yaml_event_t *event = &r->event;
    if (event->type != YAML_MAPPING_START_EVENT)
        return fail_at_event(r, "expected names with values, such as 'steps: 300'");
    BD_TRY(refuse_features(r, event->data.mapping_start.anchor, event->data.mapping_start.tag));
    BD_TRY(next_event(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        BD_TRY(read_yaml_setting(r));
        BD_TRY(next_event(r));
    }
    return BD_OK;
}

// An empty file has no settings.
static bd_status read_stream(yaml_reader *r)
{
    BD_TRY(next_event(r));  // the stream's start
    BD_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return BD_OK;
    BD_TRY(next_event(r));  // after the document's start
    BD_TRY(read_mapping(r));
    BD_TRY(next_event(r));  // the document's end
    BD_TRY(next_event(r));
    return r->event.type == YAML_STREAM_END_EVENT
               ? BD_OK
               : fail_at_event(r, "a second document begins here; a file has one");
}

bd_status bd_settings_file_read(bd_settings_file *file, const char *path, bd_error *err)
{
    *file = (bd_settings_file){.path = strdup(path)};
    char *text = NULL;
    yaml_reader r = {.file = file, .err = err};
    bd_status status =
        file->path ? bd_file_read(path, BD_MAX_SETTINGS_BYTES, &text, &r.size_bytes, err)
                   : fail_memory(err);
    if (status == BD_OK && !yaml_parser_initialize(&r.parser))
        status = fail_memory(err);
    else if (status == BD_OK) {
        r.text = text;
        yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, r.size_bytes);
        status = read_stream(&r);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    }
    free(text);
    if (status != BD_OK)
        bd_settings_file_release(file);
    return status;
}

// ---- Printing -----------------------------------------------------------------------------

typedef struct printed {
    char *text;  // owned
    size_t n, capacity;
} printed;

static int take_output(void *context, unsigned char *buffer, size_t size)
{
    printed *out = context;
    if (bd_array_reserve((void **)&out->text, &out->capacity, out->n + size + 1, 1, NULL) !=
        BD_OK)
        return 0;
    memcpy(out->text + out->n, buffer, size);
    out->n += size;
    out->text[out->n] = '\0';
    return 1;
}

// libyaml's calls give 1 for success; an event that could not be made must not be emitted.
static bool emit(yaml_emitter_t *emitter, yaml_event_t *event, int made)
{
    return made && yaml_emitter_emit(emitter, event);
}

static bool emit_text(yaml_emitter_t *emitter, const char *text, bool is_quoted)
{
    yaml_event_t event;
    return emit(emitter, &event,
                yaml_scalar_event_initialize(
                    &event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1,
                    is_quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE));
}

static bool emit_setting(yaml_emitter_t *emitter, const bd_setting *setting)
{
    yaml_event_t event;
    bool done = emit_text(emitter, setting->name, false);
    if (setting->is_list)
        done = done && emit(emitter, &event,
                            yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                                                 YAML_BLOCK_SEQUENCE_STYLE));
    for (size_t i = 0; done && i < setting->n; i++)
        done = emit_text(emitter, setting->values[i], setting->is_text);
    if (setting->is_list)
        done = done && emit(emitter, &event, yaml_sequence_end_event_initialize(&event));
    return done;
}

static bool emit_file(yaml_emitter_t *emitter, const bd_settings_file *file)
{
    yaml_event_t event;
    bool done =
        emit(emitter, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING)) &&
        emit(emitter, &event,
             yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1)) &&
        emit(emitter, &event,
             yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
                                                 YAML_BLOCK_MAPPING_STYLE));
    for (size_t i = 0; done && i < file->n; i++)
        done = emit_setting(emitter, &file->items[i]);
    return done && emit(emitter, &event, yaml_mapping_end_event_initialize(&event)) &&
           emit(emitter, &event, yaml_document_end_event_initialize(&event, 1)) &&
           emit(emitter, &event, yaml_stream_end_event_initialize(&event)) &&
           yaml_emitter_flush(emitter);
}

bd_status bd_settings_file_print(const bd_settings_file *file, char **text, size_t *size_bytes,
                                 bd_error *err)
{
    printed out = {0};
    yaml_emitter_t emitter;
    bool done = yaml_emitter_initialize(&emitter);
    if (done) {
        yaml_emitter_set_output(&emitter, take_output, &out);
        yaml_emitter_set_unicode(&emitter, 1);
        yaml_emitter_set_width(&emitter, -1);  // a value is one line
        done = emit_file(&emitter, file);
        yaml_emitter_delete(&emitter);
    }
    *text = out.text;
    *size_bytes = out.n;
    if (done)
        return BD_OK;
    free(out.text);
    *text = NULL;
    return fail_memory(err);
}
