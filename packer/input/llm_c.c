// llm.c's files: 256 int32 of header, then ids; an end-of-text token precedes each document.
#include <inttypes.h>

#include "packer/input/token_layout.h"

enum { LLM_C_HEADER_BYTES = 256 * 4 };

static const struct {
    int32_t magic, version;
    int id_bytes;
} llm_c_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

enum { N_LLM_C_KINDS = sizeof llm_c_kinds / sizeof llm_c_kinds[0] };

static bd_status is_llm_c(const char *path, bool *yes, bd_error *err)
{
    *yes = false;
    for (int i = 0; i < N_LLM_C_KINDS && !*yes; i++)
        BD_TRY(bd_file_begins_with(path, &llm_c_kinds[i].magic, sizeof llm_c_kinds[i].magic,
                                   yes, err));
    return BD_OK;
}

static bd_status read_llm_c_header(bd_token_file *file, bd_error *err)
{
    const unsigned char *header = file->ids_file.data;
    const size_t size = file->ids_file.size_bytes;
    if (size < LLM_C_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "its %zu bytes are less than llm.c's header", size);
    const int32_t magic = bd_int32_at(header, 0), version = bd_int32_at(header, 1);
    int kind = 0;
    while (kind < N_LLM_C_KINDS && llm_c_kinds[kind].magic != magic)
        kind++;
    if (kind == N_LLM_C_KINDS)
        return bd_fail(err, BD_ERR_FORMAT, "not a file of tokens for llm.c");
    if (version != llm_c_kinds[kind].version)
        return bd_fail(err, BD_ERR_FORMAT, "its version is %" PRId32 ", not %" PRId32, version,
                       llm_c_kinds[kind].version);
    file->id_bytes = llm_c_kinds[kind].id_bytes;
    file->n_tokens = bd_int32_at(header, 2);
    file->ids = header + LLM_C_HEADER_BYTES;
    if (file->n_tokens < 0 ||
        (size_t)file->n_tokens * (size_t)file->id_bytes != size - LLM_C_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT,
                       "%" PRId64 " tokens of %d bytes and a header do not make its %zu bytes",
                       file->n_tokens, file->id_bytes, size);
    return BD_OK;
}

static bd_status open_llm_c(bd_token_file *file, const char *path, int raw_id_bytes,
                            int64_t end_of_text, bd_error *err)
{
    (void)raw_id_bytes;
    BD_TRY(bd_path_replace_ending(path, 0, "", &file->ids_path, err));
    BD_TRY(bd_mapped_file_open(&file->ids_file, path, err));
    const bd_status status = read_llm_c_header(file, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "cannot use '%s'", path);
    if (end_of_text < 0 || end_of_text >> (8 * file->id_bytes) != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot use '%s': its ids of %d bytes cannot hold the end-of-text "
                       "token's, %" PRId64,
                       path, file->id_bytes, end_of_text);
    file->end_of_text = (uint32_t)end_of_text;
    return BD_OK;
}

enum { SEARCH_BLOCK = 64 };

// Whether one of SEARCH_BLOCK ids is `wanted`. It looks at all of them: a loop that may end
// early is not vectorised.
static bool block_has_16(const unsigned char *ids, uint16_t wanted)
{
    uint16_t found = 0;
    for (int i = 0; i < SEARCH_BLOCK; i++) {
        uint16_t id;
        memcpy(&id, ids + i * (int)sizeof id, sizeof id);
        found |= id == wanted;
    }
    return found != 0;
}

static bool block_has_32(const unsigned char *ids, uint32_t wanted)
{
    uint32_t found = 0;
    for (int i = 0; i < SEARCH_BLOCK; i++) {
        uint32_t id;
        memcpy(&id, ids + i * (int)sizeof id, sizeof id);
        found |= id == wanted;
    }
    return found != 0;
}

static bool is_end_of_text(const bd_token_file *file, int64_t position)
{
    uint32_t id = 0;
    memcpy(&id, file->ids + position * file->id_bytes, (size_t)file->id_bytes);
    return id == file->end_of_text;
}

// The first end-of-text token at positions [from, to); `to` if there is none.
static int64_t find_end_of_text(const bd_token_file *file, int64_t from, int64_t to)
{
    for (; to - from >= SEARCH_BLOCK; from += SEARCH_BLOCK) {
        const unsigned char *block = file->ids + from * file->id_bytes;
        if (file->id_bytes == 2 ? block_has_16(block, (uint16_t)file->end_of_text)
                                : block_has_32(block, file->end_of_text))
            break;
    }
    while (from < to && !is_end_of_text(file, from))
        from++;
    return from;
}

static bool next_of_llm_c(bd_token_file *file, bd_token_document *document)
{
    const bool headless = file->is_at_start && file->slice_end > 0 && !is_end_of_text(file, 0);
    file->is_at_start = false;
    const int64_t position = headless ? 0 : find_end_of_text(file, file->next, file->slice_end);
    if (position >= file->slice_end)
        return false;
    const int64_t first = headless ? 0 : position + 1;
    file->next = find_end_of_text(file, first, file->n_tokens);
    bd_token_document_fill(file, first, file->next, document);
    document->position = position;
    document->headless = headless;
    return true;
}

const bd_token_layout bd_llm_c_layout = {
    .recognise = is_llm_c,
    .open = open_llm_c,
    .next = next_of_llm_c,
};

static const char *const llm_c_endings[] = {".bin", NULL};

const bd_input_kind bd_llm_c_kind = {
    .name = bd_llm_c_name,
    .endings = llm_c_endings,
    .place = "document at token",
    BD_TOKEN_KIND(llm_c),
};
