#include "packer/input/token_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mapped_file.h"
#include "packer/input/dolma_index.h"

struct bd_token_file {
    bd_token_layout layout;
    char *ids_path, *index_path;          // owned; llm.c has no index
    bd_mapped_file ids_file, index_file;  // owned; a .csv.gz is not mapped
    const unsigned char *ids;             // borrowed from ids_file, its header skipped
    int id_bytes;
    bool is_signed;
    int64_t n_tokens;

    uint32_t end_of_text;  // llm.c alone

    // All others. Their documents lie end to end and cover every token, so that one begins
    // where the one before it ends.
    int64_t n_documents;
    const unsigned char *ends;             // raw: [n_documents] of 8 bytes, borrowed
    bd_dolma_index table;                  // owned; what `ends` of a .csv.gz is borrowed from
    int64_t n_sequences;                   // Megatron, as the next three
    const unsigned char *lengths;          // [n_sequences] of 4 bytes, borrowed
    const unsigned char *pointers;         // [n_sequences] of 8 bytes, borrowed
    const unsigned char *first_sequences;  // [n_documents + 1] of 8 bytes, borrowed

    // The slice.
    int64_t slice_end;  // at most the extent
    int64_t next;       // llm.c: where to look for an end-of-text token; others: a document
    bool takes_first;   // llm.c: a headless document is still to come
};

static const char megatron_magic[9] = "MMIDIDX\0";

enum { MEGATRON_HEADER_BYTES = 9 + 8 + 1 + 8 + 8, LLM_C_HEADER_BYTES = 256 * 4 };

static const struct {
    int32_t magic, version;
    int id_bytes;
} llm_c_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

enum { N_LLM_C_KINDS = sizeof llm_c_kinds / sizeof llm_c_kinds[0] };

