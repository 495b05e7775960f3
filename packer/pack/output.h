// output.h - the folder that a dataset is packed into: whether it may be used, and what is left to
// do.
//
//   absent, empty, or nothing but a card  start
//   the same plan, no manifest            continue: finished shards stay
//   the same plan and a manifest          finished: nothing to do
//   other contents of the same inputs     refused, or updated: unfinished, of the new plan
//   anything else                         refused, or emptied first
#ifndef BINDERY_PACKER_PACK_OUTPUT_H
#define BINDERY_PACKER_PACK_OUTPUT_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/folder.h"
#include "common/base/json.h"

typedef enum bd_output_state {
    BD_OUTPUT_NEW,
    BD_OUTPUT_UNFINISHED,
    BD_OUTPUT_FINISHED,
} bd_output_state;

// What happens to a dataset that the folder holds already.
typedef enum bd_output_existing {
    BD_EXISTING_CONTINUE,
    BD_EXISTING_OVERWRITE,
    BD_EXISTING_UPDATE,
} bd_output_existing;

// The held-out dataset, inside the dataset's folder.
#define BD_HOLDOUT_NAME "holdout"

typedef struct bd_output {
    int lock;  // the folder's (common/base/folder.h); -1 when closed
    bd_output_state state;
    int n_made;  // folders that were not there before (common/base/folder.h)
} bd_output;

// Whether a dataset may have a file of this name. A shard in a folder is ours only if the plan
// there could have made it.
bool bd_output_is_file_name(const char *name);

// Creates the folder and those above it if they are absent, locks it, compares what it holds with
// `plan`, and publishes the plan if it holds none. With an exclusive lock, temporary files that an
// earlier run left are removed, unless the dataset is finished; a finished dataset of the same plan
// is not locked. With BD_EXISTING_OVERWRITE a dataset is removed first, finished or not and
// whatever its plan; a folder that holds any other file is refused, and nothing in it is touched. A
// card that is not ours (dataset_card.h) always stays. A refusal removes the folders that this call
// has created. BD_EXISTING_UPDATE turns a dataset whose inputs have the same names and formats into
// an unfinished one of the new plan (update.h). Close or withdraw the output afterwards.
bd_status bd_output_open(bd_output *output, const char *folder, const bd_json *plan,
                         bd_lock_mode mode, bd_output_existing existing, bd_error *err);

// Looks again whether the dataset is finished: another process may have done it meanwhile.
void bd_output_refresh(bd_output *output, const char *folder);

// Closes it after a failure that left nothing worth continuing: what was published into a folder
// that was BD_OUTPUT_NEW is removed, and the folder, if it was not there before.
void bd_output_withdraw(bd_output *output, const char *folder);

void bd_output_close(bd_output *output);  // safe on a closed one

#endif
