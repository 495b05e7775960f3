#include "packer/scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/folder.h"
#include "common/shard.h"
#include "packer/units.h"

// A segment with the row that it was found in.
typedef struct found_segment {
    bd_document_place place;
    int64_t row;
    uint32_t offset, length;  // as in `documents`
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

static bd_status copy_input(const bd_scan *scan, size_t i, bd_error *err)
{
    BD_TRY(bd_input_entry_copy(&scan->inputs[i], &scan->manifest->inputs[i], err));
    return bd_plan_complete_entry(&scan->cuts, &scan->inputs[i], err);
}

bd_status bd_scan_init(bd_scan *scan, const char *folder, const bd_manifest *manifest,
                       bd_error *err)
{
    *scan = (bd_scan){.folder = folder, .manifest = manifest};
    BD_TRY(bd_plan_read_cuts(&scan->cuts, folder, err));
    scan->inputs = calloc(manifest->n_inputs + 1, sizeof *scan->inputs);
    if (!scan->inputs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", manifest->n_inputs);
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < manifest->n_inputs; i++)
        status = copy_input(scan, i, err);
    if (status != BD_OK)
        bd_scan_release(scan);
    return status;
}

void bd_scan_release(bd_scan *scan)
{
    for (size_t i = 0; scan->inputs && i < scan->manifest->n_inputs; i++)
        bd_input_entry_release(&scan->inputs[i]);
    free(scan->inputs);
    *scan = (bd_scan){0};
}

static bool ends_in_arrow(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".arrow") == 0;
}

// People hand *.arrow to other tools: a file too many there is rows too many. One that is
// missing shows when it is opened.
static bd_status refuse_stray(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    const bd_manifest *manifest = context;
    bd_unit unit;
    if (!ends_in_arrow(name) ||
        (bd_unit_from_name(&unit, name, ".arrow") && bd_manifest_find_unit(manifest, &unit)))
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s/%s': D2: the manifest does not name it", folder,
                   name);
}

// Whether shard `i` of the manifest is the unit `planned`, or slice `slice` of the series.
static bool is_unit(const bd_manifest *manifest, size_t i, const bd_planned *planned,
                    int64_t slice)
{
    if (i >= manifest->n_shards)
        return false;
    const bd_shard_entry *shard = &manifest->shards[i];
    const bd_unit *unit = &shard->unit;
    const bool is_1_0 = shard->records.hex[0] == '\0';  // which does not tell what is last
    return unit->input == planned->unit.input && unit->slice == slice &&
           unit->n_inputs == planned->unit.n_inputs &&
           (planned->is_series || is_1_0 || unit->last == planned->unit.last);
}

static bd_status fail_unit(const bd_scan *scan, size_t i, const bd_planned *planned,
                           bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s': D2: shard %zu is not the plan's unit %s",
                   scan->folder, i, bd_unit_shard_name(&planned->unit).text);
}

// The shards of one item of the plan, from shard *next on.
static bd_status check_item(const bd_scan *scan, const bd_planned *planned, size_t *next,
                            bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    if (!is_unit(manifest, *next, planned, planned->unit.slice))
        return fail_unit(scan, *next, planned, err);
    ++*next;
    for (int64_t slice = 1; planned->is_series; slice++) {
        const bool ended = manifest->shards[*next - 1].unit.last;
        if (ended)
            return BD_OK;
        if (!is_unit(manifest, *next, planned, slice))
            return fail_unit(scan, *next, planned, err);
        ++*next;
    }
    return BD_OK;
}

static bd_status check_items(const bd_scan *scan, const bd_units *units, bd_error *err)
{
    const bd_manifest *manifest = scan->manifest;
    // A held-out dataset does not count the documents of the other.
    const bool knows = manifest->packing.part != BD_PART_HELD_OUT;
    const int64_t n_read = bd_figures_documents_read(&manifest->totals);
    const bool limited = scan->cuts.limit != BD_NO_LIMIT;
    size_t next = 0, i;
    if (limited && knows && n_read > scan->cuts.limit)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: %" PRId64 " documents, the limit is %" PRId64, scan->folder,
                       n_read, scan->cuts.limit);
    const bool may_end = limited && (!knows || n_read == scan->cuts.limit);
    for (i = 0; i < units->n && !(may_end && next == manifest->n_shards); i++)
        BD_TRY(check_item(scan, &units->items[i], &next, err));
    if (next != manifest->n_shards)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': D2: the manifest has %zu shards more than the plan has units",
                       scan->folder, manifest->n_shards - next);
    return BD_OK;
}

