#include "common/cli/completions.h"

#include <string.h>

// Stands for the program itself, before any command: it has the common options alone.
static const bd_command program_alone = {.name = ""};

// The words of a choice; a choice without words is one of the commands.
static void print_words(const bd_program *program, const char *const *choices, FILE *out)
{
    const bd_command *command;
    for (size_t i = 0; choices && choices[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", choices[i]);
    for (size_t i = 0; !choices && (command = bd_program_command(program, i)); i++)
        fprintf(out, "%s%s", i ? " " : "", command->name);
}

// ---- bash --------------------------------------------------------------------------

// The body of a case, which completes a value.
static void print_bash_value(const bd_program *program, bd_option_kind kind,
                             const char *const *choices, FILE *out)
{
    if (kind == BD_OPTION_DIRECTORY) {
        fputs("compopt -o dirnames ;;\n", out);
    } else if (kind == BD_OPTION_FILE && choices) {
        fputs("words='", out);
        print_words(program, choices, out);
        fputs("' files=yes ;;\n", out);
    } else if (kind == BD_OPTION_FILE || kind == BD_OPTION_TEXTS) {
        fputs("compopt -o default ;;\n", out);
    } else if (kind == BD_OPTION_CHOICE) {
        fputs("words='", out);
        print_words(program, choices, out);
        fputs("' ;;\n", out);
    } else {
        fputs(";;\n", out);
    }
}

static void print_bash_options(const bd_command *command, FILE *out)
{
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        if (!option->hidden && option->letter)
            fprintf(out, " -%c", option->letter);
        if (!option->hidden)
            fprintf(out, " --%s", option->name);
    }
}

// Cases of command:previous:current; the first that matches counts.
static void print_bash_command(const bd_program *program, const bd_command *command, FILE *out)
{
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        if (option->hidden || option->kind == BD_OPTION_FLAG)
            continue;
        fputs("    ", out);
        if (option->letter)
            fprintf(out, "%s:-%c:* | ", command->name, option->letter);
        fprintf(out, "%s:--%s:*) ", command->name, option->name);
        print_bash_value(program, option->kind, option->choices, out);
    }
    fprintf(out, "    %s:*:-*) words='", command->name);
    print_bash_options(command, out);
    fprintf(out, "' ;;\n    %s:*) ", command->name);
    print_bash_value(program, command->operand_kind, NULL, out);
}

void bd_completions_bash(const bd_program *program, FILE *out)
{
    const char *name = program->name;
    fprintf(out,
            "# bash completion for %s, printed by '%s --generate bash'\n"
            "_%s()\n"
            "{\n"
            "    local current=${COMP_WORDS[COMP_CWORD]} words= files=\n"
            "    local previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
            "    # bash splits --name=value at the equals sign\n"
            "    if [[ $current == = ]]; then\n"
            "        current=\n"
            "    elif [[ $previous == = ]]; then\n"
            "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "    fi\n"
            "    ((COMP_CWORD > 1)) || command=\n"
            "    case $command:$previous:$current in\n",
            name, name, name);
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        print_bash_command(program, command, out);
    fputs("    *) words='", out);
    print_words(program, NULL, out);
    print_bash_options(&program_alone, out);
    fprintf(out,
            "' ;;\n"
            "    esac\n"
            "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
            "    if [[ $files ]]; then\n"
            "        compopt -o filenames\n"
            "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")\n"
            "    fi\n"
            "}\n"
            "complete -F _%s %s\n",
            name, name);
}

// ---- zsh ---------------------------------------------------------------------------

// Text inside single quotes, where brackets and colons mean something to _arguments.
static void print_zsh_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            fputc('\\', out);
        fputs(*text == '\'' ? "'\\'" : "", out);
        fputc(*text, out);
    }
}

static void print_zsh_value(const bd_program *program, bd_option_kind kind,
                            const char *const *choices, FILE *out)
{
    if (kind == BD_OPTION_DIRECTORY) {
        fputs("_files -/", out);
    } else if (kind == BD_OPTION_FILE && choices) {
        fputs("{compadd -- ", out);
        print_words(program, choices, out);
        fputs("; _files}", out);
    } else if (kind == BD_OPTION_FILE || kind == BD_OPTION_TEXTS) {
        fputs("_files", out);
    } else if (kind == BD_OPTION_CHOICE) {
        fputs("(", out);
        print_words(program, choices, out);
        fputs(")", out);
    }
}

