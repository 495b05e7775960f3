#include "common/tokenizer/word_encoder.h"

enum { CACHE_BITS = 20 };  // lines: 64 MiB

bd_status bd_word_encoder_init(bd_word_encoder *encoder, const bd_bpe_tables *tables,
                               bd_error *err)
{
    *encoder = (bd_word_encoder){
        .tables = tables, .looking = bd_word_lookup_best(), .merging = bd_merge_word_best()};
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

// All of these write the ids of a word, or a part of one, to `ids` and return where the next
// ones go.

static uint32_t *merge(bd_word_encoder *encoder, const char *word, size_t n, uint32_t *ids)
{
    const bd_bpe_tables *tables = encoder->tables;
    const size_t n_symbols = encoder->merging(
        &tables->merges, &tables->trie, &encoder->merge_memory, (const uint8_t *)word, n, ids);
    for (size_t i = 0; i < n_symbols; i++)
        ids[i] = tables->merges.ids[ids[i]];
    return ids + n_symbols;
}

// ---- Up to BD_KEY_BYTES --------------------------------------------------------------------

// A word that is not in its own line.
static uint32_t *encode_missing(bd_word_encoder *encoder, bd_cache_line *line, bd_word_key key,
                                const char *word, size_t n, uint32_t *ids)
{
    if (bd_cache_line_is_full(line)) {
        const bd_cached_word *found =
            bd_cache_line_find(bd_word_cache_beside(&encoder->cache, line), key);
        if (found)
            return bd_cached_word_write(found, ids);
    }
    uint32_t *end;
    if (bd_whole_words_find(&encoder->tables->whole_words, word, n, ids))
        end = ids + 1;
    else
        end = merge(encoder, word, n, ids);
    if (end - ids <= BD_WIDE_IDS)
        bd_word_cache_put(&encoder->cache, line, key, ids, (size_t)(end - ids));
    return end;
}

// ---- Above that ----------------------------------------------------------------------------

// A part is merged even if it is a whole word that merging does not make.
static uint32_t *encode_part(bd_word_encoder *encoder, const char *part, size_t n,
                             size_t readable, uint32_t *ids)
{
    if (n > BD_KEY_BYTES || encoder->tables->whole_words.max_bytes > 0)
        return merge(encoder, part, n, ids);
    const bd_word_key key = bd_word_key_in(part, n, readable);
    bd_cache_line *line = bd_word_cache_line(&encoder->cache, key);
    const bd_cached_word *found = bd_cache_line_find(line, key);
    return found ? bd_cached_word_write(found, ids)
                 : encode_missing(encoder, line, key, part, n, ids);
}

static uint32_t *encode_parts(bd_word_encoder *encoder, const char *word, size_t n,
                              uint32_t *ids)
{
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = bd_cuts_next(&encoder->tables->cuts, (const uint8_t *)word, n, begin);
        ids = encode_part(encoder, word + begin, end - begin, n - begin, ids);
    }
    return ids;
}

static uint32_t *encode_new_long(bd_word_encoder *encoder, const char *word, size_t n,
                                 uint32_t *ids)
{
    if (bd_whole_words_find(&encoder->tables->whole_words, word, n, ids))
        return ids + 1;
    return encode_parts(encoder, word, n, ids);
}

static uint32_t *encode_long(bd_word_encoder *encoder, const char *word, size_t n,
                             uint32_t *ids)
{
    if (n > BD_LONG_WORD_BYTES)
        return encode_new_long(encoder, word, n, ids);
    const uint64_t hash = bd_long_words_hash(word, n);
    uint32_t *end = bd_long_words_find(&encoder->long_words, hash, word, n, ids);
    if (end)
        return end;
    end = encode_new_long(encoder, word, n, ids);
    bd_long_words_put(&encoder->long_words, hash, word, n, ids, (size_t)(end - ids));
    return end;
}

uint32_t *bd_word_encoder_encode(bd_word_encoder *encoder, const bd_word_batch *batch,
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
