// model_export.h - a run's model as a folder that Hugging Face's transformers load.
//
//   model.safetensors        the weights under Hugging Face's names, the output matrix left out
//                            because it is the token table; exactly n_vocabulary rows
//   tokenizer.json           the tokenizer of the run's data
//   tokenizer_config.json    how to open it, and the token that ends a document
//   generation_config.json   the token at which generate() stops
//   config.json              the shape; published last: without it there is no model
#ifndef BINDERY_TRAINER_WEIGHTS_MODEL_EXPORT_H
#define BINDERY_TRAINER_WEIGHTS_MODEL_EXPORT_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/type.h"
#include "trainer/model/model_config.h"
#include "trainer/weights/run.h"

enum { BD_LATEST_STEP = -1 };

typedef struct bd_model_export_job {
    const char *run;     // folders, borrowed
    const char *folder;  // absent (its parent must exist) or empty
    int64_t step;        // of the checkpoint, or BD_LATEST_STEP
    bd_type type;        // of the stored weights; bf16 rounds them to the nearest
    bd_weights_choice weights;
} bd_model_export_job;

typedef struct bd_model_export_result {
    int64_t step;
    int64_t n_parameters;
    bool averaged;  // the weights are the average
    const bd_family *family;
} bd_model_export_result;

// Reads and checks the checkpoint and the tokenizer, and writes the files. No file gets its
// final name before all are complete, and a failure leaves none of them. Memory: 4 bytes for
// each parameter, 6 in bf16.
bd_status bd_model_export(const bd_model_export_job *job, bd_model_export_result *result,
                          bd_error *err);

#endif
