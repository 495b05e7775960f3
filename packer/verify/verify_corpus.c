#include "packer/verify/verify_corpus.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/progress.h"
#include "common/dataset/segment_index.h"
#include "common/dataset/shard.h"
#include "common/dataset/stored_tokenizer.h"
#include "packer/input/reader.h"
#include "packer/pack/unit.h"

// The workers share this.
typedef struct comparing {
    const bd_verify_corpus_job *job;
    bd_pack_job *packs;  // [check->plan.n_parts], owned; as each part of the plan was packed
    const bd_tokenizer *tokenizer;
    bd_progress *progress;
    bd_error *problems;
    pthread_mutex_t lock;  // of the following
    size_t next_shard;
    int64_t n_documents;
    int64_t limit_left;  // INT64_MAX without a limit, and then never changed
} comparing;

// One worker keeps this from unit to unit.
typedef struct worker {
    comparing *c;
    bd_unit_packer *packer;  // owned; of part `part`, or NULL
    size_t part;
    bd_reader *reader;  // owned; of the input that was read last, or NULL
} worker;

// The two sides of a unit.
typedef struct comparison {
    const comparing *c;
    const bd_shard *shard;
    const bd_documents *documents;
    const bd_segment_index *segments;
} comparison;

// ---- One unit ------------------------------------------------------------------------------

// Says at which document of the corpus the difference is.
static bd_status blame(const comparison *m, uint32_t input, uint64_t position, bd_error *err)
{
    const bd_inputs *inputs = &m->c->job->corpus->inputs;
    const bd_record record = {.position = (int64_t)position};
    const bool is_known = input < inputs->n && inputs->items[input].path;
    return is_known ? bd_reader_blame(&inputs->items[input], &record, BD_ERR_FORMAT, err)
                    : BD_ERR_FORMAT;
}

static bd_status fail_token(const comparison *m, const bd_document *document,
                            const bd_indexed_segment *piece, bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(&m->shard->config);
    const void *ids = bd_indexed_segment_ids(piece, m->shard);
    int64_t t = 0;
    while (bd_id_at(ids, id_bytes, t) ==
           bd_id_at(m->documents->ids, id_bytes, document->begin + piece->offset + t))
        t++;
    bd_fail(err, BD_ERR_FORMAT,
            "token %" PRId64 " of the document is %u, '%s', row %u, has %u there",
            piece->offset + t,
            bd_id_at(m->documents->ids, id_bytes, document->begin + piece->offset + t),
            m->shard->path, piece->row, bd_id_at(ids, id_bytes, t));
    return blame(m, document->input, document->position, err);
}

// Whether a piece has the document's mask. Its own first token, whose bit is 0 in any case (R10), is
// the last of the piece before, or the document's first.
static bd_status compare_mask(const comparison *m, const bd_document *document,
                              const bd_indexed_segment *piece, bd_error *err)
{
    const bd_row row = bd_shard_unchecked_row(m->shard, piece->row);
    const int64_t n = piece->n_tokens - 1;
    const int64_t begin = document->begin + piece->offset + 1;
    const int64_t t = bd_bits_difference(m->documents->loss_mask, begin, row.loss_mask,
                                         row.mask_bit + piece->from + 1, n);
    if (t == n)
        return BD_OK;
    const bool trained = bd_bit_at(m->documents->loss_mask, begin + t);
    bd_fail(err, BD_ERR_FORMAT,
            "token %" PRId64
            " of the document is %strained, and '%s', row %u, says that it is%s",
            piece->offset + 1 + t, trained ? "" : "not ", m->shard->path, piece->row,
            trained ? " not" : "");
    return blame(m, document->input, document->position, err);
}

// bd_check_shard() has shown that the pieces cover the document, once and in order (S3).
static bd_status compare_document(const comparison *m, const bd_document *document,
                                  const bd_indexed_segment *pieces, size_t n, bd_error *err)
{
    const int id_bytes = bd_dataset_id_bytes(&m->shard->config);
    if (pieces[0].length != document->length) {
        bd_fail(err, BD_ERR_FORMAT, "the document has %u tokens, '%s', row %u, says %u",
                document->length, m->shard->path, pieces[0].row, pieces[0].length);
        return blame(m, document->input, document->position, err);
    }
    for (size_t i = 0; i < n; i++) {
        const char *expected =
            (const char *)m->documents->ids + (document->begin + pieces[i].offset) * id_bytes;
        if (memcmp(expected, bd_indexed_segment_ids(&pieces[i], m->shard),
                   (size_t)pieces[i].n_tokens * (size_t)id_bytes) != 0)
            return fail_token(m, document, &pieces[i], err);
        if (m->shard->config.loss_mask)
            BD_TRY(compare_mask(m, document, &pieces[i], err));
    }
    return BD_OK;
}

