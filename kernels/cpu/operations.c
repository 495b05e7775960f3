// The table of one instruction set.
#include "kernels/cpu/cpu.h"

#define QUOTE_(word) #word
#define QUOTE(word)  QUOTE_(word)

const bd_operations BD_CPU(operations) = {
    .name = "cpu",
    .isa = QUOTE(BD_CPU_ISA),
    .works_on_host = true,
    .allocate = bd_cpu_allocate,
    .free_memory = bd_cpu_free_memory,
    .release = bd_cpu_release,
    .upload = bd_cpu_copy,
    .download = bd_cpu_copy,
    .zero = bd_cpu_zero,
    .send = bd_cpu_send,
    .arrive = bd_cpu_pass,
    .leave = bd_cpu_pass,
    .close = bd_cpu_close,
    .embedding_forward = BD_CPU(embedding_forward),
    .embedding_backward = BD_CPU(embedding_backward),
    .layer_norm_forward = BD_CPU(layer_norm_forward),
    .layer_norm_backward = BD_CPU(layer_norm_backward),
    .linear_forward = BD_CPU(linear_forward),
    .linear_backward = BD_CPU(linear_backward),
    .attention_forward = BD_CPU(attention_forward),
    .attention_backward = BD_CPU(attention_backward),
    .activation_forward = BD_CPU(activation_forward),
    .activation_backward = BD_CPU(activation_backward),
    .add = BD_CPU(add),
    .cross_entropy = BD_CPU(cross_entropy),
    .adamw = BD_CPU(adamw),
    .sum_of_squares = BD_CPU(sum_of_squares),
};
