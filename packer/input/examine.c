#include "packer/input/examine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/memory.h"
#include "packer/input/kinds.h"
#include "packer/input/recognise.h"

enum { EDGE_BYTES = 1 << 20 };

// ---- Edges ---------------------------------------------------------------------------------

// Adds the first and the last MiB of a file that has `mark` then.
static bd_status hash_edges(bd_hasher *hasher, const char *path, bd_file_mark *mark,
                            bd_error *err)
{
    bd_status status = BD_OK;
    char *buffer = malloc(EDGE_BYTES);
    int fd = -1;
    if (!buffer) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    int64_t size_bytes;
    status = bd_file_open(path, &fd, &size_bytes, err);
    if (status == BD_OK)
        status = bd_file_mark_of_open(fd, path, mark, err);
    if (status != BD_OK)
        goto done;
    size_bytes = mark->size_bytes;
    const size_t edge = size_bytes < EDGE_BYTES ? (size_t)size_bytes : EDGE_BYTES;
    const int64_t offsets[] = {0, size_bytes - (int64_t)edge};
    for (int i = 0; status == BD_OK && i < 2; i++) {
        status = bd_file_read_at(fd, path, buffer, edge, offsets[i], err);
        if (status == BD_OK)
            bd_hasher_add(hasher, buffer, edge);
    }
done:
    if (fd >= 0)
        close(fd);
    free(buffer);
    return status;
}

bd_status bd_input_digest_edges(bd_input *input, const char *sidecar, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = hash_edges(hasher, input->path, &input->mark, err);
    input->entry.size_bytes = input->mark.size_bytes;
    if (status == BD_OK && sidecar)
        status = hash_edges(hasher, sidecar, &input->index_mark, err);
    if (status == BD_OK && sidecar && !(input->index = strdup(sidecar)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", sidecar);
    if (status == BD_OK)
        input->edges = bd_hasher_take128(hasher);
    bd_hasher_free(hasher);
    return status;
}

// ---- Cuts ----------------------------------------------------------------------------------

bd_status bd_input_add_start(bd_input *input, size_t *capacity, int64_t start, bd_error *err)
{
    bd_input_entry *entry = &input->entry;
    BD_TRY(bd_array_reserve((void **)&entry->starts, capacity, entry->n_starts + 1,
                            sizeof *entry->starts, err));
    entry->starts[entry->n_starts++] = start;
    return BD_OK;
}

bd_status bd_input_cut(bd_input *input, const bd_input_options *options, bd_error *err)
{
    const bd_input_options own = bd_input_options_of(input, options);
    if (own.form != BD_FORM_TEXT && input->kind->is_text && !input->kind->is_json)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' is %s, which has no field '%s': prompts, segments and messages "
                       "are read from JSONL, JSON arrays, Parquet and Arrow",
                       input->path, input->kind->name, own.fields[0]);
    BD_TRY(input->kind->cut(input, &own, err));
    input->entry.format = strdup(input->kind->name);
    input->entry.compression = strdup(bd_compression_name(input->compression));
    return input->entry.format && input->entry.compression
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
}

bd_status bd_input_examine(bd_input *input, const bd_input_options *options, bd_error *err)
{
    const bd_input_options own = bd_input_options_of(input, options);
    BD_TRY(bd_input_recognise(input, &own, err));
    return input->passed == BD_PASS_NOT ? bd_input_cut(input, options, err)
                                        : bd_input_refuse(input, err);
}