static int64_t int64_at(const unsigned char *array, int64_t i)
{
    int64_t value;
    memcpy(&value, array + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static int32_t int32_at(const unsigned char *array, int64_t i)
{
    int32_t value;
    memcpy(&value, array + i * (int64_t)sizeof value, sizeof value);
    return value;
}

// ---- Names ----------------------------------------------------------------------------------

static bool ends_with(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

// `path` with `ending` in the place of its last `n_old` characters; malloc'd.
static bd_status replace_ending(const char *path, size_t n_old, const char *ending,
                                char **replaced, bd_error *err)
{
    if (asprintf(replaced, "%.*s%s", (int)(strlen(path) - n_old), path, ending) >= 0)
        return BD_OK;
    *replaced = NULL;
    return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
}

static bool is_regular(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

// The sidecar of raw ids that is there, malloc'd; *sidecar is NULL if none is.
static bd_status find_raw_sidecar(const char *path, char **sidecar, bd_error *err)
{
    BD_TRY(replace_ending(path, 0, ".index", sidecar, err));
    if (is_regular(*sidecar))
        return BD_OK;
    free(*sidecar);
    *sidecar = NULL;
    if (!ends_with(path, ".npy"))
        return BD_OK;
    BD_TRY(replace_ending(path, strlen(".npy"), ".csv.gz", sidecar, err));
    if (is_regular(*sidecar))
        return BD_OK;
    free(*sidecar);
    *sidecar = NULL;
    return BD_OK;
}

// datatrove's mask of a loss lies beside the ids.
static bd_status refuse_loss_mask(const char *path, bd_error *err)
{
    char *mask;
    BD_TRY(replace_ending(path, 0, ".loss", &mask, err));
    const bool is_there = is_regular(mask);
    free(mask);
    return is_there
               ? bd_fail(err, BD_ERR_UNSUPPORTED,
                         "cannot use '%s': '%s.loss' beside it says which tokens are to be "
                         "learned, and training would ignore it: move that file away if all "
                         "of them are",
                         path, path)
               : BD_OK;
}

// ---- Recognising ----------------------------------------------------------------------------

// Whether there is a regular file at `path` that begins with the `n` bytes of `magic`.
static bd_status begins_with(const char *path, const void *magic, size_t n, bool *yes,
                             bd_error *err)
{
    char head[sizeof megatron_magic];
    int fd;
    int64_t size_bytes;
    assert(n <= sizeof head);
    *yes = false;
    if (!is_regular(path))
        return BD_OK;
    BD_TRY(bd_file_open(path, &fd, &size_bytes, err));
    if (size_bytes < (int64_t)n) {
        close(fd);
        return BD_OK;
    }
    const bd_status status = bd_file_read_at(fd, path, head, n, 0, err);
    close(fd);
    *yes = status == BD_OK && memcmp(head, magic, n) == 0;
    return status;
}

static bd_status is_megatron(const char *path, bool *yes, bd_error *err)
{
    BD_TRY(begins_with(path, megatron_magic, sizeof megatron_magic, yes, err));
    if (*yes || !ends_with(path, ".bin"))
        return BD_OK;
    char *index_path;
    BD_TRY(replace_ending(path, strlen(".bin"), ".idx", &index_path, err));
    const bd_status status =
        begins_with(index_path, megatron_magic, sizeof megatron_magic, yes, err);
    free(index_path);
    return status;
}

static bd_status is_llm_c(const char *path, bool *yes, bd_error *err)
{
    *yes = false;
    for (int i = 0; i < N_LLM_C_KINDS && !*yes; i++)
        BD_TRY(begins_with(path, &llm_c_kinds[i].magic, sizeof llm_c_kinds[i].magic, yes, err));
    return BD_OK;
}

static bd_status is_raw(const char *path, bool *yes, bd_error *err)
{
    char *sidecar;
    BD_TRY(find_raw_sidecar(path, &sidecar, err));
    *yes = sidecar != NULL;
    free(sidecar);
    return BD_OK;
}

bd_status bd_token_file_recognise(const char *path, bd_token_layout *layout, bool *known,
                                  bd_error *err)
{
    // An index beside the file says more than four bytes that ids could have by chance.
    static const struct {
        bd_token_layout layout;
        bd_status (*is)(const char *path, bool *yes, bd_error *err);
    } layouts[] = {
        {BD_TOKENS_MEGATRON, is_megatron},
        {BD_TOKENS_LLM_C, is_llm_c},
        {BD_TOKENS_RAW, is_raw},
    };
    struct stat info;
    *known = false;
    if (stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (!S_ISREG(info.st_mode))
        return BD_OK;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0] && !*known; i++) {
        *layout = layouts[i].layout;
        BD_TRY(layouts[i].is(path, known, err));
    }
    return BD_OK;
}

// ---- Where documents end --------------------------------------------------------------------

// Where document `d` ends, in tokens, or -1 if its entry is impossible: open() has refused
// such entries, but somebody may write into a mapped file later.
static int64_t document_end(const bd_token_file *file, int64_t d)
{
    int64_t end;
    if (file->layout == BD_TOKENS_RAW) {
        end = int64_at(file->ends, d);
    } else {
        const int64_t after = int64_at(file->first_sequences, d + 1);
        if (after < 0 || after > file->n_sequences)
            return -1;
        if (after == 0)
            return 0;
        const int64_t pointer = int64_at(file->pointers, after - 1);
        if (pointer < 0 || pointer > (int64_t)file->ids_file.size_bytes)
            return -1;
        end = pointer / file->id_bytes + int32_at(file->lengths, after - 1);
    }
    return 0 <= end && end <= file->n_tokens ? end : -1;
}

static int64_t document_begin(const bd_token_file *file, int64_t d)
{
    return d == 0 ? 0 : document_end(file, d - 1);
}

// ---- Opening: Megatron ----------------------------------------------------------------------

static bd_status read_megatron_type(bd_token_file *file, int code, bd_error *err)
{
    static const int bytes_of_code[] = {[1] = 1, [2] = 1, [3] = 2, [4] = 4, [5] = 8, [8] = 2};
    if (code == 6 || code == 7)
        return bd_fail(err, BD_ERR_FORMAT, "its type %d is a float, which cannot be an id",
                       code);
    if (code < 1 || code > 8)
        return bd_fail(err, BD_ERR_FORMAT, "its type %d is unknown", code);
    file->id_bytes = bytes_of_code[code];
    file->is_signed = code >= 2 && code <= 5;
    return BD_OK;
}

static bd_status read_megatron_header(bd_token_file *file, bd_error *err)
{
    const unsigned char *header = file->index_file.data;
    const size_t size = file->index_file.size_bytes;
    if (size < sizeof megatron_magic ||
        memcmp(header, megatron_magic, sizeof megatron_magic) != 0)
        return bd_fail(err, BD_ERR_FORMAT, "not a Megatron index");
    if (size < MEGATRON_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "it ends inside its header, after %zu bytes", size);
    const uint64_t version = (uint64_t)int64_at(header + 9, 0);
    if (version != 1)
        return bd_fail(err, BD_ERR_FORMAT, "its version is %" PRIu64 ", not 1", version);
    BD_TRY(read_megatron_type(file, header[17], err));

    const uint64_t n_sequences = (uint64_t)int64_at(header + 18, 0);
    const uint64_t n_first = (uint64_t)int64_at(header + 26, 0);
    size_t left = size - MEGATRON_HEADER_BYTES;
    const bool sequences_fit = n_sequences <= left / (4 + 8);
    if (sequences_fit)
        left -= n_sequences * (4 + 8);
    const bool all_fit = sequences_fit && n_first <= left / 8;
    if (all_fit)
        left -= n_first * 8;
    if (!all_fit || (left != 0 && left != n_sequences))  // a mode of one byte per sequence
        return bd_fail(err, BD_ERR_FORMAT,
                       "%" PRIu64 " sequences and a document index of %" PRIu64
                       " do not make its %zu bytes",
                       n_sequences, n_first, size);
    if (n_first == 0)
        return bd_fail(err, BD_ERR_FORMAT, "its document index is empty");
    file->n_sequences = (int64_t)n_sequences;
    file->n_documents = (int64_t)n_first - 1;
    file->lengths = header + MEGATRON_HEADER_BYTES;
    file->pointers = file->lengths + n_sequences * 4;
    file->first_sequences = file->pointers + n_sequences * 8;
    return BD_OK;
}

static bd_status check_first_sequences(const bd_token_file *file, bd_error *err)
{
    int64_t before = 0;
    for (int64_t d = 0; d <= file->n_documents; d++) {
        const int64_t first = int64_at(file->first_sequences, d);
        if (d == 0 && first != 0)
            return bd_fail(err, BD_ERR_FORMAT,
                           "entry 0 of its document index is %" PRId64 ", not 0", first);
        if (first < before)
            return bd_fail(err, BD_ERR_FORMAT,
                           "entry %" PRId64 " of its document index is %" PRId64
                           ", less than the one before it (%" PRId64 ")",
                           d, first, before);
        if (first > file->n_sequences)
            return bd_fail(err, BD_ERR_FORMAT,
                           "entry %" PRId64 " of its document index is %" PRId64
                           ", but there are %" PRId64 " sequences",
                           d, first, file->n_sequences);
        before = first;
    }
    if (before != file->n_sequences)
        return bd_fail(err, BD_ERR_FORMAT,
                       "its document index ends with %" PRId64 " (entry %" PRId64
                       "), but there are %" PRId64 " sequences",
                       before, file->n_documents, file->n_sequences);
    return BD_OK;
}

static bool begins_document(const bd_token_file *file, int64_t sequence)
{
    int64_t d = 0;
    while (d < file->n_documents && int64_at(file->first_sequences, d) < sequence)
        d++;
    return int64_at(file->first_sequences, d) == sequence;
}

// Says why sequence `s`, which should begin at byte `expected`, is refused.
static bd_status refuse_sequence(const bd_token_file *file, int64_t s, int64_t expected,
                                 bd_error *err)
{
    const int64_t pointer = int64_at(file->pointers, s), length = int32_at(file->lengths, s);
    const int64_t size = (int64_t)file->ids_file.size_bytes;
    if (length < 0)
        return bd_fail(err, BD_ERR_FORMAT, "sequence %" PRId64 " has a length of %" PRId64, s,
                       length);
    if (pointer < 0 || pointer > size || length > (size - pointer) / file->id_bytes)
        return bd_fail(err, BD_ERR_FORMAT,
                       "sequence %" PRId64 " (%" PRId64 " ids from byte %" PRId64
                       " on) does not lie inside '%s', which has %" PRId64 " bytes",
                       s, length, pointer, file->ids_path, size);
    if (pointer % file->id_bytes != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "sequence %" PRId64 " begins at byte %" PRId64 ", which is inside an id",
                       s, pointer);
    if (!begins_document(file, s))
        return bd_fail(err, BD_ERR_FORMAT,
                       "sequence %" PRId64 " begins at byte %" PRId64
                       ", but the one before it in the same document ends at %" PRId64,
                       s, pointer, expected);
    if (pointer < expected)
        return bd_fail(err, BD_ERR_FORMAT,
                       "sequence %" PRId64 " begins at byte %" PRId64
                       ", but the document before it ends at %" PRId64,
                       s, pointer, expected);
    return bd_fail(err, BD_ERR_FORMAT,
                   "byte %" PRId64 " of '%s' belongs to no document: sequence %" PRId64
                   " begins at byte %" PRId64,
                   expected, file->ids_path, s, pointer);
}

// Every sequence begins where the one before it ends: inside a document so that its ids lie
// end to end, between documents so that no byte is lost or read twice.
static bd_status check_sequences(const bd_token_file *file, bd_error *err)
{
    const int64_t size = (int64_t)file->ids_file.size_bytes;
    int64_t expected = 0;
    for (int64_t s = 0; s < file->n_sequences; s++) {
        const int64_t length = int32_at(file->lengths, s);
        if (int64_at(file->pointers, s) != expected || length < 0 ||
            length > (size - expected) / file->id_bytes)
            return refuse_sequence(file, s, expected, err);
        expected += length * file->id_bytes;
    }
    if (expected != size)
        return bd_fail(err, BD_ERR_FORMAT,
                       "byte %" PRId64 " of '%s' belongs to no document: it has %" PRId64
                       " bytes",
                       expected, file->ids_path, size);
    return BD_OK;
}

static bd_status open_megatron(bd_token_file *file, const char *path, bd_error *err)
{
    if (!ends_with(path, ".bin") && !ends_with(path, ".idx"))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot use '%s': Megatron's files are named NAME.bin and NAME.idx",
                       path);
    BD_TRY(replace_ending(path, strlen(".bin"), ".bin", &file->ids_path, err));
    BD_TRY(replace_ending(path, strlen(".idx"), ".idx", &file->index_path, err));
    BD_TRY(bd_mapped_file_open(&file->index_file, file->index_path, err));
    BD_TRY(bd_mapped_file_open(&file->ids_file, file->ids_path, err));
    file->ids = file->ids_file.data;
    bd_status status = read_megatron_header(file, err);
    if (status == BD_OK)
        status = check_first_sequences(file, err);
    if (status == BD_OK)
        status = check_sequences(file, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "cannot use '%s'", file->index_path);
    file->n_tokens = (int64_t)file->ids_file.size_bytes / file->id_bytes;
    return BD_OK;
}

// ---- Opening: llm.c -------------------------------------------------------------------------

static bd_status read_llm_c_header(bd_token_file *file, bd_error *err)
{
    const unsigned char *header = file->ids_file.data;
    const size_t size = file->ids_file.size_bytes;
    if (size < LLM_C_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "its %zu bytes are less than llm.c's header", size);
    const int32_t magic = int32_at(header, 0), version = int32_at(header, 1);
    int kind = 0;
    while (kind < N_LLM_C_KINDS && llm_c_kinds[kind].magic != magic)
        kind++;
    if (kind == N_LLM_C_KINDS)
        return bd_fail(err, BD_ERR_FORMAT, "not a file of tokens for llm.c");
    if (version != llm_c_kinds[kind].version)
        return bd_fail(err, BD_ERR_FORMAT, "its version is %" PRId32 ", not %" PRId32, version,
                       llm_c_kinds[kind].version);
    file->id_bytes = llm_c_kinds[kind].id_bytes;
    file->n_tokens = int32_at(header, 2);
    file->ids = header + LLM_C_HEADER_BYTES;
    if (file->n_tokens < 0 ||
        (size_t)file->n_tokens * (size_t)file->id_bytes != size - LLM_C_HEADER_BYTES)
        return bd_fail(err, BD_ERR_FORMAT,
                       "%" PRId64 " tokens of %d bytes and a header do not make its %zu bytes",
                       file->n_tokens, file->id_bytes, size);
    return BD_OK;
}

static bd_status open_llm_c(bd_token_file *file, const char *path, int64_t end_of_text,
                            bd_error *err)
{
    BD_TRY(replace_ending(path, 0, "", &file->ids_path, err));
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

// ---- Opening: raw ids with a list of ends ---------------------------------------------------

static bd_status open_ends(bd_token_file *file, bd_error *err)
{
    BD_TRY(bd_mapped_file_open(&file->index_file, file->index_path, err));
    const size_t size = file->index_file.size_bytes;
    int64_t before = 0;
    file->ends = file->index_file.data;
    file->n_documents = (int64_t)(size / 8);
    if (size % 8 != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': its %zu bytes are no whole number of entries",
                       file->index_path, size);
    for (int64_t d = 0; d < file->n_documents; d++) {
        const int64_t end = document_end(file, d);
        if (end < 0)
            return bd_fail(err, BD_ERR_FORMAT,
                           "cannot use '%s': entry %" PRId64 " is %" PRIu64
                           ", but '%s' has %" PRId64 " tokens",
                           file->index_path, d, (uint64_t)int64_at(file->ends, d),
                           file->ids_path, file->n_tokens);
        if (end < before)
            return bd_fail(err, BD_ERR_FORMAT,
                           "cannot use '%s': entry %" PRId64 " is %" PRId64
                           ", less than the one before it (%" PRId64 ")",
                           file->index_path, d, end, before);
        before = end;
    }
    return BD_OK;
}

// ---- Opening: raw ids with dolma's table ----------------------------------------------------

static bd_status open_table(bd_token_file *file, bd_error *err)
{
    BD_TRY(bd_dolma_index_read(&file->table, file->index_path, file->ids_path, file->n_tokens,
                               err));
    file->ends = (const unsigned char *)file->table.ends;
    file->n_documents = file->table.n_documents;
    return BD_OK;
}

// ---- Opening: raw ids -----------------------------------------------------------------------

static bd_status map_raw_ids(bd_token_file *file, const char *path, int id_bytes, bd_error *err)
{
    static const char npy_magic[] = "\x93NUMPY";
    BD_TRY(replace_ending(path, 0, "", &file->ids_path, err));
    BD_TRY(bd_mapped_file_open(&file->ids_file, path, err));
    const size_t size = file->ids_file.size_bytes;
    if (ends_with(path, ".npy") && size >= strlen(npy_magic) &&
        memcmp(file->ids_file.data, npy_magic, strlen(npy_magic)) == 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': it has a NumPy header; only ids without one are read",
                       path);
    if (size % (size_t)id_bytes != 0)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': its %zu bytes are no whole number of ids of %d bytes",
                       path, size, id_bytes);
    file->ids = file->ids_file.data;
    file->id_bytes = id_bytes;
    file->n_tokens = (int64_t)size / id_bytes;
    return BD_OK;
}

static bd_status open_raw(bd_token_file *file, const char *path, int id_bytes, bd_error *err)
{
    if (id_bytes != 2 && id_bytes != 4)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot use '%s': raw ids have 2 or 4 bytes, not %d", path, id_bytes);
    BD_TRY(map_raw_ids(file, path, id_bytes, err));
    BD_TRY(find_raw_sidecar(path, &file->index_path, err));
    if (!file->index_path)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': nothing says where its documents end (no '%s.index')",
                       path, path);
    BD_TRY(refuse_loss_mask(path, err));
    BD_TRY(ends_with(file->index_path, ".index") ? open_ends(file, err)
                                                 : open_table(file, err));
    const int64_t end = document_begin(file, file->n_documents);
    if (end != file->n_tokens)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': it ends at token %" PRId64 ", but '%s' has %" PRId64
                       ": the rest belongs to no document",
                       file->index_path, end, file->ids_path, file->n_tokens);
    return BD_OK;
}

