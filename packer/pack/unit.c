#include "packer/pack/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/utf8.h"
#include "packer/input/json_text.h"
#include "packer/input/kinds.h"
#include "packer/input/reader.h"
#include "packer/pack/documents.h"
#include "packer/pack/turn_encoder.h"
#include "packer/pack/unit_writer.h"

// The documents of one dataset: all of them, or one side of a holdout.
typedef struct side {
    bd_dataset_config config;
    bd_documents documents;
    bd_figures left_out;  // what only reading can tell: see unit_writer.h
} side;

struct bd_unit_packer {
    const bd_pack_job *job;      // borrowed
    bd_encoder encoder;          // owned; empty until the first text, which may never come
    bd_added_counts recognised;  // by the encoder, in the record at hand
    side training, held_out;
    bd_record_hashes *hashes;  // owned
    bd_json_text *json;        // owned; finds the text in `field`
    const char *field;         // borrowed from the job or the input
    bd_turn_encoder turns;
    char *repaired;  // owned; a record made valid UTF-8
    size_t repaired_capacity;
    uint32_t *ids;  // owned; those of a record that came as tokens
    size_t ids_capacity;
    bool was_invalid;  // the record at hand was not UTF-8
    bd_bad_kind bad;   // what is wrong with it
    bd_bad_places bad_places;
    int64_t n_documents;
};

bd_status bd_unit_packer_new(bd_unit_packer **out, const bd_pack_job *job, bd_error *err)
{
    bd_unit_packer *packer = calloc(1, sizeof *packer);
    *out = packer;
    if (!packer)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a unit");
    packer->job = job;
    packer->training.config = job->config;
    packer->held_out.config = bd_holdout_config(job);
    bd_documents_init(&packer->training.documents, &packer->training.config, &packer->encoder);
    bd_documents_init(&packer->held_out.documents, &packer->held_out.config, &packer->encoder);
    packer->hashes = bd_record_hashes_new();
    if (packer->hashes)
        return BD_OK;
    bd_unit_packer_free(packer);
    *out = NULL;
    return bd_fail(err, BD_ERR_MEMORY, "no memory for a unit");
}

void bd_unit_packer_free(bd_unit_packer *packer)
{
    if (!packer)
        return;
    bd_documents_release(&packer->training.documents);
    bd_documents_release(&packer->held_out.documents);
    bd_encoder_release(&packer->encoder);
    bd_record_hashes_free(packer->hashes);
    bd_bad_places_release(&packer->bad_places);
    bd_json_text_free(packer->json);
    bd_turn_encoder_release(&packer->turns);
    free(packer->repaired);
    free(packer->ids);
    free(packer);
}

int64_t bd_unit_packer_n_documents(const bd_unit_packer *packer)
{
    return packer->n_documents;
}

const bd_bad_places *bd_unit_packer_bad_places(const bd_unit_packer *packer)
{
    return &packer->bad_places;
}

// ---- From a record to its text --------------------------------------------------------

// Room for the repaired form of a record, and for the padding that the JSON parser reads.
static bd_status reserve_repaired(bd_unit_packer *p, size_t record_bytes, bd_error *err)
{
    return bd_array_reserve((void **)&p->repaired, &p->repaired_capacity,
                            bd_utf8_replaced_bound(record_bytes) + BD_RECORD_PADDING, 1, err);
}

// Makes plain text obey the UTF-8 policy.
static bd_status take_text(bd_unit_packer *p, const bd_record *record, const char **text,
                           size_t *n, bd_error *err)
{
    *text = record->data;
    *n = record->size_bytes;
    const size_t valid = bd_utf8_valid_prefix(record->data, record->size_bytes);
    p->was_invalid = valid != record->size_bytes;
    if (!p->was_invalid)
        return BD_OK;
    switch (p->job->reading.utf8_policy) {
    case BD_UTF8_ERROR:
        p->bad = BD_BAD_UTF8;
        return bd_fail(err, BD_ERR_FORMAT,
                       "not UTF-8 at byte %zu of the document"
                       " (--invalid-utf8 keep or replace takes it)",
                       valid);
    case BD_UTF8_KEEP:
        break;
    case BD_UTF8_REPLACE:
        BD_TRY(reserve_repaired(p, record->size_bytes, err));
        *n = bd_utf8_replace(record->data, record->size_bytes, p->repaired);
        *text = p->repaired;
        break;
    }
    return BD_OK;
}

