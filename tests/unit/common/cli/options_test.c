#include "common/cli/options.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"

// ---- A command with every kind of option -------------------------------------------

typedef enum strategy { BEST_FIT, FIRST_FIT, CONCAT } strategy;

typedef struct bind_settings {
    const char *out;
    int64_t seq_len;
    int64_t seed;
    int64_t unit_bytes;
    int64_t width;
    double rate;
    strategy strategy;
    const char *field;
    const char *log;
    bd_texts sources;
    bool json;
    bool dry_run;
    bool secret;
    bool strategy_given;
    const char *settings_file;
    const char *inherited;
    int64_t n_steps;
    double n_epochs;
} bind_settings;

static const char *const strategy_words[] = {"best-fit", "first-fit", "concat", NULL};

static const bd_option bind_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(bind_settings, out),
     .required = true,
     .help = "Write the dataset into DIR"},
    {.name = "seq-len",
     .value = "N",
     .aliases = (const char *const[]){"sequence-length", "context", NULL},
     BD_INTEGER(bind_settings, seq_len, 2, 1 << 30),
     .initial = "2048",
     .help = "Tokens in a row"},
    {.name = "shuffle",
     .value = "SEED",
     BD_INTEGER(bind_settings, seed, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "input order",
     .help = "Shuffle documents"},
    {.name = "unit-size",
     .value = "SIZE",
     BD_SIZE(bind_settings, unit_bytes, 1 << 16, INT64_MAX),
     .initial = "64M",
     .help = "Bytes of a unit"},
    {.name = "width",
     .value = "N",
     BD_LENGTH(bind_settings, width, 2, 1 << 20),
     .initial = "2k",
     .help = "A number of tokens"},
    {.name = "rate",
     .value = "X",
     BD_REAL(bind_settings, rate, 0, 1),
     .initial = "1e-4",
     .help = "A number"},
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(bind_settings, strategy, strategy_words),
     BD_GIVEN(bind_settings, strategy_given),
     .initial = "first-fit",
     .help = "How rows are filled"},
    {.name = "text-field",
     .value = "NAME",
     BD_TEXT(bind_settings, field),
     .initial = "text",
     .help = "The field with the text"},
    {.name = "log", .value = "FILE", BD_FILE(bind_settings, log), .help = "Write a log"},
    {.name = "steps",
     .value = "N",
     .alternatives = "length",
     BD_INTEGER(bind_settings, n_steps, 1, 99),
     .initial = "0",
     .initial_note = "none",
     .help = "Steps"},
    {.name = "epochs",
     .value = "X",
     .alternatives = "length",
     BD_REAL(bind_settings, n_epochs, 0, 99),
     .initial = "0",
     .initial_note = "none",
     .help = "Epochs instead"},
    {.name = "inherit",
     .value = "FILE",
     .is_saved_nowhere = true,
     BD_FILE(bind_settings, inherited),
     .help = "Settings of another"},
    BD_SETTINGS_OPTION(bind_settings, settings_file, "seq-len: 8"),
    {.name = "source",
     .letter = 's',
     .value = "NAME",
     .names_files = true,
     BD_TEXTS(bind_settings, sources),
     .help = "Label an input"},
    {.name = "json", BD_FLAG(bind_settings, json), .help = "Print JSON"},
    {.name = "dry-run",
     .letter = 'n',
     BD_FLAG(bind_settings, dry_run),
     .help = "Write nothing"},
    {.name = "secret", BD_FLAG(bind_settings, secret), .help = "Not shown", .hidden = true},
};

static bd_status bind_inherits(const void *settings, char **path, bd_error *err)
{
    const char *inherited = ((const bind_settings *)settings)->inherited;
    (void)err;
    *path = inherited ? strdup(inherited) : NULL;
    return BD_OK;
}

static const bd_command bind_command = {
    .name = "bind",
    .operands = "INPUT...",
    .options = bind_options,
    .n_options = sizeof bind_options / sizeof bind_options[0],
    .settings_size = sizeof(bind_settings),
    .inherits = bind_inherits,
};

static const bd_command look_command = {.name = "look", .operands = "DATASET [ROW]"};

// ---- Helpers -----------------------------------------------------------------------

enum { MAX_WORDS = 16 };

