#include "trainer/weights/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/memory.h"
#include "trainer/weights/safetensors.h"

enum { MAX_JSON_BYTES = 1 << 24 };

typedef struct file_name {
    char text[48];
} file_name;

static file_name step_file_name(int64_t step, const char *suffix)
{
    file_name name;
    snprintf(name.text, sizeof name.text, "step-%08" PRId64 "%s", step, suffix);
    return name;
}

static const char tensors_suffix[] = ".safetensors", json_suffix[] = ".json";

static file_name tensors_name(int64_t step)
{
    return step_file_name(step, tensors_suffix);
}

static file_name json_name(int64_t step)
{
    return step_file_name(step, json_suffix);
}

// The name of a step's .json while its tensors are removed or replaced. It is a pending name,
// so that the step no longer exists, and it still proves that the tensors are ours.
static file_name withdrawn_name(int64_t step)
{
    file_name name;
    snprintf(name.text, sizeof name.text, ".step-%08" PRId64 "%s.00000000.part", step,
             json_suffix);
    return name;
}

// The prefix of a parameter's name in front of what an array has of it; NULL if the array has
// nothing of it.
static const char *prefix_of(bd_state_array array, const bd_kept_state *kept,
                             const bd_parameter *parameter)
{
    const bool by_muon = bd_moved_by_muon(kept->optimizer, parameter);
    switch (array) {
    case BD_STATE_M:
        return by_muon ? "muon.m." : "adamw.m.";
    case BD_STATE_V:
        return by_muon ? NULL : "adamw.v.";
    case BD_STATE_AVERAGE:
        return kept->has_average ? "average." : NULL;
    default:
        return "";
    }
}

// Where an array has what belongs to the parameter at `offset`, if it has it.
static int64_t place_of(bd_state_array array, const bd_kept_state *kept,
                        const bd_parameters *parameters, int64_t offset)
{
    return array == BD_STATE_V ? bd_second_moments_before(kept->optimizer, parameters, offset)
                               : offset;
}

typedef struct tensor_name {
    char text[sizeof((bd_parameter *)0)->name + 8];
} tensor_name;

// Returns whether there is such a tensor.
static bool name_tensor(tensor_name *name, bd_state_array array, const bd_kept_state *kept,
                        const bd_parameter *parameter)
{
    const char *prefix = prefix_of(array, kept, parameter);
    if (prefix)
        snprintf(name->text, sizeof name->text, "%s%s", prefix, parameter->name);
    return prefix;
}

// ---- Saving -----------------------------------------------------------------------

static bd_status write_state_tensors(const char *path, const bd_checkpoint_state *state,
                                     bd_safetensors_receipt *receipt, bd_error *err)
{
    const bd_parameters *parameters = state->parameters;
    const size_t most = BD_STATE_ARRAYS * parameters->n;
    tensor_name *names = calloc(most + 1, sizeof *names);
    bd_tensor_view *views = calloc(most + 1, sizeof *views);
    size_t n = 0;
    bd_kept_state kept;
    bd_status status = bd_kept_state_from_json(&kept, state->training, err);
    if (status != BD_OK)
        goto done;
    if (!names || !views) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the names of %zu tensors", most);
        goto done;
    }
    for (size_t i = 0; i < most; i++) {
        const bd_state_array array = (bd_state_array)(i / parameters->n);
        const bd_parameter *parameter = &parameters->items[i % parameters->n];
        if (!name_tensor(&names[n], array, &kept, parameter))
            continue;
        views[n] = (bd_tensor_view){
            .name = names[n].text,
            .dtype = BD_DTYPE_F32,
            .n_dimensions = parameter->n_dimensions,
            .shape = {parameter->shape[0], parameter->shape[1]},
            .data =
                state->arrays[array] + place_of(array, &kept, parameters, parameter->offset),
        };
        n++;
    }
    // Without this pair Hugging Face's transformers do not load a file.
    const bd_safetensors_pair metadata = {"format", "pt"};
    const bd_safetensors_content content = {views, n, &metadata, 1};
    status = bd_safetensors_write(path, &content, receipt, err);
