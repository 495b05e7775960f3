// The program around the commands: the texts that it prints from their tables, and its status.
#include "common/cli/program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// ---- A program with two commands ---------------------------------------------------

typedef struct bind_settings {
    const char *out;
    int64_t seq_len;
    int64_t seed;
    int strategy;
    const char *field;
    const char *words;
    bool fail;
    bool no;
    bool secret;
} bind_settings;

static const char *const strategy_words[] = {"best-fit", "first-fit", "concat", NULL};
static const char *const built_in_words[] = {"bytes", "none", NULL};

static const bd_option bind_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(bind_settings, out),
     .required = true,
     .help = "Write the dataset into DIR; an unfinished one is continued where it stopped"},
    {.name = "seq-len",
     .value = "N",
     BD_INTEGER(bind_settings, seq_len, 2, 1 << 30),
     .initial = "2048",
     .help = "Tokens in a row"},
    {.name = "shuffle",
     .value = "SEED",
     BD_INTEGER(bind_settings, seed, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "input order",
     .help = "Shuffle documents"},
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(bind_settings, strategy, strategy_words),
     .initial = "first-fit",
     .help = "How rows are filled"},
    {.name = "name-of-the-field",
     .value = "NAME",
     BD_TEXT(bind_settings, field),
     .initial = "text",
     .help = "The field's name [JSONL]"},
    {.name = "words",
     .value = "SPEC",
     BD_FILE_OR(bind_settings, words, built_in_words),
     .initial = "bytes",
     .help = "A file, or 'bytes' or 'none'"},
    {.name = "fail", BD_FLAG(bind_settings, fail), .help = "Fail"},
    {.name = "no", .letter = 'n', BD_FLAG(bind_settings, no), .help = "Answer no"},
    {.name = "secret", BD_FLAG(bind_settings, secret), .help = "Not shown", .hidden = true},
};

static int bind_run(const bd_arguments *arguments)
{
    const bind_settings *settings = arguments->settings;
    if (settings->fail) {
        bd_error err;
        bd_fail(&err, BD_ERR_IO, "cannot write '%s'", settings->out);
        return bd_command_fail(arguments, &err);
    }
    printf("%lld %s %s\n", (long long)settings->seq_len, strategy_words[settings->strategy],
           settings->field);
    return settings->no ? BD_EXIT_NO : BD_EXIT_DONE;
}

static const bd_command bind_command = {
    .name = "bind",
    .summary = "Bind documents",
    .description = "One paragraph of several words that is longer than a line of the terminal, "
                   "which\nhas 80 columns.\n\n  bindery bind \\\n    -o here\n",
    .operands = "INPUT...",
    .operand_kind = BD_OPTION_FILE,
    .options = bind_options,
    .n_options = sizeof bind_options / sizeof bind_options[0],
    .settings_size = sizeof(bind_settings),
    .run = bind_run,
};

static void describe_strategy(int choice, char *text, size_t size_bytes)
{
    static const char *const notes[] = {"least padding", "fast", "none left"};
    snprintf(text, size_bytes, "%s", notes[choice]);
}

static const bd_option look_options[] = {
    {.group = "The rows",
     .name = "seq-len",
     .aliases = (const char *const[]){"sequence-length", NULL},
     .value = "N",
     BD_INTEGER(bind_settings, seq_len, 2, 1 << 30),
     .help = "Tokens"},
    {.name = "no", BD_FLAG(bind_settings, no), .help = "Answer no"},
    {.group = "How it is done",
     .name = "strategy",
     .value = "HOW",
     BD_CHOICE(bind_settings, strategy, strategy_words),
     .describe_choice = describe_strategy,
     .initial = "concat",
     .help = "How rows are filled"},
};

static const bd_command look_command = {
    .name = "look",
    .summary = "Look into a dataset",
    .operands = "DATASET",
    .options = look_options,
    .n_options = sizeof look_options / sizeof look_options[0],
    .settings_size = sizeof(bind_settings),
    .run = bind_run,
};

