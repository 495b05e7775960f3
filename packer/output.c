#include "packer/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/folder.h"
#include "common/manifest.h"
#include "common/tokenizer/tokenizer_config.h"
#include "packer/dataset_card.h"
#include "packer/pack_log.h"
#include "packer/plan.h"
#include "packer/plan_difference.h"
#include "packer/update.h"

// ---- Which files are ours --------------------------------------------------------------

static bool is_dataset_file(const char *name)
{
    static const char *const names[] = {BD_MANIFEST_NAME,  BD_PLAN_NAME,
                                        BD_TOKENIZER_NAME, BD_TOKENIZER_CONFIG_NAME,
                                        BD_PACK_LOG_NAME,  BD_CARD_NAME};
    bd_unit unit;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return bd_unit_from_name(&unit, name, ".arrow");
}

static bool is_holdout(const char *folder, const char *name)
{
    struct stat info;
    if (strcmp(name, BD_HOLDOUT_NAME) != 0)
        return false;
    char *path = bd_path_join(folder, name);
    const bool is_folder = path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    free(path);
    return is_folder;
}

// Also looks into the held-out dataset, so that nothing was removed when one is met there.
static bd_status refuse_foreign(void *context, const char *folder, const char *name,
                                bd_error *err)
{
    if (is_dataset_file(name) || bd_is_pending_name(name) || strcmp(name, BD_LOCK_NAME) == 0)
        return BD_OK;
    if (!is_holdout(folder, name))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot pack into '%s': it holds something else ('%s')", folder, name);
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    const bd_status status = bd_folder_visit(path, refuse_foreign, context, err);
    free(path);
    return status;
}

static bd_status remove_dataset(const char *folder, bd_error *err);