// Splits "bind -o d" at its spaces into argv; "''" stands for an empty argument.
static int split(const char *line, char **argv)
{
    static char copy[512];
    snprintf(copy, sizeof copy, "%s", line);
    int argc = 0;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        assert_true(argc + 1 < MAX_WORDS);
        argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
    argv[argc] = NULL;
    return argc;
}

// The caller releases the result.
static bd_arguments parse_with(const bd_command *command, const char *line)
{
    char *argv[MAX_WORDS];
    const int argc = split(line, argv);
    bd_arguments arguments;
    bd_error err = {.message = ""};
    const bd_status status = bd_arguments_parse(&arguments, command, argc, argv, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, BD_OK);
    return arguments;
}

static bd_arguments parse(const char *line)
{
    return parse_with(&bind_command, line);
}

static void refuses_with(const bd_command *command, const char *line, const char *message)
{
    char *argv[MAX_WORDS];
    const int argc = split(line, argv);
    bd_arguments arguments;
    bd_error err = {.message = ""};
    assert_int_equal(bd_arguments_parse(&arguments, command, argc, argv, &err),
                     BD_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    assert_null(arguments.settings);
}

static void refuses(const char *line, const char *message)
{
    refuses_with(&bind_command, line, message);
}

// ---- Values ------------------------------------------------------------------------

static void absent_options_have_the_defaults_of_the_table(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d in");
    const bind_settings *settings = arguments.settings;
    assert_string_equal(settings->out, "d");
    assert_int_equal(settings->seq_len, 2048);
    assert_int_equal(settings->seed, -1);  // outside the limits, as its note allows
    assert_int_equal(settings->unit_bytes, 64 << 20);
    assert_true(settings->rate == 1e-4);
    assert_int_equal(settings->strategy, FIRST_FIT);
    assert_string_equal(settings->field, "text");
    assert_null(settings->log);
    assert_int_equal(settings->sources.n, 0);
    assert_false(settings->json);
    assert_false(arguments.quiet);
    assert_int_equal(arguments.color, BD_COLOR_AUTO);
    bd_arguments_release(&arguments);
}

static void an_option_that_was_given_can_be_told_from_its_default(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool given;
    } cases[] = {{"bind -o d in", false},
                 {"bind -o d --strategy first-fit in", true},  // which is the default
                 {"bind -o d in --strategy=concat", true},
                 {"bind -o d -- in --strategy", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_arguments arguments = parse(cases[i].line);
        const bind_settings *settings = arguments.settings;
        assert_int_equal(settings->strategy_given, cases[i].given);
        bd_arguments_release(&arguments);
    }
}

static void every_spelling_of_a_value_is_understood(void **state)
{
    (void)state;
    static const char *const lines[] = {"bind -o d in",    "bind -od in",   "bind --out d in",
                                        "bind --out=d in", "bind in -nqod", "bind -nqo d in"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        bd_arguments arguments = parse(lines[i]);
        const bind_settings *settings = arguments.settings;
        assert_string_equal(settings->out, "d");
        assert_int_equal(arguments.n_operands, 1);
        assert_string_equal(arguments.operands[0], "in");
        assert_int_equal(arguments.quiet, i >= 4);
        assert_int_equal(settings->dry_run, i >= 4);
        bd_arguments_release(&arguments);
    }
}

static void texts_collect_in_order(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d -s a --source b in --source= -sc");
    const bd_texts *sources = &((const bind_settings *)arguments.settings)->sources;
    assert_int_equal(sources->n, 4);
    assert_string_equal(sources->items[0], "a");
    assert_string_equal(sources->items[1], "b");
    assert_string_equal(sources->items[2], "");
    assert_string_equal(sources->items[3], "c");
    bd_arguments_release(&arguments);
    bd_arguments_release(&arguments);  // safe twice
}

static void integer_out_of_range_is_refused_with_both_limits(void **state)
{
    (void)state;
    refuses("bind --seq-len 1", "--seq-len: '1' is not an integer from 2 to 1073741824");
    refuses("bind --seq-len=1073741825",
            "--seq-len: '1073741825' is not an integer from 2 to 1073741824");
    refuses("bind --shuffle -1",
            "--shuffle: '-1' is not an integer from 0 to 9223372036854775807");
}

static void integer_takes_decimal_digits_only(void **state)
{
    (void)state;
    static const char *const values[] = {"''", "x", "8x", "0x8", "+8", "8.0", "1e3", "-"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[64], message[96];
        snprintf(line, sizeof line, "bind --seq-len %s", values[i]);
        snprintf(message, sizeof message,
                 "--seq-len: '%s' is not an integer from 2 to 1073741824",
                 i == 0 ? "" : values[i]);
        refuses(line, message);
    }
}

static void a_length_takes_k_for_1024(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t length;
    } cases[] = {
        {"bind -o d in", 2048},
        {"bind -o d --width 3000 in", 3000},
        {"bind -o d --width 8k in", 8192},
        {"bind -o d --width 8K in", 8192},
        {"bind -o d --width 1m in", 1 << 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_arguments arguments = parse(cases[i].line);
        assert_int_equal(((const bind_settings *)arguments.settings)->width, cases[i].length);
        bd_arguments_release(&arguments);
    }
    static const char *const values[] = {"k", "2kk", "2kB", "2.5k", "2M", "0k", "-2k"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[64], message[128];
        snprintf(line, sizeof line, "bind --width=%s", values[i]);
        snprintf(message, sizeof message,
                 "--width: '%s' is not an integer from 2 to 1048576 (2k is 2048)", values[i]);
        refuses(line, message);
    }
}

static void integer_beyond_64_bits_is_refused(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d --shuffle 9223372036854775807 in");
    assert_true(((const bind_settings *)arguments.settings)->seed == INT64_MAX);
    bd_arguments_release(&arguments);
    refuses("bind --shuffle 9223372036854775808", "--shuffle: '9223372036854775808' is not an "
                                                  "integer from 0 to 9223372036854775807");
}

static void size_suffixes_are_binary(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t size_bytes;
    } cases[] = {
        {"bind -o d --unit-size 65536 in", 65536},
        {"bind -o d --unit-size 64K in", 65536},
        {"bind -o d --unit-size 3M in", 3 << 20},
        {"bind -o d --unit-size 5G in", INT64_C(5) << 30},
        {"bind -o d --unit-size 8388607T in", INT64_C(8388607) << 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_arguments arguments = parse(cases[i].line);
        assert_true(((const bind_settings *)arguments.settings)->unit_bytes ==
                    cases[i].size_bytes);
        bd_arguments_release(&arguments);
    }
}

static void size_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const values[] = {
        "''",  "K",    "1X",       "64KB",      "-64K",
        "63K", "1.5M", "8388608T", "16777217T", "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[64], message[160];
        snprintf(line, sizeof line, "bind --unit-size %s", values[i]);
        snprintf(message, sizeof message,
                 "--unit-size: '%s' is not a size from 64K to 9223372036854775807 "
                 "(bytes, or with K, M, G, T)",
                 i == 0 ? "" : values[i]);
        refuses(line, message);
    }
}

