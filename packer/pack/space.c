#include "packer/pack/space.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/cli/human.h"
#include "common/dataset/row.h"

// Arrow's zstd makes token ids of text 1.2 to 2.3 times smaller, and bytes more than 5 times: the
// estimate errs on the safe side.
static const double zstd_ratio = 1.5;

static double tokens_of(const bd_pack_job *job, const bd_input *input)
{
    const bd_input_entry *entry = &input->entry;
    const double guessed =
        entry->size_bytes == BD_UNKNOWN ? 0 : 4.0 * (double)entry->size_bytes;
    const double n_bytes = entry->weight == BD_UNKNOWN ? guessed : (double)entry->weight;
    return input->id_bytes > 0 ? n_bytes / input->id_bytes
                               : n_bytes * job->tokenizer->tokens_per_byte;
}

int64_t bd_space_needed(const bd_pack_job *job)
{
    double n_tokens = 0;
    for (size_t i = 0; i < job->inputs->n; i++)
        n_tokens += tokens_of(job, &job->inputs->items[i]);
    // A document brings its separator, and its boundaries take 32 bytes or so: one percent.
    double n_bytes = 1.01 * n_tokens * (double)bd_tokens_bytes(&job->config, 8) / 8;
    if (job->config.codec == BD_SHARD_ZSTD)
        n_bytes /= zstd_ratio;
    return n_bytes < (double)INT64_MAX ? (int64_t)n_bytes : INT64_MAX;
}

// Free bytes on the disk where `folder` is or will be; -1 if they are not known.
static int64_t free_bytes(const char *folder)
{
    struct statvfs info;
    char *path = strdup(folder);
    int64_t n = -1;
    for (char *at = path; at; at = dirname(at)) {
        if (statvfs(at, &info) == 0) {
            n = (int64_t)(info.f_bavail * info.f_frsize);
            break;
        }
        if (strcmp(at, "/") == 0 || strcmp(at, ".") == 0)
            break;
    }
    free(path);
    return n;
}

static bd_status add_size(void *context, const char *folder, const char *name, bd_error *err)
{
    struct stat info;
    (void)err;
    char *path = bd_path_join(folder, name);
    if (path && stat(path, &info) == 0 && S_ISREG(info.st_mode))
        *(int64_t *)context += info.st_size;
    free(path);
    return BD_OK;
}

bd_status bd_space_check(const bd_pack_job *job, bd_error *err)
{
    const int64_t needed = bd_space_needed(job), there = free_bytes(job->folder);
    int64_t used = 0;
    bd_folder_visit(job->folder, add_size, &used, NULL);  // an absent folder uses nothing
    if (there < 0 || needed <= there + used)
        return BD_OK;
    return bd_fail(err, BD_ERR_IO,
                   "the dataset will have about %s, but '%s' has room for %s only "
                   "(--no-space-check packs all the same)",
                   bd_format_bytes((uint64_t)needed).text, job->folder,
                   bd_format_bytes((uint64_t)there).text);
}
