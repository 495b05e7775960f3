#include "common/tokenizer/split_expression.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/tokenizer/split_dialect.h"

enum {
    FIRST_STACK_BYTES = 32 << 10,
    MOST_STACK_BYTES = 16 << 20,  // of compiled code
    MOST_HEAP_KIB = 16 << 10,     // of the interpreter, which takes over when that is full
    // Steps that may be undone from one place in the text: a second's work at most. A word of
    // many megabytes may need some for each of its bytes.
    FEWEST_STEPS = 1 << 20,
    STEPS_PER_BYTE = 4,
};

struct bd_expression {
    char *source;
    pcre2_code *code;
};

struct bd_finder {
    const bd_expression *expression;  // borrowed
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *stack;
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

static bd_status compile(const char *source, const char *translated, pcre2_code **code,
                         bd_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int number;
    size_t place;
    // What could change the options from within is refused by the translation; \C would cut
    // characters.
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_NO_AUTO_CAPTURE;
    *code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &number,
                          &place, context);
    pcre2_compile_context_free(context);
    return *code ? BD_OK : fail_to_compile(err, source, translated, place, number);
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
    pcre2_code *code;
    BD_TRY(compile(source, translated, &code, err));
    // Where there is no JIT for the machine, the interpreter gives the same matches.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    bd_expression *made = malloc(sizeof *made);
    char *kept = strdup(source);
    if (!made || !kept) {
        free(made);
        free(kept);
        pcre2_code_free(code);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    }
    *made = (bd_expression){kept, code};
    *expression = made;
    return BD_OK;
}

void bd_expression_free(bd_expression *expression)
{
    if (!expression)
        return;
    pcre2_code_free(expression->code);
    free(expression->source);
    free(expression);
}

bd_status bd_finder_new(const bd_expression *expression, size_t n_finders, bd_finder **finder,
                        bd_error *err)
{
    *finder = NULL;
    bd_finder *made = calloc(1, sizeof *made);
    if (made) {
        made->expression = expression;
        made->context = pcre2_match_context_create(NULL);
        made->match = pcre2_match_data_create(1, NULL);
        made->stack =
            pcre2_jit_stack_create(FIRST_STACK_BYTES, MOST_STACK_BYTES / n_finders, NULL);
    }
    // Without a stack of its own, compiled code uses 32 KiB of the thread's.
    if (!made || !made->context || !made->match) {
        bd_finder_free(made);
        return bd_fail(err, BD_ERR_MEMORY, "no memory to match a regular expression");
    }
    pcre2_set_heap_limit(made->context, MOST_HEAP_KIB / (uint32_t)n_finders);
    pcre2_jit_stack_assign(made->context, NULL, made->stack);
    *finder = made;
    return BD_OK;
}

void bd_finder_free(bd_finder *finder)
{
    if (!finder)
        return;
    pcre2_jit_stack_free(finder->stack);
    pcre2_match_data_free(finder->match);
    pcre2_match_context_free(finder->context);
    free(finder);
}

static uint32_t most_steps(size_t size_bytes)
{
    const size_t steps = FEWEST_STEPS + STEPS_PER_BYTE * size_bytes;
    return steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
}

bd_status bd_finder_find(bd_finder *finder, const char *text, size_t size_bytes, size_t from,
                         bd_match *match, bool *found, bd_error *err)
{
    pcre2_set_match_limit(finder->context, most_steps(size_bytes));
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int result = pcre2_match(finder->expression->code, (PCRE2_SPTR)text, size_bytes, from,
                             options, finder->match, finder->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
        options |= PCRE2_NO_JIT;
        result = pcre2_match(finder->expression->code, (PCRE2_SPTR)text, size_bytes, from,
                             options, finder->match, finder->context);
    }
    *found = result >= 0;
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return fail_to_match(err, finder->expression->source, result);
    if (*found) {
        const size_t *ends = pcre2_get_ovector_pointer(finder->match);
        *match = (bd_match){ends[0], ends[1]};
    }
    return BD_OK;
}
