// program.h - the command-line program: finds the command, runs it, prints help and errors.
//
// This is the command layer, the one part of common/ that prints. bindery.c is only
//
//   static const bd_command_group groups[] = {bd_packer_commands, bd_trainer_commands, NULL};
//   static const bd_program program = {
//       .name = "bindery",
//       .summary = "Bind documents into training sequences",
//       .groups = groups,
//   };
//
//   int main(int argc, char **argv)
//   {
//       return bd_program_main(&program, argc, argv);
//   }
//
// and a group lists its commands, in the order in which help shows them:
//
//   const bd_command *const bd_packer_commands[] = {
//       &bd_pack_command, &bd_verify_command, NULL};
#ifndef BINDERY_COMMON_CLI_PROGRAM_H
#define BINDERY_COMMON_CLI_PROGRAM_H

#include <stdio.h>

#include "common/cli/options.h"

// Exit status of the program and of a command's run function.
enum {
    BD_EXIT_DONE = 0,    // done
    BD_EXIT_NO = 1,      // the answer is no
    BD_EXIT_FAILED = 2,  // it could not be done
};

typedef const bd_command *const *bd_command_group;  // commands, ended by NULL

struct bd_program {
    const char *name;                // "bindery"
    const char *summary;             // one sentence without a full stop
    const char *description;         // as in bd_command
    const bd_command_group *groups;  // ended by NULL
    // More lines for --version, which say what the program was built with; may be NULL.
    void (*print_parts)(FILE *out);
};

// Returns the exit status. SIGPIPE is ignored from here on: a closed pipe on stdout is not an
// error and does not stop the command (one that prints without end checks ferror(stdout)). Any
// other failure to write to stdout, such as a full disk, is reported and gives BD_EXIT_FAILED.
int bd_program_main(const bd_program *program, int argc, char **argv);

// Prints "bindery pack: <message>" on stderr and returns BD_EXIT_FAILED; or, if the command was
// interrupted (common/base/interrupt.h), ends the program by that signal.
int bd_command_fail(const bd_arguments *arguments, const bd_error *err);
// Prints the message alone, for commands that have something to do before they end.
void bd_command_say(const bd_arguments *arguments, const bd_error *err);

// Prints "bindery pack: <text>" on stderr: a note about something that is not a failure.
void bd_command_note(const bd_arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Prints such a note, unless quiet, after work that took a while: "done in 12 s, 1.20 GiB read,
// 102 MiB/s". `did` says what was done with the bytes; `n_bytes` is 0 if their number is
// unknown.
void bd_command_say_time(const bd_arguments *arguments, int64_t elapsed_ns, uint64_t n_bytes,
                         const char *did);

// The same as bd_command_fail(), with a line that points to --help: for arguments that
// contradict each other.
int bd_command_misuse(const bd_arguments *arguments, const bd_error *err);

// The i-th command: those of the groups in order, then the built-in `help`. NULL past the last.
const bd_command *bd_program_command(const bd_program *program, size_t i);

// Text made from the tables. `command` NULL means the program as a whole; completions always
// cover the whole program.
void bd_program_print_help(const bd_program *program, const bd_command *command, FILE *out);
void bd_program_generate(const bd_program *program, const bd_command *command,
                         bd_generated what, FILE *out);

#endif
