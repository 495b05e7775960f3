#include "common/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/tokenizer/model/tokenizer_file.h"

const char *const bd_built_in_tokenizers[] = {"bytes", NULL};

BD_ENUM_NAMES(bd_special_tokens, BD_SPECIAL_TOKENS);

static const char ids_prefix[] = "ids:";

// ---- Opening -------------------------------------------------------------------------------

// Opens a tokenizer that needs no file; *tokenizer is NULL if `name` names none.
static bd_status open_built_in(const bd_tokenizer **tokenizer, const char *name, bd_error *err)
{
    *tokenizer = NULL;
    if (strcmp(name, bd_built_in_tokenizers[0]) == 0)
        *tokenizer = bd_tokenizer_bytes();
    if (strncmp(name, ids_prefix, strlen(ids_prefix)) != 0)
        return BD_OK;
    const char *digits = name + strlen(ids_prefix);
    const size_t n = strspn(digits, "0123456789");
    const bool is_number = n > 0 && n < 19 && digits[n] == '\0';
    return is_number ? bd_tokenizer_open_ids(tokenizer, strtoll(digits, NULL, 10), err) : BD_OK;
}

// Whether `spec` may mean a file, FILE or FILE:PATTERN. The loader then reports any error in
// it.
static bool names_a_file(const char *spec)
{
    if (access(spec, F_OK) == 0 || strchr(spec, '/') || strstr(spec, ".tiktoken"))
        return true;
    const char *colon = strrchr(spec, ':');
    char *path = colon ? strndup(spec, (size_t)(colon - spec)) : NULL;
    const bool is_there = path && access(path, F_OK) == 0;
    free(path);
    return is_there;
}

bd_status bd_tokenizer_open(const bd_tokenizer **tokenizer, const char *spec, bd_error *err)
{
    BD_TRY(open_built_in(tokenizer, spec, err));
    if (*tokenizer)
        return BD_OK;
    if (names_a_file(spec))
        return bd_tokenizer_open_bpe(tokenizer, spec, err);
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "cannot use the tokenizer '%s': neither 'bytes' nor 'ids:N' nor a file that "
                   "exists",
                   spec);
}

bd_status bd_tokenizer_open_stored(const bd_tokenizer **tokenizer, const char *folder,
                                   const char *name, bd_error *err)
{
    // A dataset may come from anywhere, so its name of a tokenizer must not open other files.
    BD_TRY(open_built_in(tokenizer, name, err));
    if (*tokenizer)
        return BD_OK;
    if (strcmp(name, BD_BPE_NAME) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "cannot use the tokenizer '%s': this version has 'bytes', 'ids:N' and "
                       "'" BD_BPE_NAME "'",
                       name);
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    const bd_status status = bd_tokenizer_open_bpe(tokenizer, path, err);
    free(path);
    return status;
}

void bd_tokenizer_close(const bd_tokenizer *tokenizer)
{
    if (tokenizer && tokenizer->kind->close)
        tokenizer->kind->close((bd_tokenizer *)tokenizer);
}

const char *bd_token_name(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes)
{
    const bd_tokenizer_kind *kind = tokenizer->kind;
    return kind->token_name ? kind->token_name(tokenizer, id, size_bytes)
                            : kind->token_bytes(tokenizer, id, size_bytes);
}

// ---- Encoding ------------------------------------------------------------------------------

bd_status bd_encoder_init(bd_encoder *encoder, const bd_tokenizer *tokenizer, bd_error *err)
{
    *encoder = (bd_encoder){0};
    void *state = NULL;
    if (tokenizer->kind->begin_encoding)
        BD_TRY(tokenizer->kind->begin_encoding(tokenizer, &state, err));
    *encoder = (bd_encoder){
        .tokenizer = tokenizer, .state = state, .special_tokens = BD_SPECIAL_TOKEN};
    return BD_OK;
}

void bd_encoder_release(bd_encoder *encoder)
{
    if (encoder->tokenizer && encoder->tokenizer->kind->end_encoding)
        encoder->tokenizer->kind->end_encoding(encoder->state);
    *encoder = (bd_encoder){0};
}

bd_status bd_encode(bd_encoder *encoder, const char *text, size_t size_bytes, uint32_t *ids,
                    size_t *n, bd_error *err)
{
    return encoder->tokenizer->kind->encode(encoder, text, size_bytes, ids, n, err);
}
