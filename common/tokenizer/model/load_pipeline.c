// The parts of a tokenizer.json about text before it is merged, and about ids afterwards.
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/model/loaders.h"

enum { MAX_DEPTH = 8 };  // of Sequence in Sequence

static bool is_type(const bd_json *object, const char *type)
{
    const char *found;
    return bd_json_get_string(object, "type", &found, NULL) == BD_OK &&
           strcmp(found, type) == 0;
}

// Every key of `object` must be one of `keys`, which ends with NULL.
static bd_status check_keys(const bd_json *object, const char *const *keys, bd_error *err)
{
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m)) {
        const char *const *known = keys;
        while (*known && strcmp(*known, m.key) != 0)
            known++;
        if (!*known)
            return bd_not_supported(m.key, m.value, err);
    }
    return BD_OK;
}

static bd_status get_bool_or(const bd_json *object, const char *key, bool missing, bool *value,
                             bd_error *err)
{
    *value = missing;
    return bd_json_is_null(object, key) ? BD_OK : bd_json_get_bool(object, key, value, err);
}

// ---- normalizer -------------------------------------------------------------------

static bd_status load_normalizer(bd_model_parts *parts, const bd_json *object, int depth,
                                 bd_error *err)
{
    static const char *const nfc_keys[] = {"type", NULL};
    static const char *const sequence_keys[] = {"type", "normalizers", NULL};
    if (is_type(object, "NFC")) {
        parts->nfc = true;
        return check_keys(object, nfc_keys, err);
    }
    if (!is_type(object, "Sequence") || depth == MAX_DEPTH)
        return bd_not_supported("normalizer", object, err);
    const bd_json *array;
    BD_TRY(check_keys(object, sequence_keys, err));
    BD_TRY(bd_json_get_array(object, "normalizers", &array, err));
    for (size_t i = 0; i < bd_json_length(array); i++)
        BD_TRY(load_normalizer(parts, bd_json_at(array, i), depth + 1, err));
    return BD_OK;
}

// ---- pre_tokenizer ----------------------------------------------------------------

typedef struct splitting {
    bd_model_parts *parts;
    bool has_bytes;  // ByteLevel was seen, after which characters stand for bytes
} splitting;

// Makes the expression that matches `literal` alone.
static bd_status escape(const char *literal, char **expression, bd_error *err)
{
    *expression = malloc(2 * strlen(literal) + 1);
    if (!*expression)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    char *out = *expression;
    for (const char *in = literal; *in; in++) {
        if (strchr("\\^$.|?*+()[]{}", *in))
            *out++ = '\\';
        *out++ = *in;
    }
    *out = '\0';
    return BD_OK;
}

static bd_status get_expression(const bd_json *pattern, char **expression, bd_error *err)
{
    const char *text;
    *expression = NULL;
    if (!bd_json_is_null(pattern, "String")) {
        BD_TRY(bd_json_get_string(pattern, "String", &text, err));
        if (!*text)
            return bd_fail(err, BD_ERR_FORMAT, "'String' is empty");
        return escape(text, expression, err);
    }
    BD_TRY(bd_json_get_string(pattern, "Regex", &text, err));
    *expression = strdup(text);
    return *expression ? BD_OK
                       : bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
}

// No text lies between the matches of these patterns, so that removing it makes no difference.
static bool matches_everything(bd_pattern pattern)
{
    return pattern != BD_PATTERN_OTHER && pattern != BD_PATTERN_DIGIT;
}

static bd_status load_split(splitting *s, const bd_json *object, bd_error *err)
{
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const pattern_keys[] = {"Regex", "String", NULL};
    const bd_json *pattern_object;
    const char *behavior;
    bool invert;
    BD_TRY(check_keys(object, keys, err));
    BD_TRY(bd_json_get_object(object, "pattern", &pattern_object, err));
    BD_TRY(check_keys(pattern_object, pattern_keys, err));
    BD_TRY(bd_json_get_string(object, "behavior", &behavior, err));
    BD_TRY(get_bool_or(object, "invert", false, &invert, err));

    char *expression;
    BD_TRY(get_expression(pattern_object, &expression, err));
    const bd_pattern pattern = bd_pattern_of_expression(expression);
    // If each piece stands alone, it does not matter which of them are matches (`invert`).
    const bool isolated = strcmp(behavior, "Isolated") == 0;
    const bool keeps_matches = strcmp(behavior, "Removed") == 0 && invert;
    const bd_status status = isolated || (keeps_matches && matches_everything(pattern))
                                 ? bd_model_parts_add_step(s->parts, pattern, expression, err)
                                 : bd_not_supported("pre_tokenizer", object, err);
    free(expression);
    return status;
}

