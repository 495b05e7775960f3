// commands.h - the packer's commands, for bindery.c.
#ifndef BINDERY_PACKER_COMMANDS_H
#define BINDERY_PACKER_COMMANDS_H

#include "common/cli/options.h"

// X(name) for each command, in the order in which help lists them.
#define BD_FOR_EACH_PACKER_COMMAND(X) \
    X(plan)                           \
    X(pack)                           \
    X(repack)                         \
    X(inspect)                        \
    X(verify)                         \
    X(locate)                         \
    X(tokenize)
BD_FOR_EACH_PACKER_COMMAND(BD_COMMAND_DECLARE)

// Exports the model of the training run in the folder `run` into `folder`: the checkpoint of
// `step` (BD_NOT_GIVEN: the latest), with weights of a type that is an index of type_words,
// and those weights that an index of weights_words says. Prints what came of it and returns
// the exit status.
typedef struct bd_model_exporter {
    const char *const *type_words;     // ended by NULL
    const char *const *weights_words;  // likewise
    int (*run)(const bd_arguments *arguments, const char *run, const char *folder, int64_t step,
               int type, int weights);
} bd_model_exporter;

// `export`. Datasets are the packer's, and models are exported by what is handed in.
const bd_command *bd_export_command(const bd_model_exporter *exporter);

extern const bd_command *const bd_packer_commands[];  // ended by NULL

#endif
