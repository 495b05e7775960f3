// options.h - one table per command: parsing, help, man page and completions come from it.
//
// A command is one struct of settings, one table and one function, in one file:
//
//   typedef struct pack_settings {
//       const char *out;
//       int64_t seq_len;
//       int64_t n_threads;        // 0: one per core
//       bd_strategy strategy;     // made by BD_ENUM(), see enum_names.h
//       bool json;
//   } pack_settings;
//
//   static const bd_option pack_options[] = {
//       {.name = "out", .letter = 'o', .value = "DIR", BD_DIRECTORY(pack_settings, out),
//        .required = true, .help = "Write the dataset into DIR"},
//       {.name = "seq-len", .value = "N", BD_INTEGER(pack_settings, seq_len, 2, 1 << 30),
//        .initial = "2048", .help = "Tokens in a row"},
//       {.name = "threads", .value = "N", BD_INTEGER(pack_settings, n_threads, 1, 4096),
//        .initial = "0", .initial_note = "one per core", .help = "Threads to use"},
//       {.name = "strategy", .value = "HOW",
//        BD_CHOICE(pack_settings, strategy, bd_strategy_names),
//        .initial = "best-fit", .help = "How rows are filled"},
//       {.name = "json", BD_FLAG(pack_settings, json), .help = "Print the summary as JSON"},
//   };
//
//   static int pack_run(const bd_arguments *arguments)
//   {
//       const pack_settings *settings = arguments->settings;   // filled and range-checked
//       bd_error err;
//       if (bd_pack(settings->out, arguments->operands, arguments->n_operands, &err) != BD_OK)
//           return bd_command_fail(arguments, &err);           // program.h
//       return BD_EXIT_DONE;
//   }
//
//   const bd_command bd_pack_command = {
//       .name = "pack",
//       .summary = "Pack documents into training shards with stored boundaries",
//       .description = "Memory stays below three units per thread.\n"
//                      "\n"
//                      "Example:\n"
//                      "\n"
//                      "  bindery pack -o shards --seq-len 1024 corpus.jsonl\n",
//       .operands = "INPUT...",
//       .operand_kind = BD_OPTION_FILE,
//       .options = pack_options,
//       .n_options = sizeof pack_options / sizeof pack_options[0],
//       .settings_size = sizeof(pack_settings),
//       .run = pack_run,
//   };
//
// The parser understands --name VALUE, --name=VALUE, -o VALUE, -oVALUE, grouped letters (-qn),
// options after operands, "--" as the end of options, "-" as an operand. An option that is
// given twice is refused, unless it is a flag or a list (BD_TEXTS). A value in an argument of
// its own cannot begin with "--", because nearly always that is a forgotten value; such a value
// is written --name=--VALUE. --flag=false overrides a file of settings that sets the flag.
// Every command also has -q/--quiet, --color, -h/--help, --version and a hidden --generate.
//
// A command with a BD_SETTINGS_OPTION also takes its options from a file (settings_file.h)
// whose keys are the options' names. The command line overrides the file.
#ifndef BINDERY_COMMON_CLI_OPTIONS_H
#define BINDERY_COMMON_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/cli/settings_file.h"
#include "common/cli/terminal.h"

// The kind of an option's value, and the type of the settings' field that receives it.
typedef enum bd_option_kind {
    BD_OPTION_FLAG,       // bool; no value
    BD_OPTION_INTEGER,    // int64_t
    BD_OPTION_SIZE,       // int64_t, bytes; the suffixes K, M, G, T are KiB, MiB, GiB, TiB
    BD_OPTION_LENGTH,     // int64_t, tokens; the same suffixes: 2k is 2048
    BD_OPTION_REAL,       // double, finite
    BD_OPTION_TEXT,       // const char *, may be empty
    BD_OPTION_TEXTS,      // bd_texts; every use of the option adds one
    BD_OPTION_FILE,       // const char *, not empty; it may also be one of `choices`
    BD_OPTION_DIRECTORY,  // const char *, not empty
    BD_OPTION_CHOICE,     // int or an enum; index of the word in `choices`
} bd_option_kind;

enum { BD_NOT_GIVEN = -1 };  // of numbers whose default is decided later: .initial = "-1"

typedef struct bd_texts {
    const char **items;  // [n], owned by the bd_arguments; the texts live as long
    size_t n;
} bd_texts;

