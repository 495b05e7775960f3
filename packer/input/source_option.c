#include "packer/input/source_option.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"

enum { TEXT_FIELD, FORMAT, DELIMITER, N_KEYS };

static const char *const keys[N_KEYS] = {
    [TEXT_FIELD] = "text-field", [FORMAT] = "format", [DELIMITER] = "delimiter"};

// The last option in `text`: its key, and in *value what follows it. *comma is where it begins.
// N_KEYS if there is none.
static int find_last(char *text, char **comma, char **value)
{
    for (char *at = text + strlen(text); at > text; at--) {
        if (at[-1] != ',')
            continue;
        for (int key = 0; key < N_KEYS; key++) {
            const size_t n = strlen(keys[key]);
            if (strncmp(at, keys[key], n) == 0 && at[n] == '=') {
                *comma = at - 1;
                *value = at + n + 1;
                return key;
            }
        }
    }
    return N_KEYS;
}

static bd_status set_format(bd_own_options *own, const char *word, const char *text,
                            bd_error *err)
{
    int i = 0;
    while (bd_format_names[i] && strcmp(bd_format_names[i], word) != 0)
        i++;
    if (!bd_format_names[i])
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--source: '%s': '%s' is not a format (see --format)", text, word);
    own->format = bd_input_kind_chosen(i);
    return BD_OK;
}

static bd_status set_option(bd_own_options *own, int key, const char *value, const char *text,
                            bd_error *err)
{
    const bool is_again = key == FORMAT       ? own->has_format
                          : key == TEXT_FIELD ? own->text_field != NULL
                                              : own->delimiter != NULL;
    if (is_again)
        return bd_fail(err, BD_ERR_ARGUMENT, "--source: '%s' has %s twice", text, keys[key]);
    if (key == FORMAT) {
        own->has_format = true;
        return set_format(own, value, text, err);
    }
    if (key == DELIMITER && strchr(value, '\n'))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--source: '%s': delimiter is one line, without a newline", text);
    char **field = key == TEXT_FIELD ? &own->text_field : &own->delimiter;
    *field = strdup(value);
    return *field ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
}

bd_status bd_source_option_parse(bd_source_option *option, const char *text, bd_error *err)
{
    *option = (bd_source_option){0};
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !bd_is_utf8(text))
        return bd_fail(err, BD_ERR_ARGUMENT, "--source: '%s' is not NAME=INPUT", text);
    option->name = strndup(text, (size_t)(equals - text));
    option->input = strdup(equals + 1);
    if (!option->name || !option->input)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    char *comma, *value;
    for (int key; (key = find_last(option->input, &comma, &value)) < N_KEYS;) {
        BD_TRY(set_option(&option->own, key, value, text, err));
        *comma = '\0';
    }
    if (*option->input == '\0')
        return bd_fail(err, BD_ERR_ARGUMENT, "--source: '%s' is not NAME=INPUT", text);
    return BD_OK;
}

void bd_source_option_release(bd_source_option *option)
{
    free(option->name);
    free(option->input);
    bd_own_options_release(&option->own);
    *option = (bd_source_option){0};
}
