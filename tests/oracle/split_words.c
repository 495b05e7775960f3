// split_words - runs the splitter for tests/oracle/splitter_test.py.
//
// Usage: split_words STEP...
//
// A STEP is the name of a pattern ("gpt2", …, "digit") or "/" and a regular expression. Reads
// texts, each preceded by its length, and writes for each the number of its words and their
// ends; all numbers are 32 bits, little-endian.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/split/splitter.h"

enum { CAPACITY = 100 };  // small, so that texts are read in many calls

static void must(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "split_words: %s\n", err->message);
    exit(2);
}

static bd_split_step step_of(char *argument)
{
    bd_split_step step = {BD_PATTERN_OTHER, NULL};
    if (argument[0] == '/')
        step.expression = argument + 1;
    else if (strcmp(argument, "digit") == 0)
        step.pattern = BD_PATTERN_DIGIT;
    else if (!bd_pattern_by_name(argument, &step.pattern)) {
        fprintf(stderr, "split_words: '%s' is none of %s, digit\n", argument,
                bd_pattern_names());
        exit(2);
    }
    return step;
}

static void answer(bd_word_reader *reader, const char *text, uint32_t size_bytes)
{
    bd_error err;
    uint32_t *ends = malloc((size_bytes + CAPACITY) * sizeof *ends);
    uint32_t n = 0;
    size_t got;
    if (!ends)
        exit(2);
    must(bd_word_reader_begin(reader, text, size_bytes, &err), &err);
    do {
        must(bd_word_reader_next(reader, ends + n, CAPACITY, &got, &err), &err);
        n += (uint32_t)got;
    } while (got > 0);
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(ends, sizeof *ends, n, stdout);
    free(ends);
}

int main(int argc, char **argv)
{
    bd_error err;
    bd_split_step steps[16];
    bd_splitter *splitter;
    bd_word_reader *reader;
    for (int i = 1; i < argc && i <= 16; i++)
        steps[i - 1] = step_of(argv[i]);
    must(bd_splitter_new(steps, (size_t)argc - 1, &splitter, &err), &err);
    must(bd_word_reader_new(splitter, &reader, &err), &err);
    uint32_t size_bytes;
    while (fread(&size_bytes, sizeof size_bytes, 1, stdin) == 1) {
        char *text = malloc(size_bytes > 0 ? size_bytes : 1);
        if (!text || fread(text, 1, size_bytes, stdin) != size_bytes)
            return 2;
        answer(reader, text, size_bytes);
        free(text);
    }
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
    return fflush(stdout) == 0 ? 0 : 2;
}
