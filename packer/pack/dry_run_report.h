// dry_run_report.h - what `pack --dry-run` says: the inputs, and what would become of them.
#ifndef BINDERY_PACKER_PACK_DRY_RUN_REPORT_H
#define BINDERY_PACKER_PACK_DRY_RUN_REPORT_H

#include <stdio.h>

#include "packer/pack/pack.h"

// A line for the inputs of each source and format, in the order in which they come, and one for
// all of them.
bd_status bd_report_dry_run(FILE *out, const bd_pack_job *job, bd_error *err);

#endif
