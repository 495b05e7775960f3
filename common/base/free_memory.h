// free_memory.h - how much memory this process could still have.
#ifndef BINDERY_COMMON_BASE_FREE_MEMORY_H
#define BINDERY_COMMON_BASE_FREE_MEMORY_H

#include <stddef.h>

// The bytes that the system could give without killing a process, unused swap included, or less
// if the limits of the process's control groups or of its address space (ulimit -v) leave less.
// SIZE_MAX if none of these is known. Other processes may take the memory meanwhile.
size_t bd_free_memory(void);

#endif
