// loop.h - a training run from its first step, or from a checkpoint, to its last.
#ifndef BINDERY_TRAINER_LOOP_H
#define BINDERY_TRAINER_LOOP_H

#include <stdbool.h>

#include "common/base/error.h"
#include "trainer/group.h"
#include "trainer/train_options.h"

// Runs `bindery train` together with the other ranks of `group`. Rank 0 prints for all of them:
// a line for some of the steps on stdout, and unless `quiet` everything else on stderr. After the
// first SIGINT or SIGTERM that any rank gets, the current step is finished and saved; the result
// is then BD_ERR_INTERRUPTED, and the message says how to continue. *leaks becomes true if the
// run ended because a probe found that documents reach one another.
bd_status bd_train_loop(const bd_train_options *options, bd_group *group, bool quiet,
                        bool *leaks, bd_error *err);

#endif
