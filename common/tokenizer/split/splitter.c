#include "common/tokenizer/split/splitter.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/tokenizer/split/split_known.h"
#include "common/tokenizer/split/split_matches.h"
#include "common/tokenizer/split/split_scalar.h"

enum {
    MAX_STEPS = 16,
    PIECES = 256,      // that a step holds for the next one
    FEWEST_ROOM = 64,  // a step is not asked for fewer words
};

struct bd_splitter {
    size_t n_steps;
    bd_pattern patterns[MAX_STEPS];
    bd_expression *expressions[MAX_STEPS];  // of BD_PATTERN_OTHER, owned; else NULL
};

// One step, at work on one piece of the step before.
typedef struct stage {
    bd_pattern pattern;
    bd_split_isa isa;
    bd_known_cutter known;
    bd_match_cutter matches;  // of BD_PATTERN_OTHER
    uint32_t *pieces;         // [PIECES] ends, owned; NULL in the last stage
    size_t n_pieces, next_piece;
    size_t piece_begin;  // where the next piece begins
} stage;

struct bd_word_reader {
    const char *text;
    size_t whole;      // without steps: the end of the one word, 0 when it was read
    bool in_document;  // the caller tells where documents begin
    size_t n_stages;
    stage stages[];
};

// ---- The steps --------------------------------------------------------------------

static bd_status add_split_step(bd_splitter *splitter, const bd_split_step *step, bd_error *err)
{
    const size_t n = splitter->n_steps;
    if (step->pattern == BD_PATTERN_GPT2 && n > 0 &&
        splitter->patterns[n - 1] == BD_PATTERN_DIGIT) {
        splitter->patterns[n - 1] = BD_PATTERN_DIGIT_GPT2;
        return BD_OK;
    }
    splitter->n_steps++;
    splitter->patterns[n] = step->pattern;
    return step->pattern == BD_PATTERN_OTHER
               ? bd_expression_new(step->expression, &splitter->expressions[n], err)
               : BD_OK;
}

bd_status bd_splitter_new(const bd_split_step *steps, size_t n_steps, bd_splitter **splitter,
                          bd_error *err)
{
    *splitter = NULL;
    if (n_steps > MAX_STEPS)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "%zu steps to split text, more than %d",
                       n_steps, MAX_STEPS);
    bd_splitter *made = calloc(1, sizeof *made);
    if (!made)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to split text");
    for (size_t i = 0; i < n_steps; i++) {
        const bd_status status = add_split_step(made, &steps[i], err);
        if (status != BD_OK) {
            bd_splitter_free(made);
            return status;
        }
    }
    *splitter = made;
    return BD_OK;
}

void bd_splitter_free(bd_splitter *splitter)
{
    if (!splitter)
        return;
    for (size_t i = 0; i < splitter->n_steps; i++)
        bd_expression_free(splitter->expressions[i]);
    free(splitter);
}

// ---- One stage --------------------------------------------------------------------

static bd_status stage_init(stage *s, const bd_splitter *splitter, size_t i, bd_error *err)
{
    s->pattern = splitter->patterns[i];
    s->isa = bd_split_isa_best();
    if (i + 1 < splitter->n_steps) {
        s->pieces = malloc(PIECES * sizeof *s->pieces);
        if (!s->pieces)
            return bd_fail(err, BD_ERR_MEMORY, "no memory to split text");
    }
    return s->pattern == BD_PATTERN_OTHER
               ? bd_match_cutter_init(&s->matches, splitter->expressions[i], splitter->n_steps,
                                      err)
               : BD_OK;
}

static bd_status stage_begin(stage *s, const char *text, size_t begin, size_t end,
                             bd_error *err)
{
    if (s->pattern == BD_PATTERN_OTHER)
        return bd_match_cutter_begin(&s->matches, text, begin, end, err);
    bd_known_cutter_begin(&s->known, s->isa, s->pattern, text, begin, end);
    return BD_OK;
}

static bd_status stage_cut(stage *s, uint32_t *ends, size_t capacity, size_t *n, bd_error *err)
{
    if (s->pattern == BD_PATTERN_OTHER)
        return bd_match_cutter_next(&s->matches, ends, capacity, n, err);
    *n = bd_known_cutter_next(&s->known, ends, capacity);
    return BD_OK;
}

