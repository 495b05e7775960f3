// Megatron's pairs: NAME.bin holds ids end to end, NAME.idx where each document lies. Either
// name stands for both.
#include <inttypes.h>
#include <stdlib.h>

#include "packer/input/token_layout.h"

static const char megatron_magic[9] = "MMIDIDX\0";

enum { MEGATRON_HEADER_BYTES = 9 + 8 + 1 + 8 + 8 };

static bd_status is_megatron(const char *path, bool *yes, bd_error *err)
{
    BD_TRY(bd_file_begins_with(path, megatron_magic, sizeof megatron_magic, yes, err));
    if (*yes || !bd_path_has_ending(path, ".bin"))
        return BD_OK;
    char *index_path;
    BD_TRY(bd_path_replace_ending(path, strlen(".bin"), ".idx", &index_path, err));
    const bd_status status =
        bd_file_begins_with(index_path, megatron_magic, sizeof megatron_magic, yes, err);
    free(index_path);
    return status;
}

static int64_t megatron_document_end(const bd_token_file *file, int64_t d)
{
    const int64_t after = bd_int64_at(file->first_sequences, d + 1);
    if (after < 0 || after > file->n_sequences)
        return -1;
    if (after == 0)
        return 0;
    const int64_t pointer = bd_int64_at(file->pointers, after - 1);
    if (pointer < 0 || pointer > (int64_t)file->ids_file.size_bytes)
        return -1;
    return pointer / file->id_bytes + bd_int32_at(file->lengths, after - 1);
}

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
    const uint64_t version = (uint64_t)bd_int64_at(header + 9, 0);
    if (version != 1)
        return bd_fail(err, BD_ERR_FORMAT, "its version is %" PRIu64 ", not 1", version);
    BD_TRY(read_megatron_type(file, header[17], err));

    const uint64_t n_sequences = (uint64_t)bd_int64_at(header + 18, 0);
    const uint64_t n_first = (uint64_t)bd_int64_at(header + 26, 0);
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
        const int64_t first = bd_int64_at(file->first_sequences, d);
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
    while (d < file->n_documents && bd_int64_at(file->first_sequences, d) < sequence)
        d++;
    return bd_int64_at(file->first_sequences, d) == sequence;
}

// Says why sequence `s`, which should begin at byte `expected`, is refused.
static bd_status refuse_sequence(const bd_token_file *file, int64_t s, int64_t expected,
                                 bd_error *err)
{
    const int64_t pointer = bd_int64_at(file->pointers, s),
                  length = bd_int32_at(file->lengths, s);
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
        const int64_t length = bd_int32_at(file->lengths, s);
        if (bd_int64_at(file->pointers, s) != expected || length < 0 ||
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

static bd_status open_megatron(bd_token_file *file, const char *path, int raw_id_bytes,
                               int64_t end_of_text, bd_error *err)
{
    (void)raw_id_bytes;
    (void)end_of_text;
    if (!bd_path_has_ending(path, ".bin") && !bd_path_has_ending(path, ".idx"))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot use '%s': Megatron's files are named NAME.bin and NAME.idx",
                       path);
    BD_TRY(bd_path_replace_ending(path, strlen(".bin"), ".bin", &file->ids_path, err));
    BD_TRY(bd_path_replace_ending(path, strlen(".idx"), ".idx", &file->index_path, err));
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

const bd_token_layout bd_megatron_layout = {
    .recognise = is_megatron,
    .open = open_megatron,
    .document_end = megatron_document_end,
};

static const char *const megatron_endings[] = {".bin", NULL};

const bd_input_kind bd_megatron_kind = {
    .name = bd_megatron_name,
    .endings = megatron_endings,
    .place = "document",
    BD_TOKEN_KIND(megatron),
};
