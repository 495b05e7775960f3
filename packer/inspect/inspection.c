#include "packer/inspect/inspection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/dataset/stored_tokenizer.h"
#include "packer/pack/pack_log.h"

// ---- Opening -------------------------------------------------------------------------------

// Takes what a shard says of itself for a manifest of one shard and no inputs.
static bd_status open_one_shard(bd_inspection *in, bd_error *err)
{
    in->folder = bd_path_folder(in->path);
    bd_shard_entry *entry = in->manifest.shards = calloc(1, sizeof *in->manifest.shards);
    if (!in->folder || !entry)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a shard");
    in->manifest.n_shards = 1;
    in->is_shard = true;
    bd_shard shard;
    BD_TRY(bd_shard_open(&shard, in->folder, bd_path_tail(in->path), err));
    in->manifest.config = shard.config;
    *entry = shard.entry;
    entry->size_bytes = (int64_t)shard.file.size_bytes;
    in->manifest.totals = entry->figures;
    bd_shard_close(&shard);
    const bd_status status =
        bd_figures_check_ledger(&entry->figures, in->manifest.config.seq_len, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cannot use '%s'", in->path);
}

static bd_status open_whole_dataset(bd_inspection *in, bd_error *err)
{
    in->folder = strdup(in->path);
    if (!in->folder)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of a folder");
    BD_TRY(bd_manifest_read(&in->manifest, in->path, err));
    return bd_manifest_sources(&in->manifest, &in->sources, &in->n_sources, err);
}

bd_status bd_inspection_open(bd_inspection *inspection, const char *path, bd_error *err)
{
    *inspection = (bd_inspection){.path = path};
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    const bd_status status =
        is_file ? open_one_shard(inspection, err) : open_whole_dataset(inspection, err);
    if (status != BD_OK) {
        bd_inspection_release(inspection);
        return status;
    }
    // Without a tokenizer ids have no text; everything else is known.
    if (bd_stored_tokenizer_open(&inspection->tokenizer, inspection->folder,
                                 &inspection->manifest.config, NULL) != BD_OK)
        inspection->tokenizer = NULL;
    inspection->tokenizer_file = bd_pack_log_tokenizer(inspection->folder);
    return BD_OK;
}

void bd_inspection_release(bd_inspection *inspection)
{
    free(inspection->folder);
    bd_manifest_release(&inspection->manifest);
    free(inspection->sources);
    bd_tokenizer_close(inspection->tokenizer);
    free(inspection->tokenizer_file);
    bd_statistics_release(&inspection->statistics);
    *inspection = (bd_inspection){0};
}

bd_status bd_inspection_open_shard(const bd_inspection *inspection, size_t index,
                                   bd_shard *shard, bd_error *err)
{
    if (!inspection->is_shard)
        return bd_shard_open_entry(shard, inspection->folder, &inspection->manifest, index,
                                   err);
    BD_TRY(bd_shard_open(shard, inspection->folder, bd_path_tail(inspection->path), err));
    // The shard was open before, and may have changed since: arrays that were sized for it must
    // still fit.
    const bd_dataset_config *config = &inspection->manifest.config;
    const bd_figures *figures = &inspection->manifest.totals;
    if (shard->config.seq_len == config->seq_len &&
        shard->config.vocab_size == config->vocab_size &&
        shard->entry.figures.rows == figures->rows &&
        shard->entry.figures.documents == figures->documents)
        return BD_OK;
    bd_shard_close(shard);
    return bd_fail(err, BD_ERR_FORMAT, "'%s' changed while it was being read",
                   inspection->path);
}

// ---- What follows from it ------------------------------------------------------------------

bool bd_inspection_is_exact(const bd_inspection *inspection)
{
    return inspection->rows_read != BD_ROWS_SAMPLED;
}

double bd_inspection_causal_pairs(const bd_inspection *inspection)
{
    const double rows = (double)inspection->manifest.totals.rows;
    const double seq_len = (double)inspection->manifest.config.seq_len;
    return rows * seq_len * (seq_len + 1) / 2.0;
}

bd_shard_name bd_inspection_shard_name(const bd_inspection *inspection, size_t index)
{
    bd_shard_name name = bd_unit_shard_name(&inspection->manifest.shards[index].unit);
    if (inspection->is_shard)
        snprintf(name.text, sizeof name.text, "%s", bd_path_tail(inspection->path));
    return name;
}
