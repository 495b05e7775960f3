// The way of a word, from the quickest to the slowest:
//
//   up to 15 bytes   its line of the word cache, for many words at once; the line beside it;
//                    merging
//   more bytes       cut where no token can lie across (cuts.h), and each part looked up as a
//                    word; a part that is still long: the cache of long words, or merging
#include "common/tokenizer/merge/word_encoder.h"

#include "common/base/interrupt.h"

enum { CACHE_BITS = 20 };  // lines: 64 MiB

bd_status bd_word_encoder_init(bd_word_encoder *encoder, const bd_bpe_tables *tables,
                               bd_error *err)
{
    *encoder = (bd_word_encoder){
        .tables = tables,
        .looking = bd_word_lookup_best(),
        .merging = bd_merge_word_best(),
        .cutting = bd_cuts_best(),
    };
    bd_status status = bd_word_cache_init(&encoder->cache, CACHE_BITS, err);
    if (status == BD_OK)
        status = bd_long_words_init(&encoder->long_words, err);
    if (status != BD_OK)
        bd_word_encoder_release(encoder);
    return status;
}

void bd_word_encoder_release(bd_word_encoder *encoder)
{
    bd_word_cache_release(&encoder->cache);
    bd_long_words_release(&encoder->long_words);
}

// All of these write the ids of a word, or of a part of one, to `ids` and return the place for
// the next ones.

static uint32_t *merge_bytes(bd_word_encoder *encoder, const char *word, size_t n,
                             uint32_t *ids)
{
    const bd_bpe_tables *tables = encoder->tables;
    const size_t n_symbols = encoder->merging(
        &tables->merges, &tables->trie, &encoder->merge_memory, (const uint8_t *)word, n, ids);
    for (size_t i = 0; i < n_symbols; i++)
        ids[i] = tables->merges.ids[ids[i]];
    return ids + n_symbols;
}

static uint32_t *encode_new(bd_word_encoder *encoder, const char *word, size_t n, uint32_t *ids)
{
    if (bd_whole_words_find(&encoder->tables->whole_words, word, n, ids))
        return ids + 1;
    return merge_bytes(encoder, word, n, ids);
}

// Encodes a word of up to BD_KEY_BYTES that is not in its own line.
static uint32_t *encode_missing(bd_word_encoder *encoder, bd_cache_line *line, bd_word_key key,
                                const char *word, size_t n, uint32_t *ids)
{
    if (bd_cache_line_is_full(line)) {
        const bd_cached_word *found =
            bd_cache_line_find(bd_word_cache_beside(&encoder->cache, line), key);
        if (found)
            return bd_cached_word_write(found, ids);
    }
    uint32_t *end = encode_new(encoder, word, n, ids);
    if (end - ids <= BD_WIDE_IDS)
        bd_word_cache_put(&encoder->cache, line, key, ids, (size_t)(end - ids));
    return end;
}

// Encodes a word of more than BD_KEY_BYTES.
static uint32_t *encode_long(bd_word_encoder *encoder, const char *word, size_t n,
                             uint32_t *ids)
{
    if (n > BD_LONG_WORD_BYTES)
        return encode_new(encoder, word, n, ids);
    const uint64_t hash = bd_long_words_hash(word, n);
    uint32_t *end = bd_long_words_find(&encoder->long_words, hash, word, n, ids);
    if (end)
        return end;
    end = encode_new(encoder, word, n, ids);
    bd_long_words_put(&encoder->long_words, hash, word, n, ids, (size_t)(end - ids));
    return end;
}

// ---- Batches -------------------------------------------------------------------------------

static uint32_t *encode_batch(bd_word_encoder *encoder, const bd_word_batch *batch,
                              uint32_t *ids)
{
    bd_word_lookup *lookup = &encoder->lookup;
    encoder->looking->prepare(lookup, &encoder->cache, batch);
    for (size_t i = 0;; i++) {
        i = encoder->looking->write(lookup, i, batch->n, &ids);
        if (i == batch->n)
            return ids;
        const size_t begin = i > 0 ? batch->ends[i - 1] : batch->begin;
        const size_t n = batch->ends[i] - begin;
        const char *word = batch->text + begin;
        ids = n > BD_KEY_BYTES
                  ? encode_long(encoder, word, n, ids)
                  : encode_missing(encoder, lookup->lines[i], lookup->keys[i], word, n, ids);
    }
}

