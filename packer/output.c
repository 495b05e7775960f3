#include "packer/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/manifest.h"
#include "packer/pack_log.h"
#include "packer/plan.h"

// ---- Which files are ours --------------------------------------------------------------

static bool is_shard_name(const char *name)
{
    const char *digits = "0123456789";
    const size_t input = strspn(name, digits);
    if (input < 5 || name[input] != '-')
        return false;
    const size_t slice = strspn(name + input + 1, digits);
    return slice >= 5 && strcmp(name + input + 1 + slice, ".arrow") == 0;
}

static bool is_dataset_file(const char *name)
{
    return is_shard_name(name) || strcmp(name, BD_MANIFEST_NAME) == 0 ||
           strcmp(name, BD_PLAN_NAME) == 0 || strcmp(name, BD_TOKENIZER_NAME) == 0 ||
           strcmp(name, BD_PACK_LOG_NAME) == 0;
}

// Calls `visit` for every entry but "." and "..", until it fails.
typedef bd_status (*visitor)(const char *folder, const char *name, bd_error *err);

static bd_status visit_entries(const char *folder, visitor visit, bd_error *err)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return bd_fail_errno(err, "cannot read the folder '%s'", folder);
    bd_status status = BD_OK;
    while (status == BD_OK) {
        errno = 0;
        const struct dirent *entry = readdir(entries);
        if (!entry && errno != 0)
            status = bd_fail_errno(err, "cannot read the folder '%s'", folder);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(folder, entry->d_name, err);
    }
    closedir(entries);
    return status;
}

static bd_status refuse_foreign(const char *folder, const char *name, bd_error *err)
{
    if (is_dataset_file(name) || bd_is_pending_name(name))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds something else ('%s')", folder, name);
}

static bd_status remove_entry(const char *folder, const char *name, bd_error *err)
{
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (unlink(path) != 0 && errno != ENOENT)
        status = bd_fail_errno(err, "cannot remove '%s'", path);
    free(path);
    return status;
}

static bd_status remove_pending(const char *folder, const char *name, bd_error *err)
{
    return bd_is_pending_name(name) ? remove_entry(folder, name, err) : BD_OK;
}

static bd_status remove_but_plan(const char *folder, const char *name, bd_error *err)
{
    const bool ours = is_dataset_file(name) && strcmp(name, BD_PLAN_NAME) != 0;
    return ours ? remove_entry(folder, name, err) : BD_OK;
}

static bd_status remove_dataset(const char *folder, bd_error *err)
{
    // The manifest first: without it what remains is unfinished, whatever happens now. The
    // plan last: without it what remains would be nobody's.
    BD_TRY(remove_entry(folder, BD_MANIFEST_NAME, err));
    BD_TRY(visit_entries(folder, remove_but_plan, err));
    return remove_entry(folder, BD_PLAN_NAME, err);
}

// ---- What is there -----------------------------------------------------------------------

static bool holds(const bd_output *output, const char *name)
{
    return faccessat(output->lock, name, F_OK, 0) == 0;
}

static bd_status refuse_any_dataset_file(const char *folder, const char *name, bd_error *err)
{
    if (bd_is_pending_name(name))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds '%s' but no " BD_PLAN_NAME, folder, name);
}

// Compares the folder's plan with ours; `where` describes the first difference.
static bd_status same_plan(const char *folder, const bd_json *plan, bool *same, char *where,
                           size_t where_size, bd_error *err)
{
    char *path = bd_path_join(folder, BD_PLAN_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_json *there = NULL;
    const bd_status status = bd_json_read_file(path, BD_MAX_PLAN_BYTES, &there, err);
    if (status == BD_OK)
        *same = !bd_json_difference(plan, there, where, where_size);
    bd_json_free(there);
    free(path);
    return status;
}

static bd_status examine(bd_output *output, const char *folder, const bd_json *plan,
                         bool overwrite, bd_error *err)
{
    bool same = false;
    char where[256] = "";
    BD_TRY(visit_entries(folder, refuse_foreign, err));
    if (!holds(output, BD_PLAN_NAME)) {
        BD_TRY(visit_entries(folder, refuse_any_dataset_file, err));
        output->state = BD_OUTPUT_NEW;
        return BD_OK;
    }
    bd_plan_cuts cuts;
    if (bd_plan_read_cuts(&cuts, folder, NULL) != BD_OK)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot pack into '%s': its " BD_PLAN_NAME " is not one of ours",
                       folder);
    if (overwrite) {
        output->state = BD_OUTPUT_NEW;
        return remove_dataset(folder, err);
    }
    BD_TRY(same_plan(folder, plan, &same, where, sizeof where, err));
    if (!same)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds a dataset of another plan: %s (--overwrite replaces it)",
                       folder, where);
    output->state = holds(output, BD_MANIFEST_NAME) ? BD_OUTPUT_FINISHED : BD_OUTPUT_UNFINISHED;
    return BD_OK;
}

static bd_status lock_folder(bd_output *output, const char *folder, bd_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return bd_fail_errno(err, "cannot create the folder '%s'", folder);
    output->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (output->lock < 0)
        return bd_fail_errno(err, "cannot open the folder '%s'", folder);
    if (flock(output->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return bd_fail(err, BD_ERR_IO, "another process is packing into '%s'", folder);
        return bd_fail_errno(err, "cannot lock the folder '%s'", folder);
    }
    return BD_OK;
}

bd_status bd_output_open(bd_output *output, const char *folder, const bd_json *plan,
                         bool overwrite, bd_error *err)
{
    *output = (bd_output){.lock = -1};
    bd_status status = lock_folder(output, folder, err);
    if (status == BD_OK)
        status = examine(output, folder, plan, overwrite, err);
    if (status == BD_OK && output->state != BD_OUTPUT_FINISHED)
        status = visit_entries(folder, remove_pending, err);
    if (status != BD_OK)
        bd_output_close(output);
    return status;
}

void bd_output_close(bd_output *output)
{
    if (output->lock >= 0)
        close(output->lock);
    output->lock = -1;
}
