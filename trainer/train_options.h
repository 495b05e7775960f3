// train_options.h - what the command line of `bindery train` says.
#ifndef BINDERY_TRAINER_TRAIN_OPTIONS_H
#define BINDERY_TRAINER_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cli/options.h"
#include "trainer/hyperparameters.h"
#include "trainer/model/backend_choice.h"

enum { BD_NOT_GIVEN = 0, BD_LATEST = -1 };

typedef struct bd_train_options {
    const char *settings_file;  // read by the parser
    bd_texts data;              // see data_sources.h
    const char *out;
    int preset;
    bool preset_given;
    bool model_given;  // one of the others that say what the model is
    const char *config, *init;
    int64_t n_layers, n_channels, n_heads, n_feed_forward, n_positions, n_vocabulary;
    int64_t n_steps, n_tokens;
    double n_epochs;
    int64_t batch_rows, micro_batch_rows, warm_up_steps;
    bd_learning_rate_schedule schedule;
    double decay;  // see bd_count_decay_steps()
    double learning_rate, min_learning_rate, beta1, beta2, epsilon, weight_decay, clip_norm;
    double skip_spikes;
    bool recomputes;
    int64_t seed;
    int64_t save_every, log_every;
    double peak_tflops;  // 0: unknown
    int64_t n_kept, save_memory_bytes;
    bool kept_given;
    bd_texts eval;  // datasets
    int64_t eval_every, eval_rows;
    bd_texts sample_prompts;
    int64_t sample_every;
    int64_t probe_every;
    const char *resume;   // NULL: -o says where
    int64_t resume_from;  // a step, or BD_LATEST
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_precision_choice precision;
    int64_t n_threads;
} bd_train_options;

#endif