typedef struct bd_option {
    const char *name;   // "seq-len", without the dashes
    char letter;        // 'o', or 0
    const char *value;  // what help calls the value: "N"; NULL for a flag
    const char *help;   // one sentence without a full stop; choices and default are added

    const char *group;  // heading of the options from this one on; NULL if none begins here
    // Other names that are understood, ended by NULL; NULL if there are none. Only the parser
    // knows them: help, completions and messages have the option's own name.
    const char *const *aliases;

    // The default. `initial` is parsed exactly as if it had been typed, and shown in help.
    // With `initial_note`, help shows the note instead, and `initial` may then lie outside
    // the limits ("0" or "-1" for "not given"). Without either the field starts as zero.
    const char *initial;
    const char *initial_note;

    // Filled by the BD_ macros below.
    bd_option_kind kind;
    size_t offset;
    // Both limits are allowed values. The integers also limit sizes and lengths.
    int64_t min_integer, max_integer;
    double min_real, max_real;
    const char *const *choices;  // words, ended by NULL; for a file those that do not name one

    // If it is not NULL, help lists the choices one by one, each with the text that this
    // prints.
    void (*describe_choice)(int choice, char *text, size_t size_bytes);

    bool sets_given;      // by BD_GIVEN
    size_t given_offset;  // of a bool of the settings, which becomes true

    bool required;
    bool hidden;  // understood, but neither in help nor in man pages nor completions

    // These are about files of settings.
    bool is_settings_file;  // by BD_SETTINGS_OPTION
    bool names_files;       // its texts name files or folders; some kinds always do
    bool is_saved_nowhere;  // bd_settings_print() leaves it out
    // Options with the same text here exclude each other: one that is given overrides the others
    // in a file.
    const char *alternatives;
} bd_option;

// The offset of a field, refused by the compiler if the field is not of type `type`.
#define BD_OFFSET_OF(settings, field, type) \
    (offsetof(settings, field) + 0 * sizeof(_Generic(&((settings *)0)->field, type * : 0)))

#define BD_FLAG(settings, field) \
    .kind = BD_OPTION_FLAG, .offset = BD_OFFSET_OF(settings, field, bool)
#define BD_INTEGER(settings, field, min, max)                                    \
    .kind = BD_OPTION_INTEGER, .offset = BD_OFFSET_OF(settings, field, int64_t), \
    .min_integer = (min), .max_integer = (max)
#define BD_SIZE(settings, field, min, max)                                    \
    .kind = BD_OPTION_SIZE, .offset = BD_OFFSET_OF(settings, field, int64_t), \
    .min_integer = (min), .max_integer = (max)
#define BD_LENGTH(settings, field, min, max)                                    \
    .kind = BD_OPTION_LENGTH, .offset = BD_OFFSET_OF(settings, field, int64_t), \
    .min_integer = (min), .max_integer = (max)
#define BD_REAL(settings, field, min, max)                                   \
    .kind = BD_OPTION_REAL, .offset = BD_OFFSET_OF(settings, field, double), \
    .min_real = (min), .max_real = (max)
#define BD_TEXT(settings, field) \
    .kind = BD_OPTION_TEXT, .offset = BD_OFFSET_OF(settings, field, const char *)
#define BD_TEXTS(settings, field) \
    .kind = BD_OPTION_TEXTS, .offset = BD_OFFSET_OF(settings, field, bd_texts)
#define BD_FILE(settings, field) \
    .kind = BD_OPTION_FILE, .offset = BD_OFFSET_OF(settings, field, const char *)
#define BD_DIRECTORY(settings, field) \
    .kind = BD_OPTION_DIRECTORY, .offset = BD_OFFSET_OF(settings, field, const char *)
#define BD_FILE_OR(settings, field, words) BD_FILE(settings, field), .choices = (words)
// The option --settings FILE, for a `field` of type const char *; `example` is a line of it.
#define BD_SETTINGS_OPTION(settings, field, example)                                 \
    {                                                                                \
        .name = "settings", .value = "FILE", BD_FILE(settings, field),               \
        .is_settings_file = true, .is_saved_nowhere = true,                          \
        .help = "Take options from a YAML file whose keys are their names, such as " \
                "'" example "'; the command line overrides it"                       \
    }
// Stands beside one of these, for an option with a default: `field`, a bool, becomes true if
// the option was given, even with the default's value. An inherited value was not given.
#define BD_GIVEN(settings, field) \
    .sets_given = true, .given_offset = BD_OFFSET_OF(settings, field, bool)
// The option --threads N, 0 by default, for bd_threads_count().
#define BD_THREADS_OPTION(settings, field, text)                                               \
    {                                                                                          \
        .name = "threads", .value = "N", BD_INTEGER(settings, field, 1, 4096), .initial = "0", \
        .initial_note = "one per core", .help = text                                           \
    }
