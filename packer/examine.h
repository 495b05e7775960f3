// examine.h - what an input is: its format, how it is cut into slices, and its edges.
//
// The format is told by content where content tells it (Parquet, Arrow, files of tokens,
// compression), else by the ending of the name, else by whether it begins like a JSON object.
#ifndef BINDERY_PACKER_EXAMINE_H
#define BINDERY_PACKER_EXAMINE_H

#include <stdbool.h>

#include "common/error.h"
#include "packer/inputs.h"
#include "packer/reading.h"

// Whether a file that was found in a folder, not given by name, is taken for an input: by the
// ending of its name, and files of tokens by their content as well.
bd_status bd_is_input(const char *path, bool *is_input, bd_error *err);

// Whether it only accompanies another file: the index of a file of tokens that is there.
bool bd_is_sidecar(const char *path);

// Fills everything of *input but path, name and source. Reads its first and its last MiB; a
// compressed one is decompressed up to the size of a unit, unless it tells its size itself.
bd_status bd_input_examine(bd_input *input, const bd_reading *reading, bd_error *err);

#endif
