// commands.h - the packer's commands, for bindery.c.
#ifndef BINDERY_PACKER_COMMANDS_H
#define BINDERY_PACKER_COMMANDS_H

#include "common/cli/options.h"

extern const bd_command bd_pack_command;
extern const bd_command bd_repack_command;
extern const bd_command bd_inspect_command;
extern const bd_command bd_verify_command;
extern const bd_command bd_locate_command;
extern const bd_command bd_plan_command;
extern const bd_command bd_tokenize_command;

extern const bd_command *const bd_packer_commands[];  // ended by NULL

#endif
