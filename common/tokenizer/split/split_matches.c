#include "common/tokenizer/split/split_matches.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/tokenizer/split/unicode_class.h"

static const char replacement[] = "\xEF\xBF\xBD";
enum { REPLACEMENT_BYTES = 3 };

bd_status bd_match_cutter_init(bd_match_cutter *cutter, const bd_expression *expression,
                               size_t n_cutters, bd_error *err)
{
    *cutter = (bd_match_cutter){0};
    return bd_finder_new(expression, n_cutters, &cutter->finder, err);
}

void bd_match_cutter_release(bd_match_cutter *cutter)
{
    bd_finder_free(cutter->finder);
    free(cutter->replaced);
    *cutter = (bd_match_cutter){0};
}

void bd_match_cutter_allow(bd_match_cutter *cutter, size_t size_bytes)
{
    bd_finder_allow(cutter->finder, size_bytes);
}

// ---- Bytes that are not UTF-8 ------------------------------------------------------

static bd_status replace_broken(bd_match_cutter *cutter, bd_error *err)
{
    const size_t needed = REPLACEMENT_BYTES * cutter->piece_bytes;
    if (needed > cutter->room_bytes) {
        free(cutter->replaced);
        cutter->replaced = malloc(needed);
        cutter->room_bytes = cutter->replaced ? needed : 0;
        if (!cutter->replaced)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of text", needed);
    }
    char *out = cutter->replaced;
    size_t at = 0;
    while (at < cutter->piece_bytes) {
        const char *rest = cutter->text + cutter->piece_begin + at;
        const size_t good = bd_utf8_valid_prefix(rest, cutter->piece_bytes - at);
        memcpy(out, rest, good);
        out += good;
        at += good;
        if (at < cutter->piece_bytes) {
            memcpy(out, replacement, REPLACEMENT_BYTES);
            out += REPLACEMENT_BYTES;
            at++;
        }
    }
    cutter->subject = cutter->replaced;
    cutter->subject_bytes = (size_t)(out - cutter->replaced);
    return BD_OK;
}

// The place in the text of a place in the subject; they are asked for in rising order.
static uint32_t place_in_text(bd_match_cutter *cutter, size_t subject_at)
{
    const uint8_t *piece = (const uint8_t *)cutter->text + cutter->piece_begin;
    if (cutter->subject == (const char *)piece)
        return (uint32_t)(cutter->piece_begin + subject_at);
    while (cutter->mapped_subject < subject_at) {
        const size_t at = cutter->mapped_text;
        const bd_character c = bd_character_at(piece + at, cutter->piece_bytes - at);
        const bool broken = c.length == 1 && piece[at] >= 0x80;
        cutter->mapped_subject += broken ? REPLACEMENT_BYTES : c.length;
        cutter->mapped_text += c.length;
    }
    return (uint32_t)(cutter->piece_begin + cutter->mapped_text);
}

// ---- Words ------------------------------------------------------------------------

bd_status bd_match_cutter_begin(bd_match_cutter *cutter, const char *text, size_t begin,
                                size_t end, bd_error *err)
{
    cutter->text = text;
    cutter->piece_begin = begin;
    cutter->piece_bytes = end - begin;
    cutter->subject = text + begin;
    cutter->subject_bytes = end - begin;
    cutter->at = cutter->from = cutter->match_end = 0;
    cutter->mapped_subject = cutter->mapped_text = 0;
    if (bd_utf8_valid_prefix(text + begin, end - begin) < end - begin)
        return replace_broken(cutter, err);
    return BD_OK;
}

// The place from which the next match is searched: an empty one must not be found again.
static size_t after_match(const bd_match_cutter *cutter, bd_match match)
{
    if (match.end > match.begin)
        return match.end;
    const size_t left = cutter->subject_bytes - match.end;
    const uint8_t *rest = (const uint8_t *)cutter->subject + match.end;
    return match.end + (left > 0 ? bd_character_at(rest, left).length : 1);
}

// The end in the subject of the next word, which is a match or the text before one; an empty
// match only separates.
static bd_status next_end(bd_match_cutter *cutter, size_t *end, bd_error *err)
{
    *end = cutter->match_end;
    while (*end <= cutter->at) {
        bd_match match;
        bool found = false;
        if (cutter->from <= cutter->subject_bytes)
            BD_TRY(bd_finder_find(cutter->finder, cutter->subject, cutter->subject_bytes,
                                  cutter->from, &match, &found, err));
        if (!found) {
            cutter->from = cutter->subject_bytes + 1;
            *end = cutter->subject_bytes;
            return BD_OK;
        }
        cutter->from = after_match(cutter, match);
        cutter->match_end = match.end;
        *end = match.begin > cutter->at ? match.begin : match.end;
    }
    return BD_OK;
}

bd_status bd_match_cutter_next(bd_match_cutter *cutter, uint32_t *ends, size_t capacity,
                               size_t *n, bd_error *err)
{
    *n = 0;
    while (*n < capacity && cutter->at < cutter->subject_bytes) {
        size_t end;
        BD_TRY(next_end(cutter, &end, err));
        cutter->at = end;
        ends[(*n)++] = place_in_text(cutter, cutter->at);
    }
    return BD_OK;
}