// What a JSON record holds: its text, or its turns, which are borrowed from the parser.
typedef struct json_content {
    const char *text;
    size_t text_bytes;
    bd_turns turns;
} json_content;

static bd_status parse_json(bd_unit_packer *p, const bd_input *input, const char *record,
                            size_t size_bytes, json_content *content, bd_json_problem *problem,
                            bd_error *err)
{
    const bd_record_form form = p->job->reading.form;
    return form == BD_FORM_TEXT
               ? bd_json_text_extract(p->json, record, size_bytes, &content->text,
                                      &content->text_bytes, problem, err)
               : bd_json_text_extract_turns(p->json, record, size_bytes, input->kind->is_table,
                                            &content->turns, problem, err);
}

static bd_status prepare_parser(bd_unit_packer *p, const bd_input *input, bd_error *err)
{
    const bd_input_options *reading = &p->job->reading;
    const char *field =
        input->own.text_field ? input->own.text_field : bd_input_options_field(reading);
    if (p->field != field) {
        bd_json_text_free(p->json);
        p->json = reading->form == BD_FORM_TEXT
                      ? bd_json_text_new(field)
                      : bd_json_text_new_turns(reading->form, reading->fields);
        p->field = p->json ? field : NULL;
        if (!p->json)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a unit");
    }
    bd_json_text_take_strings(p->json, input->kind->takes_strings);
    return BD_OK;
}

// Takes the content out of a JSON record. Most records are valid: only one that the parser refuses
// because of its encoding is repaired, and parsed again.
static bd_status take_json(bd_unit_packer *p, const bd_input *input, const bd_record *record,
                           json_content *content, bd_error *err)
{
    static const bd_bad_kind kinds[] = {
        [BD_JSON_FINE] = BD_BAD_NONE,          [BD_JSON_BAD_UTF8] = BD_BAD_UTF8,
        [BD_JSON_BAD_SURROGATE] = BD_BAD_UTF8, [BD_JSON_NO_TEXT] = BD_BAD_MISSING_TEXT,
        [BD_JSON_OTHER] = BD_BAD_JSON,         [BD_JSON_BAD_TURN] = BD_BAD_MISSING_TEXT,
    };
    bd_json_problem problem;
    BD_TRY(prepare_parser(p, input, err));
    bd_status status =
        parse_json(p, input, record->data, record->size_bytes, content, &problem, err);
    p->bad = kinds[problem];
    if (problem != BD_JSON_BAD_UTF8 && problem != BD_JSON_BAD_SURROGATE)
        return status;
    if (p->job->reading.utf8_policy != BD_UTF8_REPLACE)
        return bd_fail(err, BD_ERR_FORMAT,
                       "%s (JSON is UTF-8 by definition; --invalid-utf8 replace takes it)",
                       problem == BD_JSON_BAD_UTF8 ? "not UTF-8"
                                                   : "an escape of half a character");
    BD_TRY(reserve_repaired(p, record->size_bytes, err));
    const size_t repaired_bytes =
        bd_utf8_replace(record->data, record->size_bytes, p->repaired);
    bd_json_replace_surrogates(p->repaired, repaired_bytes);
    status = parse_json(p, input, p->repaired, repaired_bytes, content, &problem, err);
    p->bad = kinds[problem];
    p->was_invalid = status == BD_OK;
    return status;
}

// ---- From a record to its tokens ------------------------------------------------------

