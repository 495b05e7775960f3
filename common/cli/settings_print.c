// Prints settings as a file of settings: the inverse of reading such a file in options.c.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/cli/options.h"

typedef struct number {
    char text[32];
} number;

// The shortest text that is read as the same number.
static number print_real(double value)
{
    number printed;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(printed.text, sizeof printed.text, "%.*g", digits, value);
        if (strtod(printed.text, NULL) == value)
            break;
    }
    return printed;
}

static number print_integer(int64_t value)
{
    number printed;
    snprintf(printed.text, sizeof printed.text, "%" PRId64, value);
    return printed;
}

// Whether the value is a default that help shows as a note, which means "not given".
static bool is_noted_default(const bd_option *option, double value)
{
    return option->initial && option->initial_note && strtod(option->initial, NULL) == value;
}

static bool is_left_out(const bd_option *option, const char *settings)
{
    const void *field = settings + option->offset;
    if (option->is_saved_nowhere || option->hidden)
        return true;
    if (option->sets_given && !*(const bool *)(settings + option->given_offset))
        return true;
    switch (option->kind) {
    case BD_OPTION_INTEGER:
    case BD_OPTION_SIZE:
    case BD_OPTION_LENGTH:
        return is_noted_default(option, (double)*(const int64_t *)field);
    case BD_OPTION_REAL:
        return is_noted_default(option, *(const double *)field);
    case BD_OPTION_TEXTS:
        return ((const bd_texts *)field)->n == 0;
    case BD_OPTION_TEXT:
    case BD_OPTION_FILE:
    case BD_OPTION_DIRECTORY:
        return !*(const char *const *)field;
    case BD_OPTION_FLAG:
    case BD_OPTION_CHOICE:
        return false;
    }
    return false;
}

// A relative name becomes absolute, because the file may be read in another folder. *is_whole
// becomes false if YAML cannot hold the text.
static bd_status add_setting_text(bd_setting *setting, const char *text, bool is_file,
                                  bool *is_whole, bd_error *err)
{
    char *folder = is_file && *text != '/' ? getcwd(NULL, 0) : NULL;
    char *path = folder ? bd_path_join(folder, text) : NULL;
    const char *value = path ? path : text;
    bd_status status = BD_OK;
    *is_whole &= bd_is_utf8(value);
    if (*is_whole)
        status = bd_setting_add(setting, value, err);
    free(path);
    free(folder);
    return status;
}

static bool is_word(const bd_option *option, const char *text)
{
    for (size_t i = 0; option->choices && option->choices[i]; i++)
        if (strcmp(option->choices[i], text) == 0)
            return true;
    return false;
}

static bd_status add_setting_texts(bd_setting *setting, const bd_option *option,
                                   const void *field, bool *is_whole, bd_error *err)
{
    const bd_texts one = {(const char **)field, 1};
    const bd_texts *texts = option->kind == BD_OPTION_TEXTS ? field : &one;
    const bool is_file = option->names_files || option->kind == BD_OPTION_FILE ||
                         option->kind == BD_OPTION_DIRECTORY;
    setting->is_text = true;
    setting->is_list = option->kind == BD_OPTION_TEXTS;
    for (size_t i = 0; i < texts->n; i++)
        BD_TRY(add_setting_text(setting, texts->items[i],
                                is_file && !is_word(option, texts->items[i]), is_whole, err));
    return BD_OK;
}

static bd_status add_setting_values(bd_setting *setting, const bd_option *option,
                                    const void *field, bool *is_whole, bd_error *err)
{
    switch (option->kind) {
    case BD_OPTION_FLAG:
        return bd_setting_add(setting, *(const bool *)field ? "true" : "false", err);
    case BD_OPTION_INTEGER:
    case BD_OPTION_SIZE:
    case BD_OPTION_LENGTH:
        return bd_setting_add(setting, print_integer(*(const int64_t *)field).text, err);
    case BD_OPTION_REAL:
        return bd_setting_add(setting, print_real(*(const double *)field).text, err);
    case BD_OPTION_CHOICE:
        return bd_setting_add(setting, option->choices[*(const int *)field], err);
    case BD_OPTION_TEXT:
    case BD_OPTION_TEXTS:
    case BD_OPTION_FILE:
    case BD_OPTION_DIRECTORY:
        return add_setting_texts(setting, option, field, is_whole, err);
    }
    return BD_OK;
}

static bd_status gather_settings(bd_settings_file *file, const bd_command *command,
                                 const void *settings, bd_error *err)
{
    for (size_t i = 0; i < command->n_options; i++) {
        const bd_option *option = &command->options[i];
        const void *field = (const char *)settings + option->offset;
        bool is_whole = true;
        bd_setting *setting;
        if (is_left_out(option, settings))
            continue;
        BD_TRY(bd_settings_file_add(file, option->name, &setting, err));
        BD_TRY(add_setting_values(setting, option, field, &is_whole, err));
        if (!is_whole)
            bd_settings_file_drop_last(file);
    }
    return BD_OK;
}

bd_status bd_settings_print(const bd_command *command, const void *settings, char **text,
                            size_t *size_bytes, bd_error *err)
{
    bd_settings_file file = {0};
    bd_status status = gather_settings(&file, command, settings, err);
    if (status == BD_OK)
        status = bd_settings_file_print(&file, text, size_bytes, err);
    bd_settings_file_release(&file);
    return status;
}
