// job.h - what is packed and how: the options of `pack` and `plan`, and the job that they become.
//
//   bd_pack_options   filled by the table of options; its job holds what they say directly
//   bd_pack_job       complete once the tokenizer is open and the defaults are known
#ifndef BINDERY_PACKER_PACK_JOB_H
#define BINDERY_PACKER_PACK_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cli/options.h"
#include "common/dataset/config.h"
#include "common/dataset/units.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/input/input_options.h"
#include "packer/input/inputs.h"

enum { BD_NO_LIMIT = -1 };

// All units of a run share it.
typedef struct bd_pack_job {
    bd_dataset_config config;       // of the dataset; see bd_holdout_config()
    const bd_tokenizer *tokenizer;  // borrowed
    const char *tokenizer_file;     // that it was read from, for the log; NULL if built in
    const bd_inputs *inputs;        // borrowed
    bd_input_options reading;
    bd_chat_format *chat;        // owned; that of `reading`, NULL unless it has messages
    int64_t limit;               // documents of the corpus to take, or BD_NO_LIMIT
    const char *folder;          // where the dataset goes; borrowed
    const char *holdout_folder;  // where the held-out one goes; NULL without a holdout
} bd_pack_job;

// The config of the held-out dataset.
bd_dataset_config bd_holdout_config(const bd_pack_job *job);

// Cuts the job's inputs into units. Release them with bd_units_release().
bd_status bd_pack_job_units(const bd_pack_job *job, bd_units *units, bd_error *err);

// Bytes of all inputs; 0 if the size of one is not known.
uint64_t bd_pack_job_bytes(const bd_pack_job *job);

// The settings of `pack`, which those of `plan` begin with.
typedef struct bd_pack_options {
    bd_pack_job job;
    const char *settings_file;  // read by the parser
    const char *tokenizer;
    const char *separator_token;
    const char *prompt_field, *completion_field, *segments_field, *messages_field;
    const char *chat_format, *train_roles;
    bool text_field_given, turn_ends_given, long_given;
    int format;                     // of bd_format_names
    const char *holdout, *max_bad;  // shares, such as "0.5%"
    int64_t id_bytes;
    bd_texts sources, include, exclude;
    bool allow_skipped;
    int64_t n_threads;
    int64_t rank, n_ranks;
    bool finish;
    bool overwrite, update;
    bool no_space_check;
    bool dry_run;
    bool json;
} bd_pack_options;

// Completes options->job but for its inputs and the holdout's folder; options that contradict
// each other are BD_ERR_ARGUMENT. Release the job afterwards, also after a failure.
bd_status bd_pack_job_complete(bd_pack_options *options, bd_error *err);

// Closes the tokenizer and frees the chat format. Safe on an empty job and safe twice.
void bd_pack_job_release(bd_pack_job *job);

// Collects the inputs that the operands and --source name. No input, or one in the job's folder
// (which may be NULL), is BD_ERR_ARGUMENT. Release the inputs, also after a failure.
bd_status bd_pack_job_collect(bd_inputs *inputs, const char *const *operands, size_t n_operands,
                              const bd_pack_options *options, bd_error *err);

// Examines them (inputs.h) and refuses inputs that the job cannot take. The dataset will have
// loss masks if an input says which of its tokens are trained.
bd_status bd_pack_job_examine(bd_pack_job *job, bd_inputs *inputs, int n_threads,
                              bd_error *err);

#endif
