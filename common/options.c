#include "common/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

static const char *const color_words[] = {"auto", "always", "never", NULL};
static const char *const generated_words[] = {"nothing", "man", "bash", "zsh", "fish", NULL};

// Their fields are in bd_arguments itself.
static const bd_option common_options[] = {
    {.name = "quiet",
     .letter = 'q',
     BD_FLAG(bd_arguments, quiet),
     .help = "No progress and no notes"},
    {.name = "color",
     .value = "WHEN",
     BD_CHOICE(bd_arguments, color, color_words),
     .initial = "auto",
     .help = "Colour the output"},
    {.name = "help", .letter = 'h', BD_FLAG(bd_arguments, help), .help = "Print this help"},
    {.name = "version", BD_FLAG(bd_arguments, version), .help = "Print the version"},
    {.name = "generate",
     .value = "WHAT",
     BD_CHOICE(bd_arguments, generated, generated_words),
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

// ---- Values ------------------------------------------------------------------------

// Reads the integer that `text` begins with; *rest is what follows it.
static bool parse_leading_integer(const char *text, int64_t *value, char **rest)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9')
        return false;  // strtoll would take spaces and '+'
    errno = 0;
    *value = strtoll(text, rest, 10);
    return errno == 0;
}

static bool parse_integer(const char *text, int64_t *value)
{
    char *rest;
    return parse_leading_integer(text, value, &rest) && *rest == '\0';
}

static const char size_suffixes[] = "KMGT";  // steps of 1024

static bool parse_size(const char *text, int64_t *value)
{
    char *suffix;
    if (!parse_leading_integer(text, value, &suffix))
        return false;
    if (*suffix == '\0')
        return true;
    const char *step = strchr(size_suffixes, *suffix);
    if (!step || suffix[1] != '\0')
        return false;
    const int64_t factor = INT64_C(1) << (10 * (step - size_suffixes + 1));
    return !__builtin_mul_overflow(*value, factor, value);
}

// The shortest text that parse_size() reads as `size_bytes`.
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

static bool parse_real(const char *text, double *value)
{
    if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;  // strtod would take spaces, "nan", "inf" and hexadecimal
    char *end;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

// A default that help shows as a note may lie outside the limits.
static bool is_noted_initial(const bd_option *option, const char *text)
{
    return text == option->initial && option->initial_note;
}

// Stores the int64_t of an integer or a size.
static bd_status store_integer(const bd_option *option, const char *spelled, const char *text,
                               int64_t *field, bd_error *err)
{
    const bool is_size = option->kind == BD_OPTION_SIZE;
    int64_t value;
    const bool parsed = is_size ? parse_size(text, &value) : parse_integer(text, &value);
    if (parsed && ((option->min_integer <= value && value <= option->max_integer) ||
                   is_noted_initial(option, text))) {
        *field = value;
        return BD_OK;
    }
    if (!is_size)
        return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not an integer from %lld to %lld",
                       spelled, text, (long long)option->min_integer,
                       (long long)option->max_integer);
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
    double value;
    if (parse_real(text, &value) && ((option->min_real <= value && value <= option->max_real) ||
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

static bd_status append_text(bd_texts *texts, const char *text, bd_error *err)
{
    const char **items = realloc(texts->items, (texts->n + 1) * sizeof *items);
    if (!items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the arguments");
    items[texts->n++] = text;
    texts->items = items;
    return BD_OK;
}

// Puts the value `text` (unused for a flag) of option i into its field. `spelled` is the
// option as messages call it.
static bd_status store(bd_arguments *arguments, size_t i, const char *spelled, const char *text,
                       bd_error *err)
{
    const bd_option *option = bd_command_option(arguments->command, i);
    const bool common = i >= arguments->command->n_options;
    void *field = (common ? (char *)arguments : (char *)arguments->settings) + option->offset;
    switch (option->kind) {
    case BD_OPTION_FLAG:
        *(bool *)field = true;
        return BD_OK;
    case BD_OPTION_INTEGER:
    case BD_OPTION_SIZE:
        return store_integer(option, spelled, text, field, err);
    case BD_OPTION_REAL:
        return store_real(option, spelled, text, field, err);
    case BD_OPTION_CHOICE:
        return store_choice(option, spelled, text, field, err);
    case BD_OPTION_TEXTS:
        return append_text(field, text, err);
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

struct reader {
    bd_arguments *arguments;
    bool *given;  // [number of options]
    char **argv;
    int argc;
    int next;  // in argv
    bd_error *err;
};

// Whether what the arguments ask for is known, whatever follows.
static bool reading_ends(const bd_arguments *arguments)
{
    return arguments->help || arguments->version || arguments->generated;
}

// Stores the value of option i: `attached` if it is not NULL, otherwise the next argument.
static bd_status read_value(struct reader *reader, size_t i, const char *spelled,
                            const char *attached)
{
    const bd_option *option = bd_command_option(reader->arguments->command, i);
    const char *text = attached;
    if (option->kind == BD_OPTION_FLAG && attached)
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s takes no value", spelled);
    if (option->kind != BD_OPTION_FLAG && !attached) {
        if (reader->next == reader->argc || strncmp(reader->argv[reader->next], "--", 2) == 0)
            return bd_fail(reader->err, BD_ERR_ARGUMENT, "%s needs a value: %s", spelled,
                           option->value);
        text = reader->argv[reader->next++];
    }
    reader->given[i] = true;
    if (option->sets_given)
        *(bool *)((char *)reader->arguments->settings + option->given_offset) = true;
    return store(reader->arguments, i, spelled, text, reader->err);
}

static bd_status unknown_option(struct reader *reader, const char *argument)
{
    const int length = (int)strcspn(argument, "=");
    char name[64];
    snprintf(name, sizeof name, "%.*s", length, argument);
    bd_nearest nearest = {.typed = name + strspn(name, "-")};
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(reader->arguments->command, i)); i++)
        if (!option->hidden)
            bd_nearest_offer(&nearest, option->name);
    if (nearest.word)
        return bd_fail(reader->err, BD_ERR_ARGUMENT,
                       "unknown option '%.*s'; did you mean '--%s'?", length, argument,
                       nearest.word);
    return bd_fail(reader->err, BD_ERR_ARGUMENT, "unknown option '%.*s'", length, argument);
}

// --name, --name=value, --name value
static bd_status read_name(struct reader *reader, const char *argument)
{
    const char *name = argument + 2;
    const size_t length = strcspn(name, "=");
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(reader->arguments->command, i)); i++) {
        if (strlen(option->name) != length || strncmp(option->name, name, length) != 0)
            continue;
        char spelled[64];
        snprintf(spelled, sizeof spelled, "--%s", option->name);
        return read_value(reader, i, spelled, name[length] ? name + length + 1 : NULL);
    }
    return unknown_option(reader, argument);
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
            return unknown_option(reader, argument);
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
        if (options_ended || argument[0] != '-' || argument[1] == '\0')
            arguments->operands[arguments->n_operands++] = argument;
        else if (strcmp(argument, "--") == 0)
            options_ended = true;
        else if (argument[1] == '-')
            BD_TRY(read_name(reader, argument));
        else
            BD_TRY(read_letters(reader, argument));
    }
    return BD_OK;
}

static bd_status check_required(const struct reader *reader)
{
    const bd_command *command = reader->arguments->command;
    for (size_t i = 0; i < command->n_options; i++) {
        const bd_option *option = &command->options[i];
        if (!option->required || reader->given[i])
            continue;
        if (option->letter)
            return bd_fail(reader->err, BD_ERR_ARGUMENT, "-%c is required", option->letter);
        return bd_fail(reader->err, BD_ERR_ARGUMENT, "--%s is required", option->name);
    }
    return BD_OK;
}

// Counts the words of "DATASET [ROW...]": those in brackets may be missing.
static bd_status check_operands(const bd_arguments *arguments, bd_error *err)
{
    const char *expected = arguments->command->operands ? arguments->command->operands : "";
    size_t min = 0, max = 0;
    for (const char *word = expected; *word;) {
        min += *word != '[';
        max++;
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    if (arguments->n_operands < min)
        return bd_fail(err, BD_ERR_ARGUMENT, "missing operand: expected %s", expected);
    if (arguments->n_operands > max && !strstr(expected, "..."))
        return bd_fail(err, BD_ERR_ARGUMENT, "unexpected operand '%s'",
                       arguments->operands[max]);
    return BD_OK;
}

static bd_status parse(struct reader *reader)
{
    bd_arguments *arguments = reader->arguments;
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(arguments->command, i)); i++)
        if (option->initial)
            BD_TRY(store(arguments, i, option->name, option->initial, reader->err));
    BD_TRY(read_arguments(reader));
    if (reading_ends(arguments))
        return BD_OK;
    BD_TRY(check_required(reader));
    return check_operands(arguments, reader->err);
}

bd_status bd_arguments_parse(bd_arguments *arguments, const bd_command *command, int argc,
                             char **argv, bd_error *err)
{
    *arguments = (bd_arguments){.command = command};
    arguments->settings =
        calloc(1, command->settings_size + 1);  // + 1: never an allocation of 0
    arguments->operands = calloc((size_t)argc + 1, sizeof *arguments->operands);
    struct reader reader = {
        .arguments = arguments, .argv = argv, .argc = argc, .next = 1, .err = err};
    reader.given = calloc(command->n_options + N_COMMON_OPTIONS, sizeof *reader.given);

    bd_status status;
    if (!arguments->settings || !arguments->operands || !reader.given)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the arguments");
    else
        status = parse(&reader);
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
    *arguments = (bd_arguments){0};
}
