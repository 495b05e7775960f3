#include "common/dataset/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"

enum { MAX_MANIFEST_BYTES = 1 << 30 };  // about a million shards

// ---- Writing ----------------------------------------------------------------------

// The members that a shard's metadata and its entry in the manifest share.
static void set_unit(bd_json *json, const bd_dataset_config *config,
                     const bd_shard_entry *entry)
{
    bd_json_set(json, "unit", bd_unit_to_json(&entry->unit));
    bd_json_set_string(json, "records", entry->records.hex);
    bd_json_set_string(json, "positions", entry->positions.hex);
    bd_json_set(json, "figures", bd_figures_to_json(&entry->figures, config->loss_mask));
}

bd_json *bd_shard_metadata(const bd_dataset_config *config, const bd_shard_entry *entry)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", bd_dataset_format(config));
    bd_json_set(json, "packing", bd_dataset_config_to_json(config));
    set_unit(json, config, entry);
    return json;
}

static bd_json *file_to_json(const char *name, const bd_digest *digest)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "file", name);
    bd_json_set_string(json, "checksum", digest->hex);
    return json;
}

// The entry of a source, which is added if it is new; NULL if there are too many.
static bd_source_figures *find_source(bd_source_figures *sources, size_t *n, const char *name)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(sources[i].name, name) == 0)
            return &sources[i];
    if (*n == BD_MAX_SOURCES)
        return NULL;
    sources[*n] = (bd_source_figures){.name = name};
    return &sources[(*n)++];
}

uint64_t bd_manifest_bytes(const bd_manifest *manifest)
{
    uint64_t n = 0;
    for (size_t i = 0; i < manifest->n_shards; i++)
        n += (uint64_t)manifest->shards[i].size_bytes;
    return n;
}

bd_status bd_manifest_sources(const bd_manifest *manifest, bd_source_figures **sources,
                              size_t *n, bd_error *err)
{
    *n = 0;
    bd_status status = BD_OK;
    *sources = calloc(BD_MAX_SOURCES, sizeof **sources);
    if (!*sources)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the sources");
    for (size_t i = 0; status == BD_OK && i < manifest->n_inputs; i++) {
        bd_source_figures *source = find_source(*sources, n, manifest->inputs[i].source);
        if (source) {
            source->n_inputs++;
            // Also for a source without shards: either all say that nothing was counted, or
            // none.
            source->figures.added.unknown = manifest->totals.added.unknown;
        } else {
            status = bd_fail(err, BD_ERR_UNSUPPORTED, "more than %d sources", BD_MAX_SOURCES);
        }
    }
    for (size_t i = 0; status == BD_OK && i < manifest->n_shards; i++) {
        const bd_shard_entry *shard = &manifest->shards[i];
        const char *name = manifest->inputs[shard->unit.input].source;
        status = bd_figures_add(&find_source(*sources, n, name)->figures, &shard->figures, err);
    }
    if (status != BD_OK) {
        free(*sources);
        *sources = NULL;
    }
    return status;
}

static bd_json *source_to_json(const char *name, int64_t n_inputs, const bd_figures *figures,
                               bool masked)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "name", name);
    bd_json_set_integer(json, "inputs", n_inputs);
    bd_json_set(json, "figures", bd_figures_to_json(figures, masked));
    return json;
}

static bd_status sources_to_json(const bd_manifest *manifest, bd_json **json, bd_error *err)
{
    bd_source_figures *sources;
    size_t n;
    BD_TRY(bd_manifest_sources(manifest, &sources, &n, err));
    *json = bd_json_array();
    for (size_t i = 0; i < n; i++)
        bd_json_append(*json, source_to_json(sources[i].name, sources[i].n_inputs,
                                             &sources[i].figures, manifest->config.loss_mask));
    free(sources);
    return BD_OK;
}

