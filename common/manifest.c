#include "common/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

enum { MAX_MANIFEST_BYTES = 1 << 30 };  // about a million shards

// ---- Writing ----------------------------------------------------------------------

bd_json *bd_shard_metadata(const bd_packing *packing, const bd_unit *unit,
                           const bd_figures *figures)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", BD_FORMAT_VERSION);
    bd_json_set(json, "packing", bd_packing_to_json(packing));
    bd_json_set(json, "unit", bd_unit_to_json(unit));
    bd_json_set(json, "figures", bd_figures_to_json(figures));
    return json;
}

static bd_json *file_to_json(const char *name, const bd_digest *digest)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "file", name);
    bd_json_set_string(json, "checksum", digest->hex);
    return json;
}

static bd_json *inputs_to_json(const bd_manifest *manifest)
{
    bd_json *inputs = bd_json_array();
    for (size_t i = 0; i < manifest->n_inputs; i++) {
        const bd_input_entry *entry = &manifest->inputs[i];
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "name", entry->name);
        bd_json_set_string(json, "source", entry->source);
        bd_json_set_string(json, "format", entry->format);
        bd_json_set_integer(json, "bytes", entry->size_bytes);
        bd_json_append(inputs, json);
    }
    return inputs;
}

static bd_json *shards_to_json(const bd_manifest *manifest)
{
    bd_json *shards = bd_json_array();
    for (size_t i = 0; i < manifest->n_shards; i++) {
        const bd_shard_entry *entry = &manifest->shards[i];
        bd_json *json = file_to_json(bd_unit_shard_name(&entry->unit).text, &entry->digest);
        bd_json_set_integer(json, "bytes", entry->size_bytes);
        bd_json_set(json, "unit", bd_unit_to_json(&entry->unit));
        bd_json_set(json, "figures", bd_figures_to_json(&entry->figures));
        bd_json_append(shards, json);
    }
    return shards;
}

static bd_json *manifest_to_json(const bd_manifest *manifest)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", BD_FORMAT_VERSION);
    bd_json_set(json, "packing", bd_packing_to_json(&manifest->packing));
    bd_json_set(json, "plan", file_to_json(BD_PLAN_NAME, &manifest->plan_digest));
    bd_json_set(json, "tokenizer",
                file_to_json(BD_TOKENIZER_NAME, &manifest->tokenizer_digest));
    bd_json_set(json, "inputs", inputs_to_json(manifest));
    bd_json_set(json, "shards", shards_to_json(manifest));
    bd_json_set(json, "totals", bd_figures_to_json(&manifest->totals));
    return json;
}

static bd_status check_totals(const bd_manifest *manifest, bd_error *err)
{
    bd_figures sum = {0};
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&sum, &manifest->shards[i].figures, err));
    bd_json *here = bd_figures_to_json(&sum), *there = bd_figures_to_json(&manifest->totals);
    char where[256];
    const bool differ = bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    if (differ)
        return bd_fail(err, BD_ERR_FORMAT,
                       "D3: the totals are not the sums over the shards: %s", where);
    return bd_figures_check_ledger(&manifest->totals, manifest->packing.seq_len, err);
}

bd_status bd_manifest_publish(const bd_manifest *manifest, const char *folder, bd_error *err)
{
    BD_TRY(check_totals(manifest, err));
    char *text = NULL;
    size_t size_bytes;
    bd_json *json = manifest_to_json(manifest);
    bd_status status = bd_json_seal(json, &text, &size_bytes, err);
    if (status == BD_OK && size_bytes > MAX_MANIFEST_BYTES)
        status = bd_fail(err, BD_ERR_UNSUPPORTED, "%zu shards are too many for one manifest",
                         manifest->n_shards);
    if (status == BD_OK)
        status = bd_file_publish(folder, BD_MANIFEST_NAME, text, size_bytes, err);
    free(text);
    bd_json_free(json);
    return status;
}

// ---- Reading ----------------------------------------------------------------------

static bd_status file_from_json(const bd_json *json, const char *name, bd_digest *digest,
                                bd_error *err)
{
    const char *file, *hex;
    BD_TRY(bd_json_get_string(json, "file", &file, err));
    if (strcmp(file, name) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "'file' is '%.60s' instead of '%s'", file, name);
    BD_TRY(bd_json_get_string(json, "checksum", &hex, err));
    return bd_digest_parse(digest, hex, err);
}

static bd_status input_from_json(bd_input_entry *entry, const bd_json *json, bd_error *err)
{
    const char *name, *source, *format;
    BD_TRY(bd_json_get_string(json, "name", &name, err));
    BD_TRY(bd_json_get_string(json, "source", &source, err));
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    BD_TRY(bd_json_get_integer(json, "bytes", 0, INT64_MAX, &entry->size_bytes, err));
    entry->name = strdup(name);
    entry->source = strdup(source);
    entry->format = strdup(format);
    if (!entry->name || !entry->source || !entry->format)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    return BD_OK;
}

static bd_status inputs_from_json(bd_manifest *manifest, const bd_json *json, bd_error *err)
{
    const bd_json *inputs;
    BD_TRY(bd_json_get_array(json, "inputs", &inputs, err));
    manifest->n_inputs = bd_json_length(inputs);
    manifest->inputs = calloc(manifest->n_inputs + 1, sizeof *manifest->inputs);
    if (!manifest->inputs) {
        manifest->n_inputs = 0;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    }
    for (size_t i = 0; i < manifest->n_inputs; i++) {
        const bd_status status =
            input_from_json(&manifest->inputs[i], bd_json_at(inputs, i), err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "inputs[%zu]", i);
    }
    return BD_OK;
}

