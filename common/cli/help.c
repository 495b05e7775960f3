// Help and manual pages, printed from the tables of options. (Completions: completions.c.)
#include <stdarg.h>
#include <string.h>

#include "common/cli/completions.h"
#include "common/cli/program.h"

enum { HELP_WIDTH = 80, MAX_LABEL_WIDTH = 26 };

// ---- Text that help and manual pages share -----------------------------------------

struct sentence {
    char text[1024];  // far more than any table needs; longer text is cut
};

static void append_text(struct sentence *sentence, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append_text(struct sentence *sentence, const char *format, ...)
{
    const size_t length = strlen(sentence->text);
    va_list args;
    va_start(args, format);
    vsnprintf(sentence->text + length, sizeof sentence->text - length, format, args);
    va_end(args);
}

// "How rows are filled: best-fit, concat [default: best-fit]"
static struct sentence describe_option(const bd_option *option)
{
    struct sentence sentence = {""};
    append_text(&sentence, "%s", option->help);
    const bool in_a_row = option->kind == BD_OPTION_CHOICE && !option->describe_choice;
    for (size_t i = 0; in_a_row && option->choices[i]; i++)
        append_text(&sentence, "%s%s", i ? ", " : ": ", option->choices[i]);
    const char *initial = option->initial_note ? option->initial_note : option->initial;
    if (initial)
        append_text(&sentence, " [default: %s]", initial);
    return sentence;
}

// "tiny  4 layers of 128 channels": choice i of an option that lists its choices one by one,
// the names in one column.
static struct sentence describe_choice(const bd_option *option, int i)
{
    struct sentence sentence = {""};
    char note[256] = "";
    size_t width = 0;
    for (size_t k = 0; option->choices[k]; k++)
        if (strlen(option->choices[k]) > width)
            width = strlen(option->choices[k]);
    option->describe_choice(i, note, sizeof note);
    append_text(&sentence, "%-*s  %s", (int)width, option->choices[i], note);
    return sentence;
}

static bool is_grouped(const bd_command *command)
{
    for (size_t i = 0; i < command->n_options; i++)
        if (command->options[i].group)
            return true;
    return false;
}

// "[OPTIONS] -o DIR INPUT...", which follows the command's name
static struct sentence describe_usage(const bd_command *command)
{
    struct sentence sentence = {"[OPTIONS]"};
    for (size_t i = 0; i < command->n_options; i++) {
        const bd_option *option = &command->options[i];
        if (option->required && option->letter)
            append_text(&sentence, " -%c %s", option->letter, option->value);
        else if (option->required)
            append_text(&sentence, " --%s %s", option->name, option->value);
    }
    if (command->operands)
        append_text(&sentence, " %s", command->operands);
    return sentence;
}

// Takes the next paragraph off *rest and returns it with its length; NULL if there is none.
static const char *next_paragraph(const char **rest, size_t *length)
{
    if (!*rest)
        return NULL;
    const char *start = *rest + strspn(*rest, "\n");
    const char *end = strstr(start, "\n\n");
    if (!end)
        end = start + strlen(start);
    *rest = end;
    *length = (size_t)(end - start);
    if (*length && start[*length - 1] == '\n')
        --*length;  // the last line's own end
    return *length ? start : NULL;
}

// ---- Help --------------------------------------------------------------------------

// The length of the first word of text[0..length); "[default: 2048]" is one word.
static size_t word_length(const char *text, size_t length)
{
    const char *closing = *text == '[' ? memchr(text, ']', length) : NULL;
    const size_t n = closing ? (size_t)(closing + 1 - text) : strcspn(text, " \n");
    return n < length ? n : length;
}

// Prints the words of a text that begins at column `indent`, and ends the line.
static void print_filled(const char *text, size_t length, size_t indent, FILE *out)
{
    const char *const end = text + length;
    for (size_t column = indent; text < end; text += strspn(text, " \n")) {
        const size_t n = word_length(text, (size_t)(end - text));
        if (column > indent && column + 1 + n > HELP_WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, n, out);
        text += n;
        column += n;
    }
    fputc('\n', out);
}

static void print_description(const char *description, FILE *out)
{
    size_t length;
    const char *paragraph;
    while ((paragraph = next_paragraph(&description, &length))) {
        fputc('\n', out);
        if (*paragraph == ' ')
            fprintf(out, "%.*s\n", (int)length, paragraph);
        else
            print_filled(paragraph, length, 0, out);
    }
}

// A label of at most `width` columns and its text beside it; a longer label has its own line.
static void print_labelled(const char *label, size_t width, const char *text, FILE *out)
{
    const bool fits = strlen(label) <= width;
    fprintf(out, "%-*s%s%*s", fits ? (int)width : 0, label, fits ? "" : "\n",
            fits ? 2 : (int)width + 2, "");
    print_filled(text, strlen(text), width + 2, out);
}

// "  -o, --out DIR"
static struct sentence option_label(const bd_option *option)
{
    struct sentence label = {"      "};
    if (option->letter)
        snprintf(label.text, sizeof label.text, "  -%c, ", option->letter);
    append_text(&label, "--%s%s%s", option->name, option->value ? " " : "",
                option->value ? option->value : "");
    return label;
}

static void print_options(const bd_command *command, FILE *out)
{
    const bd_option *option;
    size_t width = 0;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        const size_t length = strlen(option_label(option).text);
        if (!option->hidden && length > width && length <= MAX_LABEL_WIDTH)
            width = length;
    }
    const bool grouped = is_grouped(command);
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        if (option->hidden)
            continue;
        if (grouped && option->group)
            fprintf(out, "%s%s:\n", i ? "\n" : "", option->group);
        print_labelled(option_label(option).text, width, describe_option(option).text, out);
        // Under the option's name, not under its description: a note may take most of a line.
        for (int k = 0; option->describe_choice && option->choices[k]; k++)
            fprintf(out, "%10s%s\n", "", describe_choice(option, k).text);
    }
}

