#include "packer/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/folder.h"
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

static bd_status refuse_foreign(void *context, const char *folder, const char *name,
                                bd_error *err)
{
    (void)context;
    if (is_dataset_file(name) || bd_is_pending_name(name))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds something else ('%s')", folder, name);
}

static bd_status remove_but_plan(void *context, const char *folder, const char *name,
                                 bd_error *err)
{
    (void)context;
    const bool ours = is_dataset_file(name) && strcmp(name, BD_PLAN_NAME) != 0;
    return ours ? bd_folder_remove(folder, name, err) : BD_OK;
}

static bd_status remove_dataset(const char *folder, bd_error *err)
{
    // The manifest first: without it what remains is unfinished, whatever happens now. The
    // plan last: without it what remains would be nobody's.
    BD_TRY(bd_folder_remove(folder, BD_MANIFEST_NAME, err));
    BD_TRY(bd_folder_visit(folder, remove_but_plan, NULL, err));
    return bd_folder_remove(folder, BD_PLAN_NAME, err);
}

// ---- What is there -----------------------------------------------------------------------

static bool holds(const bd_output *output, const char *name)
{
    return faccessat(output->lock, name, F_OK, 0) == 0;
}

static bd_status refuse_any_dataset_file(void *context, const char *folder, const char *name,
                                         bd_error *err)
{
    (void)context;
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
    BD_TRY(bd_folder_visit(folder, refuse_foreign, NULL, err));
    if (!holds(output, BD_PLAN_NAME)) {
        BD_TRY(bd_folder_visit(folder, refuse_any_dataset_file, NULL, err));
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

bd_status bd_output_open(bd_output *output, const char *folder, const bd_json *plan,
                         bool overwrite, bd_error *err)
{
    *output = (bd_output){.lock = -1};
    bd_status status = bd_folder_make(folder, err);
    if (status == BD_OK)
        status = bd_folder_lock(&output->lock, folder, "packing into", err);
    if (status == BD_OK)
        status = examine(output, folder, plan, overwrite, err);
    if (status == BD_OK && output->state != BD_OUTPUT_FINISHED)
        status = bd_folder_remove_pending(folder, err);
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