// Little-endian, as every machine that we run on. A negative id becomes a huge one.
static uint64_t read_id(const char *data, const bd_input *input)
{
    const int n_bits = 8 * input->id_bytes;
    uint64_t id = 0;
    memcpy(&id, data, (size_t)input->id_bytes);
    const bool negative = input->has_signed_ids && id >> (n_bits - 1) != 0;
    return negative && n_bits < 64 ? id | ~UINT64_C(0) << n_bits : id;
}

// Fills p->ids. Every id is checked here: from now on they can be trusted.
static bd_status widen_ids(bd_unit_packer *p, const bd_record *record, const bd_input *input,
                           size_t *n, bd_error *err)
{
    const uint64_t vocab_size = (uint64_t)p->job->config.vocab_size;
    const size_t id_bytes = (size_t)input->id_bytes;
    *n = record->size_bytes / id_bytes;
    BD_TRY(bd_array_reserve((void **)&p->ids, &p->ids_capacity, *n + 1, sizeof *p->ids, err));
    for (size_t i = 0; i < *n; i++) {
        const uint64_t id = read_id(record->data + i * id_bytes, input);
        const bool negative = input->has_signed_ids && id > INT64_MAX;
        if (id >= vocab_size)
            return bd_fail(err, BD_ERR_FORMAT,
                           "token %zu has id %s%" PRIu64 ", the vocabulary %" PRIu64
                           " (see --vocab-size)",
                           i, negative ? "-" : "", negative ? -id : id, vocab_size);
        p->ids[i] = (uint32_t)id;
    }
    return BD_OK;
}

// With --separator present a document brings its separator, and its BOS if there is to be one.
// Leaves in *text and *n what lies between them.
static bd_status unwrap_ids(const bd_unit_packer *p, const uint32_t **text, size_t *n,
                            bd_error *err)
{
    const bd_dataset_config *config = &p->job->config;
    if (p->job->reading.separator == BD_SEPARATOR_APPEND)
        return BD_OK;
    if (*n == 0 || (*text)[*n - 1] != config->separator)
        return bd_fail(err, BD_ERR_FORMAT,
                       "the document does not end with the separator %" PRId64
                       " (--separator append adds it)",
                       config->separator);
    --*n;
    if (config->bos == BD_NO_BOS)
        return BD_OK;
    if (*n == 0 || **text != config->bos)
        return bd_fail(err, BD_ERR_FORMAT,
                       "the document does not begin with the BOS token %" PRId64, config->bos);
    ++*text;
    --*n;
    return BD_OK;
}

// ---- From tokens to documents -----------------------------------------------------------

// With a holdout, the side that a document belongs to, by a hash of what it says.
static side *side_of_hash(bd_unit_packer *p, uint64_t hash)
{
    const unsigned __int128 product = (unsigned __int128)hash * BD_MILLION;
    return (int64_t)(product >> 64) < p->job->config.holdout ? &p->held_out : &p->training;
}

// The side that a document belongs to, by the hash of its text or ids.
static side *choose_side(bd_unit_packer *p, const void *data, size_t size_bytes)
{
    return p->job->holdout_folder ? side_of_hash(p, bd_hash64(data, size_bytes, 0))
                                  : &p->training;
}

static bd_status append_record_ids(bd_unit_packer *p, const bd_input *input, uint32_t index,
                                   const bd_record *record, side **chosen, bd_error *err)
{
    size_t n;
    BD_TRY(widen_ids(p, record, input, &n, err));
    const uint32_t *text = p->ids;
    BD_TRY(unwrap_ids(p, &text, &n, err));
    *chosen = choose_side(p, text, n * sizeof *text);
    // A separator that is present has an item of the mask, and one that is appended goes with the
    // document's last token.
    const uint8_t *trained = record->trained ? record->trained + (text - p->ids) : NULL;
    const bool end_trained = !record->trained || (record->n_trained > 0 &&
                                                  record->trained[record->n_trained - 1] != 0);
    return bd_documents_append_ids(&(*chosen)->documents, text, trained, n, end_trained, index,
                                   (uint64_t)record->position, err);
}

