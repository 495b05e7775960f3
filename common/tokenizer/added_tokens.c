// Matches are leftmost-longest, as the Aho-Corasick automaton of Hugging Face's `tokenizers`
// finds them: the search goes from left to right; where several tokens begin, the longest is
// the match, and the search goes on behind it. So it ends after one pass, and its time is that
// of the places where no token begins, which are nearly all. A place passes three tests, each
// stricter and slower than the one before:
//
//   1. skip_plain_blocks() compares 16 places at a time with the first two bytes of the tokens.
//      Published vocabularies have few such starts ("<|", "[U"). If there are more than
//      MAX_STARTS, but all begin with one byte, memchr() finds that byte; otherwise this test
//      is left out.
//   2. is_start() looks the two bytes up in a table of 65,536 bits.
//   3. longest_at() compares the tokens themselves. They are sorted by their bytes, so that
//      those which begin with the first `depth` bytes of the text are a range of the array.
//      Each further byte of the text narrows the range by two binary searches, as a step down a
//      trie would.
#include "common/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/tokenizer/normal_form.h"
#include "common/tokenizer/split/unicode_class.h"

enum { MAX_STARTS = 8 };  // that are looked for at 16 places at a time

typedef unsigned char block __attribute__((vector_size(16)));

typedef struct pattern {
    char *text;  // owned
    size_t size_bytes;
    const bd_added_token *token;  // the model's
} pattern;

struct bd_added_tokens {
    pattern *patterns;  // [n_patterns], owned, in the order of their bytes
    size_t n_patterns;
    size_t n_not_special;  // of them
    size_t by_first[257];  // where in `patterns` those with this first byte begin
    int n_first_bytes;     // different ones
    unsigned char first_byte;
    // How many first two bytes tokens have; if more than MAX_STARTS, the two lists are not
    // used.
    int n_starts;
    unsigned char firsts[MAX_STARTS][sizeof(block)];  // each byte repeated to fill a block
    unsigned char seconds[MAX_STARTS][sizeof(block)];
    uint64_t starts[256][4];  // starts[a] has bit b if a token begins with the bytes a b
};

// ---- Making it --------------------------------------------------------------------

static int compare_patterns(const void *left, const void *right)
{
    const pattern *a = left, *b = right;
    const size_t n = a->size_bytes < b->size_bytes ? a->size_bytes : b->size_bytes;
    const int order = memcmp(a->text, b->text, n);
    return order ? order : (a->size_bytes > b->size_bytes) - (a->size_bytes < b->size_bytes);
}

static bool is_start(const bd_added_tokens *tokens, unsigned char first, unsigned char second)
{
    return (tokens->starts[first][second / 64] >> second % 64 & 1) != 0;
}

static void note_start(bd_added_tokens *tokens, const pattern *p)
{
    const unsigned char first = (unsigned char)p->text[0];
    if (p->size_bytes == 1) {  // any byte may come after it: too many starts for the blocks
        memset(tokens->starts[first], 0xFF, sizeof tokens->starts[first]);
        tokens->n_starts += 256;
        return;
    }
    const unsigned char second = (unsigned char)p->text[1];
    if (is_start(tokens, first, second))
        return;
    tokens->starts[first][second / 64] |= UINT64_C(1) << second % 64;
    if (tokens->n_starts < MAX_STARTS) {
        memset(tokens->firsts[tokens->n_starts], first, sizeof(block));
        memset(tokens->seconds[tokens->n_starts], second, sizeof(block));
    }
    tokens->n_starts++;
}

static void index_patterns(bd_added_tokens *tokens)
{
    size_t i = 0;
    for (int byte = 0; byte < 256; byte++) {
        tokens->by_first[byte] = i;
        while (i < tokens->n_patterns && (unsigned char)tokens->patterns[i].text[0] == byte)
            i++;
        if (i > tokens->by_first[byte]) {
            tokens->n_first_bytes++;
            tokens->first_byte = (unsigned char)byte;
        }
    }
    tokens->by_first[256] = i;
}

static bd_status make_pattern(pattern *p, const bd_added_token *token, bool normalize,
                              bd_error *err)
{
    p->token = token;
    p->size_bytes = token->size_bytes;
    if (normalize)
        return bd_normal_form(token->text, token->size_bytes, &p->text, &p->size_bytes, err);
    p->text = malloc(token->size_bytes);
    if (!p->text)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for an added token");
    memcpy(p->text, token->text, token->size_bytes);
    return BD_OK;
}

