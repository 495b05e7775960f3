// completions.h - shell scripts that complete the program's commands, options and values.
// Printed from the tables by bd_program_generate(), which is what callers use.
#ifndef BINDERY_COMMON_CLI_COMPLETIONS_H
#define BINDERY_COMMON_CLI_COMPLETIONS_H

#include <stdio.h>

#include "common/cli/program.h"

void bd_completions_bash(const bd_program *program, FILE *out);
void bd_completions_zsh(const bd_program *program, FILE *out);
void bd_completions_fish(const bd_program *program, FILE *out);

#endif