static void real_is_finite_and_in_range(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d --rate 2.5e-1 in");
    assert_true(((const bind_settings *)arguments.settings)->rate == 0.25);
    bd_arguments_release(&arguments);
    static const char *const values[] = {"''",   "nan", "inf", "1e999",
                                         "-0.1", "1.1", "0x1", "."};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[64], message[96];
        snprintf(line, sizeof line, "bind --rate %s", values[i]);
        snprintf(message, sizeof message, "--rate: '%s' is not a number from 0 to 1",
                 i == 0 ? "" : values[i]);
        refuses(line, message);
    }
}

static void real_without_limits_is_still_finite(void **state)
{
    (void)state;
    const bd_option rate = {
        .name = "rate", .value = "X", BD_REAL(bind_settings, rate, -INFINITY, INFINITY)};
    const bd_command command = {
        .options = &rate, .n_options = 1, .settings_size = sizeof(bind_settings)};
    refuses_with(&command, "any --rate 1e999",
                 "--rate: '1e999' is not a number from -inf to inf");
}

static void choice_is_one_of_its_words(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d --strategy concat --color=never in");
    assert_int_equal(((const bind_settings *)arguments.settings)->strategy, CONCAT);
    assert_int_equal(arguments.color, BD_COLOR_NEVER);
    bd_arguments_release(&arguments);
    refuses("bind --strategy best",
            "--strategy: 'best' is not one of best-fit, first-fit, concat");
    refuses("bind --strategy=", "--strategy: '' is not one of best-fit, first-fit, concat");
}

static void empty_text_is_a_value_and_an_empty_name_is_not(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d --text-field= in");
    assert_string_equal(((const bind_settings *)arguments.settings)->field, "");
    bd_arguments_release(&arguments);
    refuses("bind --out= in", "--out: the name is empty");
    refuses("bind -o '' in", "-o: the name is empty");
    refuses("bind --log= in", "--log: the name is empty");
}

