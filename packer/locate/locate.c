#include "packer/locate/locate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/dataset/input_entry.h"

BD_ENUM_NAMES(bd_token_kind, BD_TOKEN_KINDS);

enum {
    UNSEEN = -1,  // a token that no piece has shown so far
    CHARACTER_BYTES = 4,
    TRIMMED_BYTES = 1 << 20,  // that are gathered before what is too much of them goes
};

static const int64_t TRAINED = INT64_C(1) << 32;  // above the bits of an id

// The tokens of one document around the one that is asked for.
typedef struct window {
    const bd_locator *locator;
    bd_location *location;
    int64_t begin, n;     // it holds the document's tokens [begin, begin + n)
    int64_t *ids;         // [n], owned; with the bit TRAINED, or UNSEEN
    int64_t n_seen;       // of those
    int64_t n_summed;     // tokens before the one that is asked for, added up in
    int64_t text_before;  // bytes
} window;

// ---- The token itself ----------------------------------------------------------------------

static bd_token_kind kind_of(const bd_dataset_config *config, int64_t token, int64_t length)
{
    if (token == length - 1)
        return BD_TOKEN_SEPARATOR;
    return token == 0 && config->bos != BD_NO_BOS ? BD_TOKEN_BOS : BD_TOKEN_TEXT;
}

static bd_status describe(const bd_locator *locator, const bd_row *row, bd_location *location,
                          bd_error *err)
{
    const bd_dataset_config *config = &locator->manifest->config;
    const int id_bytes = bd_dataset_id_bytes(config);
    const int64_t t = location->address.token;
    int64_t s = 0;
    location->id = bd_id_at(row->ids, id_bytes, t);
    location->n_segments = row->n_segments;
    location->is_masked = config->loss_mask;
    if (t >= row->bounds[row->n_segments]) {
        location->kind = BD_TOKEN_PADDING;
        return BD_OK;
    }
    while (t >= row->bounds[s + 1])
        s++;
    location->segment = s;
    location->begin = row->bounds[s];
    location->end = row->bounds[s + 1];
    location->input = row->segments.input[s];
    location->position = row->segments.position[s];
    location->offset = row->segments.offset[s];
    location->length = row->segments.length[s];
    location->token = location->offset + t - location->begin;
    location->repeated = location->offset > 0 && t == location->begin;
    location->kind = kind_of(config, location->token, location->length);
    location->has_target = bd_row_is_target(row, s, t + 1);
    if (location->has_target)
        location->target = bd_id_at(row->ids, id_bytes, t + 1);
    location->trained = bd_row_is_target(row, s, t);
    // The rules of a row say nothing of this: only the manifest knows.
    if (location->input >= locator->manifest->n_inputs)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s', row %" PRId64 ": S2: segment %" PRId64
                       " is of input %u, the manifest lists %zu",
                       locator->shard.path, location->address.row, s, location->input,
                       locator->manifest->n_inputs);
    if (location->position >= INT64_MAX)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'%s', row %" PRId64 ": S2: segment %" PRId64 " is at position %" PRIu64,
                       locator->shard.path, location->address.row, s, location->position);
    return BD_OK;
}

// ---- What lies around it -------------------------------------------------------------------

static size_t n_text_bytes(const window *w, int64_t token, uint32_t id)
{
    const bd_tokenizer *tokenizer = w->locator->tokenizer;
    size_t n;
    // A BOS token may have text, but that is not text of the document.
    if (kind_of(&w->locator->manifest->config, token, w->location->length) != BD_TOKEN_TEXT)
        return 0;
    tokenizer->kind->token_bytes(tokenizer, id, &n);
    return n;
}

static bool has_all_pieces(const window *w)
{
    return w->n_seen == w->n && w->n_summed == w->location->token;
}