// Takes ownership of `sources`.
static bd_json *manifest_to_json(const bd_manifest *manifest, bd_json *sources)
{
    bd_json *json = bd_json_object(), *inputs = bd_json_array(), *shards = bd_json_array();
    for (size_t i = 0; i < manifest->n_inputs; i++) {
        bd_json *input = bd_json_object();
        bd_input_entry_to_json(&manifest->inputs[i], input);
        bd_json_append(inputs, input);
    }
    for (size_t i = 0; i < manifest->n_shards; i++) {
        const bd_shard_entry *entry = &manifest->shards[i];
        bd_json *shard = file_to_json(bd_unit_shard_name(&entry->unit).text, &entry->digest);
        bd_json_set_integer(shard, "bytes", entry->size_bytes);
        set_unit(shard, &manifest->config, entry);
        bd_json_append(shards, shard);
    }
    bd_json_set_string(json, "format", bd_dataset_format(&manifest->config));
    bd_json_set(json, "packing", bd_dataset_config_to_json(&manifest->config));
    bd_json_set(json, "plan", file_to_json(BD_PLAN_NAME, &manifest->plan_digest));
    bd_json_set(json, "tokenizer",
                file_to_json(BD_TOKENIZER_NAME, &manifest->tokenizer_digest));
    bd_json_set(json, "inputs", inputs);
    bd_passed_over_to_json(&manifest->passed_over, json);
    bd_json_set(json, "shards", shards);
    bd_json_set(json, "sources", sources);
    bd_json_set(json, "totals",
                bd_figures_to_json(&manifest->totals, manifest->config.loss_mask));
    return json;
}

static bd_status check_manifest_totals(const bd_manifest *manifest, bd_error *err)
{
    bd_figures sum = {0};
    for (size_t i = 0; i < manifest->n_shards; i++)
        BD_TRY(bd_figures_add(&sum, &manifest->shards[i].figures, err));
    char where[256];
    if (bd_figures_difference(&sum, &manifest->totals, where, sizeof where))
        return bd_fail(err, BD_ERR_FORMAT,
                       "D3: the totals are not the sums over the shards: %s", where);
    return bd_figures_check_ledger(&manifest->totals, manifest->config.seq_len, err);
}

bd_status bd_manifest_publish(const bd_manifest *manifest, const char *folder, bd_error *err)
{
    BD_TRY(check_manifest_totals(manifest, err));
    char *text = NULL;
    size_t size_bytes;
    bd_json *sources;
    BD_TRY(sources_to_json(manifest, &sources, err));
    bd_json *json = manifest_to_json(manifest, sources);
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
            bd_input_entry_from_json(&manifest->inputs[i], bd_json_at(inputs, i), err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "inputs[%zu]", i);
    }
    return BD_OK;
}

// A digest that is absent in an older format, and empty in what was repacked from one.
static bd_status get_digest(const bd_json *json, const char *key, bd_digest *digest,
                            bd_error *err)
{
    const char *hex;
    if (bd_json_is_null(json, key))
        return BD_OK;
    BD_TRY(bd_json_get_string(json, key, &hex, err));
    return *hex ? bd_digest_parse(digest, hex, err) : BD_OK;
}

static bd_status get_unit(bd_shard_entry *entry, const bd_dataset_config *config,
                          const bd_json *json, bd_error *err)
{
    const bd_json *part;
    BD_TRY(bd_json_get_object(json, "unit", &part, err));
    BD_TRY(bd_unit_from_json(&entry->unit, part, err));
    BD_TRY(bd_json_get_object(json, "figures", &part, err));
    BD_TRY(bd_figures_from_json(&entry->figures, part, config->loss_mask, err));
    BD_TRY(get_digest(json, "records", &entry->records, err));
    return get_digest(json, "positions", &entry->positions, err);
}

bd_status bd_shard_metadata_read(const bd_json *json, bd_dataset_config *config,
                                 bd_shard_entry *entry, bd_error *err)
{
    const bd_json *part;
    *entry = (bd_shard_entry){0};
    BD_TRY(bd_format_check(json, err));
    BD_TRY(bd_json_get_object(json, "packing", &part, err));
    BD_TRY(bd_dataset_config_from_json(config, part, err));
    return get_unit(entry, config, json, err);
}

static bd_status shard_from_json(bd_shard_entry *entry, const bd_dataset_config *config,
                                 const bd_json *json, bd_error *err)
{
    BD_TRY(get_unit(entry, config, json, err));
    BD_TRY(file_from_json(json, bd_unit_shard_name(&entry->unit).text, &entry->digest, err));
    return bd_json_get_integer(json, "bytes", 0, INT64_MAX, &entry->size_bytes, err);
}