static bd_status add_patterns(bd_added_tokens *tokens, const bd_bpe_model *model,
                              bool normalized, bd_error *err)
{
    for (size_t i = 0; i < model->n_added; i++) {
        if (model->added[i].normalized != normalized)
            continue;
        pattern *p = &tokens->patterns[tokens->n_patterns++];
        BD_TRY(make_pattern(p, &model->added[i], normalized && model->nfc, err));
        note_start(tokens, p);
        tokens->n_not_special += !p->token->special;
    }
    if (tokens->n_patterns > 1)
        qsort(tokens->patterns, tokens->n_patterns, sizeof *tokens->patterns, compare_patterns);
    index_patterns(tokens);
    for (size_t i = 1; i < tokens->n_patterns; i++)
        if (compare_patterns(&tokens->patterns[i - 1], &tokens->patterns[i]) == 0)
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "the added tokens %u and %u are the same text when normalised",
                           tokens->patterns[i - 1].token->id, tokens->patterns[i].token->id);
    return BD_OK;
}

bd_status bd_added_tokens_new(const bd_bpe_model *model, bool normalized,
                              bd_added_tokens **tokens, bd_error *err)
{
    bd_added_tokens *made = calloc(1, sizeof *made);
    if (made)
        made->patterns = calloc(model->n_added + 1, sizeof *made->patterns);
    bd_status status = BD_ERR_MEMORY;
    if (made && made->patterns)
        status = add_patterns(made, model, normalized, err);
    else
        bd_fail(err, status, "no memory for %zu added tokens", model->n_added);
    if (status != BD_OK) {
        bd_added_tokens_free(made);
        made = NULL;
    }
    *tokens = made;
    return status;
}

void bd_added_tokens_free(bd_added_tokens *tokens)
{
    if (!tokens)
        return;
    for (size_t i = 0; tokens->patterns && i < tokens->n_patterns; i++)
        free(tokens->patterns[i].text);
    free(tokens->patterns);
    free(tokens);
}

// ---- Candidates -------------------------------------------------------------------

// All bits of byte i are set if a token may begin at text + i; reads one byte behind the block.
static inline block starts_in(const bd_added_tokens *tokens, const char *text)
{
    block here, next, first, second, found = {0};
    memcpy(&here, text, sizeof here);
    memcpy(&next, text + 1, sizeof next);
    for (int i = 0; i < tokens->n_starts; i++) {
        memcpy(&first, tokens->firsts[i], sizeof first);
        memcpy(&second, tokens->seconds[i], sizeof second);
        found |= (block)(here == first) & (block)(next == second);
    }
    return found;
}

