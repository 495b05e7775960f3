#include "packer/scan.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/shard.h"
#include "packer/units.h"

// A segment with the row that it was found in.
typedef struct found_segment {
    uint64_t position;
    int64_t row;
    uint32_t input, offset, length;  // as in `documents`
    int32_t n_tokens;
    uint32_t first_id, last_id;
} found_segment;

typedef struct shard_scan {
    const bd_scan *scan;
    const bd_shard *shard;
    bd_figures figures;
    found_segment *segments;  // owned
    size_t n, capacity;
} shard_scan;

// ---- The dataset ---------------------------------------------------------------------------

static bd_status copy_input(bd_input *input, const bd_input_entry *entry, bd_error *err)
{
    input->size_bytes = entry->size_bytes;
    for (int format = 0; bd_input_format_words[format]; format++) {
        if (strcmp(entry->format, bd_input_format_words[format]) == 0) {
            input->format = (bd_input_format)format;
            return BD_OK;
        }
    }
    return bd_fail(err, BD_ERR_FORMAT, "input '%.100s' has the unknown format '%.20s'",
                   entry->name, entry->format);
}

bd_status bd_scan_init(bd_scan *scan, const char *folder, const bd_manifest *manifest,
                       bd_error *err)
{
    *scan = (bd_scan){.folder = folder, .manifest = manifest};
    BD_TRY(bd_plan_read_cuts(&scan->cuts, folder, err));
    scan->inputs.items = calloc(manifest->n_inputs + 1, sizeof *scan->inputs.items);
    if (!scan->inputs.items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", manifest->n_inputs);
    scan->inputs.n = manifest->n_inputs;
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < manifest->n_inputs; i++)
        status = copy_input(&scan->inputs.items[i], &manifest->inputs[i], err);
    if (status != BD_OK)
        bd_scan_release(scan);
    return status;
}

void bd_scan_release(bd_scan *scan)
{
    bd_inputs_release(&scan->inputs);
    *scan = (bd_scan){0};
}

static int compare_units(const void *key, const void *element)
{
    const bd_unit *a = key, *b = &((const bd_shard_entry *)element)->unit;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    return a->slice < b->slice ? -1 : a->slice > b->slice;
}

// The manifest's shards are in the order of their units.
static bool is_listed(const bd_manifest *manifest, const char *name)
{
    char *end;
    bd_unit unit = {.input = strtoll(name, &end, 10)};
    unit.slice = *end == '-' ? strtoll(end + 1, NULL, 10) : 0;
    return strcmp(bd_unit_shard_name(&unit).text, name) == 0 &&
           bsearch(&unit, manifest->shards, manifest->n_shards, sizeof *manifest->shards,
                   compare_units);
}

static bool is_arrow_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".arrow") == 0;
}

// People hand *.arrow to other tools: a file too many there is rows too many. One that is
// missing shows when it is opened.
static bd_status check_strays(const bd_scan *scan, bd_error *err)
{
    DIR *entries = opendir(scan->folder);
    if (!entries)
        return bd_fail_errno(err, "cannot read the folder '%s'", scan->folder);
    bd_status status = BD_OK;
    for (struct dirent *entry; status == BD_OK && (entry = readdir(entries));)
        if (is_arrow_name(entry->d_name) && !is_listed(scan->manifest, entry->d_name))
            status = bd_fail(err, BD_ERR_FORMAT, "'%s/%s': D2: the manifest does not name it",
                             scan->folder, entry->d_name);
    closedir(entries);
    return status;
}