done:
    free(views);
    free(names);
    return status;
}

static bd_status write_state_json(const bd_pending *pending, const bd_checkpoint_state *state,
                                  const bd_safetensors_receipt *receipt, bd_error *err)
{
    bd_json *tensors = bd_json_object();
    bd_json_set_string(tensors, "file", tensors_name(state->step).text);
    bd_json_set_integer(tensors, "bytes", receipt->size_bytes);
    bd_json_set_string(tensors, "checksum", receipt->digest.hex);

    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", BD_CHECKPOINT_FORMAT);
    bd_json_set_integer(json, "step", state->step);
    bd_json_set(json, "tensors", tensors);
    bd_json_set(json, "model", bd_model_config_to_json(&state->parameters->config));
    bd_json_set(json, "training", bd_json_share(state->training));
    bd_json_set(json, "data", bd_json_share(state->data));
    bd_json_set_integer(json, "ranks", state->n_ranks);
    if (state->isa)
        bd_json_set_string(json, "isa", state->isa);
    bd_json_set(json, "history", bd_spike_guard_to_json(&state->spike_guard));

    char *text = NULL;
    size_t size_bytes = 0;
    bd_status status = bd_json_seal(json, &text, &size_bytes, err);
    if (status == BD_OK && size_bytes > MAX_JSON_BYTES)
        status =
            bd_fail(err, BD_ERR_UNSUPPORTED, "settings of %zu bytes are too many", size_bytes);
    if (status == BD_OK)
        status = bd_pending_write(pending, text, size_bytes, err);
    free(text);
    bd_json_free(json);
    return status;
}

// ---- Withdrawing ------------------------------------------------------------------

static bd_status rename_in(const char *folder, const char *from, const char *to, bd_error *err)
{
    bd_status status = BD_OK;
    char *old = bd_path_join(folder, from), *new = bd_path_join(folder, to);
    if (!old || !new)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    else if (rename(old, new) != 0 && errno != ENOENT)
        status = bd_fail_errno(err, "cannot rename '%s'", old);
    free(old);
    free(new);
    return status;
}

// Makes the step cease to exist before its tensors are removed or replaced.
static bd_status withdraw(const char *folder, int64_t step, bd_error *err)
{
    return rename_in(folder, json_name(step).text, withdrawn_name(step).text, err);
}

// The .json goes last: until the tensors are gone it proves that they are ours.
static bd_status remove_step(const char *folder, int64_t step, bd_error *err)
{
    BD_TRY(withdraw(folder, step, err));
    BD_TRY(bd_folder_remove(folder, tensors_name(step).text, err));
    return bd_folder_remove(folder, withdrawn_name(step).text, err);
}

// Whether the step's .json is one of ours.
static bool is_our_step(const char *folder, int64_t step)
{
    bd_checkpoint checkpoint;
    const bool loaded = bd_checkpoint_load(&checkpoint, folder, step, NULL) == BD_OK;
    bd_checkpoint_release(&checkpoint);
    return loaded;
}

static bd_status fail_unknown_tensors(const char *folder, int64_t step, bd_error *err)
{
    return bd_fail(
        err, BD_ERR_ARGUMENT,
        "'%s' holds '%s' without the '%s' that belongs to it, so it may be "
        "somebody else's and is not touched: put its .json back, move it away, or give -o "
        "a folder of its own",
        folder, tensors_name(step).text, json_name(step).text);
}

// ---- Publishing -------------------------------------------------------------------

