// Checks one shard: its rows, batch by batch, its figures, and its file.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/dataset/shard.h"
#include "packer/verify/check.h"
#include "packer/verify/check_documents.h"

typedef struct shard_check {
    const bd_check *check;
    const bd_check_options *options;
    const bd_shard *shard;
    const bd_shard_entry *stated;  // by the manifest
    bd_figures *batch_figures;     // [documents.n_batches], owned
    bd_check_documents documents;
    bd_figures figures;
    bd_digest digest;  // of the file, if it is asked for
} shard_check;

// The file's checksum, taken along with the rows: a byte that was just hashed is still in the
// cache when its row is checked.
typedef struct file_hash {
    bd_hasher *hasher;  // owned; NULL: nobody asked
    const char *next, *end;
} file_hash;

// ---- The file ------------------------------------------------------------------------------

bd_status bd_check_file_size(const char *path, int64_t found_bytes, int64_t stated_bytes,
                             bd_error *err)
{
    if (found_bytes == stated_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT,
                   "'%s': D1: %" PRId64 " bytes, the manifest says %" PRId64, path, found_bytes,
                   stated_bytes);
}

bd_status bd_check_file_digest(const char *path, const bd_digest *found,
                               const bd_digest *stated, bd_error *err)
{
    if (strcmp(found->hex, stated->hex) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s': D1: the file's checksum does not match", path);
}

static bd_status begin_hash(file_hash *hash, const bd_shard *shard, bd_error *err)
{
    *hash = (file_hash){.hasher = bd_hasher_new(),
                        .next = shard->file.data,
                        .end = (const char *)shard->file.data + shard->file.size_bytes};
    return hash->hasher ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
}

// Hashes up to `to`, if that lies ahead and in the file: the ids of a compressed shard do not.
static void hash_up_to(file_hash *hash, const char *to)
{
    if (!hash->hasher || to <= hash->next || to > hash->end)
        return;
    bd_hasher_add(hash->hasher, hash->next, (size_t)(to - hash->next));
    hash->next = to;
}

// Hashes the rest, in pieces whose pages are released.
static bd_digest end_hash(file_hash *hash, const bd_shard *shard)
{
    enum { PIECE_BYTES = 4 << 20 };
    while (hash->next < hash->end) {
        const char *begin = hash->next;
        const size_t left = (size_t)(hash->end - begin);
        hash_up_to(hash, begin + (left < PIECE_BYTES ? left : PIECE_BYTES));
        bd_mapped_file_forget(&shard->file, begin, (size_t)(hash->next - begin));
    }
    const bd_digest digest = bd_hasher_take128(hash->hasher);
    bd_hasher_free(hash->hasher);
    *hash = (file_hash){0};
    return digest;
}

bd_status bd_check_hash_file(const bd_shard *shard, bd_digest *digest, bd_error *err)
{
    file_hash hash;
    BD_TRY(begin_hash(&hash, shard, err));
    *digest = end_hash(&hash, shard);
    return BD_OK;
}

// ---- Row by row ----------------------------------------------------------------------------

// The beginning of a row, with which the next row is compared.
typedef struct row_start {
    bd_document_place place;
    uint32_t offset;
    bool known;
} row_start;

static row_start start_of(const bd_dataset_config *config, const bd_row *row)
{
    if (row->n_segments == 0)
        return (row_start){0};  // a broken row, which is refused when it is read
    return (row_start){
        bd_dataset_place(config, row->segments.input[0], row->segments.position[0]),
        row->segments.offset[0], true};
}

static bool follows(const row_start *before, const row_start *start)
{
    const int order = bd_document_place_compare(&before->place, &start->place);
    return !before->known || order < 0 || (order == 0 && before->offset < start->offset);
}

// Where positions of `input` may lie; empty if the shard's unit does not have it.
typedef struct unit_span {
    uint32_t input;
    bool valid;
    bd_slice slice;
} unit_span;

static bool lies_in_unit(const shard_check *s, unit_span *span, uint32_t input,
                         uint64_t position)
{
    const bd_unit *unit = &s->shard->entry.unit;
    if (!span->valid || span->input != input) {
        if (input < unit->input || input >= unit->input + unit->n_inputs)
            return false;
        *span = (unit_span){input, true,
                            bd_input_entry_slice(&s->check->inputs[input], unit->slice)};
    }
    // An empty file is a document, too, and begins at byte 0.
    return position == (uint64_t)span->slice.begin ||
           (position > (uint64_t)span->slice.begin && position < (uint64_t)span->slice.end);
}

// Row `index` of the shard, which is in record batch `batch`.
static bd_status check_row(shard_check *s, int64_t batch, const bd_row *row, int64_t index,
                           unit_span *span, bd_error *err)
{
    const bd_dataset_config *config = &s->shard->config;
    const bd_segments *segments = &row->segments;
    bd_figures *figures = &s->batch_figures[batch];
    bd_figures_count_row(figures, config->seq_len, row->bounds[row->n_segments],
                         row->n_segments);
    for (int64_t k = 0; k < row->n_segments; k++) {
        const int64_t length = row->bounds[k + 1] - row->bounds[k];
        if (!lies_in_unit(s, span, segments->input[k], segments->position[k]))
            return bd_shard_fail_row(s->shard, index,
                                     "S2: a document lies outside the shard's unit", err);
        bd_figures_count_segment(figures, segments->offset[k], length, bd_row_targets(row, k));
        figures->separator_collisions += bd_separator_collisions(row, config, k);
        BD_TRY(bd_check_documents_add(&s->documents, batch, row, (uint32_t)index, k, figures,
                                      err));
    }
    return BD_OK;
}

// The row before batch `index`, read without checks: it is only compared with.
static row_start start_before(const shard_check *s, int64_t index)
{
    if (index == 0)
        return (row_start){0};
    const int64_t first = index * s->shard->config.batch_rows;
    const bd_row row = bd_shard_unchecked_row(s->shard, first - 1);
    return start_of(&s->shard->config, &row);
}

static bd_status check_rows(shard_check *s, int64_t index, bd_hasher *hasher, file_hash *hash,
                            bd_error *err)
{
    const bd_dataset_config *config = &s->shard->config;
    const bd_row_batch *batch = bd_arrow_reader_batch(s->shard->reader, index);
    const int64_t first = index * config->batch_rows;
    const size_t row_bytes = (size_t)(config->seq_len * bd_dataset_id_bytes(config));
    row_start before = start_before(s, index);
    unit_span span = {0};
    for (int64_t r = 0; r < batch->n_rows; r++) {
        bd_row row;
        hash_up_to(hash, (const char *)batch->ids + (size_t)(r + 1) * row_bytes);
        BD_TRY(bd_shard_row(s->shard, first + r, hasher, &row, err));
        BD_TRY(check_row(s, index, &row, first + r, &span, err));
        const row_start start = start_of(config, &row);
        if (!follows(&before, &start))
            return bd_shard_fail_row(s->shard, first + r,
                                     "S4: its earliest document is not after the row before's",
                                     err);
        before = start;
        if (s->options->row)
            s->options->row(s->options->context, &row);
    }
    bd_shard_forget_batch(s->shard, index);
    return BD_OK;
}

static bd_status check_batch_rows(shard_check *s, int64_t index, file_hash *hash, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    const bd_status status = check_rows(s, index, hasher, hash, err);
    bd_hasher_free(hasher);
    bd_progress_add(s->options->progress,
                    (uint64_t)(s->shard->file.size_bytes / (size_t)s->documents.n_batches));
    return status;
}

static bd_status check_batches_alone(shard_check *s, bd_error *err)
{
    file_hash hash = {0};
    if (s->options->file)
        BD_TRY(begin_hash(&hash, s->shard, err));
    bd_status status = BD_OK;
    for (int64_t i = 0; status == BD_OK && i < s->documents.n_batches; i++)
        status = check_batch_rows(s, i, &hash, err);
    if (status == BD_OK && s->options->file)
        s->digest = end_hash(&hash, s->shard);
    bd_hasher_free(hash.hasher);
    return status;
}

// Task 0 hashes the file, which one thread has to do alone; every other task checks a batch.
static bd_status do_task(void *context, int64_t index, bd_error *err)
{
    shard_check *s = context;
    file_hash none = {0};
    if (index > 0)
        return check_batch_rows(s, index - 1, &none, err);
    return s->options->file ? bd_check_hash_file(s->shard, &s->digest, err) : BD_OK;
}

static bd_status check_batches(shard_check *s, bd_error *err)
{
    BD_TRY(bd_check_documents_init(&s->documents, s->shard, err));
    const int64_t n_batches = s->documents.n_batches;
    s->batch_figures = calloc((size_t)n_batches + 1, sizeof *s->batch_figures);
    if (!s->batch_figures)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " record batches",
                       n_batches);
    BD_TRY(s->options->threads
               ? bd_threads_run(s->options->threads, do_task, s, n_batches + 1, err)
               : check_batches_alone(s, err));
    for (int64_t i = 0; i < n_batches; i++)
        BD_TRY(bd_figures_add(&s->figures, &s->batch_figures[i], err));
    return bd_check_documents_end(&s->documents, &s->figures, err);
}

