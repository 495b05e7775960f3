#include "trainer/weights/pretrained_files.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/json.h"

enum { MAX_INDEX_BYTES = 1 << 26 };

static bd_status open_one(bd_pretrained_files *files, const char *path, bd_error *err)
{
    BD_TRY(bd_safetensors_open(&files->items[files->n], path, err));
    files->n++;
    return BD_OK;
}

// ---- An index -----------------------------------------------------------------------------

// The open file that is called `name`; NULL if there is none.
static const bd_safetensors *find_open_file(const bd_pretrained_files *files, const char *name)
{
    for (size_t i = 0; i < files->n; i++)
        if (strcmp(strrchr(bd_safetensors_path(files->items[i]), '/') + 1, name) == 0)
            return files->items[i];
    return NULL;
}

static bd_status open_named(bd_pretrained_files *files, const char *folder, const char *name,
                            bd_error *err)
{
    if (files->n == BD_PRETRAINED_MAX_FILES)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "it names more than %d files",
                       BD_PRETRAINED_MAX_FILES);
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    const bd_status status = open_one(files, path, err);
    free(path);
    return status;
}

// Opens each file at its first tensor, and checks that it holds the tensors listed for it.
static bd_status open_listed(bd_pretrained_files *files, const char *folder,
                             const bd_json *weight_map, bd_error *err)
{
    for (bd_json_member m = bd_json_first(weight_map); m.key; m = bd_json_next(weight_map, m)) {
        const char *name;
        BD_TRY(bd_json_get_string(weight_map, m.key, &name, err));
        // The index comes from outside: what it names must lie in this folder.
        if (*name == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 ||
            strcmp(name, "..") == 0)
            return bd_fail(err, BD_ERR_FORMAT,
                           "tensor '%.80s' lies in '%.80s', which is not a file of this folder",
                           m.key, name);
        const bd_safetensors *file = find_open_file(files, name);
        if (!file) {
            BD_TRY(open_named(files, folder, name, err));
            file = files->items[files->n - 1];
        }
        if (!bd_safetensors_find(file, m.key))
            return bd_fail(err, BD_ERR_FORMAT, "'%.80s' has no tensor '%.80s'", name, m.key);
    }
    return BD_OK;
}

// Fails if a file holds a tensor that the index does not list for it.
static bd_status refuse_unlisted(const bd_pretrained_files *files, const bd_json *weight_map,
                                 bd_error *err)
{
    for (size_t i = 0; i < files->n; i++) {
        const bd_safetensors *file = files->items[i];
        for (size_t t = 0; t < bd_safetensors_count(file); t++) {
            const char *tensor = bd_safetensors_at(file, t)->name, *listed;
            if (bd_json_get_string(weight_map, tensor, &listed, NULL) != BD_OK ||
                find_open_file(files, listed) != file)
                return bd_fail(err, BD_ERR_FORMAT,
                               "tensor '%.80s' of '%s' is unexpected: the index does not "
                               "name it there",
                               tensor, bd_safetensors_path(file));
        }
    }
    return BD_OK;
}

static bd_status open_index(bd_pretrained_files *files, const char *folder, bd_error *err)
{
    bd_json *json = NULL;
    const bd_json *weight_map;
    BD_TRY(bd_json_read_file(files->path, MAX_INDEX_BYTES, &json, err));
    bd_status status = bd_json_get_object(json, "weight_map", &weight_map, err);
    if (status == BD_OK)
        status = open_listed(files, folder, weight_map, err);
    if (status == BD_OK)
        status = refuse_unlisted(files, weight_map, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot use '%s'", files->path);
    bd_json_free(json);
    return status;
}

// ---- One file or an index -----------------------------------------------------------------

static bd_status refuse_folder(const char *folder, bd_error *err)
{
    if (bd_folder_holds(folder, "pytorch_model.bin") ||
        bd_folder_holds(folder, "pytorch_model.bin.index.json"))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'%s' holds its weights in pytorch_model.bin, which cannot be read "
                       "without executing it: have transformers save them "
                       "as " BD_PRETRAINED_TENSORS " (safe_serialization=True)",
                       folder);
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' has neither " BD_PRETRAINED_TENSORS " nor " BD_PRETRAINED_INDEX,
                   folder);
}

bd_status bd_pretrained_files_open(bd_pretrained_files *files, const char *folder,
                                   bd_error *err)
{
    *files = (bd_pretrained_files){0};
    const bool single = bd_folder_holds(folder, BD_PRETRAINED_TENSORS);
    if (!single && !bd_folder_holds(folder, BD_PRETRAINED_INDEX))
        return refuse_folder(folder, err);
    files->path = bd_path_join(folder, single ? BD_PRETRAINED_TENSORS : BD_PRETRAINED_INDEX);
    files->items = calloc(BD_PRETRAINED_MAX_FILES, sizeof *files->items);
    bd_status status;
    if (!files->path || !files->items)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to open '%s'", folder);
    else
        status = single ? open_one(files, files->path, err) : open_index(files, folder, err);
    if (status != BD_OK)
        bd_pretrained_files_close(files);
    return status;
}

void bd_pretrained_files_close(bd_pretrained_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        bd_safetensors_close(files->items[i]);
    free(files->items);
    free(files->path);
    *files = (bd_pretrained_files){0};
}