// Gives both files their final names. The .json is synced to disk first, because it proves that
// the tensors are ours if we are killed between the two renames. An older .json of this step is
// withdrawn before, because it must never stand beside tensors that are not its own.
static bd_status publish_step(const char *folder, int64_t step, bd_pending *tensors,
                              bd_pending *json, bd_error *err)
{
    if ((access(tensors->final, F_OK) == 0 || access(json->final, F_OK) == 0) &&
        !is_our_step(folder, step))
        return fail_unknown_tensors(folder, step, err);
    BD_TRY(bd_pending_sync(tensors, err));
    BD_TRY(bd_pending_sync(json, err));
    BD_TRY(withdraw(folder, step, err));
    bd_status status = bd_pending_publish(tensors, err);
    if (status == BD_OK)
        status = bd_pending_publish(json, err);
    if (status != BD_OK && !bd_folder_holds(folder, json_name(step).text))
        bd_folder_remove(folder, tensors_name(step).text, NULL);
    bd_folder_remove(folder, withdrawn_name(step).text, NULL);
    return status;
}

bd_status bd_checkpoint_save(const char *folder, const bd_checkpoint_state *state,
                             bd_error *err)
{
    bd_pending tensors = {0}, json = {0};
    bd_safetensors_receipt receipt;
    bd_status status = bd_pending_begin(&tensors, folder, tensors_name(state->step).text, err);
    if (status == BD_OK)
        status = bd_pending_begin(&json, folder, json_name(state->step).text, err);
    if (status == BD_OK)
        status = write_state_tensors(tensors.temporary, state, &receipt, err);
    if (status == BD_OK)
        status = write_state_json(&json, state, &receipt, err);
    if (status == BD_OK)
        status = publish_step(folder, state->step, &tensors, &json, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot save step %" PRId64, state->step);
    bd_pending_discard(&tensors);
    bd_pending_discard(&json);
    return status;
}

// ---- Finding ----------------------------------------------------------------------

// The step of a name that step_file_name() makes with this suffix, else -1.
static int64_t step_of(const char *name, const char *suffix)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const long long step = strtoll(name + 5, NULL, 10);
    if (step < 0 || strcmp(step_file_name(step, suffix).text, name) != 0)
        return -1;  // comparing with the printed name catches signs, spaces, zeros, overflow
    return step;
}

bool bd_checkpoint_is_tensors_name(const char *name)
{
    return step_of(name, tensors_suffix) >= 0;
}

// The steps that have a file with this suffix, in ascending order.
typedef struct step_list {
    const char *suffix;
    int64_t *steps;  // [n], owned
    size_t n, capacity;
} step_list;

static bd_status add_listed_step(void *context, const char *folder, const char *name,
                                 bd_error *err)
{
    (void)folder;
    step_list *list = context;
    const int64_t step = step_of(name, list->suffix);
    if (step < 0)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&list->steps, &list->capacity, list->n + 1,
                            sizeof *list->steps, err));
    list->steps[list->n++] = step;
    return BD_OK;
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

// The caller frees list->steps, also after a failure.
static bd_status list_steps(step_list *list, const char *folder, const char *suffix,
                            bd_error *err)
{
    *list = (step_list){.suffix = suffix};
    BD_TRY(bd_folder_visit(folder, add_listed_step, list, err));
    if (list->n > 0)
        qsort(list->steps, list->n, sizeof *list->steps, compare_steps);
    return BD_OK;
}

bd_status bd_checkpoint_find_up_to(const char *folder, int64_t last, int64_t *step,
                                   bd_error *err)
{
    step_list list;
    *step = -1;
    const bd_status status = list_steps(&list, folder, json_suffix, err);
    for (size_t i = 0; status == BD_OK && i < list.n && list.steps[i] <= last; i++)
        *step = list.steps[i];
    free(list.steps);
    return status;
}

