// tokenizer.json, the format of Hugging Face's `tokenizers`. The vocabulary and the merges are
// nearly all of it and are read as they come; the rest is small and becomes a tree.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/model/loaders.h"

enum { MAX_TREE_BYTES = 1 << 24, MAX_ALTERNATIVES = 4 };

// The values that a key may have, as JSON; without alternatives any value.
typedef struct rule {
    const char *key;
    const char *accepted[MAX_ALTERNATIVES];
} rule;

static const rule document_rules[] = {
    {"version", {"\"1.0\""}}, {"truncation", {"null"}},   {"padding", {"null"}},
    {"added_tokens", {NULL}}, {"normalizer", {NULL}},     {"pre_tokenizer", {NULL}},
    {"decoder", {NULL}},      {"post_processor", {NULL}}, {NULL, {NULL}},
};

// unk_token and fuse_unk are about text that has no token; every byte has one.
static const rule model_rules[] = {
    {"type", {"\"BPE\""}},
    {"dropout", {"null", "0", "0.0"}},
    {"unk_token", {NULL}},
    {"continuing_subword_prefix", {"null", "\"\""}},
    {"end_of_word_suffix", {"null", "\"\""}},
    {"fuse_unk", {"true", "false"}},
    {"byte_fallback", {"false"}},
    {"ignore_merges", {"true", "false"}},
    {NULL, {NULL}},
};

typedef struct document {
    bd_model_parts *parts;
    bd_json_reader reader;
    bd_json *values;    // members of the document other than "model", owned
    bd_json *settings;  // members of "model" other than "vocab" and "merges", owned
    bool has_model, has_vocabulary, has_merges;
    size_t merges_at;  // where they are, if they come before the vocabulary; else 0
} document;

bd_status bd_not_supported(const char *key, const bd_json *value, bd_error *err)
{
    char *text = NULL;
    BD_TRY(bd_json_print(value, BD_JSON_COMPACT, &text, err));
    bd_fail(err, BD_ERR_UNSUPPORTED, "'%s' is %.150s, which is not supported", key, text);
    free(text);
    return BD_ERR_UNSUPPORTED;
}

static bd_status check_rule(const rule *known, const bd_json_member *member, bd_error *err)
{
    if (!known->accepted[0])
        return BD_OK;
    char *text = NULL;
    bool accepted = false;
    BD_TRY(bd_json_print(member->value, BD_JSON_COMPACT, &text, err));
    for (int i = 0; i < MAX_ALTERNATIVES && known->accepted[i]; i++)
        accepted = accepted || strcmp(text, known->accepted[i]) == 0;
    free(text);
    return accepted ? BD_OK : bd_not_supported(member->key, member->value, err);
}

static bd_status check_rules(const rule *rules, const bd_json *object, bd_error *err)
{
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m)) {
        const rule *known = rules;
        while (known->key && strcmp(known->key, m.key) != 0)
            known++;
        if (!known->key)
            return bd_not_supported(m.key, m.value, err);
        BD_TRY(check_rule(known, &m, err));
    }
    return BD_OK;
}

// ---- Reading ----------------------------------------------------------------------

// Keeps a member for later, as a member of `object`.
static bd_status keep_member(bd_json_reader *reader, bd_json *object, const char *key,
                             bd_error *err)
{
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m))
        if (strcmp(m.key, key) == 0)
            return bd_fail(err, BD_ERR_FORMAT, "it has '%s' twice", key);
    bd_json *value;
    const bd_status status = bd_json_reader_value(reader, MAX_TREE_BYTES, &value, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'%s'", key);
    bd_json_set(object, key, value);
    return BD_OK;
}

// A key as a string of C.
typedef struct short_key {
    char text[64];
} short_key;

static bd_status read_key(bd_json_reader *reader, short_key *key, bd_error *err)
{
    const char *text;
    size_t n;
    BD_TRY(bd_json_reader_key(reader, &text, &n, err));
    if (n >= sizeof key->text || memchr(text, '\0', n))
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'%.40s…' is not supported", text);
    memcpy(key->text, text, n);
    key->text[n] = '\0';
    return BD_OK;
}