static bd_status fail_missing_document(const comparison *m, const bd_document *document,
                                       bd_error *err)
{
    bd_fail(err, BD_ERR_FORMAT, "the document is in no row of '%s'", m->shard->path);
    return blame(m, document->input, document->position, err);
}

static bd_status fail_extra_document(const comparison *m, const bd_indexed_segment *piece,
                                     bd_error *err)
{
    bd_fail(err, BD_ERR_FORMAT,
            "no document that was to be packed begins there, '%s', row %u, has one",
            m->shard->path, piece->row);
    return blame(m, piece->input, piece->position, err);
}

static int compare_piece(const bd_document *document, const bd_indexed_segment *piece)
{
    if (document->input != piece->input)
        return document->input < piece->input ? -1 : 1;
    return document->position < piece->position ? -1 : document->position > piece->position;
}

// Both sides are in input order.
static bd_status compare_all_documents(const comparison *m, bd_figures *figures, bd_error *err)
{
    const bd_dataset_config *config = &m->shard->config;
    size_t piece = 0;
    for (size_t d = 0; d < m->documents->n; d++) {
        const bd_document *document = &m->documents->items[d];
        if (config->long_policy == BD_LONG_DROP && document->length > config->seq_len) {
            figures->dropped += document->length;
            figures->dropped_documents++;
            continue;
        }
        const int order =
            piece < m->segments->n ? compare_piece(document, &m->segments->items[piece]) : -1;
        if (order != 0)
            return order < 0 ? fail_missing_document(m, document, err)
                             : fail_extra_document(m, &m->segments->items[piece], err);
        const size_t end = bd_segment_index_document_end(m->segments, piece);
        BD_TRY(compare_document(m, document, &m->segments->items[piece], end - piece, err));
        piece = end;
    }
    return piece < m->segments->n ? fail_extra_document(m, &m->segments->items[piece], err)
                                  : BD_OK;
}

// Compares what rows do not show: the figures of records that were left out, and the checksum of
// the records.
static bd_status compare_rest(const comparison *m, const bd_figures *read,
                              const bd_record_digests *digests, bd_error *err)
{
    const bd_shard_entry *entry = &m->shard->entry;
    bd_figures expected = entry->figures;
    bd_figures_take_left_out(&expected, read);
    expected.text = m->documents->text;
    expected.bos = m->documents->bos;
    expected.separators = m->documents->separators;
    char where[256];
    if (bd_figures_difference(&expected, &entry->figures, where, sizeof where))
        return bd_fail(err, BD_ERR_FORMAT, "'%s': the corpus gives other figures: %s",
                       m->shard->path, where);
    if (entry->records.hex[0] != '\0' && strcmp(digests->records.hex, entry->records.hex) != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': its tokens are the corpus's, but the records have changed "
                       "around them",
                       m->shard->path);
    if (entry->positions.hex[0] != '\0' &&
        strcmp(digests->positions.hex, entry->positions.hex) != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s': its records are the corpus's, but those that were left out lie "
                       "elsewhere",
                       m->shard->path);
    return BD_OK;
}

// Compares what the worker has read with shard `index`.
static bd_status compare_unit(worker *w, size_t index, bd_error *err)
{
    comparing *c = w->c;
    const bd_check *check = c->job->check;
    const bool held_out = check->manifest->config.part == BD_PART_HELD_OUT;
    const bd_unit_contents contents = bd_unit_packer_contents(w->packer, held_out);
    bd_shard shard;
    bd_segment_index segments = {0};
    BD_TRY(bd_shard_open_entry(&shard, check->folder, check->manifest, index, err));
    const comparison m = {c, &shard, contents.documents, &segments};
    bd_figures read = *contents.left_out;
    bd_status status = bd_segment_index_build(&segments, &shard, err);
    if (status == BD_OK)
        status = compare_all_documents(&m, &read, err);
    if (status == BD_OK)
        status = compare_rest(&m, &read, &contents.digests, err);
    bd_segment_index_release(&segments);
    bd_shard_close(&shard);
    return status;
}

// ---- Reading -------------------------------------------------------------------------------

static bd_status add_slice_again(worker *w, int64_t index, bd_slice slice, bd_error *err)
{
    const bd_corpus *corpus = w->c->job->corpus;
    const bd_input *input = &corpus->inputs.items[index];
    if (input->id_bytes == 0 && !w->c->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_FORMAT, "'%s' holds text, and tokens were packed",
                       input->path);
    BD_TRY(bd_reader_open_slice(&w->reader, input, &corpus->found[index].reading, slice, err));
    while (bd_unit_packer_n_documents(w->packer) < w->c->limit_left) {
        bd_record record = {0};
        bool found;
        BD_TRY(bd_reader_next(w->reader, &record, &found, err));
        if (!found)
            break;
        BD_TRY(bd_unit_packer_add(w->packer, index, &record, err));
        bd_progress_add(w->c->progress, 1);
    }
    return BD_OK;
}

