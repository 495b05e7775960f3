#include "trainer/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/array.h"
#include "common/file.h"
#include "common/folder.h"
#include "trainer/safetensors.h"

enum { MAX_JSON_BYTES = 1 << 24 };

// In front of a parameter's name: weight, first and second moment.
static const char *const kind_prefixes[BD_STATE_ARRAYS] = {"", "adamw.m.", "adamw.v."};

typedef struct file_name {
    char text[48];
} file_name;

static file_name name_of(int64_t step, const char *suffix)
{
    file_name name;
    snprintf(name.text, sizeof name.text, "step-%08" PRId64 "%s", step, suffix);
    return name;
}

static const char tensors_suffix[] = ".safetensors", json_suffix[] = ".json";

static file_name tensors_name(int64_t step)
{
    return name_of(step, tensors_suffix);
}

static file_name json_name(int64_t step)
{
    return name_of(step, json_suffix);
}

typedef struct tensor_name {
    char text[sizeof((bd_parameter *)0)->name + 8];
} tensor_name;

static tensor_name name_tensor(int kind, const bd_parameter *parameter)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "%s%s", kind_prefixes[kind], parameter->name);
    return name;
}

// ---- Saving -----------------------------------------------------------------------

static bd_status write_tensors(const char *path, const bd_checkpoint_state *state,
                               bd_safetensors_receipt *receipt, bd_error *err)
{
    const bd_parameters *parameters = state->parameters;
    const float *const arrays[BD_STATE_ARRAYS] = {state->weights, state->m, state->v};
    const size_t n = BD_STATE_ARRAYS * parameters->n;
    tensor_name *names = calloc(n + 1, sizeof *names);
    bd_tensor_view *views = calloc(n + 1, sizeof *views);
    bd_status status;
    if (!names || !views) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the names of %zu tensors", n);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        const int kind = (int)(i / parameters->n);
        const bd_parameter *parameter = &parameters->items[i % parameters->n];
        names[i] = name_tensor(kind, parameter);
        views[i] = (bd_tensor_view){
            .name = names[i].text,
            .dtype = BD_DTYPE_F32,
            .n_dimensions = parameter->n_dimensions,
            .shape = {parameter->shape[0], parameter->shape[1]},
            .data = arrays[kind] + parameter->offset,
        };
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

static bd_json *state_to_json(const bd_checkpoint_state *state,
                              const bd_safetensors_receipt *receipt)
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
    bd_json_set(json, "history", bd_history_to_json(&state->history));
    return json;
}

