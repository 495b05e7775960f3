#include "common/cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

BD_ENUM_NAMES(bd_generated, BD_GENERATED_TEXTS);

// The fields of these options lie in bd_arguments itself.
static const bd_option common_options[] = {
    {.name = "quiet",
     .letter = 'q',
     .group = "Options of every command",
     BD_FLAG(bd_arguments, quiet),
     .help = "No progress, notes or summary"},
    {.name = "color",
     .value = "WHEN",
     BD_CHOICE(bd_arguments, color, bd_color_names),
     .initial = "auto",
     .help = "Colour the output"},
    {.name = "help", .letter = 'h', BD_FLAG(bd_arguments, help), .help = "Print this help"},
    {.name = "version", BD_FLAG(bd_arguments, version), .help = "Print the version"},
    {.name = "generate",
     .value = "WHAT",
     BD_CHOICE(bd_arguments, generated, bd_generated_names),
     .initial = "nothing",
     .help = "Print the manual page or the completions of a shell",
     .hidden = true},
};
enum { N_COMMON_OPTIONS = sizeof common_options / sizeof common_options[0] };

const bd_option *bd_command_option(const bd_command *command, size_t i)
{
    if (i < command->n_options)
        return &command->options[i];
    i -= command->n_options;
    return i < N_COMMON_OPTIONS ? &common_options[i] : NULL;
}

// ---- The nearest known word -----------------------------------------------------------

void bd_nearest_offer(bd_nearest *nearest, const char *candidate)
{
    enum { MAX_LENGTH = 40 };  // longer words get no hint
    const char *typed = nearest->typed;
    const size_t length = strlen(typed), n = strlen(candidate);
    if (length < 2 || length > MAX_LENGTH || n > MAX_LENGTH)
        return;

    // The edit distance: row[j] counts the insertions, deletions and replacements that turn the
    // first i letters of `typed` into the first j letters of `candidate`.
    size_t row[MAX_LENGTH + 1];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; i < length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= n; j++) {
            const size_t replaced = diagonal + (typed[i] != candidate[j - 1]);
            const size_t inserted = row[j - 1] + 1;
            const size_t deleted = row[j] + 1;
            diagonal = row[j];
            row[j] = inserted < deleted ? inserted : deleted;
            row[j] = replaced < row[j] ? replaced : row[j];
        }
    }
    const size_t distance = strncmp(candidate, typed, length) == 0 ? 1 : row[n];
    if (distance < (nearest->word ? nearest->distance : 2 + length / 4)) {
        nearest->word = candidate;
        nearest->distance = distance;
    }
}

// ---- Values ------------------------------------------------------------------------

static const char size_suffixes[] = "KMGT";  // each is 1024 times the one before

// Reads the integer that `text` begins with; *rest is what follows it.
static bool read_leading_integer(const char *text, int64_t *value, const char **rest)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9')
        return false;  // strtoll would take spaces and '+'
    errno = 0;
    *value = strtoll(text, (char **)rest, 10);
    return errno == 0;
}

bool bd_read_size(const char *text, int64_t *value, const char **rest)
{
    if (!read_leading_integer(text, value, rest))
        return false;
    const char *step = **rest ? strchr(size_suffixes, toupper((unsigned char)**rest)) : NULL;
    *rest += step != NULL;
    const int64_t factor = step ? INT64_C(1) << (10 * (step - size_suffixes + 1)) : 1;
    return bd_int64_mul(*value, factor, value);
}

// The shortest text that bd_read_size() reads as `size_bytes`.
static void format_size(char text[32], int64_t size_bytes)
{
    const char *suffix = "";
    for (const char *next = size_suffixes; *next && size_bytes && size_bytes % 1024 == 0;
         next++) {
        size_bytes /= 1024;
        suffix = next;
    }
    snprintf(text, 32, "%lld%.1s", (long long)size_bytes, suffix);
}

// A default that help shows as a note may lie outside the limits.
static bool is_noted_initial(const bd_option *option, const char *text)
{
    return text == option->initial && option->initial_note;
}

// Stores the int64_t of an integer, a size or a length.
static bd_status store_integer(const bd_option *option, const char *spelled, const char *text,
                               int64_t *field, bd_error *err)
{
    int64_t value;
    const char *rest;
    const bool parsed = option->kind == BD_OPTION_INTEGER
                            ? read_leading_integer(text, &value, &rest)
                            : bd_read_size(text, &value, &rest);
    if (parsed && *rest == '\0' &&
        ((option->min_integer <= value && value <= option->max_integer) ||
         is_noted_initial(option, text))) {
        *field = value;
        return BD_OK;
    }
    if (option->kind != BD_OPTION_SIZE)
        return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not an integer from %lld to %lld%s",
                       spelled, text, (long long)option->min_integer,
                       (long long)option->max_integer,
                       option->kind == BD_OPTION_LENGTH ? " (2k is 2048)" : "");
    char min[32], max[32];
    format_size(min, option->min_integer);
    format_size(max, option->max_integer);
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "%s: '%s' is not a size from %s to %s (bytes, or with K, M, G, T)", spelled,
                   text, min, max);
}

