// operations_cases.h - the cases of operations_test.c, each in the file of its operation. Each
// compares the CUDA backend with the CPU backend by parity_fixture.h, and is run once for every
// schedule.
#ifndef BINDERY_TESTS_CUDA_OPERATIONS_CASES_H
#define BINDERY_TESTS_CUDA_OPERATIONS_CASES_H

#include <stdint.h>

void embedding_agrees(void);

void layer_norm_agrees(void);

void rms_norm_agrees(void);

void rotary_agrees(void);

void linear_agrees(void);
void same_shape_takes_another_bias(void);

void attention_agrees(void);

void gated_activation_agrees(void);

void elements_agree(void);
void sum_of_squares_agrees(void);
void check_add(int64_t n);  // the simplest operation, to show that the backend still works

void cross_entropy_agrees(void);
void cross_entropy_agrees_with_masks(void);

void copies_keep_every_byte(void);
void allocated_memory_is_zero(void);
void too_much_memory_is_refused(void);
void missing_device_is_refused(void);
void second_backend_leaves_the_first_alone(void);

#endif