// ---- One stage inside the pieces of the other ---------------------------------------

static bd_status next_words(bd_word_reader *reader, size_t i, uint32_t *ends, size_t capacity,
                            size_t *n, bd_error *err);

// Starts stage i on its next piece; *more is false if there is none.
static bd_status next_piece(bd_word_reader *reader, size_t i, bool *more, bd_error *err)
{
    *more = false;
    if (i == 0)
        return BD_OK;
    stage *above = &reader->stages[i - 1];
    if (above->next_piece == above->n_pieces) {
        above->next_piece = 0;
        BD_TRY(next_words(reader, i - 1, above->pieces, PIECES, &above->n_pieces, err));
    }
    *more = above->n_pieces > 0;
    if (!*more)
        return BD_OK;
    const size_t begin = above->piece_begin;
    const size_t end = above->pieces[above->next_piece++];
    above->piece_begin = end;
    return stage_begin(&reader->stages[i], reader->text, begin, end, err);
}

static bd_status next_words(bd_word_reader *reader, size_t i, uint32_t *ends, size_t capacity,
                            size_t *n, bd_error *err)
{
    *n = 0;
    bool more = true;
    while (more && capacity - *n >= FEWEST_ROOM) {
        size_t got;
        BD_TRY(stage_cut(&reader->stages[i], ends + *n, capacity - *n, &got, err));
        *n += got;
        if (got == 0)
            BD_TRY(next_piece(reader, i, &more, err));
    }
    return BD_OK;
}

// ---- Reading ----------------------------------------------------------------------

bd_status bd_word_reader_new(const bd_splitter *splitter, bd_word_reader **reader,
                             bd_error *err)
{
    *reader = NULL;
    bd_word_reader *made = calloc(1, sizeof *made + splitter->n_steps * sizeof *made->stages);
    if (!made)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to split text");
    made->n_stages = splitter->n_steps;
    for (size_t i = 0; i < splitter->n_steps; i++) {
        const bd_status status = stage_init(&made->stages[i], splitter, i, err);
        if (status != BD_OK) {
            bd_word_reader_free(made);
            return status;
        }
    }
    *reader = made;
    return BD_OK;
}

void bd_word_reader_free(bd_word_reader *reader)
{
    if (!reader)
        return;
    for (size_t i = 0; i < reader->n_stages; i++) {
        bd_match_cutter_release(&reader->stages[i].matches);
        free(reader->stages[i].pieces);
    }
    free(reader);
}

static void allow_steps(bd_word_reader *reader, size_t size_bytes)
{
    for (size_t i = 0; i < reader->n_stages; i++)
        if (reader->stages[i].pattern == BD_PATTERN_OTHER)
            bd_match_cutter_allow(&reader->stages[i].matches, size_bytes);
}

void bd_word_reader_begin_document(bd_word_reader *reader, size_t size_bytes)
{
    reader->in_document = true;
    allow_steps(reader, size_bytes);
}

bd_status bd_word_reader_begin(bd_word_reader *reader, const char *text, size_t size_bytes,
                               bd_error *err)
{
    if (size_bytes > UINT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a text of %zu bytes, 4 GiB or more",
                       size_bytes);
    reader->text = size_bytes > 0 ? text : "";  // NULL has no end
    reader->whole = size_bytes;
    if (!reader->in_document)
        allow_steps(reader, size_bytes);
    for (size_t i = 0; i < reader->n_stages; i++) {
        stage *s = &reader->stages[i];
        s->n_pieces = s->next_piece = s->piece_begin = 0;
        // The later stages have no piece until the first one has cut it.
        BD_TRY(stage_begin(s, reader->text, 0, i == 0 ? size_bytes : 0, err));
    }
    return BD_OK;
}

bd_status bd_word_reader_next(bd_word_reader *reader, uint32_t *ends, size_t capacity,
                              size_t *n, bd_error *err)
{
    if (reader->n_stages > 0)
        return next_words(reader, reader->n_stages - 1, ends, capacity, n, err);
    *n = reader->whole > 0 ? 1 : 0;
    ends[0] = (uint32_t)reader->whole;
    reader->whole = 0;
    return BD_OK;
}
