// A tokenizer made of any bytes. The first byte says what the others are: a whole
// tokenizer.json, the part of its vocabulary after the bytes, a merges.txt, or the lines after
// the bytes of a .tiktoken file. A model that is accepted must keep its invariants and survive
// being written and read again.
#include <string.h>

#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/normal_form.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/common/tokenizer/byte_vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_invariants(const bd_bpe_model *model)
{
    for (uint32_t id = 0; id < model->n_ids; id++)
        REQUIRE(model->begins[id] <= model->begins[id + 1]);
    for (int byte = 0; byte < 256; byte++) {
        const uint32_t begin = model->begins[model->byte_ids[byte]];
        REQUIRE(model->begins[model->byte_ids[byte] + 1] - begin == 1);
        REQUIRE((unsigned char)model->bytes[begin] == byte);
    }
    for (size_t i = 0; i < model->n_merges; i++) {
        const bd_merge *m = &model->merges[i];
        const uint32_t *begins = model->begins;
        const size_t left = begins[m->left + 1] - begins[m->left];
        const size_t right = begins[m->right + 1] - begins[m->right];
        const char *product = model->bytes + begins[m->product];
        REQUIRE(begins[m->product + 1] - begins[m->product] == left + right);
        REQUIRE(memcmp(product, model->bytes + begins[m->left], left) == 0);
        REQUIRE(memcmp(product + left, model->bytes + begins[m->right], right) == 0);
        REQUIRE(bd_bpe_model_merges_to(model, m->product));
    }
    for (size_t i = 1; i < model->n_added; i++)
        REQUIRE(model->added[i - 1].id < model->added[i].id);
}

static void check_written(const bd_bpe_model *model)
{
    char *text, *again;
    bd_bpe_model second;
    bd_error err = {0};
    if (bd_bpe_model_to_json(model, &text, &err) != BD_OK) {
        REQUIRE(err.status == BD_ERR_UNSUPPORTED);
        return;
    }
    const bd_status status =
        bd_bpe_model_parse_json(&second, text, strlen(text), "written", &err);
    if (status != BD_OK)
        fprintf(stderr, "%s\n%s\n", err.message, text);
    REQUIRE(status == BD_OK);
    REQUIRE(bd_bpe_model_to_json(&second, &again, NULL) == BD_OK);
    REQUIRE(strcmp(text, again) == 0);
    REQUIRE(strcmp(bd_bpe_model_fingerprint(model).hex,
                   bd_bpe_model_fingerprint(&second).hex) == 0);
    bd_bpe_model_release(&second);
    free(text);
    free(again);
}

static void check_added(const bd_bpe_model *model, const char *text, size_t n)
{
    bd_added_tokens *tokens;
    for (int normalized = 0; normalized < 2; normalized++) {
        if (bd_added_tokens_new(model, normalized, &tokens, NULL) != BD_OK)
            continue;
        bd_added_match match;
        for (size_t from = 0; bd_added_tokens_find(tokens, text, n, from, true, &match);
             from = match.resume)
            REQUIRE(match.begin < match.end && match.end <= n && from < match.resume &&
                    match.resume <= match.end && match.token->id < model->n_ids);
        bd_added_tokens_free(tokens);
    }
}

static void check_normal_form(const char *text, size_t n)
{
    char *once, *twice;
    size_t n_once, n_twice;
    REQUIRE(bd_normal_form(text, n, &once, &n_once, NULL) == BD_OK);
    REQUIRE(n_once <= 3 * n);
    REQUIRE(!bd_is_normal_form(text, n) || (n == n_once && memcmp(text, once, n) == 0));
    REQUIRE(bd_normal_form(once, n_once, &twice, &n_twice, NULL) == BD_OK);
    REQUIRE(n_once == n_twice && memcmp(once, twice, n_once) == 0);
    free(once);
    free(twice);
}

// ---- The four kinds ---------------------------------------------------------------

static bd_status read_entries(bd_bpe_model *model, const char *text, size_t n, bd_error *err)
{
    char *entries = byte_entries(-1, ""), *whole;
    const int n_whole =
        asprintf(&whole, "{\"pre_tokenizer\": " GPT2_STEP ", \"model\": {\"vocab\": {%s%.*s}}",
                 entries, (int)n, text);
    REQUIRE(n_whole > 0);
    const bd_status status =
        bd_bpe_model_parse_json(model, whole, (size_t)n_whole, "entries", err);
    free(whole);
    free(entries);
    return status;
}

static bd_status read_merges(bd_bpe_model *model, const char *text, size_t n, bd_error *err)
{
    static const char *folder;
    if (!folder) {
        folder = folder_with("merges.txt");
        char *entries = byte_entries(
            -1, ", \"ab\": 256, \"bc\": 257, \"abc\": 258, \"abcab\": 259, \"aa\": 260, "
                "\"aaa\": 261, \"<|endoftext|>\": 262");
        char path[4096];
        snprintf(path, sizeof path, "%s/vocab.json", folder);
        FILE *file = fopen(path, "wb");
        REQUIRE(file && fprintf(file, "{%s}", entries) > 0 && fclose(file) == 0);
        free(entries);
    }
    memory_file_set(text, n);
    return bd_bpe_model_load(model, folder, err);
}

static bd_status read_ranks(bd_bpe_model *model, const char *text, size_t n, bd_error *err)
{
    char *lines, spec[128];
    size_t n_lines;
    FILE *out = open_memstream(&lines, &n_lines);
    put_byte_ranks(out);
    fwrite(text, 1, n, out);
    fclose(out);
    memory_file_set(lines, n_lines);
    free(lines);
    snprintf(spec, sizeof spec, "%s:gpt2", memory_file_path());
    return bd_bpe_model_load(model, spec, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size);  // exactly this long, for the sanitizers
    memcpy(text, data, size);
    bd_bpe_model model;
    bd_error err = {0};
    bd_status status;
    if (text[0] == 'e')
        status = read_entries(&model, text + 1, size - 1, &err);
    else if (text[0] == 'm')
        status = read_merges(&model, text + 1, size - 1, &err);
    else if (text[0] == 't')
        status = read_ranks(&model, text + 1, size - 1, &err);
    else
        status = bd_bpe_model_parse_json(&model, text, size, "fuzz", &err);
    if (status == BD_OK) {
        check_invariants(&model);
        check_written(&model);
        check_added(&model, text, size);
    } else {
        REQUIRE(err.status == status && err.message[0] && !model.begins);
    }
    check_normal_form(text, size);
    bd_bpe_model_release(&model);
    free(text);
    return 0;
}
