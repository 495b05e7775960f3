// report_plan.h - what `pack --dry-run` says: the inputs, and what would become of them.
#ifndef BINDERY_PACKER_PACK_REPORT_PLAN_H
#define BINDERY_PACKER_PACK_REPORT_PLAN_H

#include <stdio.h>

#include "packer/pack/pack.h"

// A line for the inputs of each source and format, in the order in which they come, and one for
// all of them.
bd_status bd_report_plan(FILE *out, const bd_pack_job *job, bd_error *err);

#endif
