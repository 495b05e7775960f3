#include "packer/commands.h"

const bd_command *const bd_packer_commands[] = {BD_FOR_EACH_PACKER_COMMAND(BD_COMMAND_ENTRY)
                                                    NULL};