bd_status bd_scan_check_units(const bd_scan *scan, bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    bd_units units;
    BD_TRY(bd_units_plan(&units, &scan->inputs, scan->cuts.unit_bytes, scan->cuts.text_is_whole,
                         err));
    bd_status status = BD_OK;
    if (units.n != manifest->n_shards)
        status = bd_fail(err, BD_ERR_FORMAT,
                         "'%s': D2: the plan has %zu units, the manifest %zu shards",
                         scan->folder, units.n, manifest->n_shards);
    for (size_t i = 0; status == BD_OK && i < units.n; i++) {
        const bd_unit *planned = &units.items[i], *unit = &manifest->shards[i].unit;
        if (planned->input != unit->input || planned->slice != unit->slice ||
            planned->n_inputs != unit->n_inputs)
            status =
                bd_fail(err, BD_ERR_FORMAT, "'%s': D2: shard %zu is not the plan's unit %s",
                        scan->folder, i, bd_unit_shard_name(planned).text);
    }
    bd_units_release(&units);
    return status == BD_OK ? check_strays(scan, err) : status;
}

// ---- Row by row ----------------------------------------------------------------------------

static bd_status fail_row(const shard_scan *s, int64_t row, const char *rule, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s', row %" PRId64 ": %s", s->shard->path, row, rule);
}

static bool lies_in_unit(const shard_scan *s, uint32_t input, uint64_t position)
{
    const bd_unit *unit = &s->shard->unit;
    if (input < unit->input || input >= unit->input + unit->n_inputs)
        return false;
    const bd_slice slice = bd_unit_slice(unit, &s->scan->inputs.items[input],
                                         s->scan->cuts.unit_bytes, s->scan->cuts.text_is_whole);
    // An empty file is a document, too, and begins at byte 0.
    return position == (uint64_t)slice.begin ||
           (position > (uint64_t)slice.begin && position < (uint64_t)slice.end);
}