static const bd_command *const commands[] = {&bind_command, &look_command, NULL};
static const bd_command_group groups[] = {commands, NULL};
static const bd_program program = {
    .name = "bindery", .summary = "Bind and look", .groups = groups};

// ---- Helpers -----------------------------------------------------------------------

static int run_main(const char *line)
{
    char copy[256], *argv[16] = {0};
    snprintf(copy, sizeof copy, "%s", line);
    int argc = 0;
    for (char *word = strtok(copy, " "); word && argc < 15; word = strtok(NULL, " "))
        argv[argc++] = word;
    return bd_program_main(&program, argc, argv);
}

// The result of a run of the whole program. The caller frees both texts.
struct outcome {
    int status;
    char *out, *err;
};

static struct outcome run(const char *line)
{
    struct outcome outcome;
    size_t out_size, err_size;
    FILE *const real_stdout = stdout, *const real_stderr = stderr;
    stdout = open_memstream(&outcome.out, &out_size);
    stderr = open_memstream(&outcome.err, &err_size);
    outcome.status = run_main(line);
    fclose(stdout);
    fclose(stderr);
    stdout = real_stdout;
    stderr = real_stderr;
    return outcome;
}

static void run_gives(const char *line, int status, const char *out, const char *err)
{
    struct outcome outcome = run(line);
    assert_string_equal(outcome.err, err);
    assert_string_equal(outcome.out, out);
    assert_int_equal(outcome.status, status);
    free(outcome.out);
    free(outcome.err);
}

// Returns the output of a run that must succeed. The caller frees it.
static char *printed(const char *line)
{
    struct outcome outcome = run(line);
    assert_string_equal(outcome.err, "");
    assert_int_equal(outcome.status, BD_EXIT_DONE);
    free(outcome.err);
    return outcome.out;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
}