// ---- Opening and closing --------------------------------------------------------------------

bd_status bd_token_file_open(bd_token_file **file, const char *path, bd_token_layout layout,
                             int raw_id_bytes, int64_t end_of_text, bd_error *err)
{
    *file = NULL;
    bd_token_file *opened = malloc(sizeof *opened);
    if (!opened)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to open '%s'", path);
    *opened =
        (bd_token_file){.layout = layout, .ids_file = {.slot = -1}, .index_file = {.slot = -1}};
    bd_status status;
    if (layout == BD_TOKENS_MEGATRON)
        status = open_megatron(opened, path, err);
    else if (layout == BD_TOKENS_LLM_C)
        status = open_llm_c(opened, path, end_of_text, err);
    else
        status = open_raw(opened, path, raw_id_bytes, err);
    if (status == BD_OK)
        *file = opened;
    else
        bd_token_file_close(opened);
    return status;
}

void bd_token_file_close(bd_token_file *file)
{
    if (!file)
        return;
    bd_mapped_file_close(&file->ids_file);
    bd_mapped_file_close(&file->index_file);
    free(file->ids_path);
    free(file->index_path);
    bd_dolma_index_release(&file->table);
    free(file);
}

bool bd_token_file_is_signed(const bd_token_file *file)
{
    return file->is_signed;
}

