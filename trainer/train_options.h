// train_options.h - the options of `bindery train`, which its option table fills.
#ifndef BINDERY_TRAINER_TRAIN_OPTIONS_H
#define BINDERY_TRAINER_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cli/options.h"
#include "trainer/hyperparameters.h"
#include "trainer/model/backend_choice.h"

typedef struct bd_train_options {
    const char *settings_file;  // read by the parser
    bd_texts data;              // see data_sources.h
    bool dry_run;
    // The run's folder; at least one of them names it, except in a dry run.
    const char *out, *resume;
    int64_t resume_from;  // a step; BD_NOT_GIVEN: the latest
    int preset;
    bool preset_given;
    bool model_given;  // one of the other options of the model was given
    const char *config, *init;
    int64_t n_layers, n_channels, n_heads, n_kv_heads, head_size, n_feed_forward, n_positions,
        n_vocabulary;
    bd_run_length length;
    // setup.c decides n_steps, decay_steps, type and, if it is not given, micro_batch_rows.
    bd_hyperparameters hyperparameters;
    double decay;  // see bd_count_decay_steps()
    int64_t save_every, n_kept, save_memory_bytes;
    bool kept_given;
    int64_t log_every;
    bd_texts eval;  // datasets
    int64_t eval_every, eval_rows;
    bd_texts sample_prompts;
    int64_t sample_every, probe_every;  // BD_NOT_GIVEN: never
    double peak_tflops;                 // 0: unknown
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_precision_choice precision;
    int64_t n_threads;
} bd_train_options;

#endif