// Tokenises what the record says and appends it.
static bd_status append_turns(bd_unit_packer *p, uint32_t index, const bd_record *record,
                              const bd_turns *turns, side **chosen, bd_error *err)
{
    bd_turn_ids document;
    uint64_t hash;
    *chosen = &p->training;
    if (p->job->holdout_folder) {
        BD_TRY(bd_turns_hash(&p->turns, turns, &hash, err));
        *chosen = side_of_hash(p, hash);
    }
    const bd_status status = bd_turns_encode(&p->turns, turns, &p->job->reading,
                                             &p->job->config, &p->encoder, &document, err);
    if (status == BD_ERR_FORMAT)
        p->bad = BD_BAD_MISSING_TEXT;
    if (status != BD_OK)
        return status;
    return bd_documents_append_ids(&(*chosen)->documents, document.ids, document.trained,
                                   document.n, document.end_trained, index,
                                   (uint64_t)record->position, err);
}

static bd_status append_record_text(bd_unit_packer *p, const bd_input *input, uint32_t index,
                                    const bd_record *record, side **chosen, bd_error *err)
{
    const bool has_turns = p->job->reading.form != BD_FORM_TEXT;
    json_content content = {0};
    BD_TRY(input->kind->is_json || has_turns
               ? take_json(p, input, record, &content, err)
               : take_text(p, record, &content.text, &content.text_bytes, err));
    if (!p->encoder.tokenizer) {
        BD_TRY(bd_encoder_init(&p->encoder, p->job->tokenizer, err));
        p->encoder.special_tokens = p->job->reading.special_tokens;
        p->encoder.recognised = &p->recognised;
    }
    p->recognised.n = 0;
    p->recognised.other = 0;
    if (has_turns) {
        BD_TRY(append_turns(p, index, record, &content.turns, chosen, err));
    } else {
        *chosen = choose_side(p, content.text, content.text_bytes);
        BD_TRY(bd_documents_append(&(*chosen)->documents, content.text, content.text_bytes,
                                   index, (uint64_t)record->position, err));
    }
    return bd_added_counts_add(&(*chosen)->left_out.added, &p->recognised, err);
}

// Counts the document that was just appended to `s`, and takes it out again if it is too short or
// has no target.
static bd_status select_document(bd_unit_packer *p, side *s, const bd_record *record,
                                 bd_error *err)
{
    const bd_dataset_config *config = &s->config;
    const bool has_bos = config->bos != BD_NO_BOS;
    const uint32_t length = s->documents.items[s->documents.n - 1].length;
    const int64_t n_text = (int64_t)length - 1 - has_bos;
    s->left_out.invalid_utf8_documents += p->was_invalid;
    s->left_out.headless_documents += record->headless;
    if (s == &p->held_out) {  // the ledger of the training side covers the whole corpus
        p->training.documents.text += n_text;
        p->training.documents.bos += has_bos;
        p->training.documents.separators++;
        p->training.left_out.held_out += length;
        p->training.left_out.held_out_documents++;
    }
    if (n_text < config->min_tokens) {
        bd_documents_remove_last(&s->documents);
        s->left_out.too_short += length;
        s->left_out.too_short_documents++;
        return BD_OK;
    }
    if (config->loss_mask && !bd_documents_has_target(&s->documents, s->documents.n - 1)) {
        bd_documents_remove_last(&s->documents);
        s->left_out.untrained += length;
        s->left_out.untrained_documents++;
        return BD_OK;
    }
    if (config->long_policy == BD_LONG_ERROR && length > config->seq_len)
        return bd_fail(err, BD_ERR_FORMAT,
                       "a document of %u tokens is longer than a row of %" PRId64
                       " (--long error)",
                       length, config->seq_len);
    return BD_OK;
}

// ---- Records ------------------------------------------------------------------------------

void bd_unit_packer_begin(bd_unit_packer *packer, int64_t first_input)
{
    bd_record_hashes_begin(packer->hashes, first_input);
}

