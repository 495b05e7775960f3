// examine.h - what an input is: its format, how it is cut into slices, and its edges.
#ifndef BINDERY_PACKER_INPUT_EXAMINE_H
#define BINDERY_PACKER_INPUT_EXAMINE_H

#include "common/base/error.h"
#include "packer/input/input_options.h"
#include "packer/input/inputs.h"

// Fills everything of *input but path, name, source and what it was found with. What cannot be
// read is refused (recognise.h). Reads its first and its last MiB; a compressed one is
// decompressed up to the size of a unit, unless it tells its size itself. What the input has of
// its own comes before `options`.
bd_status bd_input_examine(bd_input *input, const bd_input_options *options, bd_error *err);

// For the kinds (kinds.h): hashes the first and the last MiB of the input's file, and of the
// file beside it that it is read with (NULL: none), and notes both files' marks.
bd_status bd_input_digest_edges(bd_input *input, const char *sidecar, bd_error *err);

// Adds a slice that begins at `start`; *capacity is 0 before the first.
bd_status bd_input_add_start(bd_input *input, size_t *capacity, int64_t start, bd_error *err);

// The second half of it, for an input whose format is known.
bd_status bd_input_cut(bd_input *input, const bd_input_options *options, bd_error *err);

#endif