#define BD_CHOICE(settings, field, words)         \
    .kind = BD_OPTION_CHOICE, .choices = (words), \
    .offset = offsetof(settings, field) +         \
              0 * sizeof(_Generic(&((settings *)0)->field, int * : 0, unsigned * : 0))

typedef struct bd_program bd_program;  // program.h
typedef struct bd_arguments bd_arguments;

// All strings are ASCII and live as long as the program.
typedef struct bd_command {
    const char *name;         // "pack"
    const char *summary;      // one sentence without a full stop
    const char *description;  // paragraphs with an empty line between them, which are wrapped
                              // unless they begin with a space; NULL if nothing to add
    const char *operands;     // "INPUT...", "DATASET", "[FILE]", "DATASET ROW", "[NAME...]";
                              // usage shows it and it is what is accepted; NULL for none
    bd_option_kind operand_kind;  // for completions: file, directory, choice (one of the
                                  // program's commands), or text for none of these
    const bd_option *options;
    size_t n_options;
    size_t settings_size;
    // Finds a further file of settings, for options that neither the command line nor
    // --settings gives: *path is malloc'd, or NULL if there is none. NULL for a command without
    // such a file.
    bd_status (*inherits)(const void *settings, char **path, bd_error *err);
    int (*run)(const bd_arguments *arguments);  // returns the exit status, see program.h
} bd_command;

// For lists of commands, X(name): the command bd_name_command, and an entry of a table of them.
#define BD_COMMAND_DECLARE(name) extern const bd_command bd_##name##_command;
#define BD_COMMAND_ENTRY(name)   &bd_##name##_command,

// The texts that the hidden --generate prints.
#define BD_GENERATED_TEXTS(X)          \
    X(BD_GENERATED_NOTHING, "nothing") \
    X(BD_GENERATED_MAN, "man")         \
    X(BD_GENERATED_BASH, "bash")       \
    X(BD_GENERATED_ZSH, "zsh")         \
    X(BD_GENERATED_FISH, "fish")
BD_ENUM(bd_generated, BD_GENERATED_TEXTS);

struct bd_arguments {
    const bd_program *program;  // borrowed
    const bd_command *command;  // borrowed
    void *settings;             // the command's struct of settings, owned
    const char **operands;      // [n_operands], owned; the texts are borrowed from argv
    size_t n_operands;
    bd_settings_file files[2];  // that settings were taken from: --settings, inherited
    bool quiet;
    bd_color color;  // for bd_terminal_color()
    bool help;       // one of these three may be asked for instead of running
    bool version;
    bd_generated generated;
};

// Reads argv[1] to argv[argc - 1], and files of settings, as the arguments of `command`.
// --help, --version and --generate end the reading where they stand: arguments that follow them
// or are missing do not matter then. A wrong argument is BD_ERR_ARGUMENT with a message that
// names the option; a bad file is another status with a message that names the file. On failure
// *arguments is left empty and needs no release. Prints nothing.
bd_status bd_arguments_parse(bd_arguments *arguments, const bd_command *command, int argc,
                             char **argv, bd_error *err);

// Frees what parse allocated. Safe on an empty struct and safe twice.
void bd_arguments_release(bd_arguments *arguments);

// Prints the settings as a file of settings that gives them again. It has every option of the
// command but those that are saved nowhere, were not given though BD_GIVEN asks, or have a
// default that help shows as a note. Names of files become absolute. A text that is not UTF-8
// is left out, because YAML cannot hold it. *text is malloc'd.
bd_status bd_settings_print(const bd_command *command, const void *settings, char **text,
                            size_t *size_bytes, bd_error *err);

// Reads the size or length that `text` begins with, "64", "64K" or "64k"; *rest is what follows
// it. False if there is none, or it is too large.
bool bd_read_size(const char *text, int64_t *value, const char **rest);

// The i-th option that `command` understands: its own, then those that every command has.
// NULL past the last.
const bd_option *bd_command_option(const bd_command *command, size_t i);

// "did you mean ...?": the known word nearest to a mistyped one.
//
//   bd_nearest nearest = {.typed = "verfy"};
//   for (...)
//       bd_nearest_offer(&nearest, known_word);
//   if (nearest.word) ...
typedef struct bd_nearest {
    const char *typed;
    const char *word;  // the best so far, borrowed; NULL if none is near enough for a hint
    size_t distance;   // from typed to word
} bd_nearest;

// The first of several equally near words wins. A word that begins with `typed` is as near as
// one with a single wrong letter.
void bd_nearest_offer(bd_nearest *nearest, const char *candidate);

#endif
