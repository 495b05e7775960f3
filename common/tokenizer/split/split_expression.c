#include "common/tokenizer/split/split_expression.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/base/interrupt.h"
#include "common/tokenizer/split/split_dialect.h"

// A match is searched in two ways. The quick search sees a window of the text only and may take
// few steps; it finds nearly every word. Where that is not enough, the thorough search tells
// whether a match begins at one place, however far that leads. Its expression reports every
// step to count_step(), which subtracts it from the steps of the document and checks for
// signals.
enum {
    FIRST_STACK_BYTES = 32 << 10,
    MOST_STACK_BYTES = 16 << 20,  // of compiled code
    MOST_HEAP_KIB = 16 << 10,     // of the interpreter, which takes over when that is full
    WINDOW_BYTES = 256,
    FEW_STEPS = 32,
    BYTES_PER_STEP = 16,  // that are gone over in the time of a step
};

struct bd_expression {
    char *source;
    pcre2_code *quick;     // finds the first match
    pcre2_code *thorough;  // tells whether one begins at a place
    bool reports;          // thorough calls count_step(); false if it is too large for that
};

struct bd_finder {
    const bd_expression *expression;  // borrowed
    pcre2_match_context *quick, *thorough;
    pcre2_match_data *match;
    pcre2_jit_stack *stack;
    int64_t steps_left;
    size_t reported;  // the place in the text of the last step
};

static bd_status fail_to_compile(bd_error *err, const char *source, const char *translated,
                                 size_t place, int number)
{
    enum { SHOWN = 30 };  // bytes before the place
    char why[200];
    pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
    const size_t from = place > SHOWN ? place - SHOWN : 0;
    return bd_fail(err, BD_ERR_FORMAT, "regular expression '%.200s': %s after '%.*s'", source,
                   why, (int)(place - from), translated + from);
}

static bd_status fail_to_match(bd_error *err, const char *source, int number)
{
    char why[200];
    pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
    return bd_fail(err, number == PCRE2_ERROR_NOMEMORY ? BD_ERR_MEMORY : BD_ERR_LIMIT,
                   "cannot match the regular expression '%.200s': %s", source, why);
}

static bd_status compile_expression(const char *source, const char *translated,
                                    uint32_t more_options, pcre2_code **code, bd_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int number;
    size_t place;
    // The translation refuses syntax that could change these options; \C would cut characters.
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_NO_AUTO_CAPTURE | more_options;
    *code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &number,
                          &place, context);
    pcre2_compile_context_free(context);
    return *code ? BD_OK : fail_to_compile(err, source, translated, place, number);
}