// ---- The shard -----------------------------------------------------------------------------

// Figures that rows do not show are taken from the metadata, if the config allows them to be other
// than 0, and the figures that follow from them are derived.
static void complete_figures(shard_check *s)
{
    const bd_dataset_config *config = &s->shard->config;
    const bd_figures *claimed = &s->shard->entry.figures;
    bd_figures *figures = &s->figures;
    if (config->long_policy == BD_LONG_DROP) {
        figures->dropped = claimed->dropped;
        figures->dropped_documents = claimed->dropped_documents;
    }
    if (config->min_tokens > 0) {
        figures->too_short = claimed->too_short;
        figures->too_short_documents = claimed->too_short_documents;
    }
    if (config->part == BD_PART_TRAINING) {
        figures->held_out = claimed->held_out;
        figures->held_out_documents = claimed->held_out_documents;
    }
    if (config->loss_mask) {
        figures->untrained = claimed->untrained;
        figures->untrained_documents = claimed->untrained_documents;
    }
    figures->invalid_utf8_documents = claimed->invalid_utf8_documents;
    figures->headless_documents = claimed->headless_documents;
    if (config->part != BD_PART_HELD_OUT) {
        figures->bad_missing_text = claimed->bad_missing_text;
        figures->bad_json = claimed->bad_json;
        figures->bad_utf8 = claimed->bad_utf8;
        figures->bad_too_large = claimed->bad_too_large;
        figures->bad_pattern = claimed->bad_pattern;
    }
    figures->added = claimed->added;
    const int64_t n_read = bd_figures_documents_read(figures);
    figures->separators = n_read;
    figures->bos = config->bos == BD_NO_BOS ? 0 : n_read;
    figures->text += figures->dropped + figures->too_short + figures->held_out +
                     figures->untrained - figures->separators - figures->bos;
}