static bd_status store_real(const bd_option *option, const char *spelled, const char *text,
                            double *field, bd_error *err)
{
    // strtod alone would take spaces, "nan", "inf" and hexadecimal digits.
    const bool plain = *text && strspn(text, "0123456789+-.eE") == strlen(text);
    char *end = NULL;
    const double value = plain ? strtod(text, &end) : NAN;
    if (plain && *end == '\0' && isfinite(value) &&
        ((option->min_real <= value && value <= option->max_real) ||
         is_noted_initial(option, text))) {
        *field = value;
        return BD_OK;
    }
    return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not a number from %g to %g", spelled,
                   text, option->min_real, option->max_real);
}

static bd_status store_choice(const bd_option *option, const char *spelled, const char *text,
                              int *field, bd_error *err)
{
    char words[256] = "";
    size_t n = 0;
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *field = i;
            return BD_OK;
        }
        if (n < sizeof words)
            n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", i ? ", " : "",
                                  option->choices[i]);
    }
    return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not one of %s", spelled, text, words);
}

// Puts the value `text` (NULL for a flag alone) of option i into its field. `spelled` is the
// option as messages call it.
static bd_status store_value(bd_arguments *arguments, size_t i, const char *spelled,
                             const char *text, bd_error *err)
{
    const bd_option *option = bd_command_option(arguments->command, i);
    const bool common = i >= arguments->command->n_options;
    void *field = (common ? (char *)arguments : (char *)arguments->settings) + option->offset;
    switch (option->kind) {
    case BD_OPTION_FLAG: {
        const bool is_true = !text || strcmp(text, "true") == 0;
        if (!is_true && strcmp(text, "false") != 0)
            return bd_fail(err, BD_ERR_ARGUMENT, "%s takes no value but true or false",
                           spelled);
        *(bool *)field = is_true;
        return BD_OK;
    }
    case BD_OPTION_INTEGER:
    case BD_OPTION_SIZE:
    case BD_OPTION_LENGTH:
        return store_integer(option, spelled, text, field, err);
    case BD_OPTION_REAL:
        return store_real(option, spelled, text, field, err);
    case BD_OPTION_CHOICE:
        return store_choice(option, spelled, text, field, err);
    case BD_OPTION_TEXTS: {
        bd_texts *texts = field;
        const char **items = realloc(texts->items, (texts->n + 1) * sizeof *items);
        if (!items)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for the arguments");
        items[texts->n++] = text;
        texts->items = items;
        return BD_OK;
    }
    case BD_OPTION_FILE:
    case BD_OPTION_DIRECTORY:
        if (*text == '\0')
            return bd_fail(err, BD_ERR_ARGUMENT, "%s: the name is empty", spelled);
        break;
    case BD_OPTION_TEXT:
        break;
    }
    *(const char **)field = text;
    return BD_OK;
}

// ---- Reading argv ------------------------------------------------------------------
// Options are numbered as in bd_command_option().

// The origin of an option's value. If several give one, the first in this order counts.
enum layer { NOBODY, COMMAND_LINE, SETTINGS_FILE, INHERITED_FILE };

struct reader {
    bd_arguments *arguments;
    unsigned char *given;  // [number of options], an enum layer each
    char **argv;
    int argc;
    int next;  // in argv
    bd_error *err;
};

// Whether --help, --version or --generate was given: the other arguments do not matter then.
static bool reading_ends(const bd_arguments *arguments)
{
    return arguments->help || arguments->version || arguments->generated;
}

static void mark_given(struct reader *reader, size_t i, enum layer layer)
{
    const bd_option *option = bd_command_option(reader->arguments->command, i);
    reader->given[i] = (unsigned char)layer;
    if (option->sets_given && layer != INHERITED_FILE)
        *(bool *)((char *)reader->arguments->settings + option->given_offset) = true;
}