bd_status bd_scan_check_units(const bd_scan *scan, bd_error *err)
{
    bd_units units = {0};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < scan->manifest->n_inputs; i++)
        status = bd_units_add(&units, &scan->inputs[i], scan->cuts.unit_bytes, err);
    if (status == BD_ERR_UNSUPPORTED)  // no dataset has so many
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': D2: the plan has more than %d units",
                         scan->folder, BD_MAX_UNITS);
    if (status == BD_OK)
        status = check_items(scan, &units, err);
    bd_units_release(&units);
    if (status == BD_OK)
        status = bd_folder_visit(scan->folder, refuse_stray, (void *)scan->manifest, err);
    return status;
}

// ---- Row by row ----------------------------------------------------------------------------

static bd_status fail_row(const shard_scan *s, int64_t row, const char *rule, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s', row %" PRId64 ": %s", s->shard->path, row, rule);
}

static bool lies_in_unit(const shard_scan *s, uint32_t input, uint64_t position)
{
    const bd_unit *unit = &s->shard->entry.unit;
    if (input < unit->input || input >= unit->input + unit->n_inputs)
        return false;
    const bd_slice slice = bd_input_entry_slice(&s->scan->inputs[input], unit->slice);
    // An empty file is a document, too, and begins at byte 0.
    return position == (uint64_t)slice.begin ||
           (position > (uint64_t)slice.begin && position < (uint64_t)slice.end);
}

// Input order: document by document, piece by piece.
static int compare_segments(const void *left, const void *right)
{
    const found_segment *a = left, *b = right;
    const int by_place = bd_document_place_compare(&a->place, &b->place);
    return by_place != 0 ? by_place : a->offset < b->offset ? -1 : a->offset > b->offset;
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
            .place =
                bd_packing_place(packing, row->segments.input[k], row->segments.position[k]),
            .row = index,
            .offset = row->segments.offset[k],
            .length = row->segments.length[k],
            .n_tokens = (int32_t)(to - from),
            .first_id = bd_id_at(row->ids, id_bytes, from),
            .last_id = bd_id_at(row->ids, id_bytes, to - 1),
        };
        if (!lies_in_unit(s, segment.place.input, segment.place.position))
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
    for (int64_t r = 0; status == BD_OK && r < s->shard->entry.figures.rows; r++) {
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
    if (length - 1 - (packing->bos != BD_NO_BOS) < packing->min_tokens)
        return fail_row(s, pieces[0].row, "S7: a document has fewer than min_tokens", err);
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
        for (end = i + 1; end < s->n && bd_document_place_compare(&s->segments[end].place,
                                                                  &s->segments[i].place) == 0;)
            end++;
        BD_TRY(scan_document(s, &s->segments[i], end - i, err));
    }
    return BD_OK;
}

// ---- The shard -----------------------------------------------------------------------------

// What rows cannot tell is taken over, if the packing allows it to be, and what follows from it
// is derived.
static void complete_figures(shard_scan *s)
{
    const bd_packing *packing = &s->shard->packing;
    const bd_figures *claimed = &s->shard->entry.figures;
    bd_figures *figures = &s->figures;
    if (packing->long_policy == BD_LONG_DROP) {
        figures->dropped = claimed->dropped;
        figures->dropped_documents = claimed->dropped_documents;
    }
    if (packing->min_tokens > 0) {
        figures->too_short = claimed->too_short;
        figures->too_short_documents = claimed->too_short_documents;
    }
    if (packing->part == BD_PART_TRAINING) {
        figures->held_out = claimed->held_out;
        figures->held_out_documents = claimed->held_out_documents;
    }
    figures->invalid_utf8_documents = claimed->invalid_utf8_documents;
    figures->headless_documents = claimed->headless_documents;
    const int64_t n_read = bd_figures_documents_read(figures);
    figures->separators = n_read;
    figures->bos = packing->bos == BD_NO_BOS ? 0 : n_read;
    figures->text += figures->dropped + figures->too_short + figures->held_out -
                     figures->separators - figures->bos;
}

static bd_status compare_figures(const shard_scan *s, bd_error *err)
{
    bd_json *here = bd_figures_to_json(&s->figures);
    bd_json *there = bd_figures_to_json(&s->shard->entry.figures);
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