// ---- Options and operands ----------------------------------------------------------

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind a -o d - -- --json -- -x");
    assert_int_equal(arguments.n_operands, 5);
    assert_string_equal(arguments.operands[0], "a");
    assert_string_equal(arguments.operands[1], "-");
    assert_string_equal(arguments.operands[2], "--json");
    assert_string_equal(arguments.operands[3], "--");
    assert_string_equal(arguments.operands[4], "-x");
    assert_false(((const bind_settings *)arguments.settings)->json);
    bd_arguments_release(&arguments);
}

static void unknown_option_suggests_the_nearest(void **state)
{
    (void)state;
    refuses("bind --seqlen 8", "unknown option '--seqlen'; did you mean '--seq-len'?");
    refuses("bind --seq=8", "unknown option '--seq'; did you mean '--seq-len'?");
    refuses("bind -jsno", "unknown option '-jsno'; did you mean '--json'?");
    refuses("bind --halp", "unknown option '--halp'; did you mean '--help'?");
    refuses("bind --zebra", "unknown option '--zebra'");
    refuses("bind --secre", "unknown option '--secre'");  // hidden
    refuses("bind -x", "unknown option '-x'");
    refuses("bind -qx", "unknown option '-x' in '-qx'");
}

static void value_that_is_missing_or_too_many_is_named(void **state)
{
    (void)state;
    refuses("bind --seq-len", "--seq-len needs a value: N");
    refuses("bind -o", "-o needs a value: DIR");
    refuses("bind -o --json in", "-o needs a value: DIR");
    refuses("bind --json=yes", "--json takes no value but true or false");
    refuses("bind --json=", "--json takes no value but true or false");
    bd_arguments arguments = parse("bind --out=--json in");
    assert_string_equal(((const bind_settings *)arguments.settings)->out, "--json");
    bd_arguments_release(&arguments);
}

static void required_option_is_required(void **state)
{
    (void)state;
    refuses("bind in", "-o is required");
}

static void operands_are_counted_as_usage_says(void **state)
{
    (void)state;
    refuses("bind -o d", "missing operand: expected INPUT...");
    refuses_with(&look_command, "look", "missing operand: expected DATASET [ROW]");
    refuses_with(&look_command, "look a b c", "unexpected operand 'c'");
    bd_arguments arguments = parse_with(&look_command, "look a b");
    assert_int_equal(arguments.n_operands, 2);
    bd_arguments_release(&arguments);
    refuses_with(&(bd_command){.name = "none"}, "none a", "unexpected operand 'a'");
}

static void help_wins_over_what_is_missing(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -qhx --unknown");
    assert_true(arguments.help);
    bd_arguments_release(&arguments);
    arguments = parse("bind --generate zsh --unknown");
    assert_int_equal(arguments.generated, BD_GENERATED_ZSH);
    bd_arguments_release(&arguments);
}

static void an_alias_is_the_option(void **state)
{
    (void)state;
    static const char *const lines[] = {"bind -o d --sequence-length 8 in",
                                        "bind -o d --context=8 in"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        bd_arguments arguments = parse(lines[i]);
        assert_int_equal(((const bind_settings *)arguments.settings)->seq_len, 8);
        bd_arguments_release(&arguments);
    }
    // Messages use the option's own name, and no alias is suggested.
    refuses("bind --context 1", "--seq-len: '1' is not an integer from 2 to 1073741824");
    refuses("bind --contex 8", "unknown option '--contex'");
}

static void an_option_of_one_value_is_given_once(void **state)
{
    (void)state;
    refuses("bind --seq-len 8 -o d --seq-len 8 in", "--seq-len is given twice");
    refuses("bind --seq-len 8 --context=9 -o d in", "--seq-len is given twice");
    refuses("bind -o d --out e in", "--out is given twice");
    refuses("bind -o d --color never --color never in", "--color is given twice");
    bd_arguments arguments = parse("bind --json -o d --json -q -q in");
    assert_true(((const bind_settings *)arguments.settings)->json && arguments.quiet);
    bd_arguments_release(&arguments);
}

static void a_flag_can_be_taken_back(void **state)
{
    (void)state;
    bd_arguments arguments = parse("bind -o d --json --json=false --dry-run=true in");
    const bind_settings *settings = arguments.settings;
    assert_false(settings->json);
    assert_true(settings->dry_run);
    bd_arguments_release(&arguments);
}

