// Usage: tokenizer_probe json|fingerprint|added|added-but-special SPEC, or tokenizer_probe normal-form
//
// Shows a test how a tokenizer's file was understood: its tokenizer.json; its fingerprint,
// number of merges and whether whole words count; or the ids of texts without any merge, so
// that only added tokens and bytes are found. Texts come on standard input, each after its size
// as 4 bytes, little-endian; each becomes a line of ids, or for normal-form is written in the
// same form.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/normal_form.h"

typedef struct probe {
    bd_bpe_model model;
    bd_added_tokens *raw, *normalized;
    bool with_special;
} probe;

static void require(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "%s: %s\n", status == BD_ERR_UNSUPPORTED ? "unsupported" : "refused",
            err->message);
    exit(2);
}

// ---- Ids without merging ----------------------------------------------------------

static void print_bytes(const probe *p, const char *text, size_t n)
{
    if (n > 0 && p->model.prefix_space && text[0] != ' ')
        printf("%u ", p->model.byte_ids[' ']);
    for (size_t i = 0; i < n; i++)
        printf("%u ", p->model.byte_ids[(unsigned char)text[i]]);
}

static void print_normalized(const probe *p, const char *text, size_t n)
{
    bd_error err = {0};
    bd_added_match match;
    char *normal = NULL;
    if (p->model.nfc && !bd_is_normal_form(text, n)) {
        require(bd_normal_form(text, n, &normal, &n, &err), &err);
        text = normal;
    }
    size_t done = 0;
    for (size_t from = 0;
         bd_added_tokens_find(p->normalized, text, n, from, p->with_special, &match);
         from = match.resume, done = match.end) {
        if (match.begin > done)
            print_bytes(p, text + done, match.begin - done);
        printf("%u ", match.token->id);
    }
    print_bytes(p, text + done, n - done);
    free(normal);
}

static void print_ids(const probe *p, const char *text, size_t n)
{
    bd_added_match match;
    size_t done = 0;
    for (size_t from = 0; bd_added_tokens_find(p->raw, text, n, from, p->with_special, &match);
         from = match.resume, done = match.end) {
        if (match.begin > done)
            print_normalized(p, text + done, match.begin - done);
        printf("%u ", match.token->id);
    }
    print_normalized(p, text + done, n - done);
    puts("");
}

static void put_normal_form(const probe *p, const char *text, size_t n)
{
    (void)p;
    bd_error err = {0};
    char *normal;
    size_t n_normal;
    require(bd_normal_form(text, n, &normal, &n_normal, &err), &err);
    if (bd_is_normal_form(text, n) && (n != n_normal || memcmp(text, normal, n) != 0)) {
        fputs("the quick test is wrong\n", stderr);
        exit(2);
    }
    const uint32_t size = (uint32_t)n_normal;
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(normal, 1, n_normal, stdout);
    free(normal);
}

// ---- Commands ---------------------------------------------------------------------

static void for_each_text(const probe *p, void (*show)(const probe *, const char *, size_t))
{
    uint32_t size;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        char *text = malloc(size);  // exactly this long, for the sanitizers
        if ((!text && size > 0) || fread(text, 1, size, stdin) != size)
            exit(2);
        show(p, text, size);
        free(text);
    }
}

static void show_model(const probe *p, const char *what)
{
    bd_error err = {0};
    if (strcmp(what, "fingerprint") == 0) {
        printf("%s %zu %d\n", bd_bpe_model_fingerprint(&p->model).hex, p->model.n_merges,
               p->model.whole_words);
    } else if (strcmp(what, "json") == 0) {
        char *text;
        require(bd_bpe_model_to_json(&p->model, &text, &err), &err);
        fputs(text, stdout);
        free(text);
    } else {
        for_each_text(p, print_ids);
    }
}

int main(int argc, char **argv)
{
    bd_error err = {0};
    probe p = {0};
    if (argc == 2) {
        for_each_text(&p, put_normal_form);
    } else if (argc == 3) {
        require(bd_bpe_model_load(&p.model, argv[2], &err), &err);
        require(bd_added_tokens_new(&p.model, false, &p.raw, &err), &err);
        require(bd_added_tokens_new(&p.model, true, &p.normalized, &err), &err);
        p.with_special = strcmp(argv[1], "added-but-special") != 0;
        show_model(&p, argv[1]);
        bd_added_tokens_free(p.raw);
        bd_added_tokens_free(p.normalized);
        bd_bpe_model_release(&p.model);
    }
    return fflush(stdout) == 0 ? 0 : 2;
}
