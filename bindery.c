// bindery.c - main() and the table of commands: the packer's, the trainer's, and `export`, which
// writes a dataset of the packer or a model of the trainer.
#include <stdio.h>

#include "build.h"  // made by CMake
#include "common/base/last_words.h"
#include "common/base/mapped_file.h"
#include "common/cli/program.h"
#include "kernels/cpu/cpu.h"
#include "kernels/module.h"
#include "packer/commands.h"
#include "trainer/commands.h"
#include "trainer/group.h"
#include "trainer/model/backend_choice.h"
#include "trainer/weights/run.h"

// For bug reports: one fact a line.
static void print_parts(FILE *out)
{
    if (*BINDERY_COMMIT)
        fputs("commit: " BINDERY_COMMIT "\n", out);
    fputs("Arrow GLib: " BINDERY_ARROW_GLIB_VERSION "\n", out);
    fprintf(out, "backends: cpu (%s), cuda (%s)\n", bd_cpu_isa_name(bd_cpu_isa_best()),
            bd_backend_module_exists() ? "by its module" : "no module");
    fprintf(out, "MPI: %s\n", bd_group_module_exists() ? "by its module" : "no module");
}

int main(int argc, char **argv)
{
    const bd_model_exporter exporter = {bd_precision_names, bd_weights_choice_names,
                                        bd_export_model};
    const bd_command *const common_commands[] = {bd_export_command(&exporter), NULL};
    const bd_command_group groups[] = {bd_packer_commands, bd_trainer_commands, common_commands,
                                       NULL};
    const bd_program program = {
        .name = "bindery",
        .summary =
            "Bind documents into training sequences, with boundaries that can be trusted",
        .groups = groups,
        .print_parts = print_parts,
    };
    bd_mapped_file_handle_sigbus();
    bd_last_words_prepare();
    return bd_program_main(&program, argc, argv);
}