// ---- Files of settings -------------------------------------------------------------

static const char full_settings[] = "out: d\n"
                                    "context: 16\n"
                                    "unit-size: 128K\n"
                                    "rate: 0.5\n"
                                    "strategy: concat\n"
                                    "text-field: ''\n"
                                    "source: [a, b]\n"
                                    "json: true\n"
                                    "dry-run: false\n";

static void a_file_gives_every_kind_of_option(void **state)
{
    (void)state;
    write_text("s.yaml", full_settings);
    bd_arguments arguments = parse("bind --settings s.yaml in");
    const bind_settings *settings = arguments.settings;
    assert_string_equal(settings->out, "d");
    assert_int_equal(settings->seq_len, 16);
    assert_int_equal(settings->unit_bytes, 128 << 10);
    assert_true(settings->rate == 0.5);
    assert_int_equal(settings->strategy, CONCAT);
    assert_true(settings->strategy_given);
    assert_string_equal(settings->field, "");
    assert_int_equal(settings->sources.n, 2);
    assert_string_equal(settings->sources.items[1], "b");
    assert_true(settings->json);
    assert_false(settings->dry_run);
    assert_int_equal(settings->seed, -1);  // a default
    bd_arguments_release(&arguments);
    bd_arguments_release(&arguments);
}

static void the_command_line_overrides_the_file_wherever_it_stands(void **state)
{
    (void)state;
    write_text("s.yaml", full_settings);
    bd_arguments arguments =
        parse("bind -s c --seq-len 32 --json=false --settings s.yaml --strategy best-fit in");
    const bind_settings *settings = arguments.settings;
    assert_int_equal(settings->seq_len, 32);
    assert_int_equal(settings->strategy, BEST_FIT);
    assert_false(settings->json);
    assert_int_equal(settings->sources.n, 1);
    assert_string_equal(settings->sources.items[0], "c");
    assert_string_equal(settings->out, "d");  // from the file
    bd_arguments_release(&arguments);
}

static void inherited_values_come_last_and_count_as_not_given(void **state)
{
    (void)state;
    write_text("s.yaml", "seq-len: 4\ninherit: i.yaml\n");
    write_text("i.yaml", "seq-len: 5\nout: d\nstrategy: concat\nshuffle: 7\n");
    bd_arguments arguments = parse("bind --settings s.yaml --shuffle 8 in");
    const bind_settings *settings = arguments.settings;
    assert_int_equal(settings->seq_len, 4);
    assert_int_equal(settings->seed, 8);
    assert_string_equal(settings->out, "d");
    assert_int_equal(settings->strategy, CONCAT);
    assert_false(settings->strategy_given);
    bd_arguments_release(&arguments);
}

static void one_of_several_alternatives_hides_the_others(void **state)
{
    (void)state;
    write_text("s.yaml", "out: d\nsteps: 9\n");
    bd_arguments arguments = parse("bind --settings s.yaml --epochs 2 in");
    const bind_settings *settings = arguments.settings;
    assert_int_equal(settings->n_steps, 0);
    assert_true(settings->n_epochs == 2);
    bd_arguments_release(&arguments);
    // If one file has both, both are accepted: the command itself decides about that.
    write_text("s.yaml", "out: d\nsteps: 9\nepochs: 2\n");
    arguments = parse("bind --settings s.yaml in");
    settings = arguments.settings;
    assert_true(settings->n_steps == 9 && settings->n_epochs == 2);
    bd_arguments_release(&arguments);
}

static void a_wrong_setting_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: 1\n", "s.yaml:1: unknown option 'a'"},
        {"out: d\nseqlen: 4\n", "s.yaml:2: unknown option 'seqlen'; did you mean 'seq-len'?"},
        {"--out: d\n", "s.yaml:1: unknown option '--out'; did you mean 'out'?"},
        {"o: d\n", "s.yaml:1: unknown option 'o'"},
        {"context: 1\n", "s.yaml:1: seq-len: '1' is not an integer from 2 to 1073741824"},
        {"rate: no\n", "s.yaml:1: rate: 'no' is not a number from 0 to 1"},
        {"strategy: best\n",
         "s.yaml:1: strategy: 'best' is not one of best-fit, first-fit, concat"},
        {"json: yes\n", "s.yaml:1: json takes no value but true or false"},
        {"out: [d]\n", "s.yaml:1: out: expected one value, not a list"},
        {"out: ''\n", "s.yaml:1: out: the name is empty"},
        {"out: d\nseq-len: 4\ncontext: 4\n", "s.yaml:3: seq-len is given twice"},
        {"settings: s.yaml\n", "s.yaml:1: settings: this option is for the command line alone"},
        {"quiet: true\n", "s.yaml:1: quiet: this option is for the command line alone"},
        {"seq-len: 4\n", "-o is required"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text("s.yaml", cases[i].text);
        refuses("bind --settings s.yaml in", cases[i].message);
    }
}

