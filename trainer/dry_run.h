// dry_run.h - what a training would take, before it is begun.
#ifndef BINDERY_TRAINER_DRY_RUN_H
#define BINDERY_TRAINER_DRY_RUN_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/error.h"
#include "trainer/group.h"
#include "trainer/train_options.h"

// Prints the model, the run, the memory by kind, and an estimate of the time; rank 0 prints for
// all. The memory is that of the rank that takes the most where memory is shortest: ranks on one
// machine share its memory, and devices are taken to belong to one rank each. *fits, which all
// ranks agree on, says whether the memory is free; if it is not, the last lines say which options
// would help.
bd_status bd_train_dry_run(FILE *out, const bd_train_options *options, bd_group *group,
                           bool *fits, bd_error *err);

#endif
