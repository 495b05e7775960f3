// Writing a model as tokenizer.json, in one form for one meaning.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text_stream.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/model/byte_alphabet.h"
#include "common/tokenizer/model/model_parts.h"

static const char *word(bool value)
{
    return value ? "true" : "false";
}

static void put_string(FILE *out, const char *text, size_t size_bytes)
{
    putc('"', out);
    for (size_t i = 0; i < size_bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

static void put_added_token_list(FILE *out, const bd_bpe_model *model)
{
    fputs("  \"added_tokens\": [", out);
    for (size_t i = 0; i < model->n_added; i++) {
        const bd_added_token *token = &model->added[i];
        fprintf(out, "%s\n    {\"id\": %u, \"content\": ", i ? "," : "", token->id);
        put_string(out, token->text, token->size_bytes);
        fprintf(out,
                ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, "
                "\"special\": %s}",
                word(token->single_word), word(token->left_strip), word(token->right_strip),
                word(token->normalized), word(token->special));
    }
    fputs(model->n_added ? "\n  ],\n" : "],\n", out);
}

// ---- How text is split ------------------------------------------------------------

static void put_byte_level(FILE *out, bool prefix_space, bool use_regex)
{
    fprintf(out,
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
            "\"use_regex\": %s}",
            word(prefix_space), word(use_regex));
}

static void put_step(FILE *out, const bd_split_step *step)
{
    if (step->pattern == BD_PATTERN_DIGIT) {
        fputs("{\"type\": \"Digits\", \"individual_digits\": true}", out);
        return;
    }
    const char *expression = step->pattern == BD_PATTERN_OTHER
                                 ? step->expression
                                 : bd_pattern_expression(step->pattern);
    fputs("{\"type\": \"Split\", \"pattern\": {\"Regex\": ", out);
    put_string(out, expression, strlen(expression));
    fputs("}, \"behavior\": \"Isolated\", \"invert\": false}", out);
}

// ByteLevel has GPT-2's pattern built in, as the last step.
static void put_pre_tokenizer(FILE *out, const bd_bpe_model *model)
{
    const size_t n = model->n_steps;
    const bool built_in = n > 0 && model->steps[n - 1].pattern == BD_PATTERN_GPT2;
    const size_t n_written = built_in ? n - 1 : n;
    fputs("  \"pre_tokenizer\": ", out);
    if (n_written > 0)
        fputs("{\"type\": \"Sequence\", \"pretokenizers\": [\n", out);
    for (size_t i = 0; i < n_written; i++) {
        fputs("    ", out);
        put_step(out, &model->steps[i]);
        fputs(",\n", out);
    }
    if (n_written > 0)
        fputs("    ", out);
    put_byte_level(out, model->prefix_space, built_in);
    fputs(n_written > 0 ? "\n  ]},\n" : ",\n", out);
}

// ---- The vocabulary ---------------------------------------------------------------

// Whether Hugging Face's `tokenizers` gives the added tokens their ids if the vocabulary does
// not have them.
static bool ids_follow(const bd_bpe_model *model)
{
    size_t n_entries = 0;
    for (uint32_t id = 0; id < model->n_ids; id++)
        n_entries += bd_bpe_model_merges_to(model, id);
    int64_t highest = -1;
    for (size_t i = 0; i < model->n_added; i++) {
        const bd_added_token *token = &model->added[i];
        if (!token->merges && bd_next_added_id(n_entries, highest) != token->id)
            return false;
        highest = token->id;
    }
    return true;
}

// In the vocabulary an added token is reached as a whole word, too, which matters where it can
// be left in a text (model_parts.c).
static bool entries_do_no_harm(const bd_bpe_model *model)
{
    bool single_word = false;
    for (size_t i = 0; i < model->n_added; i++)
        single_word = single_word || model->added[i].single_word;
    return !model->whole_words || !(single_word || model->nfc || model->prefix_space);
}

// `buffer` has room for the longest token in the alphabet.
static size_t symbols(const bd_bpe_model *model, uint32_t id, char *buffer)
{
    return bd_symbols_of_bytes(model->bytes + model->begins[id],
                               model->begins[id + 1] - model->begins[id], buffer);
}

static void put_vocabulary(FILE *out, const bd_bpe_model *model, bool with_added, char *buffer)
{
    fputs("    \"vocab\": {", out);
    bool first = true;
    for (uint32_t id = 0; id < model->n_ids; id++) {
        const size_t n_bytes = model->begins[id + 1] - model->begins[id];
        const bool merges = bd_bpe_model_merges_to(model, id);
        if (n_bytes == 0 || (!merges && !with_added))
            continue;
        fputs(first ? "\n      " : ",\n      ", out);
        if (merges)
            put_string(out, buffer, symbols(model, id, buffer));
        else
            put_string(out, model->bytes + model->begins[id], n_bytes);
        fprintf(out, ": %u", id);
        first = false;
    }
    fputs("\n    },\n", out);
}

static void put_merges(FILE *out, const bd_bpe_model *model, char *buffer)
{
    fputs("    \"merges\": [", out);
    for (size_t i = 0; i < model->n_merges; i++) {
        size_t n = symbols(model, model->merges[i].left, buffer);
        buffer[n++] = ' ';
        n += symbols(model, model->merges[i].right, buffer + n);
        fputs(i ? ",\n      " : "\n      ", out);
        put_string(out, buffer, n);
    }
    fputs(model->n_merges ? "\n    ]\n" : "]\n", out);
}

static void put_model(FILE *out, const bd_bpe_model *model, bool with_added, char *buffer)
{
    fputs("  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
          "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
          "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
          "    \"byte_fallback\": false,\n",
          out);
    fprintf(out, "    \"ignore_merges\": %s,\n", word(model->whole_words));
    put_vocabulary(out, model, with_added, buffer);
    put_merges(out, model, buffer);
    fputs("  }\n}\n", out);
}

static void put_document(FILE *out, const bd_bpe_model *model, bool with_added, char *buffer)
{
    fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n", out);
    put_added_token_list(out, model);
    fprintf(out, "  \"normalizer\": %s,\n", model->nfc ? "{\"type\": \"NFC\"}" : "null");
    put_pre_tokenizer(out, model);
    fputs("  \"post_processor\": null,\n  \"decoder\": ", out);
    put_byte_level(out, false, false);
    fputs(",\n", out);
    put_model(out, model, with_added, buffer);
}

bd_status bd_bpe_model_to_json(const bd_bpe_model *model, char **text, bd_error *err)
{
    *text = NULL;
    const bool with_added = !ids_follow(model);
    if (with_added && !entries_do_no_harm(model))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "the ids of the added tokens cannot be written in a tokenizer.json "
                       "without changing what whole words become");
    uint32_t longest = 0;
    for (uint32_t id = 0; id < model->n_ids; id++)
        if (model->begins[id + 1] - model->begins[id] > longest)
            longest = model->begins[id + 1] - model->begins[id];
    char *buffer = malloc(2 * BD_MAX_SYMBOL_BYTES * (size_t)longest + 1);
    bd_text_stream out;
    if (buffer && bd_text_stream_open(&out)) {
        put_document(out.file, model, with_added, buffer);
        *text = bd_text_stream_close(&out, NULL);
    }
    free(buffer);
    return *text ? BD_OK
                 : bd_fail(err, BD_ERR_MEMORY, "no memory to print a tokenizer of %u ids",
                           model->n_ids);
}