bd_status bd_checkpoint_find_latest(const char *folder, int64_t *step, bd_error *err)
{
    BD_TRY(bd_checkpoint_find_up_to(folder, INT64_MAX, step, err));
    if (*step < 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds no checkpoint: there is no step-NNNNNNNN.json", folder);
    return BD_OK;
}

// ---- Loading ----------------------------------------------------------------------

static bd_status history_from_json(bd_checkpoint *checkpoint, const bd_json *json,
                                   bd_error *err)
{
    const bd_json *history = NULL;
    if (!bd_json_is_null(json, "history"))  // format 1.0 does not have it
        BD_TRY(bd_json_get_object(json, "history", &history, err));
    const bd_status status = bd_spike_guard_from_json(&checkpoint->spike_guard, history, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'history'");
}

static bd_status checkpoint_from_json(bd_checkpoint *checkpoint, int64_t step, bd_error *err)
{
    const bd_json *json = checkpoint->document, *tensors, *model;
    const char *format, *file, *hex;
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    if (strncmp(format, "1.", 2) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "format '%.20s' is not one that this version reads (1.x)", format);
    BD_TRY(bd_json_get_integer(json, "step", 0, INT64_MAX, &checkpoint->step, err));
    if (checkpoint->step != step)
        return bd_fail(err, BD_ERR_FORMAT, "it is of step %" PRId64, checkpoint->step);

    BD_TRY(bd_json_get_object(json, "tensors", &tensors, err));
    BD_TRY(bd_json_get_string(tensors, "file", &file, err));
    if (strcmp(file, tensors_name(step).text) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "'file' is '%.60s' instead of '%s'", file,
                       tensors_name(step).text);
    BD_TRY(bd_json_get_integer(tensors, "bytes", 0, INT64_MAX, &checkpoint->size_bytes, err));
    BD_TRY(bd_json_get_string(tensors, "checksum", &hex, err));
    BD_TRY(bd_digest_parse(&checkpoint->digest, hex, err));

    BD_TRY(bd_json_get_object(json, "model", &model, err));
    const bd_status status = bd_model_config_from_json(&checkpoint->config, model, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'model'");
    BD_TRY(bd_json_get_object(json, "training", &checkpoint->training, err));
    BD_TRY(bd_kept_state_from_json(&checkpoint->kept, checkpoint->training, err));
    BD_TRY(bd_json_get_object(json, "data", &checkpoint->data, err));
    checkpoint->n_ranks = 1;
    if (!bd_json_is_null(json, "ranks"))  // format 1.0 does not have it
        BD_TRY(bd_json_get_integer(json, "ranks", 1, INT32_MAX, &checkpoint->n_ranks, err));
    if (!bd_json_is_null(json, "isa"))
        BD_TRY(bd_json_get_string(json, "isa", &checkpoint->isa, err));
    return history_from_json(checkpoint, json, err);
}

// Reads the file `name`, which is the step's .json under its final or a pending name.
static bd_status load_json(bd_checkpoint *checkpoint, const char *folder, const char *name,
                           int64_t step, bd_error *err)
{
    *checkpoint = (bd_checkpoint){0};
    char *text = NULL;
    size_t size_bytes;
    bd_status status;
    char *path = bd_path_join(folder, name);
    checkpoint->tensors_path = bd_path_join(folder, tensors_name(step).text);
    if (!path || !checkpoint->tensors_path) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the names of step %" PRId64, step);
        goto done;
    }
    status = bd_file_read(path, MAX_JSON_BYTES, &text, &size_bytes, err);
    if (status != BD_OK)
        goto done;
    status = bd_json_unseal(text, size_bytes, &checkpoint->document, err);
    if (status == BD_OK)
        status = checkpoint_from_json(checkpoint, step, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot use '%s'", path);
done:
    if (status != BD_OK)
        bd_checkpoint_release(checkpoint);
    free(text);
    free(path);
    return status;
}

bd_status bd_checkpoint_load(bd_checkpoint *checkpoint, const char *folder, int64_t step,
                             bd_error *err)
{
    return load_json(checkpoint, folder, json_name(step).text, step, err);
}

void bd_checkpoint_release(bd_checkpoint *checkpoint)
{
    bd_json_free(checkpoint->document);
    free(checkpoint->tensors_path);
    *checkpoint = (bd_checkpoint){0};
}

static bd_status check_tensors_file(const bd_checkpoint *checkpoint, bd_error *err)
{
    const char *path = checkpoint->tensors_path;
    bd_digest digest;
    int64_t size_bytes;
    BD_TRY(bd_digest_file(path, &digest, &size_bytes, err));
    if (size_bytes != checkpoint->size_bytes)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s' is damaged: %" PRId64 " bytes instead of %" PRId64, path,
                       size_bytes, checkpoint->size_bytes);
    if (strcmp(digest.hex, checkpoint->digest.hex) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' is damaged: its checksum does not match",
                       path);
    return BD_OK;
}

// Where the tensors of one array go: those of the parameters in the slice, in host memory.
typedef struct destination {
    bd_state_array array;
    bd_rank_slice slice;  // of the parameters
    float *to;            // what the array has of it, or NULL if not wanted
} destination;

// Copies what the file has of a parameter to where it belongs, and counts it. If the parameter
// is not wanted, only the tensor's shape is checked.
static bd_status load_tensor(const bd_safetensors *file, const bd_kept_state *kept,
                             const bd_parameters *parameters, const bd_parameter *parameter,
                             const destination *where, size_t *n_loaded, bd_error *err)
{
    const bd_rank_slice slice = where->slice;
    const int64_t parameter_end = parameter->offset + parameter->n;
    const int64_t begin = parameter->offset > slice.begin ? parameter->offset : slice.begin;
    const int64_t end = parameter_end < slice.end ? parameter_end : slice.end;
    const bool has_some = where->to && begin < end;
    const int64_t n = has_some ? end - begin : 0;
    tensor_name name;
    if (!name_tensor(&name, where->array, kept, parameter))
        return BD_OK;
    float *there = NULL;
    if (has_some)
        there = where->to + place_of(where->array, kept, parameters, begin) -
                place_of(where->array, kept, parameters, slice.begin);
    BD_TRY(
        bd_safetensors_copy_some_f32(file, name.text, parameter->n_dimensions, parameter->shape,
                                     has_some ? begin - parameter->offset : 0, n, there, err));
    ++*n_loaded;
    // Neither training nor generation can use numbers that are not finite.
    return bd_tensor_check_finite(file, name.text, there, n, err);
}

bd_status bd_checkpoint_load_tensors(const bd_checkpoint *checkpoint,
                                     const bd_parameters *parameters, float *weights,
                                     const bd_moments *moments, bd_error *err)
{
    static const bd_moments none = {{0, 0}, NULL, NULL, NULL};
    const bd_moments *to = moments ? moments : &none;
    const destination destinations[BD_STATE_ARRAYS] = {
        {BD_STATE_WEIGHTS, {0, parameters->n_total}, weights},
        {BD_STATE_M, to->slice, to->m},
        {BD_STATE_V, to->slice, to->v},
        {BD_STATE_AVERAGE, to->slice, to->average},
    };
    bd_safetensors *file;
    BD_TRY(check_tensors_file(checkpoint, err));
    BD_TRY(bd_safetensors_open(&file, checkpoint->tensors_path, err));
    bd_status status = BD_OK;
    size_t n_loaded = 0;
    for (size_t i = 0; status == BD_OK && i < BD_STATE_ARRAYS * parameters->n; i++)
        status = load_tensor(file, &checkpoint->kept, parameters,
                             &parameters->items[i / BD_STATE_ARRAYS],
                             &destinations[i % BD_STATE_ARRAYS], &n_loaded, err);
    // Names are unique and every expected tensor was found, so the count tells of others.
    const size_t n = bd_safetensors_count(file);
    if (status == BD_OK && n != n_loaded)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s' has %zu tensors, %zu more than the model",
                         checkpoint->tensors_path, n, n - n_loaded);
    bd_safetensors_close(file);
    return status;
}

// ---- Removing ---------------------------------------------------------------------

bd_status bd_checkpoint_prune(const char *folder, int64_t n_kept, bd_error *err)
{
    step_list list;
    bd_status status = list_steps(&list, folder, json_suffix, err);
    const size_t n_removed =
        n_kept > 0 && list.n > (size_t)n_kept ? list.n - (size_t)n_kept : 0;
    for (size_t i = 0; status == BD_OK && i < n_removed; i++)
        if (is_our_step(folder, list.steps[i]))
            status = remove_step(folder, list.steps[i], err);
    free(list.steps);
    return status;
}

// Renames a file, and replaces none.
static bd_status set_aside_file(const char *folder, const char *name, bd_error *err)
{
    char aside[sizeof(file_name) + 8];
    snprintf(aside, sizeof aside, "%s.aside", name);
    if (bd_folder_holds(folder, aside))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot set '%s' of '%s' aside: '%s' is there already; move it away",
                       name, folder, aside);
    return rename_in(folder, name, aside, err);
}

