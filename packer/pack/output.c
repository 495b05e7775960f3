#include "packer/pack/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/dataset/manifest.h"
#include "common/tokenizer/tokenizer_config.h"
#include "packer/pack/dataset_card.h"
#include "packer/pack/pack_log.h"
#include "packer/pack/pack_plan.h"
#include "packer/pack/update.h"

// ---- Which files are ours --------------------------------------------------------------

bool bd_output_is_file_name(const char *name)
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

// The shards that may be in a folder, as its plan tells.
typedef struct known_units {
    bool has_plan;
    bool is_known;      // and this version can read it
    bd_part part;       // of the dataset
    int64_t *n_slices;  // [n_inputs], owned; slices of each input; BD_UNKNOWN of a stream
    size_t n_inputs;
} known_units;

// `around` is the dataset that this one was held out of, or NULL. Both plans have the same inputs,
// so that it helps if the inner plan is lost.
static void read_known_units(known_units *known, const char *folder, const known_units *around)
{
    bd_json *plan = NULL;
    const bd_json *config;
    bd_input_entry *entries;
    size_t n_entries;
    int64_t unit_bytes;
    int part;
    *known = (known_units){.has_plan = bd_folder_holds(folder, BD_PLAN_NAME)};
    if (!known->has_plan && around && around->part == BD_PART_TRAINING &&
        (known->n_slices = calloc(around->n_inputs + 1, sizeof *known->n_slices))) {
        memcpy(known->n_slices, around->n_slices, around->n_inputs * sizeof *known->n_slices);
        known->n_inputs = around->n_inputs;
        known->part = BD_PART_HELD_OUT;
        known->is_known = true;
    }
    if (bd_pack_plan_load(folder, &plan, NULL) != BD_OK)
        return;
    known->is_known = true;
    if (bd_json_get_object(plan, "packing", &config, NULL) == BD_OK &&
        bd_json_get_word(config, "part", bd_part_names, &part, NULL) == BD_OK)
        known->part = (bd_part)part;
    if (bd_pack_plan_entries(plan, &entries, &n_entries, &unit_bytes, NULL) == BD_OK &&
        (known->n_slices = calloc(n_entries + 1, sizeof *known->n_slices)))
        known->n_inputs = n_entries;
    for (size_t i = 0; i < n_entries; i++) {
        const bool has_cuts = entries[i].stride > 0 || entries[i].n_starts > 0;  // not in 1.0
        if (known->n_slices)
            known->n_slices[i] = has_cuts ? bd_input_entry_n_slices(&entries[i]) : BD_UNKNOWN;
        bd_input_entry_release(&entries[i]);
    }
    free(entries);
    bd_json_free(plan);
}

// A shard is ours if the plan could have made it; other programs may use such names as well.
static bool is_ours(const known_units *known, const char *name)
{
    bd_unit unit;
    if (!bd_unit_from_name(&unit, name, ".arrow"))
        return bd_output_is_file_name(name);
    return known->is_known && unit.input < (int64_t)known->n_inputs &&
           (known->n_slices[unit.input] == BD_UNKNOWN ||
            unit.slice < known->n_slices[unit.input]);
}

static bool is_subfolder(const char *folder, const char *name)
{
    struct stat info;
    char *path = bd_path_join(folder, name);
    const bool is = path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    free(path);
    return is;
}

static bool is_holdout(const char *folder, const char *name)
{
    return strcmp(name, BD_HOLDOUT_NAME) == 0 && is_subfolder(folder, name);
}

// A folder in which files that are not ours are looked for.
typedef struct foreign_search {
    known_units known;
    const known_units *around;  // of the dataset that it was held out of, or NULL
    bool to_remove;             // our files will be removed
} foreign_search;

static bd_status refuse_foreign(const char *folder, const known_units *around, bool to_remove,
                                bd_error *err);

static bd_status refuse_if_foreign(void *context, const char *folder, const char *name,
                                   bd_error *err)
{
    const foreign_search *l = context;
    if (is_holdout(folder, name) && !l->around) {
        char *path = bd_path_join(folder, name);
        const bd_status status = path
                                     ? refuse_foreign(path, &l->known, l->to_remove, err)
                                     : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
        free(path);
        return status;
    }
    // Without a plan of ours find_state() says what is wrong with the folder.
    const bool by_form = !l->known.is_known && !l->around && bd_output_is_file_name(name);
    if ((by_form || is_ours(&l->known, name) ||
         bd_is_pending_of(name, bd_output_is_file_name) || strcmp(name, BD_LOCK_NAME) == 0) &&
        !(l->to_remove && is_subfolder(folder, name)))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds something else ('%s')", folder, name);
}

