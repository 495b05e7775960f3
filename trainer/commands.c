#include "trainer/commands.h"

const bd_command *const bd_trainer_commands[] = {BD_FOR_EACH_TRAINER_COMMAND(BD_COMMAND_ENTRY)
                                                     NULL};