bd_status bd_checkpoint_remove_after(const char *folder, int64_t step, bd_error *err)
{
    step_list list;
    bd_status status = list_steps(&list, folder, json_suffix, err);
    // The last step goes first, so that a failure leaves no gap between the remaining ones.
    for (size_t i = list.n; status == BD_OK && i > 0 && list.steps[i - 1] > step; i--) {
        const int64_t last = list.steps[i - 1];
        if (is_our_step(folder, last)) {
            status = remove_step(folder, last, err);
            continue;
        }
        // A .json that cannot be read may be ours and damaged, or somebody else's: it is kept.
        status = set_aside_file(folder, tensors_name(last).text, err);
        if (status == BD_OK)
            status = set_aside_file(folder, json_name(last).text, err);
    }
    free(list.steps);
    return status;
}

// ---- Tensors without their .json --------------------------------------------------

typedef struct proof {
    int64_t step;
    bool found;
} proof;

// Whether the entry is an unpublished or withdrawn .json of the step, and describes exactly the
// tensors that are there.
static bd_status look_for_proof(void *context, const char *folder, const char *name,
                                bd_error *err)
{
    proof *p = context;
    char final[sizeof(file_name)];
    bd_checkpoint checkpoint;
    (void)err;
    if (p->found || !bd_pending_final_name(name, final, sizeof final) ||
        strcmp(final, json_name(p->step).text) != 0 ||
        load_json(&checkpoint, folder, name, p->step, NULL) != BD_OK)
        return BD_OK;
    p->found = check_tensors_file(&checkpoint, NULL) == BD_OK;
    bd_checkpoint_release(&checkpoint);
    return BD_OK;
}