int bd_token_file_id_bytes(const bd_token_file *file)
{
    return file->id_bytes;
}

int64_t bd_token_file_n_tokens(const bd_token_file *file)
{
    return file->n_tokens;
}

bool bd_token_file_is_indexed(const bd_token_file *file)
{
    return file->layout != BD_TOKENS_LLM_C;
}

int64_t bd_token_file_extent(const bd_token_file *file)
{
    return bd_token_file_is_indexed(file) ? file->n_documents : file->n_tokens;
}

int64_t bd_token_file_document_begin(const bd_token_file *file, int64_t number)
{
    assert(bd_token_file_is_indexed(file) && 0 <= number && number <= file->n_documents);
    return document_begin(file, number);
}

const char *bd_token_file_path(const bd_token_file *file)
{
    return file->ids_path;
}

const char *bd_token_file_sidecar(const bd_token_file *file)
{
    return file->index_path;
}

// ---- Reading --------------------------------------------------------------------------------

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

void bd_token_file_begin(bd_token_file *file, int64_t begin, int64_t end)
{
    assert(0 <= begin && begin <= end);
    const int64_t extent = bd_token_file_extent(file);
    file->next = begin;
    file->slice_end = end < extent ? end : extent;
    file->takes_first = !bd_token_file_is_indexed(file) && begin == 0 && file->slice_end > 0 &&
                        !is_end_of_text(file, 0);
}

