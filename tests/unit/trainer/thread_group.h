// thread_group.h - a group whose ranks are threads of one process, for tests.
#ifndef BINDERY_TESTS_UNIT_TRAINER_THREAD_GROUP_H
#define BINDERY_TESTS_UNIT_TRAINER_THREAD_GROUP_H

#include "trainer/group.h"

enum { MAX_THREAD_RANKS = 5 };

// Calls `work` once for each rank, each in its own thread, with a group that is left
// afterwards. cmocka's assertions work only in the first thread: the others abort() if they
// must.
void run_ranks(int32_t n_ranks, void (*work)(bd_group *group, void *context), void *context);

#endif
