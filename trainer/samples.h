// samples.h - text that the model of a run generates now and then.
#ifndef BINDERY_TRAINER_SAMPLES_H
#define BINDERY_TRAINER_SAMPLES_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/cli/options.h"
#include "trainer/generator.h"
#include "trainer/metrics/metrics.h"
#include "trainer/model/model.h"

enum { BD_SAMPLE_TOKENS = 100 };  // at most, after the prompt

typedef struct bd_samples {
    const bd_model *model;       // borrowed
    bd_run_tokenizer tokenizer;  // owned
    bd_generator generator;      // owned
    bd_sample_value *values;     // [n], owned, and so are their texts; the prompts are borrowed
    size_t n;
} bd_samples;

// Prepares one sample for each of `prompts`, or for "The" if there are none, of a model that is
// trained on the dataset in `folder`. Prompts that do not fit, and a tokenizer without text, are
// BD_ERR_ARGUMENT. Close the samples also after a failure.
bd_status bd_samples_open(bd_samples *samples, const bd_texts *prompts, const bd_model *model,
                          const char *folder, const bd_manifest *manifest, bd_error *err);
// The most of the backend's memory that these samples take: as if every byte of a prompt were a
// token.
bd_status bd_samples_measure(const bd_texts *prompts, bd_type type,
                             const bd_parameters *parameters, size_t *size_bytes,
                             bd_error *err);
void bd_samples_close(bd_samples *samples);  // safe on an empty struct and safe twice

// Continues every prompt into samples->values, as `bindery generate` does with these prompts and
// its default temperature, top-k and seed. Bytes that are not UTF-8 are kept, except that 0 becomes
// 0xff. BD_ERR_INTERRUPTED after a signal.
bd_status bd_samples_write(bd_samples *samples, bd_error *err);

#endif