static bd_status remove_but_plan(void *context, const char *folder, const char *name,
                                 bd_error *err)
{
    (void)context;
    if (!is_dataset_file(name) || strcmp(name, BD_PLAN_NAME) == 0 ||
        (strcmp(name, BD_CARD_NAME) == 0 && !bd_card_is_ours(folder)))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

// The files of the held-out dataset, and its folder unless the user's card is in it.
static bd_status remove_holdout(const char *folder, bd_error *err)
{
    char *path = bd_path_join(folder, BD_HOLDOUT_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (is_holdout(folder, BD_HOLDOUT_NAME)) {
        status = remove_dataset(path, err);
        if (status == BD_OK)
            status = bd_folder_remove_pending(path, err);
        if (status == BD_OK)
            status = bd_folder_remove(path, BD_LOCK_NAME, err);
        if (status == BD_OK && !bd_folder_holds(path, BD_CARD_NAME) && rmdir(path) != 0)
            status = bd_fail_errno(err, "cannot remove the folder '%s'", path);
    }
    free(path);
    return status;
}

static bd_status remove_dataset(const char *folder, bd_error *err)
{
    // The manifest first: without it what remains is unfinished, whatever happens now. The
    // plan last: without it what remains would be nobody's.
    BD_TRY(bd_folder_remove(folder, BD_MANIFEST_NAME, err));
    BD_TRY(remove_holdout(folder, err));
    BD_TRY(bd_folder_visit(folder, remove_but_plan, NULL, err));
    return bd_folder_remove(folder, BD_PLAN_NAME, err);
}

// ---- What is there -----------------------------------------------------------------------

static bd_status refuse_any_dataset_file(void *context, const char *folder, const char *name,
                                         bd_error *err)
{
    (void)context;
    // A card may be older than its dataset, and stay when the dataset is overwritten.
    if (bd_is_pending_name(name) || strcmp(name, BD_LOCK_NAME) == 0 ||
        strcmp(name, BD_CARD_NAME) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds '%s' but no " BD_PLAN_NAME, folder, name);
}

// Whether what is there can be continued, or is finished already. A share of bad records that is
// another matters only for what is decided last; but processes that share must agree on it.
static bd_status compare_plans(const char *folder, const bd_json *plan, bd_lock_mode mode,
                               bd_error *err)
{
    bd_json *there;
    char where[256];
    BD_TRY(bd_plan_read(folder, &there, err));
    const bd_plan_difference difference = bd_plan_compare(plan, there, where, sizeof where);
    const bool finished = bd_folder_holds(folder, BD_MANIFEST_NAME);
    bd_json_free(there);
    if (difference == BD_PLANS_ARE_SAME ||
        (difference == BD_PLANS_ALLOW_OTHERS && !finished && mode == BD_LOCK_EXCLUSIVE))
        return BD_OK;
    if (difference == BD_PLANS_READ_CHANGED)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' was packed from other contents: %s (--update packs again what has "
                       "changed, --overwrite everything)",
                       folder, where);
    return bd_fail(err, BD_ERR_ARGUMENT, "'%s' holds a dataset of another plan: %s (%s)",
                   folder, where,
                   difference == BD_PLANS_DIFFER ? "--overwrite replaces it"
                   : finished                    ? "--update changes that"
                                                 : "one process alone can change that");
}

// If another process is quicker, its plan must be the same.
static bd_status publish_plan(const char *folder, const bd_json *plan, bd_lock_mode mode,
                              bd_error *err)
{
    char *text;
    bool there = false;
    BD_TRY(bd_plan_print(plan, &text, err));
    const bd_status status =
        bd_file_publish_new(folder, BD_PLAN_NAME, text, strlen(text), &there, err);
    free(text);
    BD_TRY(status);
    return there ? compare_plans(folder, plan, mode, err) : BD_OK;
}

static bd_status update_dataset(const char *folder, const bd_json *old, const bd_json *plan,
                                bd_error *err)
{
    const bool has_holdout = is_holdout(folder, BD_HOLDOUT_NAME);
    char *holdout = has_holdout ? bd_path_join(folder, BD_HOLDOUT_NAME) : NULL;
    const bd_status status = has_holdout && !holdout
                                 ? bd_fail(err, BD_ERR_MEMORY, "no memory for a file name")
                                 : bd_update_begin(folder, holdout, old, plan, err);
    free(holdout);
    return status;
}

static bd_status examine(bd_output *output, const char *folder, const bd_json *plan,
                         bd_lock_mode mode, bd_output_existing existing, bd_error *err)
{
    output->state = BD_OUTPUT_NEW;
    if (!bd_folder_holds(folder, BD_PLAN_NAME)) {
        const bd_status status = bd_folder_visit(folder, refuse_any_dataset_file, NULL, err);
        // What is there now may be another process's, which published its plan before it.
        if (status == BD_OK || !bd_folder_holds(folder, BD_PLAN_NAME))
            return status;
    }
    bd_json *there;
    if (bd_plan_read(folder, &there, NULL) != BD_OK)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot pack into '%s': its " BD_PLAN_NAME " is not one of ours",
                       folder);
    bd_status status = BD_OK;
    if (existing == BD_EXISTING_UPDATE)
        status = update_dataset(folder, there, plan, err);
    bd_json_free(there);
    if (existing == BD_EXISTING_OVERWRITE)
        return remove_dataset(folder, err);
    if (existing == BD_EXISTING_CONTINUE)
        status = compare_plans(folder, plan, mode, err);
    if (status == BD_OK)
        bd_output_refresh(output, folder);
    return status;
}

bd_status bd_output_open(bd_output *output, const char *folder, const bd_json *plan,
                         bd_lock_mode mode, bd_output_existing existing, bd_error *err)
{
    *output = (bd_output){.lock = -1};
    bd_status status = bd_folder_make(folder, &output->n_made, err);
    if (status == BD_OK)  // before the lock, which is a file: not even that goes into it
        status = bd_folder_visit(folder, refuse_foreign, NULL, err);
    if (status == BD_OK)
        status = bd_folder_lock(&output->lock, folder, mode, "packing into", err);
    if (status == BD_OK)
        status = examine(output, folder, plan, mode, existing, err);
    if (status == BD_OK && output->state != BD_OUTPUT_FINISHED && mode == BD_LOCK_EXCLUSIVE)
        status = bd_folder_remove_pending(folder, err);
    if (status == BD_OK && output->state == BD_OUTPUT_NEW)
        status = publish_plan(folder, plan, mode, err);
    if (status != BD_OK) {
        bd_folder_withdraw(folder, output->n_made, output->lock);
        output->lock = -1;
    }
    return status;
}

void bd_output_refresh(bd_output *output, const char *folder)
{
    output->state =
        bd_folder_holds(folder, BD_MANIFEST_NAME) ? BD_OUTPUT_FINISHED : BD_OUTPUT_UNFINISHED;
}

void bd_output_withdraw(bd_output *output, const char *folder)
{
    remove_dataset(folder, NULL);
    bd_folder_remove_pending(folder, NULL);
    bd_folder_withdraw(folder, output->n_made, output->lock);
    output->lock = -1;
}

void bd_output_close(bd_output *output)
{
    if (output->lock >= 0)
        close(output->lock);
    output->lock = -1;
}
