// loop.h - a training run from its first step, or from a checkpoint, to its last.
#ifndef BINDERY_TRAINER_LOOP_H
#define BINDERY_TRAINER_LOOP_H

#include <stdbool.h>

#include "common/base/error.h"
#include "trainer/group.h"
#include "trainer/train_options.h"

// Does what `bindery train` was asked for together with the other ranks of `group`, and says so
// as commands do, which rank 0 does for all: on stdout a line now and then, on stderr, unless
// `quiet`, the rest. The first SIGINT or SIGTERM that any of them gets ends it after the step
// at hand, which is saved: BD_ERR_INTERRUPTED, with a message that says so. *leaks becomes true
// if it ended because a probe found that documents reach one another.
bd_status bd_train_loop(const bd_train_options *options, bd_group *group, bool quiet,
                        bool *leaks, bd_error *err);

#endif