bd_status bd_load_vocabulary(bd_model_parts *parts, bd_json_reader *reader, bd_error *err)
{
    bool more;
    BD_TRY(bd_json_reader_enter(reader, '{', err));
    for (;;) {
        const char *text;
        size_t n;
        int64_t id;
        BD_TRY(bd_json_reader_more(reader, '}', &more, err));
        if (!more)
            return BD_OK;
        BD_TRY(bd_json_reader_key(reader, &text, &n, err));
        BD_TRY(bd_json_reader_integer(reader, &id, err));
        BD_TRY(bd_model_parts_add_entry(parts, text, n, id, err));
    }
}

// "left right"
static bd_status read_spaced_merge(document *d, bd_error *err)
{
    const char *text;
    size_t n;
    BD_TRY(bd_json_reader_string(&d->reader, &text, &n, err));
    const char *space = memchr(text, ' ', n);
    if (!space)
        return bd_fail(err, BD_ERR_FORMAT, "it is not two entries with a space between");
    const size_t left = (size_t)(space - text);
    return bd_model_parts_add_merge(d->parts, text, left, space + 1, n - left - 1, err);
}

// ["left", "right"]
static bd_status read_paired_merge(document *d, bd_error *err)
{
    const char *text[2];
    size_t n[2];
    char *first = NULL;
    bool more = true;
    bd_status status = bd_json_reader_enter(&d->reader, '[', err);
    for (int i = 0; i < 2 && status == BD_OK; i++) {
        status = bd_json_reader_more(&d->reader, ']', &more, err);
        if (status == BD_OK && !more)
            status = bd_fail(err, BD_ERR_FORMAT, "it is not two entries");
        if (status == BD_OK)
            status = bd_json_reader_string(&d->reader, &text[i], &n[i], err);
        // Reading the second may overwrite the first.
        if (status == BD_OK && i == 0 && text[0] == d->reader.unescaped) {
            first = malloc(n[0] + 1);
            if (first)
                text[0] = memcpy(first, text[0], n[0]);
            else
                status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes", n[0]);
        }
    }
    if (status == BD_OK)
        status = bd_json_reader_more(&d->reader, ']', &more, err);
    if (status == BD_OK && more)
        status = bd_fail(err, BD_ERR_FORMAT, "it is not two entries");
    if (status == BD_OK)
        status = bd_model_parts_add_merge(d->parts, text[0], n[0], text[1], n[1], err);
    free(first);
    return status;
}

static bd_status read_json_merges(document *d, bd_error *err)
{
    bool more;
    BD_TRY(bd_json_reader_enter(&d->reader, '[', err));
    for (size_t i = 0;; i++) {
        BD_TRY(bd_json_reader_more(&d->reader, ']', &more, err));
        if (!more)
            return BD_OK;
        const bd_status status = bd_json_reader_peek(&d->reader) == '['
                                     ? read_paired_merge(d, err)
                                     : read_spaced_merge(d, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "merge %zu", i);
    }
}