// Stores the value of option i: `attached` if it is not NULL, otherwise the next argument.
static bd_status read_value(struct reader *reader, size_t i, const char *spelled,
                            const char *attached)
{
    const bd_option *option = bd_command_option(reader->arguments->command, i);
    const char *text = attached;
    if (option->kind != BD_OPTION_FLAG && !attached) {
        if (reader->next == reader->argc || strncmp(reader->argv[reader->next], "--", 2) == 0)
            return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s needs a value: %s", spelled,
                           option->value);
        text = reader->argv[reader->next++];
    }
    // Nobody knows which of two values was meant. A flag says the same twice, and a list grows.
    if (reader->given[i] == COMMAND_LINE && option->kind != BD_OPTION_FLAG &&
        option->kind != BD_OPTION_TEXTS)
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s is given twice", spelled);
    mark_given(reader, i, COMMAND_LINE);
    return store_value(reader->arguments, i, spelled, text, reader->err);
}

// `typed` is cut off at its '='; the hint is spelled as `dashes` and the name that is near.
static bd_status unknown_option(struct reader *reader, const char *typed, const char *dashes)
{
    char name[65];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(typed, "="), typed);
    bd_nearest nearest = {.typed = name + strspn(name, "-")};
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(reader->arguments->command, i)); i++)
        if (!option->hidden)
            bd_nearest_offer(&nearest, option->name);
    if (nearest.word)
        return bd_fail(reader->err, BD_ERR_ARGUMENT,
                       "unknown option '%s'; did you mean '%s%s'?", name, dashes, nearest.word);
    return bd_fail(reader->err, BD_ERR_ARGUMENT, "unknown option '%s'", name);
}

// The option of this name or alias, and its number; NULL if there is none.
static const bd_option *find_option(const bd_command *command, const char *name, size_t length,
                                    size_t *i)
{
    const bd_option *option;
    for (*i = 0; (option = bd_command_option(command, *i)); ++*i) {
        const char *const *alias = option->aliases;
        const char *called = option->name;
        for (; called; called = alias ? *alias++ : NULL)
            if (strlen(called) == length && strncmp(called, name, length) == 0)
                return option;
    }
    return NULL;
}

// -q, -qn, -o value, -ovalue
static bd_status read_letters(struct reader *reader, const char *argument)
{
    for (const char *letter = argument + 1; *letter; letter++) {
        const bd_option *option;
        size_t i = 0;
        while ((option = bd_command_option(reader->arguments->command, i)) &&
               option->letter != *letter)
            i++;
        if (!option && letter == argument + 1)
            return unknown_option(reader, argument, "--");
        if (!option)
            return bd_fail(reader->err, BD_ERR_ARGUMENT, "unknown option '-%c' in '%s'",
                           *letter, argument);

        const char spelled[] = {'-', *letter, '\0'};
        const bool is_flag = option->kind == BD_OPTION_FLAG;
        const char *attached = !is_flag && letter[1] ? letter + 1 : NULL;
        BD_TRY(read_value(reader, i, spelled, attached));
        if (!is_flag || reading_ends(reader->arguments))
            return BD_OK;
    }
    return BD_OK;
}

static bd_status read_arguments(struct reader *reader)
{
    bd_arguments *arguments = reader->arguments;
    bool options_ended = false;
    while (reader->next < reader->argc && !reading_ends(arguments)) {
        const char *argument = reader->argv[reader->next++];
        if (options_ended || argument[0] != '-' || argument[1] == '\0') {
            arguments->operands[arguments->n_operands++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            options_ended = true;
        } else if (argument[1] == '-') {  // --name, --name=value, --name value
            const char *name = argument + 2;
            const size_t length = strcspn(name, "=");
            size_t i;
            const bd_option *option = find_option(arguments->command, name, length, &i);
            if (!option)
                return unknown_option(reader, argument, "--");
            char spelled[64];
            snprintf(spelled, sizeof spelled, "--%s", option->name);
            BD_TRY(read_value(reader, i, spelled, name[length] ? name + length + 1 : NULL));
        } else {
            BD_TRY(read_letters(reader, argument));
        }
    }
    return BD_OK;
}

// ---- Reading files of settings -----------------------------------------------------

static bd_status read_setting(struct reader *reader, const bd_setting *setting,
                              enum layer layer)
{
    const bd_command *command = reader->arguments->command;
    size_t i;
    const bd_option *option = find_option(command, setting->name, strlen(setting->name), &i);
    if (!option)
        return unknown_option(reader, setting->name, "");
    if (i >= command->n_options || option->is_settings_file)
        return bd_fail(reader->err, BD_ERR_ARGUMENT,
                       "%s: this option is for the command line alone", option->name);
    if (reader->given[i] == layer)
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s is given twice", option->name);
    if (setting->is_list && option->kind != BD_OPTION_TEXTS)
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s: expected one value, not a list",
                       option->name);
    // A layer before this one overrides the option, or an alternative to it.
    for (size_t k = 0; k < command->n_options; k++) {
        const char *other = command->options[k].alternatives;
        const bool same = k == i || (option->alternatives && other &&
                                     strcmp(option->alternatives, other) == 0);
        if (same && reader->given[k] != NOBODY && reader->given[k] < layer)
            return BD_OK;
    }
    mark_given(reader, i, layer);
    for (size_t k = 0; k < setting->n; k++)
        BD_TRY(
            store_value(reader->arguments, i, option->name, setting->values[k], reader->err));
    return BD_OK;
}

