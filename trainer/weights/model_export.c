#include "trainer/weights/model_export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/interrupt.h"
#include "common/dataset/config.h"
#include "common/tokenizer/model/tokenizer_file.h"
#include "common/tokenizer/tokenizer_config.h"
#include "trainer/weights/pretrained_files.h"
#include "trainer/weights/run.h"
#include "trainer/weights/safetensors.h"

// The files, in the order in which they are published.
typedef enum part {
    PART_TENSORS,
    PART_TOKENIZER,
    PART_TOKENIZER_CONFIG,
    PART_GENERATION,
    PART_CONFIG,
    N_PARTS,
} part;

static const char *const part_names[N_PARTS] = {
    [PART_TENSORS] = BD_PRETRAINED_TENSORS,
    [PART_TOKENIZER] = BD_TOKENIZER_NAME,
    [PART_TOKENIZER_CONFIG] = BD_TOKENIZER_CONFIG_NAME,
    [PART_GENERATION] = "generation_config.json",
    [PART_CONFIG] = BD_PRETRAINED_CONFIG,
};

typedef struct exporting {
    const bd_model_export_job *job;
    bd_run run;                   // owned
    bd_run_tokenizer text_of;     // owned
    bd_pending pending[N_PARTS];  // owned
} exporting;

// ---- The weights --------------------------------------------------------------------------

// `weights` are of the job's type, in the layout of the parameters.
static bd_status write_weights(const exporting *e, const void *weights, bd_error *err)
{
    const bd_parameters *parameters = &e->run.parameters;
    bd_tensor_view *views = calloc(parameters->n, sizeof *views);
    if (!views)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the names of %zu tensors",
                       parameters->n);
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *p = &parameters->items[i];
        views[i] = (bd_tensor_view){
            .name = p->name,
            .dtype = e->job->type == BD_BF16 ? BD_DTYPE_BF16 : BD_DTYPE_F32,
            .n_dimensions = p->n_dimensions,
            .shape = {p->shape[0], p->shape[1]},
            .data = (const char *)weights + (size_t)p->offset * bd_type_bytes(e->job->type),
        };
    }
    // transformers refuses a file without this pair.
    const bd_safetensors_pair metadata = {"format", "pt"};
    const bd_safetensors_content content = {views, parameters->n, &metadata, 1};
    const bd_status status = bd_safetensors_write_unless_interrupted(
        e->pending[PART_TENSORS].temporary, &content, err);
    free(views);
    return status;
}

static bd_status write_model_tensors(const exporting *e, bd_error *err)
{
    const int64_t n = e->run.parameters.n_total;
    if (e->job->type != BD_BF16)
        return write_weights(e, e->run.weights, err);
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    if (!rounded)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to round the weights");
    for (int64_t i = 0; i < n; i++)
        rounded[i] = bd_bf16_of_float(e->run.weights[i]);
    const bd_status status = write_weights(e, rounded, err);
    free(rounded);
    return status;
}

// ---- The JSON files -----------------------------------------------------------------------

// Writes `json` and frees it.
static bd_status write_json_part(const exporting *e, part which, bd_json *json, bd_error *err)
{
    char *text;
    const bd_status printed = bd_json_print(json, BD_JSON_INDENTED, &text, err);
    bd_json_free(json);
    BD_TRY(printed);
    const size_t n = strlen(text);
    text[n] = '\n';  // in the place of the NUL
    const bd_status status = bd_pending_write(&e->pending[which], text, n + 1, err);
    free(text);
    return status;
}

static void set_id(bd_json *json, const char *key, int64_t id, bool is_there)
{
    if (is_there)
        bd_json_set_integer(json, key, id);
    else
        bd_json_set_null(json, key);
}

// Fields whose default in transformers is another value are written out: no dropout, and no id
// for padding.
static bd_json *model_json(const exporting *e)
{
    const bd_model_config *config = &e->run.parameters.config;
    bd_json *json = bd_model_config_to_json(config);
    bd_json *architectures = bd_json_array();
    bd_json_append(architectures, bd_json_string(config->family->architecture));
    bd_json_set(json, "architectures", architectures);
    bd_json_set_string(json, "torch_dtype", e->job->type == BD_BF16 ? "bfloat16" : "float32");
    set_id(json, "bos_token_id", e->text_of.bos, e->text_of.bos != BD_NO_BOS);
    bd_json_set_integer(json, "eos_token_id", e->text_of.separator);
    bd_json_set_null(json, "pad_token_id");
    bd_model_config_add_fields(json, config, BD_FIELD_EXPORTED);
    return json;
}

