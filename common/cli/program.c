#include "common/cli/program.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/interrupt.h"
#include "common/cli/human.h"

static int run_without_command(const bd_arguments *arguments)
{
    bd_program_print_help(arguments->program, NULL, stderr);
    return BD_EXIT_FAILED;
}

// The program without a command: it understands --help, --version and --generate.
static const bd_command no_command = {.operands = "[COMMAND...]", .run = run_without_command};

// ---- Messages ----------------------------------------------------------------------

// "bindery pack", or "bindery" for the program itself, whose command has no name.
static void print_command_name(const bd_arguments *arguments)
{
    const char *command = arguments->command->name;
    fprintf(stderr, "%s%s%s", arguments->program->name, command ? " " : "",
            command ? command : "");
}

void bd_command_say(const bd_arguments *arguments, const bd_error *err)
{
    print_command_name(arguments);
    fputs(": ", stderr);
    bd_print_safely(stderr, err->message, strlen(err->message), false);
    fputc('\n', stderr);
}

void bd_command_note(const bd_arguments *arguments, const char *format, ...)
{
    bd_error note;
    va_list args;
    va_start(args, format);
    vsnprintf(note.message, sizeof note.message, format, args);
    va_end(args);
    bd_command_say(arguments, &note);
}

void bd_command_say_time(const bd_arguments *arguments, int64_t elapsed_ns, uint64_t n_bytes,
                         const char *did)
{
    const bd_formatted time = bd_format_duration(elapsed_ns);
    if (arguments->quiet)
        return;
    if (n_bytes == 0 || elapsed_ns <= 0) {
        bd_command_note(arguments, "done in %s", time.text);
        return;
    }
    const double per_second = (double)n_bytes * 1e9 / (double)elapsed_ns;
    bd_command_note(arguments, "done in %s, %s %s, %s/s", time.text,
                    bd_format_bytes(n_bytes).text, did,
                    bd_format_bytes((uint64_t)per_second).text);
}

int bd_command_fail(const bd_arguments *arguments, const bd_error *err)
{
    bd_command_say(arguments, err);
    if (err->status == BD_ERR_INTERRUPTED)
        bd_interrupt_raise();
    return BD_EXIT_FAILED;
}

int bd_command_misuse(const bd_arguments *arguments, const bd_error *err)
{
    bd_command_fail(arguments, err);
    fputs("Try '", stderr);
    print_command_name(arguments);
    fputs(" --help'.\n", stderr);
    return BD_EXIT_FAILED;
}

// ---- Finding a command -------------------------------------------------------------

static const bd_command *find_command(const bd_program *program, const char *name)
{
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static int refuse_command(const bd_program *program, const char *name)
{
    bd_nearest nearest = {.typed = name};
    const bd_command *command;
    for (size_t i = 0; (command = bd_program_command(program, i)); i++)
        bd_nearest_offer(&nearest, command->name);

    bd_error err;
    if (nearest.word)
        bd_fail(&err, BD_ERR_ARGUMENT, "unknown command '%s'; did you mean '%s'?", name,
                nearest.word);
    else
        bd_fail(&err, BD_ERR_ARGUMENT, "unknown command '%s'", name);
    return bd_command_misuse(&(bd_arguments){.program = program, .command = &no_command}, &err);
}

static int run_help(const bd_arguments *arguments)
{
    const bd_command *command = NULL;
    if (arguments->n_operands == 1) {
        command = find_command(arguments->program, arguments->operands[0]);
        if (!command)
            return refuse_command(arguments->program, arguments->operands[0]);
    }
    bd_program_print_help(arguments->program, command, stdout);
    return BD_EXIT_DONE;
}

static const bd_command help_command = {
    .name = "help",
    .summary = "Print the help of a command",
    .operands = "[COMMAND]",
    .operand_kind = BD_OPTION_CHOICE,
    .run = run_help,
};

const bd_command *bd_program_command(const bd_program *program, size_t i)
{
    for (const bd_command_group *group = program->groups; *group; group++)
        for (bd_command_group command = *group; *command; command++)
            if (i-- == 0)
                return *command;
    return i == 0 ? &help_command : NULL;
}

// ---- Running -----------------------------------------------------------------------

static int run_command(const bd_program *program, const bd_command *command, int argc,
                       char **argv)
{
    bd_arguments arguments;
    bd_error err;
    if (bd_arguments_parse(&arguments, command, argc, argv, &err) != BD_OK)
        return bd_command_misuse(&(bd_arguments){.program = program, .command = command}, &err);

    arguments.program = program;
    const bd_command *subject = command->name ? command : NULL;
    int status = BD_EXIT_DONE;
    if (arguments.help) {
        bd_program_print_help(program, subject, stdout);
    } else if (arguments.version) {
        printf("%s %s\n", program->name, BINDERY_VERSION);
        if (program->print_parts)
            program->print_parts(stdout);
    } else if (arguments.generated) {
        bd_program_generate(program, subject, arguments.generated, stdout);
    } else {
        status = command->run(&arguments);
    }
    bd_arguments_release(&arguments);
    return status;
}

int bd_program_main(const bd_program *program, int argc, char **argv)
{
    // A write into a closed pipe, or beyond the limit of a file's size, must fail with a reason
    // that can be reported instead of ending the program.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    const bd_command *command = &no_command;
    if (argc >= 2 && argv[1][0] != '-') {
        command = find_command(program, argv[1]);
        if (!command)
            return refuse_command(program, argv[1]);
        argc--;
        argv++;
    }
    const int status = run_command(program, command, argc, argv);

    errno = 0;
    const bool flushed = fflush(stdout) == 0;
    if (flushed && !ferror(stdout))
        return status;
    // stdio does not keep the reason of a failed write, but a pipe still knows that its reader
    // has gone, which is no failure.
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR))
        return status;
    fprintf(stderr, "%s: cannot write to standard output%s%s\n", program->name,
            errno ? ": " : "", errno ? strerror(errno) : "");
    return BD_EXIT_FAILED;
}
