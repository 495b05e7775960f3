// Chooses the loader that a specification needs.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/tokenizer/model/loaders.h"

#define VOCABULARY_NAME "vocab.json"
#define MERGES_NAME     "merges.txt"
#define RANKS_ENDING    ".tiktoken"

bd_status bd_bpe_model_parse_json(bd_bpe_model *model, const char *text, size_t size_bytes,
                                  const char *name, bd_error *err)
{
    *model = (bd_bpe_model){0};
    bd_model_parts parts = {0};
    bd_status status = bd_load_json(&parts, text, size_bytes, err);
    if (status == BD_OK)
        status = bd_model_parts_assemble(&parts, model, err);
    bd_model_parts_release(&parts);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cannot use '%s'", name);
}

static bd_status load_json_file(bd_bpe_model *model, const char *path, bd_error *err)
{
    char *text;
    size_t n;
    BD_TRY(bd_file_read(path, BD_MAX_TOKENIZER_FILE, &text, &n, err));
    const bd_status status = bd_bpe_model_parse_json(model, text, n, path, err);
    free(text);
    return status;
}

static bd_status load_ranks(bd_bpe_model *model, const char *path, const char *pattern_name,
                            bd_error *err)
{
    char *text;
    size_t n;
    BD_TRY(bd_file_read(path, BD_MAX_TOKENIZER_FILE, &text, &n, err));
    bd_model_parts parts = {0};
    bd_status status = bd_load_tiktoken(&parts, text, n, pattern_name, err);
    free(text);
    if (status == BD_OK)
        status = bd_model_parts_assemble(&parts, model, err);
    bd_model_parts_release(&parts);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cannot use '%s'", path);
}

// vocab.json and merges.txt of a folder.
static bd_status load_pair(bd_bpe_model *model, const char *folder, bd_error *err)
{
    if (!bd_folder_holds(folder, VOCABULARY_NAME) || !bd_folder_holds(folder, MERGES_NAME))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' does not have both " VOCABULARY_NAME " and " MERGES_NAME, folder);
    char *vocabulary = bd_path_join(folder, VOCABULARY_NAME);
    char *merges = bd_path_join(folder, MERGES_NAME);
    bd_model_parts parts = {0};
    bd_status status = BD_ERR_MEMORY;
    if (vocabulary && merges)
        status = bd_load_merges(&parts, folder, vocabulary, merges, err);
    else
        bd_fail(err, status, "no memory for a path");
    if (status == BD_OK) {
        status = bd_model_parts_assemble(&parts, model, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "cannot use '%s'", folder);
    }
    bd_model_parts_release(&parts);
    free(vocabulary);
    free(merges);
    return status;
}

static bd_status load_folder(bd_bpe_model *model, const char *folder, bd_error *err)
{
    if (!bd_folder_holds(folder, BD_TOKENIZER_NAME)) {
        const bd_status status = load_pair(model, folder, err);
        return status == BD_ERR_ARGUMENT ? bd_fail(err, status,
                                                   "'%s' has no " BD_TOKENIZER_NAME
                                                   ", nor " VOCABULARY_NAME " and " MERGES_NAME,
                                                   folder)
                                         : status;
    }
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a path");
    const bd_status status = load_json_file(model, path, err);
    free(path);
    return status;
}

static bool path_ends_with(const char *text, const char *ending)
{
    const size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

// ---- The form of the specification ------------------------------------------------

// The colon of "FILE:PATTERN"; NULL unless the file's ending or the pattern's name is known.
static const char *pattern_colon(const char *spec)
{
    const char *colon = strrchr(spec, ':');
    bd_pattern pattern;
    if (!colon || strchr(colon, '/'))
        return NULL;
    const size_t n = (size_t)(colon - spec), ending = strlen(RANKS_ENDING);
    const bool is_ranks = n >= ending && strncmp(colon - ending, RANKS_ENDING, ending) == 0;
    return is_ranks || bd_pattern_by_name(colon + 1, &pattern) ? colon : NULL;
}

bd_status bd_bpe_model_load(bd_bpe_model *model, const char *spec, bd_error *err)
{
    *model = (bd_bpe_model){0};
    struct stat info;
    const char *colon = pattern_colon(spec);
    if (colon && stat(spec, &info) != 0) {
        char *path = strndup(spec, (size_t)(colon - spec));
        if (!path)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a path");
        const bd_status status = load_ranks(model, path, colon + 1, err);
        free(path);
        return status;
    }
    if (stat(spec, &info) == 0 && S_ISDIR(info.st_mode))
        return load_folder(model, spec, err);
    if (path_ends_with(spec, RANKS_ENDING))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' needs the name of a pattern, as in '%s:NAME': there are %s", spec,
                       spec, bd_pattern_names());
    if (strcmp(bd_path_tail(spec), VOCABULARY_NAME) != 0 &&
        strcmp(bd_path_tail(spec), MERGES_NAME) != 0)
        return load_json_file(model, spec, err);
    char *folder = bd_path_folder(spec);
    if (!folder)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a path");
    const bd_status status = load_pair(model, folder, err);
    free(folder);
    return status;
}
