// free_memory.h - how much memory this process could still have.
#ifndef BINDERY_COMMON_BASE_FREE_MEMORY_H
#define BINDERY_COMMON_BASE_FREE_MEMORY_H

#include <stddef.h>

// Bytes: what the system could give without ending a process, unused swap included, or less if
// the limits of the process's control groups or of its address space (ulimit -v) leave less.
// SIZE_MAX if nothing of that is known. Other processes may take it meanwhile.
size_t bd_free_memory(void);

#endif
