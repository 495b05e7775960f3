// vocab.json and merges.txt, as GPT-2 was published. They are read as Hugging Face's
// `tokenizers` reads them: with GPT-2's pattern and no space in front. These files do not tell
// which entries are added tokens. If special_tokens_map.json or added_tokens.json lies beside
// them, those tell it; otherwise "<|endoftext|>" is one if it is in the vocabulary.
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/tokenizer/model/loaders.h"

enum { MAX_TREE_BYTES = 1 << 24 };

static const char end_of_text[] = "<|endoftext|>";

static bd_status read_vocabulary(bd_model_parts *parts, const char *path, bd_error *err)
{
    char *text;
    size_t n;
    BD_TRY(bd_file_read(path, BD_MAX_TOKENIZER_FILE, &text, &n, err));
    bd_json_reader reader;
    bd_json_reader_init(&reader, text, n);
    bd_status status = bd_load_vocabulary(parts, &reader, err);
    if (status == BD_OK)
        status = bd_json_reader_end(&reader, err);
    bd_json_reader_release(&reader);
    free(text);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cannot use '%s'", path);
}

// ---- merges.txt -------------------------------------------------------------------

static bd_status read_merge_line(bd_model_parts *parts, const char *line, size_t n,
                                 bd_error *err)
{
    static const char version[] = "#version";
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n >= sizeof version - 1 && memcmp(line, version, sizeof version - 1) == 0)
        return BD_OK;
    const char *space = memchr(line, ' ', n);
    if (!space)
        return bd_fail(err, BD_ERR_FORMAT, "not two entries with a space between");
    const size_t left = (size_t)(space - line);
    return bd_model_parts_add_merge(parts, line, left, space + 1, n - left - 1, err);
}

static bd_status read_merges_file(bd_model_parts *parts, const char *path, bd_error *err)
{
    char *text;
    size_t n, line = 1;
    BD_TRY(bd_file_read(path, BD_MAX_TOKENIZER_FILE, &text, &n, err));
    bd_status status = BD_OK;
    for (size_t at = 0; status == BD_OK && at < n; line++) {
        const char *newline = memchr(text + at, '\n', n - at);
        const size_t end = newline ? (size_t)(newline - text) : n;
        status = read_merge_line(parts, text + at, end - at, err);
        at = end + 1;
    }
    free(text);
    return status == BD_OK
               ? BD_OK
               : bd_error_prefix(err, status, "cannot use '%s': line %zu", path, line - 1);
}

// ---- Added tokens -----------------------------------------------------------------

// Adds the entry of the vocabulary that is written like `text`, once.
static bd_status add_entry(bd_model_parts *parts, bd_added_token token, const char *text,
                           bd_error *err)
{
    uint32_t id;
    if (bd_vocabulary_find(&parts->added_texts, text, strlen(text), &id))
        return BD_OK;
    const int64_t entry = bd_model_parts_find_entry(parts, text, strlen(text));
    if (entry < 0)
        return bd_fail(err, BD_ERR_FORMAT, "'%.60s' is not in the vocabulary", text);
    return bd_model_parts_add_token(parts, token, entry, text, strlen(text), err);
}

// A text, or an object with its flags.
static bd_status load_special(bd_model_parts *parts, const bd_json *object, const char *key,
                              bd_error *err)
{
    bd_added_token token = {.special = true};
    const char *text;
    const bd_json *value;
    if (bd_json_get_string(object, key, &text, NULL) == BD_OK)
        return add_entry(parts, token, text, err);
    BD_TRY(bd_json_get_object(object, key, &value, err));
    BD_TRY(bd_json_get_string(value, "content", &text, err));
    BD_TRY(bd_json_get_bool(value, "single_word", &token.single_word, err));
    BD_TRY(bd_json_get_bool(value, "lstrip", &token.left_strip, err));
    BD_TRY(bd_json_get_bool(value, "rstrip", &token.right_strip, err));
    return add_entry(parts, token, text, err);
}

static bd_status load_specials(bd_model_parts *parts, const bd_json *map, bd_error *err)
{
    for (bd_json_member m = bd_json_first(map); m.key; m = bd_json_next(map, m)) {
        const bd_json *array;
        if (bd_json_get_array(map, m.key, &array, NULL) == BD_OK && bd_json_length(array) > 0)
            return bd_not_supported(m.key, m.value, err);
        if (bd_json_get_array(map, m.key, &array, NULL) != BD_OK)
            BD_TRY(load_special(parts, map, m.key, err));
    }
    return BD_OK;
}

// Texts and their ids, which need not be in the vocabulary.
static bd_status load_added(bd_model_parts *parts, const bd_json *map, bd_error *err)
{
    for (bd_json_member m = bd_json_first(map); m.key; m = bd_json_next(map, m)) {
        int64_t id;
        uint32_t there;
        BD_TRY(bd_json_get_integer(map, m.key, 0, BD_MAX_VOCABULARY - 1, &id, err));
        if (!bd_vocabulary_find(&parts->added_texts, m.key, strlen(m.key), &there))
            BD_TRY(bd_model_parts_add_token(parts, (bd_added_token){0}, id, m.key,
                                            strlen(m.key), err));
    }
    return BD_OK;
}

// Calls `load` with the object in <folder>/<name>, if there is one. *there says whether.
static bd_status read_beside(bd_model_parts *parts, const char *folder, const char *name,
                             bd_status (*load)(bd_model_parts *, const bd_json *, bd_error *),
                             bool *there, bd_error *err)
{
    *there = bd_folder_holds(folder, name);
    if (!*there)
        return BD_OK;
    char *path = bd_path_join(folder, name);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a path");
    bd_json *map = NULL;
    bd_status status = bd_json_read_file(path, MAX_TREE_BYTES, &map, err);
    if (status == BD_OK) {
        status = load(parts, map, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "cannot use '%s'", path);
    }
    bd_json_free(map);
    free(path);
    return status;
}

bd_status bd_load_merges(bd_model_parts *parts, const char *folder, const char *vocabulary_path,
                         const char *merges_path, bd_error *err)
{
    bool specials, added;
    BD_TRY(read_vocabulary(parts, vocabulary_path, err));
    BD_TRY(read_merges_file(parts, merges_path, err));
    BD_TRY(
        read_beside(parts, folder, "special_tokens_map.json", load_specials, &specials, err));
    BD_TRY(read_beside(parts, folder, "added_tokens.json", load_added, &added, err));
    const int64_t entry = bd_model_parts_find_entry(parts, end_of_text, sizeof end_of_text - 1);
    if (!specials && !added && entry >= 0)
        BD_TRY(add_entry(parts, (bd_added_token){.special = true}, end_of_text, err));
    return bd_model_parts_add_step(parts, BD_PATTERN_GPT2, NULL, err);
}
