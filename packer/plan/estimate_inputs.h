// estimate_inputs.h - the lengths of the documents of a corpus that is not packed yet: of all,
// if it is small, else of a sample.
//
//   inputs   |-----------------------|----------|-----|-----|--------------------|
//   windows  [==]     [==]     [==]     [==]    [==]     [==]     [==]     [==]
//
// Windows begin at equal distances, by weight, with the first record that begins there, and end
// when each has read its share. An input that can only be read from front to back has one window
// at its front, as large as all windows that would lie in it.
#ifndef BINDERY_PACKER_PLAN_ESTIMATE_INPUTS_H
#define BINDERY_PACKER_PLAN_ESTIMATE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/pack/unit.h"
#include "packer/plan/estimate.h"

typedef struct bd_length_sample {
    bd_lengths *units;  // [n_units], owned; the real units if all was read, else one
    size_t n_units;
    bool is_all;
    int64_t n_windows;    // 0 if all was read
    int64_t n_documents;  // that were read and would be packed
    int64_t n_targets;    // of those, if they are kept whole and say which tokens are trained
    double read_bytes;    // of the inputs, decompressed
    double total_bytes;   // estimated if compressed inputs do not tell
    int64_t time_ns;      // that reading and tokenising took, all threads together
} bd_length_sample;

// Reads the job's inputs, all of them if they have at most `sample_bytes`, else about as much,
// and at least a document in each window. Standard input, which could not be read afterwards,
// is BD_ERR_ARGUMENT. A bad record is an error, as it is for packing. Memory: 8 bytes per
// document that is read, and for each thread 20 per byte of its largest record, and one row
// group of a table. Release what comes out.
bd_status bd_length_sample_take(bd_length_sample *sample, const bd_pack_job *job,
                                int64_t sample_bytes, int n_threads, bd_error *err);

void bd_length_sample_release(
    bd_length_sample *sample);  // safe on an empty struct and safe twice

#endif