static bd_status write_json(const bd_pending *pending, const bd_checkpoint_state *state,
                            const bd_safetensors_receipt *receipt, bd_error *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    bd_json *json = state_to_json(state, receipt);
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

// Gives both files their final names. An older .json of this step goes first: it must never
// stand beside tensors that are not its own.
static bd_status publish(bd_pending *tensors, bd_pending *json, bd_error *err)
{
    if (unlink(json->final) != 0 && errno != ENOENT)
        return bd_fail_errno(err, "cannot replace '%s'", json->final);
    BD_TRY(bd_pending_publish(tensors, err));
    return bd_pending_publish(json, err);
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
        status = write_tensors(tensors.temporary, state, &receipt, err);
    if (status == BD_OK)
        status = write_json(&json, state, &receipt, err);
    if (status == BD_OK)
        status = publish(&tensors, &json, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot save step %" PRId64, state->step);
    bd_pending_discard(&tensors);
    bd_pending_discard(&json);
    return status;
}

// ---- Finding and removing ---------------------------------------------------------

// The step of a name that name_of() makes with this suffix, else -1.
static int64_t step_of(const char *name, const char *suffix)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const long long step = strtoll(name + 5, NULL, 10);
    if (step < 0 || strcmp(name_of(step, suffix).text, name) != 0)
        return -1;  // printing it again catches signs, spaces, missing zeros, overflow
    return step;
}

bool bd_checkpoint_is_tensors_name(const char *name)
{
    return step_of(name, tensors_suffix) >= 0;
}

// Steps of the files with one suffix, in ascending order.
typedef struct step_list {
    const char *suffix;
    int64_t *steps;  // [n], owned
    size_t n, capacity;
} step_list;

static bd_status add_step(void *context, const char *folder, const char *name, bd_error *err)
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

// Free list->steps also after a failure.
static bd_status list_steps(step_list *list, const char *folder, const char *suffix,
                            bd_error *err)
{
    *list = (step_list){.suffix = suffix};
    BD_TRY(bd_folder_visit(folder, add_step, list, err));
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

static bd_status remove_step(const char *folder, int64_t step, bd_error *err)
{
    BD_TRY(bd_folder_remove(folder, json_name(step).text, err));
    return bd_folder_remove(folder, tensors_name(step).text, err);
}

// Tensors whose step is none of `steps`.
static bd_status remove_orphans(const char *folder, const step_list *steps, bd_error *err)
{
    step_list tensors;
    bd_status status = list_steps(&tensors, folder, tensors_suffix, err);
    for (size_t i = 0; status == BD_OK && i < tensors.n; i++)
        if (steps->n == 0 || !bsearch(&tensors.steps[i], steps->steps, steps->n,
                                      sizeof *steps->steps, compare_steps))
            status = bd_folder_remove(folder, tensors_name(tensors.steps[i]).text, err);
    free(tensors.steps);
    return status;
}

bd_status bd_checkpoint_prune(const char *folder, int64_t n_kept, bd_error *err)
{
    step_list list;
    bd_status status = list_steps(&list, folder, json_suffix, err);
    const size_t n_removed =
        n_kept > 0 && list.n > (size_t)n_kept ? list.n - (size_t)n_kept : 0;
    for (size_t i = 0; status == BD_OK && i < n_removed; i++)
        status = remove_step(folder, list.steps[i], err);
    if (status == BD_OK)
        status = remove_orphans(folder, &list, err);
    free(list.steps);
    return status;
}

bd_status bd_checkpoint_remove_after(const char *folder, int64_t step, bd_error *err)
{
    step_list list;
    bd_status status = list_steps(&list, folder, json_suffix, err);
    // From the last on: whatever happens meanwhile, the steps that are left have no gap.
    for (size_t i = list.n; status == BD_OK && i > 0 && list.steps[i - 1] > step; i--)
        status = remove_step(folder, list.steps[i - 1], err);
    free(list.steps);
    return status;
}

// ---- Loading ----------------------------------------------------------------------

static bd_status check_format(const bd_json *json, bd_error *err)
{
    const char *format;
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    if (strncmp(format, "1.", 2) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "format '%.20s' is not one that this version reads (1.x)", format);
    return BD_OK;
}

static bd_status tensors_from_json(bd_checkpoint *checkpoint, const bd_json *json,
                                   bd_error *err)
{
    const bd_json *tensors;
    const char *file, *hex;
    BD_TRY(bd_json_get_object(json, "tensors", &tensors, err));
    BD_TRY(bd_json_get_string(tensors, "file", &file, err));
    const file_name expected = tensors_name(checkpoint->step);
    if (strcmp(file, expected.text) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "'file' is '%.60s' instead of '%s'", file,
                       expected.text);
    BD_TRY(bd_json_get_integer(tensors, "bytes", 0, INT64_MAX, &checkpoint->size_bytes, err));
    BD_TRY(bd_json_get_string(tensors, "checksum", &hex, err));
    return bd_digest_parse(&checkpoint->digest, hex, err);
}

static bd_status history_from_json(bd_checkpoint *checkpoint, const bd_json *json,
                                   bd_error *err)
{
    const bd_json *history = NULL;
    if (!bd_json_is_null(json, "history"))  // as it is in format 1.0
        BD_TRY(bd_json_get_object(json, "history", &history, err));
    const bd_status status = bd_history_from_json(&checkpoint->history, history, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'history'");
}

static bd_status checkpoint_from_json(bd_checkpoint *checkpoint, int64_t step, bd_error *err)
{
    const bd_json *json = checkpoint->document, *model;
    BD_TRY(check_format(json, err));
    BD_TRY(bd_json_get_integer(json, "step", 0, INT64_MAX, &checkpoint->step, err));
    if (checkpoint->step != step)
        return bd_fail(err, BD_ERR_FORMAT, "it is of step %" PRId64, checkpoint->step);
    BD_TRY(tensors_from_json(checkpoint, json, err));
    BD_TRY(bd_json_get_object(json, "model", &model, err));
    const bd_status status = bd_model_config_from_json(&checkpoint->config, model, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'model'");
    BD_TRY(bd_json_get_object(json, "training", &checkpoint->training, err));
    BD_TRY(bd_json_get_object(json, "data", &checkpoint->data, err));
    checkpoint->n_ranks = 1;
    if (!bd_json_is_null(json, "ranks"))  // as it is in format 1.0
        BD_TRY(bd_json_get_integer(json, "ranks", 1, INT32_MAX, &checkpoint->n_ranks, err));
    if (!bd_json_is_null(json, "isa"))
        BD_TRY(bd_json_get_string(json, "isa", &checkpoint->isa, err));
    return history_from_json(checkpoint, json, err);
}

bd_status bd_checkpoint_load(bd_checkpoint *checkpoint, const char *folder, int64_t step,
                             bd_error *err)
{
    *checkpoint = (bd_checkpoint){0};
    char *text = NULL;
    size_t size_bytes;
    bd_status status;
    char *path = bd_path_join(folder, json_name(step).text);
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

void bd_checkpoint_release(bd_checkpoint *checkpoint)
{
    bd_json_free(checkpoint->document);
    free(checkpoint->tensors_path);
    *checkpoint = (bd_checkpoint){0};
}

static bd_status check_file(const bd_checkpoint *checkpoint, bd_error *err)
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

// Every expected tensor was found and names are unique, so others exist if there are more.
static bd_status check_nothing_extra(const bd_checkpoint *checkpoint,
                                     const bd_safetensors *file,
                                     const bd_parameters *parameters, bd_error *err)
{
    const size_t n = bd_safetensors_count(file), expected = BD_STATE_ARRAYS * parameters->n;
    if (n != expected)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' has %zu tensors, %zu more than the model",
                       checkpoint->tensors_path, n, n - expected);
    return BD_OK;
}

// The part of a parameter's moment that lies in the slice, to where it belongs in `to` [slice].
static bd_status load_moment(const bd_safetensors *file, int kind,
                             const bd_parameter *parameter, bd_rank_slice slice, float *to,
                             bd_error *err)
{
    const int64_t parameter_end = parameter->offset + parameter->n;
    const int64_t begin = parameter->offset > slice.begin ? parameter->offset : slice.begin;
    const int64_t end = parameter_end < slice.end ? parameter_end : slice.end;
    const bool has_some = begin < end;
    return bd_safetensors_copy_some_f32(
        file, name_tensor(kind, parameter).text, parameter->n_dimensions, parameter->shape,
        has_some ? begin - parameter->offset : 0, has_some ? end - begin : 0,
        has_some ? to + (begin - slice.begin) : NULL, err);
}

static bd_status load_parameter(const bd_safetensors *file, const bd_parameter *parameter,
                                float *weights, const bd_moments *moments, bd_error *err)
{
    static const bd_moments none = {{0, 0}, NULL, NULL};  // they must be there all the same
    const bd_moments *to = moments ? moments : &none;
    BD_TRY(bd_safetensors_copy_f32(file, name_tensor(0, parameter).text,
                                   parameter->n_dimensions, parameter->shape,
                                   weights + parameter->offset, err));
    BD_TRY(load_moment(file, 1, parameter, to->slice, to->m, err));
    return load_moment(file, 2, parameter, to->slice, to->v, err);
}

bd_status bd_checkpoint_load_tensors(const bd_checkpoint *checkpoint,
                                     const bd_parameters *parameters, float *weights,
                                     const bd_moments *moments, bd_error *err)
{
    bd_safetensors *file;
    BD_TRY(check_file(checkpoint, err));
    BD_TRY(bd_safetensors_open(&file, checkpoint->tensors_path, err));
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < parameters->n; i++)
        status = load_parameter(file, &parameters->items[i], weights, moments, err);
    if (status == BD_OK)
        status = check_nothing_extra(checkpoint, file, parameters, err);
    bd_safetensors_close(file);
    return status;
}
