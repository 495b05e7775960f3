// run_folder.h - whether a folder without a checkpoint may become the folder of a new run.
#ifndef BINDERY_TRAINER_RUN_FOLDER_H
#define BINDERY_TRAINER_RUN_FOLDER_H

#include "common/base/error.h"

// BD_ERR_ARGUMENT if the folder holds a file that no run has left there; the message names it.
// A run that ended before its first checkpoint left metrics.jsonl, settings.yaml and
// tokenizer.json, made in this order. Other programs use these names too, so only the contents
// prove it. `tokenizer` is the text of the tokenizer.json that the new run will write.
bd_status bd_run_folder_check(const char *folder, const char *tokenizer, bd_error *err);

#endif
