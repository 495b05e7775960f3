#include "trainer/data/data_sources.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

// The colon before a number at the end of `text`, NULL if there is none.
static const char *find_weight(const char *text, double *weight)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || is_folder(text))
        return NULL;
    char *end;
    *weight = strtod(colon + 1, &end);
    return end > colon + 1 && *end == '\0' ? colon : NULL;
}

static bd_status parse(bd_data_sources *sources, const char *text, bool needs_weight,
                       bd_error *err)
{
    double weight = 1;
    const char *colon = find_weight(text, &weight);
    if (!colon && needs_weight)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "--data '%s' needs a weight beside other datasets, as in --data '%s:0.5'", text,
            text);
    if (!isfinite(weight) || weight <= 0 || weight > 1e9)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--data '%s': a weight is more than 0 and at most 1e9", text);
    char *folder = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
    if (!folder)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    sources->folders[sources->n] = folder;
    sources->weights[sources->n++] = weight;
    return BD_OK;
}

bd_status bd_data_sources_parse(bd_data_sources *sources, const bd_texts *texts, bd_error *err)
{
    *sources = (bd_data_sources){
        .folders = calloc(texts->n + 1, sizeof *sources->folders),
        .weights = calloc(texts->n + 1, sizeof *sources->weights),
    };
    bd_status status =
        sources->folders && sources->weights
            ? BD_OK
            : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", texts->n);
    for (size_t i = 0; status == BD_OK && i < texts->n; i++)
        status = parse(sources, texts->items[i], texts->n > 1, err);
    if (status != BD_OK)
        bd_data_sources_release(sources);
    return status;
}

void bd_data_sources_release(bd_data_sources *sources)
{
    for (size_t i = 0; i < sources->n; i++)
        free(sources->folders[i]);
    free(sources->folders);
    free(sources->weights);
    *sources = (bd_data_sources){0};
}