// '(-o --out)'{-o+,--out=}'[Write the dataset into DIR]:DIR:_files -/'
static void print_zsh_option(const bd_program *program, const bd_option *option, FILE *out)
{
    const bool is_flag = option->kind == BD_OPTION_FLAG;
    fputs(" \\\n            ", out);
    if (option->kind == BD_OPTION_TEXTS)
        fputs("'*'", out);
    else if (option->letter)
        fprintf(out, "'(-%c --%s)'", option->letter, option->name);
    if (option->letter)
        fprintf(out, "{-%c%s,--%s%s}'[", option->letter, is_flag ? "" : "+", option->name,
                is_flag ? "" : "=");
    else
        fprintf(out, "'--%s%s[", option->name, is_flag ? "" : "=");
    print_zsh_text(option->help, out);
    fputs("]", out);
    if (!is_flag) {
        fputs(":", out);
        print_zsh_text(option->value, out);
        fputs(":", out);
        print_zsh_value(program, option->kind, option->choices, out);
    }
    fputs("'", out);
}

static void print_zsh_command(const bd_program *program, const bd_command *command, FILE *out)
{
    fprintf(out, "    %s)\n        _arguments -s -S", *command->name ? command->name : "-*");
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++)
        if (!option->hidden)
            print_zsh_option(program, option, out);
    if (command->operands) {
        fputs(" \\\n            '*:operand:", out);
        print_zsh_value(program, command->operand_kind, NULL, out);
        fputs("'", out);
    }
    fputs("\n        ;;\n", out);
}

void bd_completions_zsh(const bd_program *program, FILE *out)
{
    const char *name = program->name;
    fprintf(out,
            "#compdef %s\n"
            "# printed by '%s --generate zsh'\n"
            "_%s()\n"
            "{\n"
            "    if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
            "        local -a commands=(\n",
            name, name, name);
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++) {
        fprintf(out, "            '%s:", command->name);
        print_zsh_text(command->summary, out);
        fputs("'\n", out);
    }
    fputs("        )\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    if [[ $command != -* ]]; then\n"
          "        shift words\n"
          "        ((CURRENT--))\n"
          "    fi\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        print_zsh_command(program, command, out);
    print_zsh_command(program, &program_alone, out);
    fprintf(out,
            "    esac\n"
            "}\n"
            "if [[ $funcstack[1] == _%s ]]; then\n"
            "    _%s \"$@\"\n"
            "else\n"
            "    compdef _%s %s\n"
            "fi\n",
            name, name, name, name);
}

// ---- fish --------------------------------------------------------------------------

static void print_fish_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_fish_value(const bd_program *program, bd_option_kind kind,
                             const char *const *choices, FILE *out)
{
    if (kind == BD_OPTION_DIRECTORY) {
        fputs(" -f -a '(__fish_complete_directories)'", out);
    } else if (kind == BD_OPTION_FILE && choices) {
        fputs(" -F -a '", out);
        print_words(program, choices, out);
        fputs("'", out);
    } else if (kind == BD_OPTION_FILE || kind == BD_OPTION_TEXTS) {
        fputs(" -F", out);
    } else if (kind == BD_OPTION_CHOICE) {
        fputs(" -f -a '", out);
        print_words(program, choices, out);
        fputs("'", out);
    } else {
        fputs(" -f", out);
    }
}

// Every line but the first applies only after the command, or, for the program, before any.
static void print_fish_start(const bd_program *program, const bd_command *command, FILE *out)
{
    if (*command->name)
        fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from %s'", program->name,
                command->name);
    else
        fprintf(out, "complete -c %s -n __fish_use_subcommand", program->name);
}

static void print_fish_command(const bd_program *program, const bd_command *command, FILE *out)
{
    const bd_option *option;
    for (size_t i = 0; (option = bd_command_option(command, i)); i++) {
        if (option->hidden)
            continue;
        print_fish_start(program, command, out);
        if (option->letter)
            fprintf(out, " -s %c", option->letter);
        fprintf(out, " -l %s", option->name);
        if (option->kind != BD_OPTION_FLAG) {
            fputs(" -r", out);
            print_fish_value(program, option->kind, option->choices, out);
        }
        fputs(" -d '", out);
        print_fish_text(option->help, out);
        fputs("'\n", out);
    }
    if (command->operands) {
        print_fish_start(program, command, out);
        print_fish_value(program, command->operand_kind, NULL, out);
        fputs("\n", out);
    }
}

void bd_completions_fish(const bd_program *program, FILE *out)
{
    fprintf(out, "# fish completion for %s, printed by '%s --generate fish'\n", program->name,
            program->name);
    fprintf(out, "complete -c %s -f\n", program->name);
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++) {
        print_fish_start(program, &program_alone, out);
        fprintf(out, " -a %s -d '", command->name);
        print_fish_text(command->summary, out);
        fputs("'\n", out);
    }
    print_fish_command(program, &program_alone, out);
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        print_fish_command(program, command, out);
}
