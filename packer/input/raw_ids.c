// Ids end to end without a header, with a sidecar that says where documents end: NAME.index
// (uint64 each, in tokens; datatrove's .ds) or, for NAME.npy without an NPY header, dolma's
// NAME.csv.gz (dolma_index.h).
#include <inttypes.h>
#include <stdlib.h>

#include "packer/input/token_layout.h"

// The sidecar of raw ids that is there, malloc'd; *sidecar is NULL if none is.
static bd_status find_raw_sidecar(const char *path, char **sidecar, bd_error *err)
{
    BD_TRY(bd_path_replace_ending(path, 0, ".index", sidecar, err));
    if (bd_is_regular_file(*sidecar))
        return BD_OK;
    free(*sidecar);
    *sidecar = NULL;
    if (!bd_path_has_ending(path, ".npy"))
        return BD_OK;
    BD_TRY(bd_path_replace_ending(path, strlen(".npy"), ".csv.gz", sidecar, err));
    if (bd_is_regular_file(*sidecar))
        return BD_OK;
    free(*sidecar);
    *sidecar = NULL;
    return BD_OK;
}

// datatrove's mask of a loss lies beside the ids.
static bd_status refuse_loss_mask(const char *path, bd_error *err)
{
    char *mask;
    BD_TRY(bd_path_replace_ending(path, 0, ".loss", &mask, err));
    const bool is_there = bd_is_regular_file(mask);
    free(mask);
    return is_there
               ? bd_fail(err, BD_ERR_UNSUPPORTED,
                         "cannot use '%s': '%s.loss' beside it says which tokens are to be "
                         "learned, and training would ignore it: move that file away if all "
                         "of them are",
                         path, path)
               : BD_OK;
}

static bd_status is_raw(const char *path, bool *yes, bd_error *err)
{
    char *sidecar;
    BD_TRY(find_raw_sidecar(path, &sidecar, err));
    *yes = sidecar != NULL;
    free(sidecar);
    return BD_OK;
}

static int64_t raw_document_end(const bd_token_file *file, int64_t d)
{
    return bd_int64_at(file->ends, d);
}

static bd_status open_ends(bd_token_file *file, bd_error *err)
{
    BD_TRY(bd_mapped_file_open(&file->index_file, file->index_path, err));
    const size_t size = file->index_file.size_bytes;
    int64_t before = 0;
    file->ends = file->index_file.data;
    file->n_documents = (int64_t)(size / 8);
    if (size % 8 != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': its %zu bytes are no whole number of entries",
                       file->index_path, size);
    for (int64_t d = 0; d < file->n_documents; d++) {
        const int64_t end = bd_int64_at(file->ends, d);
        if (end < 0 || end > file->n_tokens)
            return bd_fail(err, BD_ERR_FORMAT,
                           "cannot use '%s': entry %" PRId64 " is %" PRIu64
                           ", but '%s' has %" PRId64 " tokens",
                           file->index_path, d, (uint64_t)bd_int64_at(file->ends, d),
                           file->ids_path, file->n_tokens);
        if (end < before)
            return bd_fail(err, BD_ERR_FORMAT,
                           "cannot use '%s': entry %" PRId64 " is %" PRId64
                           ", less than the one before it (%" PRId64 ")",
                           file->index_path, d, end, before);
        before = end;
    }
    return BD_OK;
}

static bd_status map_raw_ids(bd_token_file *file, const char *path, int id_bytes, bd_error *err)
{
    static const char npy_magic[] = "\x93NUMPY";
    BD_TRY(bd_path_replace_ending(path, 0, "", &file->ids_path, err));
    BD_TRY(bd_mapped_file_open(&file->ids_file, path, err));
    const size_t size = file->ids_file.size_bytes;
    if (bd_path_has_ending(path, ".npy") && size >= strlen(npy_magic) &&
        memcmp(file->ids_file.data, npy_magic, strlen(npy_magic)) == 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': it has a NumPy header; only ids without one are read",
                       path);
    if (size % (size_t)id_bytes != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': its %zu bytes are no whole number of ids of %d bytes",
                       path, size, id_bytes);
    file->ids = file->ids_file.data;
    file->id_bytes = id_bytes;
    file->n_tokens = (int64_t)size / id_bytes;
    return BD_OK;
}

static bd_status open_raw(bd_token_file *file, const char *path, int id_bytes,
                          int64_t end_of_text, bd_error *err)
{
    (void)end_of_text;
    if (id_bytes != 2 && id_bytes != 4)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot use '%s': raw ids have 2 or 4 bytes, not %d", path, id_bytes);
    BD_TRY(map_raw_ids(file, path, id_bytes, err));
    BD_TRY(find_raw_sidecar(path, &file->index_path, err));
    if (!file->index_path)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': nothing says where its documents end (no '%s.index')",
                       path, path);
    BD_TRY(refuse_loss_mask(path, err));
    if (bd_path_has_ending(file->index_path, ".index")) {
        BD_TRY(open_ends(file, err));
    } else {
        BD_TRY(bd_dolma_index_read(&file->table, file->index_path, file->ids_path,
                                   file->n_tokens, err));
        file->ends = (const unsigned char *)file->table.ends;
        file->n_documents = file->table.n_documents;
    }
    const int64_t end =
        file->n_documents > 0 ? bd_int64_at(file->ends, file->n_documents - 1) : 0;
    if (end != file->n_tokens)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': it ends at token %" PRId64 ", but '%s' has %" PRId64
                       ": the rest belongs to no document",
                       file->index_path, end, file->ids_path, file->n_tokens);
    return BD_OK;
}

const bd_token_layout bd_raw_layout = {
    .recognise = is_raw,
    .open = open_raw,
    .document_end = raw_document_end,
};

static const char *const raw_endings[] = {".ds", ".npy", NULL};

const bd_input_kind bd_tokens_kind = {
    .name = bd_tokens_name,
    .endings = raw_endings,
    .place = "document",
    BD_TOKEN_KIND(raw),
};
