// commands.h - the trainer's commands, for bindery.c.
#ifndef BINDERY_TRAINER_COMMANDS_H
#define BINDERY_TRAINER_COMMANDS_H

#include "common/cli/options.h"

extern const bd_command bd_train_command;
extern const bd_command bd_eval_command;
extern const bd_command bd_generate_command;
extern const bd_command bd_prove_command;
extern const bd_command bd_report_command;

// `export --model RUN` (packer/commands.h): exports the checkpoint of `step`, or the latest if it
// is BD_LATEST_STEP, with weights of a bd_type. Returns the exit status.
int bd_export_model(const bd_arguments *arguments, const char *run, const char *folder,
                    int64_t step, int type);

extern const bd_command *const bd_trainer_commands[];  // ended by NULL

#endif