static bd_status compare_with_metadata(const shard_check *s, bd_error *err)
{
    char where[256];
    if (!bd_figures_difference(&s->figures, &s->shard->entry.figures, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s': S5: the rows differ from the metadata: %s",
                   s->shard->path, where);
}

static bd_status check_figures(shard_check *s, bd_error *err)
{
    complete_figures(s);
    BD_TRY(compare_with_metadata(s, err));
    const bd_status status =
        bd_figures_check_ledger(&s->figures, s->shard->config.seq_len, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'%s'", s->shard->path);
}

static bd_status check_shard_file(const shard_check *s, bd_error *err)
{
    const char *path = s->shard->path;
    BD_TRY(bd_check_file_size(path, (int64_t)s->shard->file.size_bytes, s->stated->size_bytes,
                              err));
    return bd_check_file_digest(path, &s->digest, &s->stated->digest, err);
}

bd_status bd_check_shard(const bd_check *check, size_t index, const bd_check_options *options,
                         bd_figures *figures, bd_error *err)
{
    bd_shard shard;
    BD_TRY(bd_shard_open_entry(&shard, check->folder, check->manifest, index, err));
    shard_check s = {.check = check,
                     .options = options,
                     .shard = &shard,
                     .stated = &check->manifest->shards[index]};
    // The rows first: they can name the place, the file's checksum cannot.
    bd_status status = check_batches(&s, err);
    if (status == BD_OK)
        status = check_figures(&s, err);
    if (status == BD_OK && options->file)
        status = check_shard_file(&s, err);
    *figures = s.figures;
    free(s.batch_figures);
    bd_check_documents_release(&s.documents);
    bd_shard_close(&shard);
    return status;
}