static inline bool has_any(block found)
{
    uint64_t halves[2];
    memcpy(halves, &found, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

// Moves `at` block by block up to one in which some token may begin, or to the last block,
// which has no byte behind it to compare. Four blocks share one branch.
static size_t skip_plain_blocks(const bd_added_tokens *tokens, const char *text,
                                size_t size_bytes, size_t at)
{
    enum { BLOCK = sizeof(block) };
    for (; size_bytes - at > 4 * BLOCK; at += 4 * BLOCK)
        if (has_any(starts_in(tokens, text + at) | starts_in(tokens, text + at + BLOCK) |
                    starts_in(tokens, text + at + 2 * BLOCK) |
                    starts_in(tokens, text + at + 3 * BLOCK)))
            break;
    while (size_bytes - at > BLOCK && !has_any(starts_in(tokens, text + at)))
        at += BLOCK;
    return at;
}

// The next place at or after `at` where a token may begin according to its first two bytes.
static size_t find_start(const bd_added_tokens *tokens, const char *text, size_t size_bytes,
                         size_t at)
{
    while (at < size_bytes) {
        if (tokens->n_starts <= MAX_STARTS) {
            at = skip_plain_blocks(tokens, text, size_bytes, at);
        } else if (tokens->n_first_bytes == 1) {
            const char *found = memchr(text + at, tokens->first_byte, size_bytes - at);
            at = found ? (size_t)(found - text) : size_bytes;
        }
        // The blocks do not tell which of the 16 places it is.
        const size_t rest = size_bytes - at;
        const size_t end = at + (rest < sizeof(block) ? rest : sizeof(block));
        for (; at < end; at++)
            if (at + 1 == size_bytes ||
                is_start(tokens, (unsigned char)text[at], (unsigned char)text[at + 1]))
                return at;
    }
    return at;
}

// The first of the patterns from `low` to `high`, which agree in `depth` bytes, whose next byte
// is at least `byte`. A pattern that ends there comes before all others.
static size_t first_at_least(const bd_added_tokens *tokens, size_t low, size_t high,
                             size_t depth, int byte)
{
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const pattern *p = &tokens->patterns[middle];
        const int next = p->size_bytes > depth ? (unsigned char)p->text[depth] : -1;
        if (next < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The longest pattern that stands at `at`; NULL if none does.
static const pattern *longest_at(const bd_added_tokens *tokens, const char *text,
                                 size_t size_bytes, size_t at)
{
    const pattern *longest = NULL;
    const size_t rest = size_bytes - at;
    size_t low = tokens->by_first[(unsigned char)text[at]];
    size_t high = tokens->by_first[(unsigned char)text[at] + 1];
    // All patterns from `low` to `high` begin with the `depth` bytes of text at `at`.
    for (size_t depth = 1; low < high; depth++) {
        const pattern *p = &tokens->patterns[low];
        if (p->size_bytes == depth) {  // it matches whole; among its like the shortest is first
            longest = p;
            low++;
            p++;
        }
        if (depth == rest || low == high)
            break;
        if (high - low == 1)  // one is left: no search, one comparison
            return p->size_bytes <= rest && memcmp(p->text, text + at, p->size_bytes) == 0
                       ? p
                       : longest;
        const int byte = (unsigned char)text[at + depth];
        low = first_at_least(tokens, low, high, depth, byte);
        high = first_at_least(tokens, low, high, depth, byte + 1);
    }
    return longest;
}

// ---- The text around a match ------------------------------------------------------

// The character that ends at `end`, which is more than 0.
static int32_t character_before(const char *text, size_t end, size_t *length)
{
    for (size_t n = 1; n <= 4 && n <= end; n++) {
        if (((unsigned char)text[end - n] & 0xC0) == 0x80)
            continue;
        const int32_t code = bd_utf8_character(text + end - n, n, length);
        if (*length == n)
            return code;
        break;
    }
    *length = 1;
    return -1;
}

static bool stands_alone(const char *text, size_t size_bytes, size_t begin, size_t end)
{
    size_t length;
    if (begin > 0) {
        const int32_t before = character_before(text, begin, &length);
        if (before >= 0 && bd_is_word_character(before))
            return false;
    }
    if (end == size_bytes)
        return true;
    const int32_t after = bd_utf8_character(text + end, size_bytes - end, &length);
    return after < 0 || !bd_is_word_character(after);
}

static bd_character character_at(const char *text, size_t size_bytes)
{
    return bd_character_at((const uint8_t *)text, size_bytes);
}

// The begin of the white space that ends at `begin`, not before `from`.
static size_t white_space_before(const char *text, size_t from, size_t begin)
{
    while (begin > from) {
        size_t length;
        character_before(text, begin, &length);
        if (length > begin - from ||
            !(character_at(text + begin - length, length).classes & BD_WHITE))
            break;
        begin -= length;
    }
    return begin;
}

static size_t white_space_after(const char *text, size_t size_bytes, size_t end)
{
    while (end < size_bytes) {
        const bd_character c = character_at(text + end, size_bytes - end);
        if (!(c.classes & BD_WHITE))
            break;
        end += c.length;
    }
    return end;
}

// Makes the match of a pattern at `at`; the text before `taken` belongs to the match before.
// False if the pattern does not count there: it is then text, but still hides tokens that
// overlap it.
static bool make_match(const pattern *p, const char *text, size_t size_bytes, size_t at,
                       size_t taken, bool with_special, bd_added_match *match)
{
    const size_t end = at + p->size_bytes;
    if (p->token->special && !with_special)
        return false;
    if (p->token->single_word && !stands_alone(text, size_bytes, at, end))
        return false;
    match->begin = at;
    if (p->token->left_strip)
        match->begin = taken < at ? white_space_before(text, taken, at) : taken;
    // If the match before took the text behind this one, that was white space, all of it.
    match->end = end;
    if (p->token->right_strip)
        match->end = taken > end ? taken : white_space_after(text, size_bytes, end);
    match->at = at;
    match->resume = end;
    match->token = p->token;
    return match->begin < match->end;
}

bool bd_added_tokens_find(const bd_added_tokens *tokens, const char *text, size_t size_bytes,
                          size_t from, bool with_special, bd_added_match *match)
{
    const size_t taken = from == 0 ? 0 : match->end;
    const size_t n_looked_for = with_special ? tokens->n_patterns : tokens->n_not_special;
    for (size_t at = from; n_looked_for > 0;) {
        at = find_start(tokens, text, size_bytes, at);
        if (at == size_bytes)
            break;
        const pattern *p = longest_at(tokens, text, size_bytes, at);
        if (p && make_match(p, text, size_bytes, at, taken, with_special, match))
            return true;
        at += p ? p->size_bytes : 1;
    }
    return false;
}