// Input order: document by document, piece by piece.
static int compare_segments(const void *left, const void *right)
{
    const found_segment *a = left, *b = right;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bd_status scan_row(shard_scan *s, int64_t index, const bd_row *row, bd_error *err)
{
    const bd_packing *packing = &s->shard->packing;
    const int id_bytes = bd_packing_id_bytes(packing);
    BD_TRY(bd_array_reserve((void **)&s->segments, &s->capacity, s->n + (size_t)row->n_segments,
                            sizeof *s->segments, err));
    bd_figures_count_row(&s->figures, packing->seq_len, row->bounds[row->n_segments],
                         row->n_segments);
    for (int64_t k = 0; k < row->n_segments; k++) {
        const int64_t from = row->bounds[k], to = row->bounds[k + 1];
        const found_segment segment = {
            .position = row->segments.position[k],
            .row = index,
            .input = row->segments.input[k],
            .offset = row->segments.offset[k],
            .length = row->segments.length[k],
            .n_tokens = (int32_t)(to - from),
            .first_id = bd_id_at(row->ids, id_bytes, from),
            .last_id = bd_id_at(row->ids, id_bytes, to - 1),
        };
        if (!lies_in_unit(s, segment.input, segment.position))
            return fail_row(s, index, "S2: a document lies outside the shard's unit", err);
        bd_figures_count_segment(&s->figures, segment.offset, segment.n_tokens);
        s->figures.separator_collisions += bd_separator_collisions(
            packing, row->ids, from, to, segment.offset, segment.length);
        s->segments[s->n++] = segment;
    }
    return BD_OK;
}

static bd_status scan_rows(shard_scan *s, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = BD_OK;
    size_t first_before = 0;
    for (int64_t r = 0; status == BD_OK && r < s->shard->figures.rows; r++) {
        bd_row row;
        const size_t first = s->n;
        status = bd_shard_row(s->shard, r, hasher, &row, err);
        if (status == BD_OK)
            status = scan_row(s, r, &row, err);
        if (status == BD_OK && r > 0 &&
            compare_segments(&s->segments[first_before], &s->segments[first]) >= 0)
            status =
                fail_row(s, r, "S4: its earliest document is not after the row before's", err);
        first_before = first;
    }
    bd_hasher_free(hasher);
    return status;
}

// ---- Document by document ------------------------------------------------------------------

// The pieces of one document, in order.
static bd_status scan_document(shard_scan *s, const found_segment *pieces, size_t n,
                               bd_error *err)
{
    const bd_packing *packing = &s->shard->packing;
    const int64_t length = pieces[0].length;
    int64_t covered = 0;
    for (size_t i = 0; i < n; i++) {
        const bool first = i == 0;
        if (pieces[i].length != length)
            return fail_row(s, pieces[i].row, "S3: pieces disagree on their document's length",
                            err);
        if (pieces[i].offset != (first ? 0 : covered - 1))
            return fail_row(s, pieces[i].row,
                            "S3: a piece does not begin where the one before it ends", err);
        if (!first && pieces[i].first_id != pieces[i - 1].last_id)
            return fail_row(s, pieces[i].row,
                            "S3: a piece does not repeat the last token of the one before it",
                            err);
        covered = pieces[i].offset + (int64_t)pieces[i].n_tokens;
    }
    const bool truncated =
        packing->long_policy == BD_LONG_TRUNCATE && length > packing->seq_len;
    if (covered != (truncated ? packing->seq_len : length))
        return fail_row(s, pieces[n - 1].row, "S3: a document's last piece is missing", err);
    bd_figures_count_document(&s->figures, length);
    s->figures.empty_documents += length == 1 + (packing->bos != BD_NO_BOS);
    s->figures.split_documents += n > 1;
    s->figures.truncated_documents += truncated;
    s->figures.truncated += length - covered;
    s->figures.text += length;  // bos and separators are taken off in the end
    return BD_OK;
}

static bd_status scan_documents(shard_scan *s, bd_error *err)
{
    if (s->n > 0)
        qsort(s->segments, s->n, sizeof *s->segments, compare_segments);
    for (size_t i = 0, end; i < s->n; i = end) {
        for (end = i + 1; end < s->n && s->segments[end].input == s->segments[i].input &&
                          s->segments[end].position == s->segments[i].position;)
            end++;
        BD_TRY(scan_document(s, &s->segments[i], end - i, err));
    }
    return BD_OK;
}

// ---- The shard -----------------------------------------------------------------------------

// What rows cannot tell is taken over, and what follows from it is derived.
static void complete_figures(shard_scan *s)
{
    const bd_figures *claimed = &s->shard->figures;
    bd_figures *figures = &s->figures;
    if (s->shard->packing.long_policy == BD_LONG_DROP) {
        figures->dropped = claimed->dropped;
        figures->dropped_documents = claimed->dropped_documents;
    }
    figures->invalid_utf8_documents = claimed->invalid_utf8_documents;
    const int64_t n_read = figures->documents + figures->dropped_documents;
    figures->separators = n_read;
    figures->bos = s->shard->packing.bos == BD_NO_BOS ? 0 : n_read;
    figures->text += figures->dropped - figures->separators - figures->bos;
}

static bd_status compare_figures(const shard_scan *s, bd_error *err)
{
    bd_json *here = bd_figures_to_json(&s->figures);
    bd_json *there = bd_figures_to_json(&s->shard->figures);
    char where[256];
    bd_status status = BD_OK;
    if (bd_json_difference(here, there, where, sizeof where))
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': S5: the rows differ from the metadata: %s",
                         s->shard->path, where);
    bd_json_free(here);
    bd_json_free(there);
    return status;
}

bd_status bd_scan_shard(const bd_scan *scan, size_t index, bd_figures *figures, bd_error *err)
{
    bd_shard shard;
    BD_TRY(bd_shard_open_entry(&shard, scan->folder, scan->manifest, index, err));
    shard_scan s = {.scan = scan, .shard = &shard};
    bd_status status = scan_rows(&s, err);
    if (status == BD_OK)
        status = scan_documents(&s, err);
    if (status == BD_OK) {
        complete_figures(&s);
        status = compare_figures(&s, err);
    }
    if (status == BD_OK) {
        status = bd_figures_check_ledger(&s.figures, shard.packing.seq_len, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "'%s'", shard.path);
    }
    *figures = s.figures;
    free(s.segments);
    bd_shard_close(&shard);
    return status;
}