void bd_program_print_help(const bd_program *program, const bd_command *command, FILE *out)
{
    if (command) {
        fprintf(out, "Usage: %s %s %s\n\n%s.\n\n", program->name, command->name,
                describe_usage(command).text, command->summary);
        print_options(command, out);
        print_description(command->description, out);
        return;
    }
    fprintf(out, "Usage: %s COMMAND [ARGUMENTS]\n\n%s.\n\nCommands:\n", program->name,
            program->summary);
    size_t width = 0;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        if (strlen(command->name) > width)
            width = strlen(command->name);
    for (size_t i = 0; (command = bd_program_command(program, i)); i++) {
        fputs("  ", out);
        print_labelled(command->name, width, command->summary, out);
    }
    fputs("\nOptions of every command:\n", out);
    print_options(&(bd_command){0}, out);
    print_description(program->description, out);
    fprintf(out, "\nTry '%s help COMMAND' for more about a command.\n", program->name);
}

// ---- Manual pages ------------------------------------------------------------------

// Escapes the characters that roff would interpret: backslashes, a dot that begins a line, and
// those that it would turn into typographic ones.
static void print_roff(const char *text, size_t length, FILE *out)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\'')
            fputs("\\(aq", out);
        else if (text[i] == '`')
            fputs("\\(ga", out);
        else if (text[i] == '^')
            fputs("\\(ha", out);
        else if (text[i] == '~')
            fputs("\\(ti", out);
        else if (text[i] == '.' && (i == 0 || text[i - 1] == '\n'))
            fputs("\\&.", out);
        else
            fputc(text[i], out);
    }
}

// Text between two pieces of roff.
static void print_between(const char *before, const char *text, const char *after, FILE *out)
{
    fputs(before, out);
    print_roff(text, strlen(text), out);
    fputs(after, out);
}

