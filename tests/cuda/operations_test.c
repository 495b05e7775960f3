// Parity of the CUDA backend with the CPU backend, operation by operation, in float.
//
//   operations_test device|emulated MODULE [CASE]        see module_fixture.h
//
// Inputs and outputs lie between guard bands; outputs are NaN before they are written, and
// numbers if the operation adds to them.
#include <stdio.h>

#include "operations_cases.h"
#include "parity_fixture.h"

static const module_case cases[] = {
    {.name = "embedding_agrees", .check = embedding_agrees},
    {.name = "layer_norm_agrees", .check = layer_norm_agrees},
    {.name = "rms_norm_agrees", .check = rms_norm_agrees, .misaligned = true},
    {.name = "rotary_agrees", .check = rotary_agrees, .misaligned = true},
    {.name = "linear_agrees", .check = linear_agrees},
    {.name = "attention_agrees", .check = attention_agrees},
    {.name = "same_shape_takes_another_bias", .check = same_shape_takes_another_bias},
    {.name = "gated_activation_agrees", .check = gated_activation_agrees, .misaligned = true},
    {.name = "elements_agree", .check = elements_agree, .misaligned = true},
    {.name = "sum_of_squares_agrees", .check = sum_of_squares_agrees},
    {.name = "cross_entropy_agrees", .check = cross_entropy_agrees},
    {.name = "cross_entropy_agrees_with_masks", .check = cross_entropy_agrees_with_masks},
    {.name = "copies_keep_every_byte", .check = copies_keep_every_byte},
    {.name = "allocated_memory_is_zero", .check = allocated_memory_is_zero},
    {.name = "too_much_memory_is_refused", .check = too_much_memory_is_refused},
    {.name = "missing_device_is_refused", .check = missing_device_is_refused},
    {.name = "second_backend_leaves_the_first_alone",
     .check = second_backend_leaves_the_first_alone},
};

int main(int argc, char **argv)
{
    bd_error err;
    if (bd_backend_open_cpu(&cpu, 2, &err) != BD_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const int status = run_module_cases(argc, argv, cases, sizeof cases / sizeof cases[0]);
    cpu->operations->close(cpu);
    return status;
}