// Called for every step that has tensors and no published .json.
typedef bd_status (*orphan_visitor)(const char *folder, int64_t step, bool proved,
                                    bd_error *err);

static bd_status visit_orphans(const char *folder, orphan_visitor visit, bd_error *err)
{
    step_list tensors;
    bd_status status = list_steps(&tensors, folder, tensors_suffix, err);
    for (size_t i = 0; status == BD_OK && i < tensors.n; i++) {
        proof p = {.step = tensors.steps[i]};
        if (bd_folder_holds(folder, json_name(p.step).text))
            continue;
        status = bd_folder_visit(folder, look_for_proof, &p, err);
        if (status == BD_OK)
            status = visit(folder, p.step, p.found, err);
    }
    free(tensors.steps);
    return status;
}

static bd_status refuse_orphan(const char *folder, int64_t step, bool proved, bd_error *err)
{
    return proved ? BD_OK : fail_unknown_tensors(folder, step, err);
}

bd_status bd_checkpoint_refuse_unknown(const char *folder, bd_error *err)
{
    return visit_orphans(folder, refuse_orphan, err);
}

static bd_status remove_orphan(const char *folder, int64_t step, bool proved, bd_error *err)
{
    return proved ? bd_folder_remove(folder, tensors_name(step).text, err) : BD_OK;
}

static bd_status remove_pending_file(void *context, const char *folder, const char *name,
                                     bd_error *err)
{
    char final[sizeof(file_name)];
    (void)context;
    if (!bd_pending_final_name(name, final, sizeof final) ||
        (step_of(final, tensors_suffix) < 0 && step_of(final, json_suffix) < 0))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

bd_status bd_checkpoint_clear_away(const char *folder, bd_error *err)
{
    // Tensors go first: the pending .json files prove that they are ours.
    BD_TRY(visit_orphans(folder, remove_orphan, err));
    return bd_folder_visit(folder, remove_pending_file, NULL, err);
}
