#include <string.h>

#include "common/tokenizer/split/split_step.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define BLANK        "\\s+(?!\\S)|\\s+"
#define LINES        "\\s*[\\r\\n]+|" BLANK
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

typedef struct spelling {
    bd_pattern pattern;
    const char *expression;
} spelling;

// The first spelling of a pattern is the one that is written. The list has only spellings that
// give the same words in Oniguruma, so not tiktoken's own of cl100k: `{1,3}+` and `$` mean
// something else there.
static const spelling spellings[] = {
    {BD_PATTERN_GPT2,
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" BLANK},
    {BD_PATTERN_GPT2,
     "'s|'t|'re|'ve|'m|'ll|'d| ?[\\p{L}]+| ?[\\p{N}]+| ?[^\\s\\p{L}\\p{N}]+|" BLANK},
    {BD_PATTERN_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" BLANK},
    {BD_PATTERN_CL100K, CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" PUNCTUATION "|\\s+\\z|" LINES},
    {BD_PATTERN_LLAMA3, CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" PUNCTUATION "|" LINES},
    {BD_PATTERN_LLAMA3, "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
                        " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" BLANK},
    {BD_PATTERN_O200K, "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|"
                       "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?|"
                       "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES},
    {BD_PATTERN_QWEN2, CONTRACTIONS "|" LETTERS "|\\p{N}|" PUNCTUATION "|" LINES},
    {BD_PATTERN_DIGIT, "\\p{N}"},
};
enum { N_SPELLINGS = sizeof spellings / sizeof *spellings };

typedef struct pattern_name {
    const char *name;
    bd_pattern pattern;
} pattern_name;

static const pattern_name names[] = {
    {"gpt2", BD_PATTERN_GPT2},          {"r50k_base", BD_PATTERN_GPT2},
    {"p50k_base", BD_PATTERN_GPT2},     {"cl100k", BD_PATTERN_CL100K},
    {"cl100k_base", BD_PATTERN_CL100K}, {"o200k", BD_PATTERN_O200K},
    {"o200k_base", BD_PATTERN_O200K},   {"llama3", BD_PATTERN_LLAMA3},
    {"qwen2", BD_PATTERN_QWEN2},
};
enum { N_NAMES = sizeof names / sizeof *names };

bd_pattern bd_pattern_of_expression(const char *expression)
{
    for (int i = 0; i < N_SPELLINGS; i++)
        if (strcmp(spellings[i].expression, expression) == 0)
            return spellings[i].pattern;
    return BD_PATTERN_OTHER;
}

const char *bd_pattern_expression(bd_pattern pattern)
{
    for (int i = 0; i < N_SPELLINGS; i++)
        if (spellings[i].pattern == pattern)
            return spellings[i].expression;
    return NULL;
}

bool bd_pattern_by_name(const char *name, bd_pattern *pattern)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(names[i].name, name) == 0) {
            *pattern = names[i].pattern;
            return true;
        }
    return false;
}

const char *bd_pattern_names(void)
{
    return "gpt2 (or r50k_base, p50k_base), cl100k (or cl100k_base), o200k (or o200k_base), "
           "llama3, qwen2";
}
