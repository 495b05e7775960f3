// commands.h - the trainer's commands, for bindery.c.
#ifndef BINDERY_TRAINER_COMMANDS_H
#define BINDERY_TRAINER_COMMANDS_H

#include "common/cli/options.h"

// X(name) for each command, in the order in which help lists them.
#define BD_FOR_EACH_TRAINER_COMMAND(X) \
    X(train)                           \
    X(eval)                            \
    X(prove)                           \
    X(generate)                        \
    X(report)
BD_FOR_EACH_TRAINER_COMMAND(BD_COMMAND_DECLARE)

// `export --model RUN` (packer/commands.h): exports the checkpoint of `step`, or the latest if it
// is BD_LATEST_STEP, in a bd_type, and those weights that a bd_weights_choice says. Returns the
// exit status.
int bd_export_model(const bd_arguments *arguments, const char *run, const char *folder,
                    int64_t step, int type, int weights);

extern const bd_command *const bd_trainer_commands[];  // ended by NULL

#endif