static bd_status shard_from_json(bd_shard_entry *entry, const bd_json *json, bd_error *err)
{
    const bd_json *unit, *figures;
    BD_TRY(bd_json_get_object(json, "unit", &unit, err));
    BD_TRY(bd_unit_from_json(&entry->unit, unit, err));
    BD_TRY(file_from_json(json, bd_unit_shard_name(&entry->unit).text, &entry->digest, err));
    BD_TRY(bd_json_get_integer(json, "bytes", 0, INT64_MAX, &entry->size_bytes, err));
    BD_TRY(bd_json_get_object(json, "figures", &figures, err));
    return bd_figures_from_json(&entry->figures, figures, err);
}

// Units come in order, and each names inputs that exist.
static bd_status check_unit_order(const bd_manifest *manifest, size_t i, bd_error *err)
{
    const bd_unit *unit = &manifest->shards[i].unit;
    const bd_unit *before = i > 0 ? &manifest->shards[i - 1].unit : NULL;
    if (unit->input + unit->n_inputs > (int64_t)manifest->n_inputs)
        return bd_fail(err, BD_ERR_FORMAT,
                       "its unit names inputs that the manifest does not list");
    const bool follows = !before || unit->input >= before->input + before->n_inputs ||
                         (unit->input == before->input && unit->slice > before->slice);
    if (!follows)
        return bd_fail(err, BD_ERR_FORMAT, "its unit does not follow the one before");
    return BD_OK;
}

static bd_status shards_from_json(bd_manifest *manifest, const bd_json *json, bd_error *err)
{
    const bd_json *shards;
    BD_TRY(bd_json_get_array(json, "shards", &shards, err));
    manifest->n_shards = bd_json_length(shards);
    manifest->shards = calloc(manifest->n_shards + 1, sizeof *manifest->shards);
    if (!manifest->shards) {
        manifest->n_shards = 0;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the shards");
    }
    for (size_t i = 0; i < manifest->n_shards; i++) {
        bd_status status = shard_from_json(&manifest->shards[i], bd_json_at(shards, i), err);
        if (status == BD_OK)
            status = check_unit_order(manifest, i, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "shards[%zu]", i);
    }
    return BD_OK;
}

static bd_status manifest_from_json(bd_manifest *manifest, const bd_json *json, bd_error *err)
{
    const bd_json *part;
    BD_TRY(bd_format_check(json, err));
    BD_TRY(bd_json_get_object(json, "packing", &part, err));
    BD_TRY(bd_packing_from_json(&manifest->packing, part, err));
    BD_TRY(bd_json_get_object(json, "plan", &part, err));
    BD_TRY(file_from_json(part, BD_PLAN_NAME, &manifest->plan_digest, err));
    BD_TRY(bd_json_get_object(json, "tokenizer", &part, err));
    BD_TRY(file_from_json(part, BD_TOKENIZER_NAME, &manifest->tokenizer_digest, err));
    BD_TRY(inputs_from_json(manifest, json, err));
    BD_TRY(shards_from_json(manifest, json, err));
    BD_TRY(bd_json_get_object(json, "totals", &part, err));
    BD_TRY(bd_figures_from_json(&manifest->totals, part, err));
    return check_totals(manifest, err);
}

bd_status bd_manifest_read(bd_manifest *manifest, const char *folder, bd_error *err)
{
    *manifest = (bd_manifest){0};
    char *text = NULL;
    size_t size_bytes;
    bd_json *json = NULL;
    char *path = bd_path_join(folder, BD_MANIFEST_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of the manifest");
    bd_status status;
    if (access(folder, F_OK) == 0 && access(path, F_OK) != 0 && errno == ENOENT) {
        status = bd_fail(err, BD_ERR_ARGUMENT,
                         "'%s' is not a finished dataset: it has no " BD_MANIFEST_NAME, folder);
        goto done;
    }
    status = bd_file_read(path, MAX_MANIFEST_BYTES, &text, &size_bytes, err);
    if (status != BD_OK)
        goto done;
    status = bd_json_unseal(text, size_bytes, &json, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "D1");
    else
        status = manifest_from_json(manifest, json, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot use '%s'", path);
done:
    if (status != BD_OK)
        bd_manifest_release(manifest);
    bd_json_free(json);
    free(text);
    free(path);
    return status;
}

bd_status bd_manifest_print(const char *folder, FILE *out, bd_error *err)
{
    char *text = NULL;
    size_t size_bytes;
    char *path = bd_path_join(folder, BD_MANIFEST_NAME);
    const bd_status status =
        path ? bd_file_read(path, MAX_MANIFEST_BYTES, &text, &size_bytes, err)
             : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    if (status == BD_OK)
        fwrite(text, 1, size_bytes, out);
    free(text);
    free(path);
    return status;
}

void bd_manifest_release(bd_manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_inputs; i++) {
        free(manifest->inputs[i].name);
        free(manifest->inputs[i].source);
        free(manifest->inputs[i].format);
    }
    free(manifest->inputs);
    free(manifest->shards);
    *manifest = (bd_manifest){0};
}

bool bd_manifest_find_row(const bd_manifest *manifest, int64_t row, size_t *shard,
                          int64_t *row_in_shard)
{
    for (size_t i = 0; row >= 0 && i < manifest->n_shards; i++) {
        if (row < manifest->shards[i].figures.rows) {
            *shard = i;
            *row_in_shard = row;
            return true;
        }
        row -= manifest->shards[i].figures.rows;
    }
    return false;
}