static void printed_settings_give_themselves_again(void **state)
{
    (void)state;
    write_text("s.yaml", full_settings);
    char *text, *again;
    size_t n;
    bd_arguments arguments = parse("bind --settings s.yaml --log /l --rate 0.1 in");
    assert_int_equal(bd_settings_print(&bind_command, arguments.settings, &text, &n, NULL),
                     BD_OK);
    bd_arguments_release(&arguments);
    char *folder = getcwd(NULL, 0), expected[1024];
    snprintf(expected, sizeof expected,
             "out: \"%s/d\"\n"
             "seq-len: 16\n"
             "unit-size: 131072\n"
             "width: 2048\n"
             "rate: 0.1\n"
             "strategy: concat\n"
             "text-field: \"\"\n"
             "log: \"/l\"\n"
             "source:\n- \"%s/a\"\n- \"%s/b\"\n"
             "json: true\n"
             "dry-run: false\n",
             folder, folder, folder);
    free(folder);
    assert_string_equal(text, expected);
    write_text("t.yaml", text);
    arguments = parse("bind --settings t.yaml in");
    assert_int_equal(bd_settings_print(&bind_command, arguments.settings, &again, &n, NULL),
                     BD_OK);
    assert_string_equal(again, text);
    bd_arguments_release(&arguments);
    free(again);
    free(text);
}

static void a_text_that_yaml_cannot_hold_is_left_out_with_its_list(void **state)
{
    (void)state;
    char *text;
    size_t n;
    bd_arguments arguments = parse("bind -o d -s a -s \xff in");
    assert_int_equal(bd_settings_print(&bind_command, arguments.settings, &text, &n, NULL),
                     BD_OK);
    assert_null(strstr(text, "source"));
    assert_non_null(strstr(text, "json: false"));
    free(text);
    bd_arguments_release(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_options_have_the_defaults_of_the_table),
        cmocka_unit_test(an_option_that_was_given_can_be_told_from_its_default),
        cmocka_unit_test(every_spelling_of_a_value_is_understood),
        cmocka_unit_test(texts_collect_in_order),
        cmocka_unit_test(integer_out_of_range_is_refused_with_both_limits),
        cmocka_unit_test(integer_takes_decimal_digits_only),
        cmocka_unit_test(integer_beyond_64_bits_is_refused),
        cmocka_unit_test(a_length_takes_k_for_1024),
        cmocka_unit_test(size_suffixes_are_binary),
        cmocka_unit_test(size_that_is_none_is_refused),
        cmocka_unit_test(real_is_finite_and_in_range),
        cmocka_unit_test(real_without_limits_is_still_finite),
        cmocka_unit_test(choice_is_one_of_its_words),
        cmocka_unit_test(empty_text_is_a_value_and_an_empty_name_is_not),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(unknown_option_suggests_the_nearest),
        cmocka_unit_test(value_that_is_missing_or_too_many_is_named),
        cmocka_unit_test(required_option_is_required),
        cmocka_unit_test(operands_are_counted_as_usage_says),
        cmocka_unit_test(help_wins_over_what_is_missing),
        cmocka_unit_test(an_alias_is_the_option),
        cmocka_unit_test(an_option_of_one_value_is_given_once),
        cmocka_unit_test(a_flag_can_be_taken_back),
        test_inside_folder(a_file_gives_every_kind_of_option),
        test_inside_folder(the_command_line_overrides_the_file_wherever_it_stands),
        test_inside_folder(inherited_values_come_last_and_count_as_not_given),
        test_inside_folder(one_of_several_alternatives_hides_the_others),
        test_inside_folder(a_wrong_setting_is_named_with_its_line),
        test_inside_folder(printed_settings_give_themselves_again),
        test_inside_folder(a_text_that_yaml_cannot_hold_is_left_out_with_its_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