// The sources as they are stated, with the figures that an older format does not have.
static bd_status complete_sources(const bd_json *stated, bool masked, bd_json **complete,
                                  bd_error *err)
{
    bd_status status = BD_OK;
    *complete = bd_json_array();
    for (size_t i = 0; status == BD_OK && i < bd_json_length(stated); i++) {
        const bd_json *source = bd_json_at(stated, i), *part;
        const char *name;
        int64_t n_inputs;
        bd_figures figures;
        status = bd_json_get_string(source, "name", &name, err);
        if (status == BD_OK)
            status = bd_json_get_integer(source, "inputs", 0, INT64_MAX, &n_inputs, err);
        if (status == BD_OK)
            status = bd_json_get_object(source, "figures", &part, err);
        if (status == BD_OK)
            status = bd_figures_from_json(&figures, part, masked, err);
        if (status == BD_OK)
            bd_json_append(*complete, source_to_json(name, n_inputs, &figures, masked));
        else
            bd_error_prefix(err, status, "sources[%zu]", i);
    }
    if (status != BD_OK)
        bd_json_free(*complete);
    return status;
}

// D3: the figures of each source are the sums over its shards. Format 1.0 has no sources.
static bd_status check_sources(const bd_manifest *manifest, const bd_json *json, bd_error *err)
{
    const bd_json *part;
    bd_json *found, *stated;
    char where[256];
    if (bd_json_is_null(json, "sources"))
        return BD_OK;
    BD_TRY(bd_json_get_array(json, "sources", &part, err));
    BD_TRY(complete_sources(part, manifest->config.loss_mask, &stated, err));
    const bd_status status = sources_to_json(manifest, &found, err);
    if (status != BD_OK) {
        bd_json_free(stated);
        return status;
    }
    const bool differ = bd_json_difference(found, stated, where, sizeof where);
    bd_json_free(found);
    bd_json_free(stated);
    return differ ? bd_fail(err, BD_ERR_FORMAT,
                            "D3: the sources are not the sums over their shards: %s", where)
                  : BD_OK;
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
        bd_status status = shard_from_json(&manifest->shards[i], &manifest->config,
                                           bd_json_at(shards, i), err);
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
    BD_TRY(bd_dataset_config_from_json(&manifest->config, part, err));
    BD_TRY(bd_json_get_object(json, "plan", &part, err));
    BD_TRY(file_from_json(part, BD_PLAN_NAME, &manifest->plan_digest, err));
    BD_TRY(bd_json_get_object(json, "tokenizer", &part, err));
    BD_TRY(file_from_json(part, BD_TOKENIZER_NAME, &manifest->tokenizer_digest, err));
    BD_TRY(inputs_from_json(manifest, json, err));
    BD_TRY(bd_passed_over_from_json(&manifest->passed_over, json, err));
    BD_TRY(shards_from_json(manifest, json, err));
    BD_TRY(bd_json_get_object(json, "totals", &part, err));
    BD_TRY(bd_figures_from_json(&manifest->totals, part, manifest->config.loss_mask, err));
    BD_TRY(check_sources(manifest, json, err));
    return check_manifest_totals(manifest, err);
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
    for (size_t i = 0; i < manifest->n_inputs; i++)
        bd_input_entry_release(&manifest->inputs[i]);
    free(manifest->inputs);
    bd_passed_over_release(&manifest->passed_over);
    free(manifest->shards);
    *manifest = (bd_manifest){0};
}

static int compare_units(const void *key, const void *element)
{
    const bd_unit *a = key, *b = &((const bd_shard_entry *)element)->unit;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    return a->slice < b->slice ? -1 : a->slice > b->slice;
}

const bd_shard_entry *bd_manifest_find_unit(const bd_manifest *manifest, const bd_unit *unit)
{
    return manifest->n_shards == 0 ? NULL
                                   : bsearch(unit, manifest->shards, manifest->n_shards,
                                             sizeof *manifest->shards, compare_units);
}

bool bd_manifest_is_stray(const bd_manifest *manifest, const char *name)
{
    const char *dot = strrchr(name, '.');
    bd_unit unit;
    return dot && strcmp(dot, ".arrow") == 0 &&
           !(bd_unit_from_name(&unit, name, ".arrow") &&
             bd_manifest_find_unit(manifest, &unit));
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