// Also looks into the held-out dataset: a foreign file must be found before anything is removed.
static bd_status refuse_foreign(const char *folder, const known_units *around, bool to_remove,
                                bd_error *err)
{
    foreign_search l = {.around = around, .to_remove = to_remove};
    bd_status status;
    do {
        read_known_units(&l.known, folder, around);
        if (around && l.known.is_known && l.known.part != BD_PART_HELD_OUT)
            status = bd_fail(err, BD_ERR_ARGUMENT,
                             "'%s' is a dataset of its own, not what was held out of the one "
                             "around it",
                             folder);
        else
            status = bd_folder_visit(folder, refuse_if_foreign, &l, err);
        free(l.known.n_slices);
        // The file may be another process's, which has published its plan in the meantime.
    } while (status != BD_OK && !l.known.has_plan && bd_folder_holds(folder, BD_PLAN_NAME));
    return status;
}

static bd_status remove_dataset(const char *folder, const known_units *around, bd_error *err);

static bd_status remove_but_plan(void *context, const char *folder, const char *name,
                                 bd_error *err)
{
    if (!is_ours(context, name) || strcmp(name, BD_PLAN_NAME) == 0 ||
        (strcmp(name, BD_CARD_NAME) == 0 && !bd_card_is_ours(folder)))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

// The files of the held-out dataset, and its folder unless the user's card is in it.
static bd_status remove_holdout(const char *folder, const known_units *known, bd_error *err)
{
    char *path = bd_path_join(folder, BD_HOLDOUT_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (is_holdout(folder, BD_HOLDOUT_NAME)) {
        status = remove_dataset(path, known, err);
        if (status == BD_OK)
            status = bd_folder_remove_pending(path, bd_output_is_file_name, err);
        if (status == BD_OK)
            status = bd_folder_remove(path, BD_LOCK_NAME, err);
        if (status == BD_OK && !bd_folder_holds(path, BD_CARD_NAME) && rmdir(path) != 0)
            status = bd_fail_errno(err, "cannot remove the folder '%s'", path);
    }
    free(path);
    return status;
}

static bd_status remove_dataset(const char *folder, const known_units *around, bd_error *err)
{
    // The manifest first: without it the rest is unfinished, whatever happens now. The plan last:
    // without it nobody could tell whose the rest is.
    known_units known;
    BD_TRY(bd_folder_remove(folder, BD_MANIFEST_NAME, err));
    read_known_units(&known, folder, around);
    bd_status status = around ? BD_OK : remove_holdout(folder, &known, err);
    if (status == BD_OK)
        status = bd_folder_visit(folder, remove_but_plan, &known, err);
    free(known.n_slices);
    return status == BD_OK ? bd_folder_remove(folder, BD_PLAN_NAME, err) : status;
}

// ---- The state of a folder -----------------------------------------------------------------------

static bd_status refuse_any_dataset_file(void *context, const char *folder, const char *name,
                                         bd_error *err)
{
    (void)context;
    // A card may be older than its dataset, and stay when the dataset is overwritten.
    if (bd_is_pending_of(name, bd_output_is_file_name) || strcmp(name, BD_LOCK_NAME) == 0 ||
        strcmp(name, BD_CARD_NAME) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot pack into '%s': it holds '%s' but no " BD_PLAN_NAME, folder, name);
}

// Whether the dataset in the folder can be continued, or is finished already. Another share of bad
// records matters only for the decision at the very end; but processes that share must agree on it.
static bd_status compare_plans(const char *folder, const bd_json *plan, bd_lock_mode mode,
                               bd_error *err)
{
    static const char special_tokens[] = "reading.special_tokens";
    bd_json *there;
    const bd_json *reading;
    char where[256];
    BD_TRY(bd_pack_plan_load(folder, &there, err));
    const bd_plan_difference difference =
        bd_pack_plan_compare(plan, there, where, sizeof where);
    const bool finished = bd_folder_holds(folder, BD_MANIFEST_NAME);
    // A plan of format 1.1 does not say how special tokens are read, and that is all that differs.
    const bool older = strncmp(where, special_tokens, sizeof special_tokens - 1) == 0 &&
                       bd_json_get_object(there, "reading", &reading, NULL) == BD_OK &&
                       bd_json_is_null(reading, "special_tokens");
    bd_json_free(there);
    if (difference == BD_PLANS_ARE_SAME ||
        (difference == BD_PLANS_ALLOW_OTHERS && !finished && mode == BD_LOCK_EXCLUSIVE))
        return BD_OK;
    if (difference == BD_PLANS_READ_CHANGED)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "'%s' was packed from other contents: %s (pack --update packs again what "
            "has changed, --overwrite everything)",
            folder, where);
    return bd_fail(
        err, BD_ERR_ARGUMENT, "'%s' holds a dataset of another plan: %s (%s)", folder, where,
        older ? "an older program made it: --special-tokens token goes on as that did, "
                "--overwrite replaces it"
        : difference == BD_PLANS_DIFFER ? "--overwrite replaces it"
        : finished                      ? "pack --update changes that"
                                        : "one process alone can change that");
}

// The folder is locked: finds its state, after the dataset in it was removed or updated if that is
// asked for.
static bd_status find_state(bd_output *output, const char *folder, const bd_json *plan,
                            bd_lock_mode mode, bd_output_existing existing, bd_error *err)
{
    output->state = BD_OUTPUT_NEW;
    if (!bd_folder_holds(folder, BD_PLAN_NAME)) {
        const bd_status status = bd_folder_visit(folder, refuse_any_dataset_file, NULL, err);
        // The file may be another process's, which published its plan before.
        if (status == BD_OK || !bd_folder_holds(folder, BD_PLAN_NAME))
            return status;
    }
    bd_json *there;
    if (bd_pack_plan_load(folder, &there, NULL) != BD_OK)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot pack into '%s': its " BD_PLAN_NAME " is not one of ours",
                       folder);
    bd_status status = BD_OK;
    if (existing == BD_EXISTING_UPDATE) {
        const bool has_holdout = is_holdout(folder, BD_HOLDOUT_NAME);
        char *holdout = has_holdout ? bd_path_join(folder, BD_HOLDOUT_NAME) : NULL;
        status = has_holdout && !holdout
                     ? bd_fail(err, BD_ERR_MEMORY, "no memory for a file name")
                     : bd_update_begin(folder, holdout, there, plan, err);
        free(holdout);
    }
    bd_json_free(there);
    if (existing == BD_EXISTING_OVERWRITE)
        return remove_dataset(folder, NULL, err);
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
    if (status == BD_OK)  // before the lock, which is a file: a foreign folder does not get one
        status = refuse_foreign(folder, NULL, existing == BD_EXISTING_OVERWRITE, err);
    // A finished dataset needs no lock: it may lie in a folder that we cannot write to.
    if (status == BD_OK && existing == BD_EXISTING_CONTINUE &&
        bd_folder_holds(folder, BD_MANIFEST_NAME) &&
        compare_plans(folder, plan, mode, NULL) == BD_OK) {
        output->state = BD_OUTPUT_FINISHED;
        return BD_OK;
    }
    if (status == BD_OK) {
        status = bd_folder_lock(&output->lock, folder, mode, "packing into", err);
        if (status != BD_OK && access(folder, W_OK) != 0)
            bd_error_prefix(err, status, "cannot pack into '%s', where we may not write",
                            folder);
    }
    if (status == BD_OK)
        status = find_state(output, folder, plan, mode, existing, err);
    if (status == BD_OK && output->state != BD_OUTPUT_FINISHED && mode == BD_LOCK_EXCLUSIVE)
        status = bd_folder_remove_pending(folder, bd_output_is_file_name, err);
    if (status == BD_OK && output->state == BD_OUTPUT_NEW) {
        char *text = NULL;
        bool there = false;
        status = bd_pack_plan_print(plan, &text, err);
        if (status == BD_OK)
            status = bd_file_publish_new(folder, BD_PLAN_NAME, text, strlen(text), &there, err);
        free(text);
        if (status == BD_OK && there)  // another process was quicker
            status = compare_plans(folder, plan, mode, err);
    }
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
    remove_dataset(folder, NULL, NULL);
    bd_folder_remove_pending(folder, bd_output_is_file_name, NULL);
    bd_folder_withdraw(folder, output->n_made, output->lock);
    output->lock = -1;
}

void bd_output_close(bd_output *output)
{
    if (output->lock >= 0)
        close(output->lock);
    output->lock = -1;
}