// Cuts the input where the dataset says, even if it would be cut elsewhere now; but an input that
// has become shorter has nothing after its end.
static bd_status read_unit(worker *w, const bd_unit *unit, bd_error *err)
{
    const bd_check *check = w->c->job->check;
    bd_unit_packer_begin(w->packer, unit->input);
    for (int64_t i = unit->input; i < unit->input + unit->n_inputs; i++) {
        const int64_t extent = w->c->job->corpus->inputs.items[i].entry.extent;
        bd_slice slice = bd_input_entry_slice(&check->inputs[i], unit->slice);
        if (extent != BD_UNKNOWN && slice.begin > 0 && slice.begin >= extent)
            continue;
        if (extent != BD_UNKNOWN && slice.end > extent)
            slice.end = extent;
        BD_TRY(add_slice_again(w, i, slice, err));
    }
    return BD_OK;
}

// An input whose end is only known by reading must end where its last shard does.
static bd_status check_end(worker *w, const bd_unit *unit, bd_error *err)
{
    const bd_check *check = w->c->job->check;
    bool last;
    if (check->inputs[unit->input].extent != BD_UNKNOWN || w->c->limit_left != INT64_MAX ||
        !w->reader)
        return BD_OK;
    BD_TRY(bd_reader_is_last(w->reader, &last, err));
    if (last == unit->last)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s' %s what was packed",
                   w->c->job->corpus->inputs.items[unit->input].path,
                   last ? "ends before the end of" : "goes on after the end of");
}

static bd_status compare_shard(worker *w, size_t index, bd_error *problem)
{
    const bd_unit *unit = &w->c->job->check->manifest->shards[index].unit;
    bd_status status = read_unit(w, unit, problem);
    if (status == BD_OK && w->c->problems[index].status == BD_OK)
        status = compare_unit(w, index, problem);
    if (status == BD_OK)
        status = check_end(w, unit, problem);
    return status;
}

// ---- All units -----------------------------------------------------------------------------

static size_t part_of_shard(const comparing *c, size_t shard)
{
    const bd_check *check = c->job->check;
    return bd_pack_plan_find_part(&check->plan,
                                  (size_t)check->manifest->shards[shard].unit.input);
}

static bool has_limit(const comparing *c, size_t part)
{
    return c->job->check->plan.parts[part].limit != BD_NO_LIMIT;
}

// Each part has a limit of its own. Where any has one, one worker does everything in order.
static void begin_part(comparing *c, size_t shard)
{
    const size_t part = part_of_shard(c, shard);
    const bool is_first = shard == 0 || part_of_shard(c, shard - 1) != part;
    if (!is_first)
        return;
    if (has_limit(c, part))
        c->limit_left = c->packs[part].limit;
    else if (c->limit_left != INT64_MAX)
        c->limit_left = INT64_MAX;
}

// The shards [*first, *end) that one worker does in order: one, or all of an input that is read
// from front to back. False if none is left.
static bool take_shards(comparing *c, size_t *first, size_t *end)
{
    const bd_check *check = c->job->check;
    const bd_manifest *manifest = check->manifest;
    pthread_mutex_lock(&c->lock);
    *first = *end = c->next_shard;
    if (*first < manifest->n_shards) {
        const int64_t input = manifest->shards[*first].unit.input;
        const bool is_stream = check->inputs[input].extent == BD_UNKNOWN;
        begin_part(c, *first);
        ++*end;
        while (is_stream && *end < manifest->n_shards &&
               manifest->shards[*end].unit.input == input)
            ++*end;
    }
    c->next_shard = *end;
    pthread_mutex_unlock(&c->lock);
    return *first < *end;
}

static void add_to_count(comparing *c, int64_t n)
{
    pthread_mutex_lock(&c->lock);
    c->n_documents += n;
    if (c->limit_left != INT64_MAX)
        c->limit_left -= n;
    pthread_mutex_unlock(&c->lock);
}

static void take_no_more(comparing *c)
{
    pthread_mutex_lock(&c->lock);
    c->next_shard = c->job->check->manifest->n_shards;
    pthread_mutex_unlock(&c->lock);
}

static void leave_part(comparing *c, size_t part)
{
    pthread_mutex_lock(&c->lock);
    while (c->next_shard < c->job->check->manifest->n_shards &&
           part_of_shard(c, c->next_shard) == part)
        c->next_shard++;
    pthread_mutex_unlock(&c->lock);
}

