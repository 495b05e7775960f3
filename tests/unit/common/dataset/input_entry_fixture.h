// input_entry_fixture.h - compares two entries of inputs.
#ifndef BINDERY_TESTS_UNIT_COMMON_DATASET_INPUT_ENTRY_FIXTURE_H
#define BINDERY_TESTS_UNIT_COMMON_DATASET_INPUT_ENTRY_FIXTURE_H

#include "common/dataset/input_entry.h"

static inline void assert_same_input(const bd_input_entry *here, const bd_input_entry *there)
{
    assert_string_equal(here->name, there->name);
    assert_string_equal(here->source, there->source);
    assert_string_equal(here->format, there->format);
    assert_string_equal(here->compression, there->compression);
    assert_true(here->size_bytes == there->size_bytes);
    assert_true(here->weight == there->weight);
    assert_true(here->extent == there->extent);
    assert_true(here->stride == there->stride);
    assert_int_equal(here->n_starts, there->n_starts);
    for (size_t i = 0; i < here->n_starts; i++)
        assert_true(here->starts[i] == there->starts[i]);
}

#endif
