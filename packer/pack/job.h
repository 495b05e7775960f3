// job.h - from the command line to a job: how to read, how to pack, which inputs.
#ifndef BINDERY_PACKER_PACK_JOB_H
#define BINDERY_PACKER_PACK_JOB_H

#include <stddef.h>

#include "common/base/error.h"
#include "packer/input/inputs.h"
#include "packer/pack/pack_options.h"
#include "packer/pack/unit.h"

// Fills in all but the inputs, the folders and the progress; what does not go together is
// BD_ERR_ARGUMENT. Close job->tokenizer afterwards, also after a failure.
bd_status bd_pack_job_init(bd_pack_job *job, const bd_pack_options *settings, bd_error *err);

// Collects the inputs that the operands and --source name. No operand, or an input in
// settings->out (which may be NULL), is BD_ERR_ARGUMENT. Release the inputs, also after a failure.
bd_status bd_pack_job_collect(bd_inputs *inputs, const char *const *operands, size_t n_operands,
                              const bd_pack_options *settings, bd_error *err);

// Examines them (inputs.h) and refuses what does not go with the job.
bd_status bd_pack_job_examine(const bd_pack_job *job, bd_inputs *inputs, int n_threads,
                              bd_error *err);

#endif