static bool has_long_word(const bd_word_batch *batch)
{
    uint32_t longest = batch->ends[0] - (uint32_t)batch->begin;
    for (size_t i = 1; i < batch->n; i++) {
        const uint32_t n = batch->ends[i] - batch->ends[i - 1];
        longest = n > longest ? n : longest;
    }
    return longest > BD_KEY_BYTES;
}

// Collects words and parts of words until a batch is full.
typedef struct cutter {
    bd_word_encoder *encoder;
    bd_word_batch parts;
    uint32_t ends[BD_WORD_BATCH];
    uint32_t *ids;
} cutter;

static void encode_parts(cutter *c)
{
    c->ids = encode_batch(c->encoder, &c->parts, c->ids);
    if (c->parts.n > 0)
        c->parts.begin = c->ends[c->parts.n - 1];
    c->parts.n = 0;
}

static inline void add_part(cutter *c, size_t end)
{
    c->ends[c->parts.n++] = (uint32_t)end;
    if (c->parts.n == BD_WORD_BATCH)
        encode_parts(c);
}

// Adds a part of a word. If it has the bytes of a token that only whole words become, it is
// merged here, because looking it up would give that token.
static inline void add_cut_part(cutter *c, size_t begin, size_t end)
{
    const bd_whole_words *whole_words = &c->encoder->tables->whole_words;
    const char *part = c->parts.text + begin;
    uint32_t id;
    if (__builtin_expect(whole_words->max_bytes == 0, 1) ||
        !bd_whole_words_find(whole_words, part, end - begin, &id)) {
        add_part(c, end);
        return;
    }
    encode_parts(c);
    c->ids = merge_bytes(c->encoder, part, end - begin, c->ids);
    c->parts.begin = end;
}

static void add_long_word(cutter *c, size_t begin, size_t end)
{
    const bd_word_encoder *encoder = c->encoder;
    const bd_cut_word word = {(const uint8_t *)c->parts.text, c->parts.size_bytes, begin, end};
    uint32_t id;
    if (bd_whole_words_find(&encoder->tables->whole_words, c->parts.text + begin, end - begin,
                            &id)) {
        add_part(c, end);
        return;
    }
    for (size_t at = begin + 1; at < end && !bd_interrupt_is_noted();) {
        bd_cut_places places = encoder->cutting(&encoder->tables->cuts, &word, at);
        for (; places.found != 0; places.found &= places.found - 1) {
            const size_t cut = at + (size_t)__builtin_ctz(places.found);
            add_cut_part(c, begin, cut);
            begin = cut;
        }
        at += places.n;
    }
    add_cut_part(c, begin, end);
}

// Encodes a batch with long words: cuts them and looks every part up as a word.
static uint32_t *encode_cut(bd_word_encoder *encoder, const bd_word_batch *batch, uint32_t *ids)
{
    cutter c = {.encoder = encoder, .parts = *batch, .ids = ids};
    c.parts.ends = c.ends;
    c.parts.n = 0;
    for (size_t i = 0, begin = batch->begin; i < batch->n; begin = batch->ends[i++])
        if (batch->ends[i] - begin > BD_KEY_BYTES)
            add_long_word(&c, begin, batch->ends[i]);
        else
            add_part(&c, batch->ends[i]);
    encode_parts(&c);
    return c.ids;
}

uint32_t *bd_word_encoder_encode(bd_word_encoder *encoder, const bd_word_batch *batch,
                                 uint32_t *ids)
{
    return has_long_word(batch) ? encode_cut(encoder, batch, ids)
                                : encode_batch(encoder, batch, ids);
}
