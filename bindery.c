// bindery.c - joins the rooms' tables of commands into one program.
#include "common/mapped_file.h"
#include "common/program.h"
#include "packer/commands.h"
#include "trainer/commands.h"

static const bd_room rooms[] = {bd_packer_commands, bd_trainer_commands, NULL};

static const bd_program program = {
    .name = "bindery",
    .summary = "Bind documents into training sequences, with boundaries that can be trusted",
    .rooms = rooms,
};

int main(int argc, char **argv)
{
    bd_mapped_file_handle_sigbus();
    return bd_program_main(&program, argc, argv);
}
