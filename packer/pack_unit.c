#include "packer/pack_unit.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/array.h"
#include "common/row.h"
#include "common/utf8.h"
#include "packer/documents.h"
#include "packer/json_text.h"
#include "packer/layout.h"
#include "packer/records.h"
#include "packer/shard_writer.h"
#include "packer/units.h"

const char *const bd_utf8_policy_words[] = {"error", "keep", "replace", NULL};

// A unit being read.
typedef struct reading {
    const bd_pack_job *job;
    bd_documents documents;
    bd_json_text *json;  // owned
    char *repaired;      // owned; a record made valid UTF-8
    size_t repaired_capacity;
    int64_t invalid_utf8_documents;
} reading;

// ---- From a record to its text --------------------------------------------------------

// Room for the repaired form of a record, and for the padding that the JSON parser reads.
static bd_status reserve_repaired(reading *r, size_t record_bytes, bd_error *err)
{
    return bd_array_reserve((void **)&r->repaired, &r->repaired_capacity,
                            bd_utf8_replaced_bound(record_bytes) + BD_RECORD_PADDING, 1, err);
}

// Makes plain text obey the UTF-8 policy.
static bd_status take_text(reading *r, const bd_record *record, const char **text, size_t *n,
                           bd_error *err)
{
    *text = record->data;
    *n = record->size_bytes;
    const size_t valid = bd_utf8_valid_prefix(record->data, record->size_bytes);
    if (valid == record->size_bytes)
        return BD_OK;
    r->invalid_utf8_documents++;
    switch (r->job->utf8_policy) {
    case BD_UTF8_ERROR:
        return bd_fail(err, BD_ERR_FORMAT,
                       "not UTF-8 at byte %" PRId64
                       " (--invalid-utf8 keep or replace takes it)",
                       record->position + (int64_t)valid);
    case BD_UTF8_KEEP:
        break;
    case BD_UTF8_REPLACE:
        BD_TRY(reserve_repaired(r, record->size_bytes, err));
        *n = bd_utf8_replace(record->data, record->size_bytes, r->repaired);
        *text = r->repaired;
        break;
    }
    return BD_OK;
}

// A JSON record that failed to parse because of its encoding: repairs and parses it again.
static bd_status repair_json(reading *r, const bd_record *record, const char **text, size_t *n,
                             bd_error *err)
{
    BD_TRY(reserve_repaired(r, record->size_bytes, err));
    const size_t repaired_bytes =
        bd_utf8_replace(record->data, record->size_bytes, r->repaired);
    bd_json_replace_surrogates(r->repaired, repaired_bytes);
    bd_json_problem problem;
    BD_TRY(bd_json_text_extract(r->json, r->repaired, repaired_bytes, text, n, &problem, err));
    r->invalid_utf8_documents++;
    return BD_OK;
}

static bd_status take_json(reading *r, const bd_record *record, const char **text, size_t *n,
                           bd_error *err)
{
    bd_json_problem problem;
    const bd_status status =
        bd_json_text_extract(r->json, record->data, record->size_bytes, text, n, &problem, err);
    const bool encoding = problem == BD_JSON_BAD_UTF8 || problem == BD_JSON_BAD_SURROGATE;
    if (!encoding)
        return status;
    if (r->job->utf8_policy == BD_UTF8_REPLACE)
        return repair_json(r, record, text, n, err);
    return bd_fail(err, BD_ERR_FORMAT,
                   "%s (JSON is UTF-8 by definition; --invalid-utf8 replace takes it)",
                   problem == BD_JSON_BAD_UTF8 ? "not UTF-8" : "an escape of half a character");
}

// ---- From records to documents ---------------------------------------------------------

static bd_status add_record(reading *r, const bd_input *input, uint32_t index,
                            const bd_record *record, bd_error *err)
{
    const bd_packing *packing = &r->job->packing;
    const char *text;
    size_t n;
    BD_TRY(input->format == BD_INPUT_JSONL ? take_json(r, record, &text, &n, err)
                                           : take_text(r, record, &text, &n, err));
    BD_TRY(bd_documents_append(&r->documents, text, n, index, (uint64_t)record->position, err));
    const uint32_t length = r->documents.items[r->documents.n - 1].length;
    if (packing->long_policy == BD_LONG_ERROR && length > packing->seq_len)
        return bd_fail(err, BD_ERR_FORMAT,
                       "a document of %u tokens is longer than a row of %" PRId64
                       " (--long error)",
                       length, packing->seq_len);
    return BD_OK;
}

// Says where a bad record lies: its line if the input has lines, its first byte otherwise.
static bd_status fail_record(const bd_input *input, const bd_record *record, bd_status status,
                             bd_error *err)
{
    if (input->format == BD_INPUT_JSONL)
        return bd_error_prefix(err, status, "'%s', line %" PRId64 " (byte %" PRId64 ")",
                               input->path, bd_line_number(input->path, record->position),
                               record->position);
    return bd_error_prefix(err, status, "'%s', document at byte %" PRId64, input->path,
                           record->position);
}