static bd_status read_vocabulary_once(document *d, bd_error *err)
{
    if (d->has_vocabulary)
        return bd_fail(err, BD_ERR_FORMAT, "it has 'vocab' twice");
    d->has_vocabulary = true;
    const bd_status status = bd_load_vocabulary(d->parts, &d->reader, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'vocab'");
}

static bd_status read_merges_once(document *d, bd_error *err)
{
    if (d->has_merges)
        return bd_fail(err, BD_ERR_FORMAT, "it has 'merges' twice");
    d->has_merges = true;
    if (!d->has_vocabulary) {
        d->merges_at = d->reader.at;
        return bd_json_reader_skip(&d->reader, err);
    }
    const bd_status status = read_json_merges(d, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'merges'");
}

static bd_status read_model(document *d, bd_error *err)
{
    bool more;
    if (d->has_model)
        return bd_fail(err, BD_ERR_FORMAT, "it is given twice");
    d->has_model = true;
    BD_TRY(bd_json_reader_enter(&d->reader, '{', err));
    for (;;) {
        short_key key;
        BD_TRY(bd_json_reader_more(&d->reader, '}', &more, err));
        if (!more)
            return BD_OK;
        BD_TRY(read_key(&d->reader, &key, err));
        if (strcmp(key.text, "vocab") == 0)
            BD_TRY(read_vocabulary_once(d, err));
        else if (strcmp(key.text, "merges") == 0)
            BD_TRY(read_merges_once(d, err));
        else
            BD_TRY(keep_member(&d->reader, d->settings, key.text, err));
    }
}

static bd_status read_document(document *d, bd_error *err)
{
    bool more;
    BD_TRY(bd_json_reader_enter(&d->reader, '{', err));
    for (;;) {
        short_key key;
        BD_TRY(bd_json_reader_more(&d->reader, '}', &more, err));
        if (!more)
            break;
        BD_TRY(read_key(&d->reader, &key, err));
        if (strcmp(key.text, "model") == 0) {
            const bd_status status = read_model(d, err);
            if (status != BD_OK)
                return bd_error_prefix(err, status, "'model'");
        } else {
            BD_TRY(keep_member(&d->reader, d->values, key.text, err));
        }
    }
    return bd_json_reader_end(&d->reader, err);
}

// ---- The meaning of the members ---------------------------------------------------

static bd_status load_added_token(bd_model_parts *parts, const bd_json *object, bd_error *err)
{
    int64_t id;
    const char *text;
    bd_added_token token = {0};
    BD_TRY(bd_json_get_integer(object, "id", 0, BD_MAX_VOCABULARY - 1, &id, err));
    BD_TRY(bd_json_get_string(object, "content", &text, err));
    BD_TRY(bd_json_get_bool(object, "single_word", &token.single_word, err));
    BD_TRY(bd_json_get_bool(object, "lstrip", &token.left_strip, err));
    BD_TRY(bd_json_get_bool(object, "rstrip", &token.right_strip, err));
    BD_TRY(bd_json_get_bool(object, "normalized", &token.normalized, err));
    BD_TRY(bd_json_get_bool(object, "special", &token.special, err));
    static const rule rules[] = {
        {"id", {NULL}},     {"content", {NULL}},    {"single_word", {NULL}}, {"lstrip", {NULL}},
        {"rstrip", {NULL}}, {"normalized", {NULL}}, {"special", {NULL}},     {NULL, {NULL}},
    };
    BD_TRY(check_rules(rules, object, err));
    return bd_model_parts_add_token(parts, token, id, text, strlen(text), err);
}

static bd_status load_added_tokens(document *d, bd_error *err)
{
    if (bd_json_is_null(d->values, "added_tokens"))
        return BD_OK;
    const bd_json *array;
    BD_TRY(bd_json_get_array(d->values, "added_tokens", &array, err));
    for (size_t i = 0; i < bd_json_length(array); i++) {
        const bd_status status = load_added_token(d->parts, bd_json_at(array, i), err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'added_tokens', element %zu", i);
    }
    return BD_OK;
}

static bd_status load_model(document *d, bd_error *err)
{
    if (!d->has_model)
        return bd_fail(err, BD_ERR_FORMAT, "it has no 'model'");
    const bd_status status = check_rules(model_rules, d->settings, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "'model'");
    if (!d->has_vocabulary || !d->has_merges)
        return bd_fail(err, BD_ERR_FORMAT, "'model' has no '%s'",
                       d->has_vocabulary ? "merges" : "vocab");
    if (!bd_json_is_null(d->settings, "ignore_merges"))
        BD_TRY(bd_json_get_bool(d->settings, "ignore_merges", &d->parts->whole_words, err));
    return BD_OK;
}

static bd_status load_document(document *d, bd_error *err)
{
    // If the model is of another kind, the message names its kind rather than an error in its
    // vocabulary, which may have another form.
    const bd_status read = read_document(d, err);
    if (read != BD_OK) {
        bd_error other = {0};
        if (check_rules(model_rules, d->settings, &other) == BD_ERR_UNSUPPORTED) {
            if (err)
                *err = other;
            return bd_error_prefix(err, BD_ERR_UNSUPPORTED, "'model'");
        }
        return read;
    }
    BD_TRY(check_rules(document_rules, d->values, err));
    BD_TRY(load_model(d, err));
    BD_TRY(bd_load_pipeline(d->parts, d->values, err));
    BD_TRY(load_added_tokens(d, err));
    if (d->merges_at == 0)
        return BD_OK;
    d->reader.at = d->merges_at;
    const bd_status status = read_json_merges(d, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'merges'");
}

bd_status bd_load_json(bd_model_parts *parts, const char *text, size_t size_bytes,
                       bd_error *err)
{
    document d = {.parts = parts, .values = bd_json_object(), .settings = bd_json_object()};
    bd_status status = BD_ERR_MEMORY;
    bd_json_reader_init(&d.reader, text, size_bytes);
    if (d.values && d.settings)
        status = load_document(&d, err);
    else
        bd_fail(err, status, "no memory to read JSON");
    bd_json_reader_release(&d.reader);
    bd_json_free(d.values);
    bd_json_free(d.settings);
    return status;
}