// Takes what segment `s` of a row shows of the document.
static void take_piece(window *w, const bd_row *row, int64_t s)
{
    const int id_bytes = bd_dataset_id_bytes(&w->locator->manifest->config);
    const int64_t from = row->bounds[s], n = row->bounds[s + 1] - from;
    const int64_t offset = row->segments.offset[s];
    for (int64_t i = 0; i < n; i++) {
        const int64_t token = offset + i, at = token - w->begin;
        const uint32_t id = bd_id_at(row->ids, id_bytes, from + i);
        const bool is_repeated = offset > 0 && i == 0;
        if (at >= w->n)
            break;
        if (token < w->location->token && !is_repeated) {
            w->n_summed++;
            w->text_before += (int64_t)n_text_bytes(w, token, id);
        }
        if (at >= 0 && w->ids[at] == UNSEEN) {
            w->ids[at] = id;
            w->n_seen++;
        }
        // A token that is repeated as context is no target there, but where it ends its piece.
        if (at >= 0 && bd_row_is_target(row, s, from + i))
            w->ids[at] |= TRAINED;
    }
}

static void take_row(window *w, const bd_row *row)
{
    for (int64_t s = 0; s < row->n_segments; s++)
        if (row->segments.input[s] == w->location->input &&
            row->segments.position[s] == w->location->position)
            take_piece(w, row, s);
}

static bd_status take_other_rows(window *w, bd_error *err)
{
    const bd_shard *shard = &w->locator->shard;
    for (int64_t r = 0; r < shard->entry.figures.rows && !has_all_pieces(w); r++) {
        bd_row row;
        BD_TRY(bd_shard_row(shard, r, w->locator->hasher, &row, err));
        if (r != w->location->address.row)
            take_row(w, &row);
    }
    return BD_OK;
}

static bd_status append_token(const window *w, bd_text_part *part, int64_t token, bd_error *err)
{
    const bd_tokenizer *tokenizer = w->locator->tokenizer;
    const int64_t seen = w->ids[token - w->begin];
    const uint32_t id = (uint32_t)seen;
    size_t n;
    const char *bytes = tokenizer->kind->token_bytes(tokenizer, id, &n);
    char name[16];
    // The id of BOS or separator may stand for text elsewhere; here it does not.
    if (!bytes || n_text_bytes(w, token, id) != n) {
        bytes = name;
        n = (size_t)snprintf(name, sizeof name, "<%u>", id);
    }
    if (n == 0)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&part->bytes, &part->capacity, part->n + n, 1, err));
    memcpy(part->bytes + part->n, bytes, n);
    if (w->location->is_masked) {
        BD_TRY(bd_array_reserve((void **)&part->trained, &part->trained_capacity, part->n + n,
                                1, err));
        memset(part->trained + part->n, (seen & TRAINED) != 0, n);
    }
    part->n += n;
    return BD_OK;
}

static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

// Keeps the last `most` bytes, a few less if a character would be cut.
static void keep_last(bd_text_part *part, size_t most)
{
    size_t cut = part->n > most ? part->n - most : 0;
    for (int i = 1; cut > 0 && i < CHARACTER_BYTES && cut < part->n &&
                    continues_character(part->bytes[cut]);
         i++)
        cut++;
    if (cut > 0)
        memmove(part->bytes, part->bytes + cut, part->n - cut);
    if (cut > 0 && part->trained)
        memmove(part->trained, part->trained + cut, part->n - cut);
    part->n -= cut;
}

static void keep_first(bd_text_part *part, size_t most)
{
    if (part->n <= most)
        return;
    size_t n = most;
    for (int i = 1; n > 0 && i < CHARACTER_BYTES && continues_character(part->bytes[n]); i++)
        n--;
    part->n = n;
}