static bd_status read_input(reading *r, const bd_unit *unit, int64_t index, bd_error *err)
{
    const bd_pack_job *job = r->job;
    const bd_input *input = &job->inputs->items[index];
    const bd_slice slice = bd_unit_slice(unit, input, job->unit_bytes, job->delimiter == NULL);
    const bd_record_kind kind = input->format == BD_INPUT_JSONL ? BD_RECORD_LINE
                                : job->delimiter                ? BD_RECORD_DELIMITED
                                                                : BD_RECORD_FILE;
    bd_records records;
    BD_TRY(bd_records_open(&records, input, slice, kind, job->delimiter,
                           job->max_document_bytes, err));
    bd_status status;
    bd_record record = {.position = slice.begin};
    bool found;
    int64_t reported = slice.begin;
    while ((status = bd_records_next(&records, &record, &found, err)) == BD_OK && found) {
        status = add_record(r, input, (uint32_t)index, &record, err);
        if (status != BD_OK)
            break;
        bd_progress_add(job->progress, (uint64_t)(record.position - reported));
        reported = record.position;
    }
    if (status == BD_ERR_FORMAT)
        fail_record(input, &record, status, err);
    bd_progress_add(job->progress, (uint64_t)(slice.end - reported));
    bd_records_close(&records);
    return status;
}

static bd_status read_unit(reading *r, const bd_unit *unit, bd_error *err)
{
    bd_documents_init(&r->documents, &r->job->packing, r->job->tokenizer);
    r->json = bd_json_text_new(r->job->text_field);
    if (!r->json)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a JSON parser");
    for (int64_t i = 0; i < unit->n_inputs; i++)
        BD_TRY(read_input(r, unit, unit->input + i, err));
    return BD_OK;
}

static void release_reading(reading *r)
{
    bd_documents_release(&r->documents);
    bd_json_text_free(r->json);
    free(r->repaired);
}

// ---- From documents to rows --------------------------------------------------------------

static bd_status lay_out(bd_layout *layout, const bd_documents *documents, bd_error *err)
{
    uint32_t *lengths = malloc((documents->n + 1) * sizeof *lengths);
    if (!lengths)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu documents", documents->n);
    for (size_t d = 0; d < documents->n; d++)
        lengths[d] = documents->items[d].length;
    const bd_status status =
        bd_layout_make(layout, lengths, documents->n, documents->packing, err);
    free(lengths);
    return status;
}

static void count_piece(bd_figures *figures, const bd_documents *documents,
                        const bd_piece *piece)
{
    const bd_packing *packing = documents->packing;
    const bd_document *document = &documents->items[piece->document];
    const int64_t from = document->begin + piece->offset;
    const int64_t empty_length = 1 + (packing->bos != BD_NO_BOS);
    bd_figures_count_segment(figures, piece->offset, piece->length);
    figures->separator_collisions += bd_separator_collisions(
        packing, documents->ids, from, from + piece->length, piece->offset, document->length);
    if (piece->offset == 0) {
        bd_figures_count_document(figures, document->length);
        figures->empty_documents += document->length == empty_length;
    }
}

// The input's side from the documents and the policy, the rows' side from the layout.
static bd_figures count_figures(const reading *r, const bd_layout *layout)
{
    bd_figures figures = {
        .text = r->documents.text,
        .bos = r->documents.bos,
        .separators = r->documents.separators,
        .truncated = layout->truncated,
        .dropped = layout->dropped,
        .split_documents = layout->split_documents,
        .truncated_documents = layout->truncated_documents,
        .dropped_documents = layout->dropped_documents,
        .invalid_utf8_documents = r->invalid_utf8_documents,
    };
    for (int64_t row = 0; row < layout->n_rows; row++) {
        int64_t used = 0;
        for (int64_t p = layout->row_begins[row]; p < layout->row_begins[row + 1]; p++) {
            count_piece(&figures, &r->documents, &layout->pieces[p]);
            used += layout->pieces[p].length;
        }
        bd_figures_count_row(&figures, r->job->packing.seq_len, used,
                             layout->row_begins[row + 1] - layout->row_begins[row]);
    }
    return figures;
}

bd_status bd_pack_unit(const bd_pack_job *job, const bd_unit *unit, bd_shard_entry *entry,
                       bd_error *err)
{
    reading r = {.job = job};
    bd_layout layout = {0};
    bd_status status = read_unit(&r, unit, err);
    if (status != BD_OK)
        goto done;
    status = lay_out(&layout, &r.documents, err);
    if (status != BD_OK)
        goto done;
    const bd_figures figures = count_figures(&r, &layout);
    status = bd_figures_check_ledger(&figures, job->packing.seq_len, err);
    if (status != BD_OK)
        goto done;
    status = bd_shard_write(job->folder, unit, &r.documents, &layout, &figures, entry, err);
done:
    bd_layout_release(&layout);
    release_reading(&r);
    return status;
}