// Returns the exit status of a run in a child process whose stdout is `out`. `buffering`
// decides whether writing fails at the end (_IOFBF) or before (_IONBF).
static int run_into(const char *line, int out, int buffering)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(out, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        setvbuf(stdout, NULL, buffering, BUFSIZ);
        _exit(run_main(line));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// ---- What is printed ---------------------------------------------------------------

static void help_is_aligned_and_wrapped(void **state)
{
    (void)state;
    run_gives(
        "bindery bind --help", BD_EXIT_DONE,
        "Usage: bindery bind [OPTIONS] -o DIR INPUT...\n"
        "\n"
        "Bind documents.\n"
        "\n"
        "  -o, --out DIR       Write the dataset into DIR; an unfinished one is continued\n"
        "                      where it stopped\n"
        "      --seq-len N     Tokens in a row [default: 2048]\n"
        "      --shuffle SEED  Shuffle documents [default: input order]\n"
        "      --strategy HOW  How rows are filled: best-fit, first-fit, concat\n"
        "                      [default: first-fit]\n"
        "      --name-of-the-field NAME\n"
        "                      The field's name [JSONL] [default: text]\n"
        "      --words SPEC    A file, or 'bytes' or 'none' [default: bytes]\n"
        "      --fail          Fail\n"
        "  -n, --no            Answer no\n"
        "  -q, --quiet         No progress, notes or summary\n"
        "      --color WHEN    Colour the output: auto, always, never [default: auto]\n"
        "  -h, --help          Print this help\n"
        "      --version       Print the version\n"
        "\n"
        "One paragraph of several words that is longer than a line of the terminal, which\n"
        "has 80 columns.\n"
        "\n"
        "  bindery bind \\\n"
        "    -o here\n",
        "");
}

static void help_has_groups_and_choices_one_by_one(void **state)
{
    (void)state;
    run_gives("bindery look --help", BD_EXIT_DONE,
              "Usage: bindery look [OPTIONS] DATASET\n"
              "\n"
              "Look into a dataset.\n"
              "\n"
              "The rows:\n"
              "      --seq-len N     Tokens\n"
              "      --no            Answer no\n"
              "\n"
              "How it is done:\n"
              "      --strategy HOW  How rows are filled [default: concat]\n"
              "          best-fit   least padding\n"
              "          first-fit  fast\n"
              "          concat     none left\n"
              "\n"
              "Options of every command:\n"
              "  -q, --quiet         No progress, notes or summary\n"
              "      --color WHEN    Colour the output: auto, always, never [default: auto]\n"
              "  -h, --help          Print this help\n"
              "      --version       Print the version\n",
              "");
    char *page = printed("bindery look --generate man");
    assert_contains(page, ".SH OPTIONS\n.SS The rows\n.TP\n\\fB\\-\\-seq\\-len");
    assert_contains(page, ".SS How it is done\n.TP\n");
    assert_contains(page, "[default: concat].\n.RS\n.nf\nbest\\-fit   least padding\n");
    assert_contains(page, "concat     none left\n.fi\n.RE\n.SS Options of every command\n");
    free(page);
}

static void default_shown_in_help_is_the_default_used(void **state)
{
    (void)state;
    char *help = printed("bindery help bind");
    char *absent = printed("bindery bind -o d in");
    for (size_t i = 0; i < bind_command.n_options; i++) {
        const bd_option *option = &bind_options[i];
        if (!option->initial || option->initial_note)
            continue;
        const char *shown = strstr(help, option->name);
        assert_non_null(shown);
        shown = strstr(shown, "[default:") + strlen("[default:");
        shown += strspn(shown, " \n");
        char line[128];
        snprintf(line, sizeof line, "bindery bind -o d in --%s %.*s", option->name,
                 (int)strcspn(shown, "]"), shown);
        run_gives(line, BD_EXIT_DONE, absent, "");
    }
    free(absent);
    free(help);
}

static void completions_name_every_option(void **state)
{
    (void)state;
    static const struct {
        const char *line, *name_format;
    } scripts[] = {
        {"bindery --generate bash", " --%s"},
        {"bindery --generate zsh", "--%s"},
        {"bindery bind --generate fish", " -l %s"},
    };
    for (size_t s = 0; s < sizeof scripts / sizeof scripts[0]; s++) {
        char *script = printed(scripts[s].line);
        const bd_option *option;
        for (size_t i = 0; (option = bd_command_option(&bind_command, i)); i++) {
            char name[64];
            snprintf(name, sizeof name, scripts[s].name_format, option->name);
            if (!option->hidden)
                assert_contains(script, name);
        }
        assert_null(strstr(script, "secret"));
        assert_null(strstr(script, "sequence-length"));
        free(script);
    }
}

static void completions_know_words_files_and_directories(void **state)
{
    (void)state;
    char *bash = printed("bindery --generate bash");
    assert_contains(bash, "bind:-o:* | bind:--out:*) compopt -o dirnames ;;");
    assert_contains(bash, "bind:--strategy:*) words='best-fit first-fit concat' ;;");
    assert_contains(bash, "bind:*) compopt -o default ;;");
    assert_contains(bash, "bind:--words:*) words='bytes none' files=yes ;;");
    assert_contains(bash, "help:*) words='bind look help' ;;");
    free(bash);
    char *zsh = printed("bindery --generate zsh");
    assert_contains(zsh, "'(-o --out)'{-o+,--out=}'[Write");
    assert_contains(zsh, "[The field'\\''s name \\[JSONL\\]]:NAME:'");
    assert_contains(zsh, ":SPEC:{compadd -- bytes none; _files}'");
    free(zsh);
    char *fish = printed("bindery --generate fish");
    assert_contains(fish, "-l words -r -F -a 'bytes none' -d");
    assert_contains(fish, "-l name-of-the-field -r -f -d 'The field\\'s name [JSONL]'\n");
    free(fish);
}

static void manual_pages_are_escaped_roff(void **state)
{
    (void)state;
    char *page = printed("bindery bind --generate man");
    assert_contains(page, ".TH \"bindery\\-bind\" 1 \"\" \"bindery " BINDERY_VERSION "\"\n");
    assert_contains(page, "[OPTIONS] \\-o DIR INPUT...\n");
    assert_contains(page, "\n\\fB\\-o\\fR, \\fB\\-\\-out\\fR \\fIDIR\\fR\nWrite the dataset");
    assert_contains(page,
                    "\\fB\\-\\-seq\\-len\\fR \\fIN\\fR\nTokens in a row [default: 2048].");
    assert_contains(page, "The field\\(aqs name");
    assert_contains(page, ".nf\n  bindery bind \\e\n    \\-o here\n.fi\n");
    assert_null(strstr(page, "secret"));
    free(page);
    page = printed("bindery --generate man");
    assert_contains(page, ".BR bindery\\-look (1)\nLook into a dataset.\n");
    free(page);
}

// ---- What is done ------------------------------------------------------------------

static void program_help_lists_the_commands(void **state)
{
    (void)state;
    char *help = printed("bindery --help");
    assert_contains(help, "  bind  Bind documents\n  look  Look into a dataset\n  help  Print");
    run_gives("bindery help", BD_EXIT_DONE, help, "");
    run_gives("bindery", BD_EXIT_FAILED, "", help);
    free(help);
    help = printed("bindery look -h");
    run_gives("bindery help look", BD_EXIT_DONE, help, "");
    free(help);
    run_gives("bindery --version", BD_EXIT_DONE, "bindery " BINDERY_VERSION "\n", "");
    run_gives("bindery look --version", BD_EXIT_DONE, "bindery " BINDERY_VERSION "\n", "");
}

static void misuse_is_told_with_a_hint_and_exit_2(void **state)
{
    (void)state;
    run_gives("bindery bind --secrt --fail", BD_EXIT_FAILED, "",
              "bindery bind: unknown option '--secrt'\n"
              "Try 'bindery bind --help'.\n");
    run_gives("bindery bnd", BD_EXIT_FAILED, "",
              "bindery: unknown command 'bnd'; did you mean 'bind'?\n"
              "Try 'bindery --help'.\n");
    run_gives("bindery help nothing-like-it", BD_EXIT_FAILED, "",
              "bindery: unknown command 'nothing-like-it'\nTry 'bindery --help'.\n");
    run_gives("bindery --verion", BD_EXIT_FAILED, "",
              "bindery: unknown option '--verion'; did you mean '--version'?\n"
              "Try 'bindery --help'.\n");
}

static void exit_status_is_the_commands_own(void **state)
{
    (void)state;
    run_gives("bindery bind -o d in", BD_EXIT_DONE, "2048 first-fit text\n", "");
    run_gives("bindery bind -o d -n in", BD_EXIT_NO, "2048 first-fit text\n", "");
    run_gives("bindery bind -o d --fail in", BD_EXIT_FAILED, "",
              "bindery bind: cannot write 'd'\n");
}

static void full_disk_is_an_error(void **state)
{
    (void)state;
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    assert_int_equal(run_into("bindery bind -o d in", full, _IOFBF), BD_EXIT_FAILED);
    assert_int_equal(run_into("bindery bind -o d in", full, _IONBF), BD_EXIT_FAILED);
    close(full);
}

static void closed_pipe_is_not_an_error(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(run_into("bindery bind -o d in", ends[1], _IOFBF), BD_EXIT_DONE);
    assert_int_equal(run_into("bindery bind -o d -n in", ends[1], _IONBF), BD_EXIT_NO);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_aligned_and_wrapped),
        cmocka_unit_test(help_has_groups_and_choices_one_by_one),
        cmocka_unit_test(default_shown_in_help_is_the_default_used),
        cmocka_unit_test(completions_name_every_option),
        cmocka_unit_test(completions_know_words_files_and_directories),
        cmocka_unit_test(manual_pages_are_escaped_roff),
        cmocka_unit_test(program_help_lists_the_commands),
        cmocka_unit_test(misuse_is_told_with_a_hint_and_exit_2),
        cmocka_unit_test(exit_status_is_the_commands_own),
        cmocka_unit_test(full_disk_is_an_error),
        cmocka_unit_test(closed_pipe_is_not_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