// After damage in an input that is read from front to back, what follows cannot be judged; with
// a limit on documents nothing that follows in its part can.
static bd_status compare_shards(worker *w, size_t first, size_t end, bd_error *err)
{
    comparing *c = w->c;
    bd_status status = BD_OK;
    bd_error problem = {0};
    for (size_t i = first; status == BD_OK && i < end; i++) {
        status = compare_shard(w, i, &problem);
        add_to_count(c, bd_unit_packer_n_documents(w->packer));
        bd_unit_packer_clear(w->packer);
        if (status == BD_ERR_FORMAT && c->problems[i].status == BD_OK)
            c->problems[i] = problem;
    }
    if (status == BD_ERR_FORMAT && has_limit(c, w->part))
        leave_part(c, w->part);
    if (status == BD_OK || status == BD_ERR_FORMAT)
        return BD_OK;
    take_no_more(c);
    if (err)
        *err = problem;
    return status;
}

static bd_status open_packer(worker *w, size_t part, bd_error *err)
{
    if (w->packer && w->part == part)
        return BD_OK;
    bd_unit_packer_free(w->packer);
    w->packer = NULL;
    w->part = part;
    return bd_unit_packer_new(&w->packer, &w->c->packs[part], err);
}

static bd_status do_work(void *context, int64_t index, bd_error *err)
{
    (void)index;
    worker w = {.c = context};
    size_t first, end;
    bd_status status = BD_OK;
    while (status == BD_OK && take_shards(w.c, &first, &end)) {
        status = open_packer(&w, part_of_shard(w.c, first), err);
        if (status == BD_OK)
            status = compare_shards(&w, first, end, err);
        bd_reader_close(w.reader);
        w.reader = NULL;
    }
    bd_unit_packer_free(w.packer);
    return status;
}

// The job that packed a part of the dataset. With a holdout both sides are separated, whichever of
// them is verified.
static bd_pack_job pack_job_of(const comparing *c, size_t part)
{
    const bd_verify_corpus_job *job = c->job;
    const bd_manifest *manifest = job->check->manifest;
    bd_pack_job pack = {
        .config = manifest->config,
        .tokenizer = c->tokenizer,
        .inputs = &job->corpus->inputs,
        .reading = job->check->plan.parts[part].reading,
        .limit = job->check->plan.parts[part].limit,
        .folder = job->check->folder,
        .holdout_folder = manifest->config.part == BD_PART_ALL ? NULL : job->check->folder,
    };
    if (pack.holdout_folder)
        pack.config.part = BD_PART_TRAINING;
    return pack;
}

// A held-out dataset does not say how many documents the corpus has.
static uint64_t documents_to_read(const bd_manifest *manifest)
{
    return manifest->config.part == BD_PART_HELD_OUT
               ? 0
               : (uint64_t)bd_figures_documents_read(&manifest->totals);
}

static bd_status compare_all(comparing *c, bd_error *err)
{
    const size_t n_parts = c->job->check->plan.n_parts;
    bool limited = false;
    c->packs = calloc(n_parts, sizeof *c->packs);
    if (!c->packs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parts of the plan", n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        c->packs[i] = pack_job_of(c, i);
        limited |= has_limit(c, i);
    }
    const int n_threads = limited ? 1 : c->job->n_threads;
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    const bd_status status = bd_threads_run(threads, do_work, c, n_threads, err);
    bd_threads_free(threads);
    return status;
}

// A plan has the chat formats, the dataset's tokenizer the ids of their special tokens.
static bd_status find_chat_tokens(const comparing *c, bd_error *err)
{
    const bd_check *check = c->job->check;
    for (size_t i = 0; i < check->plan.n_parts; i++) {
        bd_chat_format *chat = check->plan.parts[i].chat;
        if (chat)
            BD_TRY(bd_chat_format_find_tokens(chat, c->tokenizer, check->folder, err));
    }
    return BD_OK;
}

bd_status bd_verify_corpus(const bd_verify_corpus_job *job, bd_error *problems,
                           int64_t *n_documents, bd_error *err)
{
    const bd_manifest *manifest = job->check->manifest;
    comparing c = {.job = job,
                   .problems = problems,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .limit_left = INT64_MAX};
    *n_documents = 0;
    BD_TRY(bd_stored_tokenizer_open(&c.tokenizer, job->check->folder, &manifest->config, err));
    bd_status status = find_chat_tokens(&c, err);
    if (status != BD_OK) {
        bd_tokenizer_close(c.tokenizer);
        return status;
    }
    c.progress = bd_progress_new(&(bd_progress_config){.label = "comparing",
                                                       .unit = "documents",
                                                       .total = documents_to_read(manifest),
                                                       .quiet = job->quiet});
    status = compare_all(&c, err);
    bd_progress_free(c.progress);
    pthread_mutex_destroy(&c.lock);
    bd_tokenizer_close(c.tokenizer);
    free(c.packs);
    *n_documents = c.n_documents;
    return status;
}
