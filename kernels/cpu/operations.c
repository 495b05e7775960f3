// The operations of one instruction set. bd_backend_open_cpu_isa() adds the functions that all
// share.
#include "kernels/cpu/cpu.h"

#define QUOTE_(word) #word
#define QUOTE(word)  QUOTE_(word)
#define ENTRY(name)  .name = BD_CPU(name),

const bd_operations BD_CPU(operations) = {.isa = QUOTE(BD_CPU_ISA),
                                          BD_FOR_EACH_OPERATION(ENTRY)};