static bd_status load_digits(splitting *s, const bd_json *object, bd_error *err)
{
    static const char *const keys[] = {"type", "individual_digits", NULL};
    bool each;
    BD_TRY(check_keys(object, keys, err));
    BD_TRY(get_bool_or(object, "individual_digits", false, &each, err));
    return bd_model_parts_add_step(s->parts, each ? BD_PATTERN_DIGIT : BD_PATTERN_OTHER,
                                   "\\p{N}+", err);
}

static bd_status load_byte_level(splitting *s, const bd_json *object, bd_error *err)
{
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    bool use_regex;
    BD_TRY(check_keys(object, keys, err));
    BD_TRY(get_bool_or(object, "add_prefix_space", true, &s->parts->prefix_space, err));
    BD_TRY(get_bool_or(object, "use_regex", true, &use_regex, err));
    // After another step the space would go before every piece of it.
    if (s->parts->prefix_space && s->parts->n_steps > 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'add_prefix_space' of 'pre_tokenizer' is true after a step that "
                       "splits, which is not "
                       "supported");
    s->has_bytes = true;
    return use_regex ? bd_model_parts_add_step(s->parts, BD_PATTERN_GPT2, NULL, err) : BD_OK;
}

static bd_status load_pre_tokenizer(splitting *s, const bd_json *object, int depth,
                                    bd_error *err)
{
    static const char *const sequence_keys[] = {"type", "pretokenizers", NULL};
    if (is_type(object, "Sequence") && depth < MAX_DEPTH) {
        const bd_json *array;
        BD_TRY(check_keys(object, sequence_keys, err));
        BD_TRY(bd_json_get_array(object, "pretokenizers", &array, err));
        for (size_t i = 0; i < bd_json_length(array); i++)
            BD_TRY(load_pre_tokenizer(s, bd_json_at(array, i), depth + 1, err));
        return BD_OK;
    }
    if (s->has_bytes)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'pre_tokenizer' has a step after ByteLevel, which is not supported");
    if (is_type(object, "Split"))
        return load_split(s, object, err);
    if (is_type(object, "Digits"))
        return load_digits(s, object, err);
    if (is_type(object, "ByteLevel"))
        return load_byte_level(s, object, err);
    return bd_not_supported("pre_tokenizer", object, err);
}

// ---- post_processor and decoder ---------------------------------------------------

// These only put tokens before and after a text when asked to, or trim offsets.
static bd_status check_post_processor(const bd_json *object, int depth, bd_error *err)
{
    if (is_type(object, "Sequence") && depth < MAX_DEPTH) {
        const bd_json *array;
        BD_TRY(bd_json_get_array(object, "processors", &array, err));
        for (size_t i = 0; i < bd_json_length(array); i++)
            BD_TRY(check_post_processor(bd_json_at(array, i), depth + 1, err));
        return BD_OK;
    }
    if (is_type(object, "ByteLevel") || is_type(object, "TemplateProcessing") ||
        is_type(object, "RobertaProcessing") || is_type(object, "BertProcessing"))
        return BD_OK;
    return bd_not_supported("post_processor", object, err);
}

static bd_status get_part(const bd_json *document, const char *key, const bd_json **object,
                          bd_error *err)
{
    *object = NULL;
    return bd_json_is_null(document, key) ? BD_OK
                                          : bd_json_get_object(document, key, object, err);
}

bd_status bd_load_pipeline(bd_model_parts *parts, const bd_json *document, bd_error *err)
{
    const bd_json *normalizer, *pre_tokenizer, *post_processor, *decoder;
    BD_TRY(get_part(document, "normalizer", &normalizer, err));
    BD_TRY(get_part(document, "pre_tokenizer", &pre_tokenizer, err));
    BD_TRY(get_part(document, "post_processor", &post_processor, err));
    BD_TRY(get_part(document, "decoder", &decoder, err));
    if (normalizer)
        BD_TRY(load_normalizer(parts, normalizer, 0, err));
    splitting s = {.parts = parts};
    if (pre_tokenizer) {
        const bd_status status = load_pre_tokenizer(&s, pre_tokenizer, 0, err);
        if (status == BD_ERR_FORMAT)
            return bd_error_prefix(err, status, "'pre_tokenizer'");
        BD_TRY(status);
    }
    if (!s.has_bytes)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'pre_tokenizer' has no ByteLevel: only byte-level BPE is supported");
    if (post_processor)
        BD_TRY(check_post_processor(post_processor, 0, err));
    // Here ids become bytes in the same way without a decoder.
    return !decoder || is_type(decoder, "ByteLevel")
               ? BD_OK
               : bd_not_supported("decoder", decoder, err);
}
