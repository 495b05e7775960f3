// space.h - whether the disk has room for what is to be packed.
#ifndef BINDERY_PACKER_PACK_SPACE_H
#define BINDERY_PACKER_PACK_SPACE_H

#include <stdint.h>

#include "common/base/error.h"
#include "packer/pack/unit.h"

// About how many bytes the dataset will have. Compressed inputs, which do not tell, are taken
// for four times their size; standard input for nothing.
int64_t bd_space_needed(const bd_pack_job *job);

// BD_ERR_IO if the disk of job->folder, or of the nearest folder above it that exists, has less
// free space than that. Files in the folder count as free space: they are part of what is needed,
// or will be replaced. If the free space cannot be found out, it is no error.
bd_status bd_space_check(const bd_pack_job *job, bd_error *err);

#endif