static void fill_document(const bd_token_file *file, int64_t begin, int64_t end,
                          bd_token_document *document)
{
    // An empty file has no mapping into which a pointer could point.
    document->ids = file->ids ? file->ids + begin * file->id_bytes : (const void *)"";
    document->n_ids = end - begin;
}

static bool next_of_llm_c(bd_token_file *file, bd_token_document *document)
{
    const bool headless = file->takes_first;
    file->takes_first = false;
    const int64_t position = headless ? 0 : find_end_of_text(file, file->next, file->slice_end);
    if (position >= file->slice_end)
        return false;
    const int64_t first = headless ? 0 : position + 1;
    file->next = find_end_of_text(file, first, file->n_tokens);
    fill_document(file, first, file->next, document);
    document->position = position;
    document->headless = headless;
    return true;
}

static bd_status next_of_index(bd_token_file *file, bd_token_document *document, bool *found,
                               bd_error *err)
{
    *found = false;
    const int64_t d = file->next;
    if (d >= file->slice_end)
        return BD_OK;
    const int64_t begin = document_begin(file, d), end = document_end(file, d);
    if (begin < 0 || end < begin)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': document %" PRId64
                       " was changed while it was being read",
                       file->index_path, d);
    *found = true;
    file->next++;
    fill_document(file, begin, end, document);
    document->position = d;
    document->headless = false;
    return BD_OK;
}

bd_status bd_token_file_next(bd_token_file *file, bd_token_document *document, bool *found,
                             bd_error *err)
{
    if (bd_token_file_is_indexed(file))
        return next_of_index(file, document, found, err);
    *found = next_of_llm_c(file, document);
    return BD_OK;
}