static bd_json *generation_json(const exporting *e)
{
    bd_json *json = bd_json_object();
    set_id(json, "bos_token_id", e->text_of.bos, e->text_of.bos != BD_NO_BOS);
    bd_json_set_integer(json, "eos_token_id", e->text_of.separator);
    bd_json_set_integer(json, "pad_token_id", e->text_of.separator);  // only after the end
    return json;
}

static bd_status write_tokenizer(const exporting *e, bd_error *err)
{
    char *text = NULL, *config_text = NULL;
    BD_TRY(e->text_of.tokenizer->kind->to_file(e->text_of.tokenizer, &text, err));
    const bd_tokenizer_config config = {
        .tokenizer = text,
        .eos = e->text_of.separator,
        .bos = e->text_of.bos == BD_NO_BOS ? BD_NO_TOKEN : e->text_of.bos,
        .pad = BD_NO_TOKEN,
        .max_length = e->run.parameters.config.n_positions,
    };
    bd_status status = bd_pending_write(&e->pending[PART_TOKENIZER], text, strlen(text), err);
    if (status == BD_OK)
        status = bd_tokenizer_config_print(&config, &config_text, err);
    if (status == BD_OK)
        status = bd_pending_write(&e->pending[PART_TOKENIZER_CONFIG], config_text,
                                  strlen(config_text), err);
    free(config_text);
    free(text);
    return status;
}

// ---- All of it ----------------------------------------------------------------------------

static bool is_part_name(const char *name)
{
    for (int i = 0; i < N_PARTS; i++)
        if (strcmp(name, part_names[i]) == 0)
            return true;
    return false;
}

static bd_status refuse_other_entry(void *context, const char *folder, const char *name,
                                    bd_error *err)
{
    (void)context;
    if (bd_is_pending_of(name, is_part_name) || strcmp(name, BD_LOCK_NAME) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT, "cannot export into '%s': it is not empty ('%s')",
                   folder, name);
}

static bd_status write_parts(exporting *e, bd_error *err)
{
    for (int i = 0; i < N_PARTS; i++)
        BD_TRY(bd_pending_begin(&e->pending[i], e->job->folder, part_names[i], err));
    BD_TRY(write_model_tensors(e, err));
    BD_TRY(write_tokenizer(e, err));
    BD_TRY(write_json_part(e, PART_GENERATION, generation_json(e), err));
    BD_TRY(write_json_part(e, PART_CONFIG, model_json(e), err));
    return bd_interrupt_check(err);
}

// Gives the files their final names; if one fails, removes all.
static bd_status publish_parts(exporting *e, bd_error *err)
{
    bd_status status = BD_OK;
    int n = 0;
    for (; status == BD_OK && n < N_PARTS; n++)
        status = bd_pending_publish(&e->pending[n], err);
    for (int i = 0; status != BD_OK && i < n; i++)
        bd_folder_remove(e->job->folder, part_names[i], NULL);
    return status;
}

static bd_status export_into_folder(exporting *e, bd_error *err)
{
    const char *folder = e->job->folder;
    int lock = -1, n_made;
    BD_TRY(bd_folder_make(folder, &n_made, err));
    // Checked before the lock is taken, because the lock is a file too and must not be put into
    // a folder that holds something else.
    bd_status status = bd_folder_visit(folder, refuse_other_entry, NULL, err);
    if (status == BD_OK)
        status = bd_folder_lock(&lock, folder, BD_LOCK_EXCLUSIVE, "exporting into", err);
    if (status == BD_OK)  // again: another process may have exported meanwhile
        status = bd_folder_visit(folder, refuse_other_entry, NULL, err);
    if (status == BD_OK)
        status = bd_folder_remove_pending(folder, is_part_name, err);
    if (status == BD_OK)
        status = write_parts(e, err);
    if (status == BD_OK)
        status = publish_parts(e, err);
    for (int i = 0; i < N_PARTS; i++)
        bd_pending_discard(&e->pending[i]);
    bd_folder_withdraw(folder, status == BD_OK ? 0 : n_made, lock);
    return status;
}

bd_status bd_model_export(const bd_model_export_job *job, bd_model_export_result *result,
                          bd_error *err)
{
    exporting e = {.job = job};
    BD_TRY(job->step == BD_LATEST_STEP
               ? bd_run_open(&e.run, job->run, job->weights, err)
               : bd_run_open_step(&e.run, job->run, job->step, job->weights, err));
    bd_status status = bd_run_open_tokenizer(&e.run, job->run, &e.text_of, err);
    if (status == BD_OK)
        status = export_into_folder(&e, err);
    if (status == BD_OK)
        *result = (bd_model_export_result){e.run.checkpoint.step, e.run.parameters.n_total,
                                           e.run.averaged, e.run.parameters.config.family};
    bd_run_tokenizer_close(&e.text_of);
    bd_run_release(&e.run);
    return status;
}
