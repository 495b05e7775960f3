#include "packer/finished.h"

#include "common/checksum.h"
#include "common/json.h"
#include "common/shard.h"

// Whether a shard is one of this packing and unit, and no row of it is damaged.
static bool is_sound(const bd_shard *shard, const bd_packing *packing,
                     const bd_planned *planned, const bd_unit *unit)
{
    bd_shard_entry expected = shard->entry;
    expected.unit = *unit;
    if (planned->is_series)
        expected.unit.last = shard->entry.unit.last;
    bd_json *here = bd_shard_metadata(&shard->packing, &shard->entry);
    bd_json *there = bd_shard_metadata(packing, &expected);
    char where[256];
    const bool ours = !bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    bd_hasher *hasher = bd_hasher_new();
    bool sound =
        ours && hasher &&
        bd_figures_check_ledger(&shard->entry.figures, packing->seq_len, NULL) == BD_OK;
    bd_row row;
    for (int64_t r = 0; sound && r < shard->entry.figures.rows; r++)
        sound = bd_shard_row(shard, r, hasher, &row, NULL) == BD_OK;
    bd_hasher_free(hasher);
    return sound;
}

static bool take_shard(const char *folder, const bd_packing *packing, const bd_planned *planned,
                       const bd_unit *unit, bd_shard_entry *entry)
{
    bd_shard shard;
    if (bd_shard_open(&shard, folder, bd_unit_shard_name(unit).text, NULL) != BD_OK)
        return false;
    *entry = shard.entry;
    const bool taken = is_sound(&shard, packing, planned, unit);
    if (taken) {
        entry->digest = bd_digest_of(shard.file.data, shard.file.size_bytes);
        entry->size_bytes = (int64_t)shard.file.size_bytes;
    }
    bd_shard_close(&shard);
    return taken;
}

bool bd_take_finished(const bd_pack_job *job, const bd_planned *planned, const bd_unit *unit,
                      bd_packed_unit *packed)
{
    *packed = (bd_packed_unit){0};
    if (!take_shard(job->folder, &job->packing, planned, unit, &packed->shard))
        return false;
    if (!job->holdout_folder)
        return true;
    const bd_packing packing = bd_holdout_packing(job);
    return take_shard(job->holdout_folder, &packing, planned, unit, &packed->held_out);
}
