// inspect_rows.h - `bindery inspect --row` and `--sample`: rows for people to read.
#ifndef BINDERY_PACKER_INSPECT_INSPECT_ROWS_H
#define BINDERY_PACKER_INSPECT_INSPECT_ROWS_H

#include <stdio.h>

#include "packer/inspect/inspection.h"
#include "packer/inspect/row_text.h"

enum { BD_MAX_SAMPLE = 10000 };  // rows that --sample shows at most

// Prints the row that `which` names: "17" of the whole dataset, or "00000-00001:17" of a shard.
// One that is not there is BD_ERR_ARGUMENT.
bd_status bd_inspect_row(FILE *out, const bd_inspection *inspection, const char *which,
                         bd_row_style style, bd_error *err);

// Prints `n` different rows drawn by `seed`, all if there are fewer.
bd_status bd_inspect_sample(FILE *out, const bd_inspection *inspection, int64_t n, int64_t seed,
                            bd_row_style style, bd_error *err);

#endif