static bd_status read_file(struct reader *reader, bd_settings_file *file, const char *path,
                           enum layer layer)
{
    BD_TRY(bd_settings_file_read(file, path, reader->err));
    for (size_t i = 0; i < file->n; i++) {
        const bd_status status = read_setting(reader, &file->items[i], layer);
        if (status != BD_OK)
            return bd_error_prefix(reader->err, status, "%s:%zu", path, file->items[i].line);
    }
    return BD_OK;
}

static bd_status read_files(struct reader *reader)
{
    bd_arguments *arguments = reader->arguments;
    const bd_command *command = arguments->command;
    for (size_t i = 0; i < command->n_options; i++) {
        const bd_option *option = &command->options[i];
        const char **path = (const char **)((char *)arguments->settings + option->offset);
        if (option->is_settings_file && *path)
            BD_TRY(read_file(reader, &arguments->files[0], *path, SETTINGS_FILE));
    }
    char *path = NULL;
    if (command->inherits)
        BD_TRY(command->inherits(arguments->settings, &path, reader->err));
    const bd_status status =
        path ? read_file(reader, &arguments->files[1], path, INHERITED_FILE) : BD_OK;
    free(path);
    return status;
}

// ---- All of it ---------------------------------------------------------------------

static bd_status parse_all(struct reader *reader)
{
    bd_arguments *arguments = reader->arguments;
    const bd_command *command = arguments->command;
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++)
        if (option->initial)
            BD_TRY(store_value(arguments, i, option->name, option->initial, reader->err));
    BD_TRY(read_arguments(reader));
    if (reading_ends(arguments))
        return BD_OK;
    BD_TRY(read_files(reader));

    for (size_t i = 0; i < command->n_options; i++) {
        option = &command->options[i];
        if (!option->required || reader->given[i])
            continue;
        if (option->letter)
            return bd_fail(reader->err, BD_ERR_ARGUMENT, "-%c is required", option->letter);
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "--%s is required", option->name);
    }
    // The words of "DATASET [ROW...]" are counted: those in brackets may be missing.
    const char *expected = command->operands ? command->operands : "";
    size_t min = 0, max = 0;
    for (const char *word = expected; *word;) {
        min += *word != '[';
        max++;
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    if (arguments->n_operands < min)
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "missing operand: expected %s", expected);
    if (arguments->n_operands > max && !strstr(expected, "..."))
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "unexpected operand '%s'",
                       arguments->operands[max]);
    return BD_OK;
}

bd_status bd_arguments_parse(bd_arguments *arguments, const bd_command *command, int argc,
                             char **argv, bd_error *err)
{
    *arguments = (bd_arguments){.command = command};
    // One more byte, because an allocation of 0 bytes may give NULL.
    arguments->settings = calloc(1, command->settings_size + 1);
    arguments->operands = calloc((size_t)argc + 1, sizeof *arguments->operands);
    struct reader reader = {
        .arguments = arguments, .argv = argv, .argc = argc, .next = 1, .err = err};
    reader.given = calloc(command->n_options + N_COMMON_OPTIONS, sizeof *reader.given);

    bd_status status;
    if (!arguments->settings || !arguments->operands || !reader.given)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the arguments");
    else
        status = parse_all(&reader);
    free(reader.given);
    if (status != BD_OK)
        bd_arguments_release(arguments);
    return status;
}

void bd_arguments_release(bd_arguments *arguments)
{
    if (arguments->settings)
        for (size_t i = 0; i < arguments->command->n_options; i++) {
            const bd_option *option = &arguments->command->options[i];
            if (option->kind == BD_OPTION_TEXTS)
                free(((bd_texts *)((char *)arguments->settings + option->offset))->items);
        }
    free(arguments->settings);
    free(arguments->operands);
    for (size_t i = 0; i < sizeof arguments->files / sizeof arguments->files[0]; i++)
        bd_settings_file_release(&arguments->files[i]);
    *arguments = (bd_arguments){0};
}