bd_status bd_unit_packer_add(bd_unit_packer *packer, int64_t index, const bd_record *record,
                             bd_error *err)
{
    const bd_pack_job *job = packer->job;
    const bd_input *input = &job->inputs->items[index];
    bd_error problem;  // its message is needed whether or not the caller wants one
    side *chosen = NULL;
    bd_record_hashes_add(packer->hashes, index, record);
    packer->was_invalid = false;
    packer->bad = record->bad;
    bd_status status =
        record->bad != BD_BAD_NONE ? bd_reader_fail_bad(&job->reading, record, &problem)
        : input->id_bytes > 0
            ? append_record_ids(packer, input, (uint32_t)index, record, &chosen, &problem)
            : append_record_text(packer, input, (uint32_t)index, record, &chosen, &problem);
    if (status == BD_OK)
        status = select_document(packer, chosen, record, &problem);
    if (status == BD_OK) {
        packer->n_documents++;
        return BD_OK;
    }

    // A record that is bad is left out, or it is an error that names its place. Any other failure,
    // such as memory that ran out, is passed on as it is.
    if (status == BD_ERR_LIMIT)
        packer->bad = BD_BAD_PATTERN;
    const bool is_its_fault =
        status == BD_ERR_FORMAT || status == BD_ERR_UNSUPPORTED || status == BD_ERR_LIMIT;
    if (is_its_fault && packer->bad != BD_BAD_NONE && job->reading.bad_records == BD_BAD_SKIP) {
        // It belongs to no side of a holdout: the training side's ledger covers the whole corpus.
        bd_bad_place place = {
            .input = index, .position = record->position, .kind = packer->bad};
        ++*bd_figures_bad(&packer->training.left_out, packer->bad);
        if (packer->bad_places.n == BD_MAX_BAD_PLACES)  // only the first ones are kept
            return BD_OK;
        snprintf(place.message, sizeof place.message, "%.*s", (int)sizeof place.message - 1,
                 problem.message);
        return bd_bad_places_add(&packer->bad_places, &place, err);
    }
    if (err)
        *err = problem;
    return is_its_fault ? bd_reader_blame(input, record, status, err) : status;
}

// ---- From documents to shards ------------------------------------------------------------

void bd_unit_packer_clear(bd_unit_packer *packer)
{
    side *const sides[] = {&packer->training, &packer->held_out};
    bd_record_hashes_take(packer->hashes);  // the hashes begin again
    for (int i = 0; i < 2; i++) {
        bd_documents_clear(&sides[i]->documents);
        sides[i]->left_out = (bd_figures){0};
    }
    packer->n_documents = 0;
    packer->bad_places.n = 0;
}

bd_unit_contents bd_unit_packer_contents(bd_unit_packer *packer, bool held_out)
{
    const side *s = held_out ? &packer->held_out : &packer->training;
    return (bd_unit_contents){&s->documents, &s->left_out,
                              bd_record_hashes_take(packer->hashes)};
}

bd_status bd_unit_packer_finish(bd_unit_packer *packer, const bd_unit *unit,
                                bd_packed_unit *packed, bd_error *err)
{
    const bd_record_digests digests = bd_record_hashes_take(packer->hashes);
    const bd_shard_entry entry = {
        .unit = *unit, .records = digests.records, .positions = digests.positions};
    *packed = (bd_packed_unit){.shard = entry, .held_out = entry};
    packed->shard.figures = packer->training.left_out;
    packed->held_out.figures = packer->held_out.left_out;
    // The held-out shard is published first: a unit counts as finished when the other one exists.
    if (packer->job->holdout_folder)
        BD_TRY(bd_unit_write(packer->job->holdout_folder, &packer->held_out.documents,
                             &packed->held_out, err));
    BD_TRY(
        bd_unit_write(packer->job->folder, &packer->training.documents, &packed->shard, err));
    bd_unit_packer_clear(packer);
    return BD_OK;
}
