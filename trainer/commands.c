#include "trainer/commands.h"

const bd_command *const bd_trainer_commands[] = {
    &bd_train_command,    &bd_eval_command,   &bd_prove_command,
    &bd_generate_command, &bd_report_command, NULL,
};
