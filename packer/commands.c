#include "packer/commands.h"

const bd_command *const bd_packer_commands[] = {
    &bd_plan_command,   &bd_pack_command,   &bd_repack_command,   &bd_inspect_command,
    &bd_verify_command, &bd_locate_command, &bd_tokenize_command, NULL,
};
