#include "packer/pack/existing_shards.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/dataset/arrow_io.h"
#include "common/dataset/shard.h"

// Whether the file has the bytes that writing its rows again gives. Row checksums cover the rows
// alone; this covers the rest of the file: both copies of the schema, the messages around the
// batches, the footer and all padding.
static bool is_as_written(const bd_shard *shard, const bd_json *metadata)
{
    const bool compressed = shard->config.codec == BD_SHARD_ZSTD;
    char *text = NULL;
    bd_arrow_writer *writer = NULL;
    bd_status status = bd_json_print(metadata, BD_JSON_COMPACT, &text, NULL);
    if (status == BD_OK)
        status = bd_arrow_writer_open_memory(&writer, shard->file.size_bytes, &shard->config,
                                             text, compressed, NULL);
    for (int64_t i = 0; status == BD_OK && i < bd_arrow_reader_n_batches(shard->reader); i++)
        status = bd_arrow_writer_write(writer, bd_arrow_reader_batch(shard->reader, i), NULL);
    if (status == BD_OK)
        status = bd_arrow_writer_close(writer, NULL);
    const bool same = status == BD_OK &&
                      bd_arrow_writer_equals(writer, shard->file.data, shard->file.size_bytes);
    bd_arrow_writer_free(writer);
    free(text);
    return same;
}

// Whether a shard is one of this config and unit, and no byte of it is damaged.
static bool is_sound(const bd_shard *shard, const bd_dataset_config *config,
                     const bd_planned *planned, const bd_unit *unit)
{
    bd_shard_entry expected = shard->entry;
    expected.unit = *unit;
    if (planned->is_stream)
        expected.unit.last = shard->entry.unit.last;
    bd_json *here = bd_shard_metadata(&shard->config, &shard->entry);
    bd_json *there = bd_shard_metadata(config, &expected);
    char where[256];
    bd_hasher *hasher = bd_hasher_new();
    bool sound = hasher && !bd_json_difference(here, there, where, sizeof where) &&
                 bd_figures_check_ledger(&shard->entry.figures, config->seq_len, NULL) == BD_OK;
    bd_row row;
    for (int64_t r = 0; sound && r < shard->entry.figures.rows; r++)
        sound = bd_shard_row(shard, r, hasher, &row, NULL) == BD_OK;
    sound = sound && is_as_written(shard, there);
    bd_hasher_free(hasher);
    bd_json_free(here);
    bd_json_free(there);
    return sound;
}

static bool take_shard(const char *folder, const bd_dataset_config *config,
                       const bd_planned *planned, const bd_unit *unit, bd_shard_entry *entry)
{
    const bd_shard_name name = bd_unit_shard_name(unit);
    bd_shard shard;
    bd_file_mark mark;
    char *path = bd_path_join(folder, name.text);
    // The mark is taken before the file is read, so that later changes are noticed.
    const bool is_there = path && bd_file_mark_of(path, &mark, NULL) == BD_OK;
    free(path);
    if (!is_there || bd_shard_open(&shard, folder, name.text, NULL) != BD_OK)
        return false;
    *entry = shard.entry;
    const bool taken = is_sound(&shard, config, planned, unit);
    if (taken) {
        entry->digest = bd_digest_of(shard.file.data, shard.file.size_bytes);
        entry->size_bytes = (int64_t)shard.file.size_bytes;
        entry->mark = mark;
    }
    bd_shard_close(&shard);
    return taken;
}

bool bd_take_existing_unit(const bd_pack_job *job, const bd_planned *planned,
                           const bd_unit *unit, bd_packed_unit *packed)
{
    *packed = (bd_packed_unit){0};
    if (!take_shard(job->folder, &job->config, planned, unit, &packed->shard))
        return false;
    if (!job->holdout_folder)
        return true;
    const bd_dataset_config config = bd_holdout_config(job);
    return take_shard(job->holdout_folder, &config, planned, unit, &packed->held_out);
}