static bd_status make_texts(const window *w, int64_t n_marked, bd_error *err)
{
    bd_location *location = w->location;
    const size_t context = (size_t)w->locator->context;
    int64_t first = location->token, token = location->token;
    while (first > w->begin && w->ids[first - 1 - w->begin] != UNSEEN)
        first--;
    // Tokens may be long. From text that is not shown, only the bytes that tell where a character
    // ends are kept.
    for (int64_t t = first; t < location->token; t++) {
        BD_TRY(append_token(w, &location->before, t, err));
        if (location->before.n > 2 * context + TRIMMED_BYTES)
            keep_last(&location->before, context + CHARACTER_BYTES);
    }
    keep_last(&location->before, context);
    for (; token < w->begin + w->n && w->ids[token - w->begin] != UNSEEN &&
           location->after.n <= context;
         token++)
        BD_TRY(append_token(
            w, token < location->token + n_marked ? &location->marked : &location->after, token,
            err));
    keep_first(&location->after, context);
    return BD_OK;
}

static bd_status look_around(const bd_locator *locator, const bd_row *row, int64_t n_marked,
                             bd_location *location, bd_error *err)
{
    // A token of text has at least one byte. A character more tells where one ends.
    const int64_t context = locator->context + CHARACTER_BYTES;
    const int64_t left = location->length - location->token;
    window w = {.locator = locator, .location = location};
    w.begin = location->token > context ? location->token - context : 0;
    const int64_t n_after = n_marked < left - context ? n_marked + context : left;
    w.n = location->token - w.begin + n_after;
    w.ids = malloc((size_t)w.n * sizeof *w.ids);
    if (!w.ids)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " tokens", w.n);
    for (int64_t i = 0; i < w.n; i++)
        w.ids[i] = UNSEEN;
    take_row(&w, row);
    bd_status status = take_other_rows(&w, err);
    if (status == BD_OK)
        status = make_texts(&w, n_marked, err);
    location->text_before = w.n_summed == location->token ? w.text_before : BD_UNKNOWN;
    free(w.ids);
    return status;
}

// ---- All of it -----------------------------------------------------------------------------

void bd_location_release(bd_location *location)
{
    bd_text_part *const parts[] = {&location->before, &location->marked, &location->after};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        free(parts[i]->bytes);
        free(parts[i]->trained);
    }
    *location = (bd_location){0};
}

bd_status bd_locator_init(bd_locator *locator, const char *folder, const bd_manifest *manifest,
                          const bd_tokenizer *tokenizer, int64_t context, bd_error *err)
{
    *locator = (bd_locator){.folder = folder,
                            .manifest = manifest,
                            .tokenizer = tokenizer,
                            .context = context,
                            .hasher = bd_hasher_new()};
    return locator->hasher ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
}

void bd_locator_release(bd_locator *locator)
{
    if (locator->is_open)
        bd_shard_close(&locator->shard);
    bd_hasher_free(locator->hasher);
    *locator = (bd_locator){0};
}

static bd_status open_shard(bd_locator *locator, size_t index, bd_error *err)
{
    if (locator->is_open && locator->shard_index == index)
        return BD_OK;
    if (locator->is_open)
        bd_shard_close(&locator->shard);
    locator->is_open = false;
    BD_TRY(
        bd_shard_open_entry(&locator->shard, locator->folder, locator->manifest, index, err));
    locator->is_open = true;
    locator->shard_index = index;
    return BD_OK;
}

bd_status bd_locate(bd_locator *locator, const bd_token_address *address, int64_t n_marked,
                    bd_location *location, bd_error *err)
{
    bd_row row;
    *location = (bd_location){
        .address = *address,
        .row = bd_token_address_row(address, locator->manifest),
        .text_before = BD_UNKNOWN,
    };
    BD_TRY(open_shard(locator, address->shard, err));
    BD_TRY(bd_shard_row(&locator->shard, address->row, locator->hasher, &row, err));
    BD_TRY(describe(locator, &row, location, err));
    return location->kind == BD_TOKEN_PADDING
               ? BD_OK
               : look_around(locator, &row, n_marked, location, err);
}