// Where there is no JIT for the machine, the interpreter gives the same matches.
static bd_status compile_both(bd_expression *made, const char *translated, bd_error *err)
{
    BD_TRY(compile_expression(made->source, translated, 0, &made->quick, err));
    pcre2_jit_compile(made->quick, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    made->reports =
        compile_expression(made->source, translated, PCRE2_ANCHORED | PCRE2_AUTO_CALLOUT,
                           &made->thorough, NULL) == BD_OK;
    if (!made->reports)
        BD_TRY(
            compile_expression(made->source, translated, PCRE2_ANCHORED, &made->thorough, err));
    pcre2_jit_compile(made->thorough, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return BD_OK;
}

bd_status bd_expression_new(const char *source, bd_expression **expression, bd_error *err)
{
    *expression = NULL;
    char *translated;
    BD_TRY(bd_dialect_translate(source, &translated, err));
    const bd_status status = bd_expression_new_translated(source, translated, expression, err);
    free(translated);
    return status;
}

bd_status bd_expression_new_translated(const char *source, const char *translated,
                                       bd_expression **expression, bd_error *err)
{
    *expression = NULL;
    bd_expression *made = calloc(1, sizeof *made);
    if (made)
        made->source = strdup(source);
    bd_status status = made && made->source
                           ? compile_both(made, translated, err)
                           : bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    if (status != BD_OK) {
        bd_expression_free(made);
        return status;
    }
    *expression = made;
    return BD_OK;
}

void bd_expression_free(bd_expression *expression)
{
    if (!expression)
        return;
    pcre2_code_free(expression->quick);
    pcre2_code_free(expression->thorough);
    free(expression->source);
    free(expression);
}

static int count_step(pcre2_callout_block *block, void *context)
{
    bd_finder *finder = context;
    finder->steps_left--;
    if (block->current_position > finder->reported)
        finder->steps_left -=
            (int64_t)(block->current_position - finder->reported) / BYTES_PER_STEP;
    finder->reported = block->current_position;
    if (finder->steps_left < 0)
        return PCRE2_ERROR_MATCHLIMIT;
    return bd_interrupt_check(NULL) == BD_OK ? 0 : PCRE2_ERROR_CALLOUT;
}

bd_status bd_finder_new(const bd_expression *expression, size_t n_finders, bd_finder **finder,
                        bd_error *err)
{
    *finder = NULL;
    bd_finder *made = calloc(1, sizeof *made);
    if (made) {
        made->expression = expression;
        made->steps_left = INT64_MAX;
        made->quick = pcre2_match_context_create(NULL);
        made->thorough = pcre2_match_context_create(NULL);
        made->match = pcre2_match_data_create(1, NULL);
        made->stack =
            pcre2_jit_stack_create(FIRST_STACK_BYTES, MOST_STACK_BYTES / n_finders, NULL);
    }
    // Without a stack of its own, compiled code uses 32 KiB of the thread's.
    if (!made || !made->quick || !made->thorough || !made->match) {
        bd_finder_free(made);
        return bd_fail(err, BD_ERR_MEMORY, "no memory to match a regular expression");
    }
    pcre2_set_match_limit(made->quick, FEW_STEPS);
    pcre2_jit_stack_assign(made->quick, NULL, made->stack);
    pcre2_set_match_limit(made->thorough, UINT32_MAX);
    pcre2_set_heap_limit(made->thorough, MOST_HEAP_KIB / (uint32_t)n_finders);
    pcre2_jit_stack_assign(made->thorough, NULL, made->stack);
    pcre2_set_callout(made->thorough, count_step, made);
    *finder = made;
    return BD_OK;
}

void bd_finder_free(bd_finder *finder)
{
    if (!finder)
        return;
    pcre2_jit_stack_free(finder->stack);
    pcre2_match_data_free(finder->match);
    pcre2_match_context_free(finder->quick);
    pcre2_match_context_free(finder->thorough);
    free(finder);
}

void bd_finder_allow(bd_finder *finder, size_t size_bytes)
{
    finder->steps_left = BD_FEWEST_MATCH_STEPS + BD_MATCH_STEPS_PER_BYTE * (int64_t)size_bytes;
}

int64_t bd_finder_steps_left(const bd_finder *finder)
{
    return finder->steps_left;
}

static bd_status take_steps(bd_finder *finder, size_t n_bytes, bd_error *err)
{
    finder->steps_left -= (int64_t)(n_bytes / BYTES_PER_STEP);
    return finder->steps_left < 0
               ? fail_to_match(err, finder->expression->source, PCRE2_ERROR_MATCHLIMIT)
               : bd_interrupt_check(err);
}

static bd_match last_match(const bd_finder *finder)
{
    const size_t *ends = pcre2_get_ovector_pointer(finder->match);
    return (bd_match){ends[0], ends[1]};
}

typedef enum answer { NOT_HERE, HERE, ASK_THOROUGHLY } answer;

// The end of a window from `at` on, between two characters or at the text's end.
static size_t window_end(const char *text, size_t size_bytes, size_t at, size_t window_bytes)
{
    if (size_bytes - at <= window_bytes)
        return size_bytes;
    size_t end = at + window_bytes;
    while (((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

// Searches for a match that begins at *at or after it and is decided by a window of the text.
// No match begins before the place that *at becomes; past the end means that none begins at
// all.
static answer search_quickly(bd_finder *finder, const char *text, size_t size_bytes, size_t *at)
{
    const size_t end = window_end(text, size_bytes, *at, WINDOW_BYTES);
    const bool is_last = end == size_bytes;
    const int result = pcre2_match(finder->expression->quick, (PCRE2_SPTR)text, end, *at,
                                   PCRE2_NO_UTF_CHECK | (is_last ? 0 : PCRE2_PARTIAL_HARD),
                                   finder->match, finder->quick);
    if (result == PCRE2_ERROR_PARTIAL && last_match(finder).begin > *at)
        *at = last_match(finder).begin;
    if (result >= 0 && (is_last || last_match(finder).begin < end))
        return HERE;
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return ASK_THOROUGHLY;
    *at = is_last ? size_bytes + 1 : end;  // the text behind it was not searched yet
    return NOT_HERE;
}

static int match_up_to(bd_finder *finder, const char *text, size_t end, size_t at,
                       uint32_t options)
{
    const pcre2_code *code = finder->expression->thorough;
    finder->reported = at;
    const int result =
        pcre2_match(code, (PCRE2_SPTR)text, end, at, options, finder->match, finder->thorough);
    return result == PCRE2_ERROR_JIT_STACKLIMIT
               ? pcre2_match(code, (PCRE2_SPTR)text, end, at, options | PCRE2_NO_JIT,
                             finder->match, finder->thorough)
               : result;
}

// Whether a match begins at `at`. The window grows step by step, so that the bytes that were
// read can be counted.
static bd_status search_thoroughly(bd_finder *finder, const char *text, size_t size_bytes,
                                   size_t at, bool *found, bd_error *err)
{
    int result = PCRE2_ERROR_PARTIAL;
    for (size_t n = WINDOW_BYTES; result == PCRE2_ERROR_PARTIAL; n *= 4) {
        const size_t end = window_end(text, size_bytes, at, 4 * n);
        const uint32_t partial = end < size_bytes ? PCRE2_PARTIAL_HARD : 0;
        BD_TRY(take_steps(finder, finder->expression->reports ? n : end - at, err));
        result = match_up_to(finder, text, end, at, PCRE2_NO_UTF_CHECK | partial);
    }
    *found = result >= 0;
    if (result >= 0 || result == PCRE2_ERROR_NOMATCH)
        return BD_OK;
    BD_TRY(bd_interrupt_check(err));
    return fail_to_match(err, finder->expression->source, result);
}

// The bytes of the character at `at`; 1 at the end.
static size_t bytes_of_character(const char *text, size_t size_bytes, size_t at)
{
    size_t n = 1;
    while (at + n < size_bytes && ((unsigned char)text[at + n] & 0xC0) == 0x80)
        n++;
    return n;
}

bd_status bd_finder_find(bd_finder *finder, const char *text, size_t size_bytes, size_t from,
                         bd_match *match, bool *found, bd_error *err)
{
    *found = false;
    for (size_t at = from; !*found && at <= size_bytes;) {
        const size_t before = at;
        const answer quick = search_quickly(finder, text, size_bytes, &at);
        *found = quick == HERE;
        if (*found)
            break;
        BD_TRY(take_steps(finder, at - before, err));
        if (quick == NOT_HERE)
            continue;
        BD_TRY(search_thoroughly(finder, text, size_bytes, at, found, err));
        if (!*found)
            at += bytes_of_character(text, size_bytes, at);
    }
    if (*found)
        *match = last_match(finder);
    return BD_OK;
}