static void print_roff_description(const char *description, FILE *out)
{
    size_t length;
    const char *paragraph;
    while ((paragraph = next_paragraph(&description, &length))) {
        const bool literal = *paragraph == ' ';
        fputs(literal ? ".PP\n.nf\n" : ".PP\n", out);
        print_roff(paragraph, length, out);
        fputs(literal ? "\n.fi\n" : "\n", out);
    }
}

static void print_roff_options(const bd_command *command, FILE *out)
{
    const bd_option *option;
    const bool grouped = is_grouped(command);
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        if (option->hidden)
            continue;
        if (grouped && option->group)
            print_between(".SS ", option->group, "\n", out);
        fputs(".TP\n", out);
        if (option->letter)
            fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
        print_between("\\fB\\-\\-", option->name, "\\fR", out);
        if (option->value)
            print_between(" \\fI", option->value, "\\fR", out);
        print_between("\n", describe_option(option).text, ".\n", out);
        if (option->describe_choice)
            fputs(".RS\n.nf\n", out);
        for (int k = 0; option->describe_choice && option->choices[k]; k++)
            print_between("", describe_choice(option, k).text, "\n", out);
        if (option->describe_choice)
            fputs(".fi\n.RE\n", out);
    }
}

static void print_roff_title(const char *program, const char *command, const char *summary,
                             FILE *out)
{
    const char *dash = command ? "\\-" : "";
    command = command ? command : "";
    fprintf(out, ".TH \"%s%s%s\" 1 \"\" \"%s %s\"\n.SH NAME\n%s%s%s \\- ", program, dash,
            command, program, BINDERY_VERSION, program, dash, command);
    print_between("", summary, "\n", out);
}

static void print_roff_exit_status(FILE *out)
{
    fputs(".SH EXIT STATUS\n"
          ".TP\n0\nDone.\n"
          ".TP\n1\nThe answer is no, for a command that asks a question.\n"
          ".TP\n2\nIt could not be done; the reason is on standard error.\n",
          out);
}

static void print_command_page(const bd_program *program, const bd_command *command, FILE *out)
{
    print_roff_title(program->name, command->name, command->summary, out);
    fprintf(out, ".SH SYNOPSIS\n.B %s %s\n", program->name, command->name);
    print_between("", describe_usage(command).text, "\n.SH DESCRIPTION\n", out);
    print_between("", command->summary, ".\n", out);
    print_roff_description(command->description, out);
    fputs(".SH OPTIONS\n", out);
    print_roff_options(command, out);
    print_roff_exit_status(out);
    fprintf(out, ".SH SEE ALSO\n.BR %s (1)\n", program->name);
}

static void print_program_page(const bd_program *program, FILE *out)
{
    print_roff_title(program->name, NULL, program->summary, out);
    fprintf(out, ".SH SYNOPSIS\n.B %s\nCOMMAND [ARGUMENTS]\n.SH DESCRIPTION\n", program->name);
    print_between("", program->summary, ".\n", out);
    print_roff_description(program->description, out);
    fputs(".SH COMMANDS\n", out);
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++) {
        fprintf(out, ".TP\n.BR %s\\-%s (1)\n", program->name, command->name);
        print_between("", command->summary, ".\n", out);
    }
    fputs(".SH OPTIONS OF EVERY COMMAND\n", out);
    print_roff_options(&(bd_command){0}, out);
    print_roff_exit_status(out);
}

void bd_program_generate(const bd_program *program, const bd_command *command,
                         bd_generated what, FILE *out)
{
    switch (what) {
    case BD_GENERATED_NOTHING:
        return;
    case BD_GENERATED_MAN:
        if (command)
            print_command_page(program, command, out);
        else
            print_program_page(program, out);
        return;
    case BD_GENERATED_BASH:
        bd_completions_bash(program, out);
        return;
    case BD_GENERATED_ZSH:
        bd_completions_zsh(program, out);
        return;
    case BD_GENERATED_FISH:
        bd_completions_fish(program, out);
        return;
    }
}
