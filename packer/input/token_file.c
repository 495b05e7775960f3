#include "packer/input/token_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "packer/input/examine.h"
#include "packer/input/token_layout.h"

// ---- Names ----------------------------------------------------------------------------------

bool bd_path_has_ending(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

bd_status bd_path_replace_ending(const char *path, size_t n_old, const char *ending,
                                 char **replaced, bd_error *err)
{
    if (asprintf(replaced, "%.*s%s", (int)(strlen(path) - n_old), path, ending) >= 0)
        return BD_OK;
    *replaced = NULL;
    return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
}

bool bd_is_regular_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bd_status bd_file_begins_with(const char *path, const void *magic, size_t n, bool *yes,
                              bd_error *err)
{
    char head[16];
    int fd;
    int64_t size_bytes;
    assert(n <= sizeof head);
    *yes = false;
    if (!bd_is_regular_file(path))
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

// ---- Where documents lie --------------------------------------------------------------------

static int64_t document_end(const bd_token_file *file, int64_t d)
{
    const int64_t end = file->layout->document_end(file, d);
    return 0 <= end && end <= file->n_tokens ? end : -1;
}

static int64_t document_begin(const bd_token_file *file, int64_t d)
{
    return d == 0 ? 0 : document_end(file, d - 1);
}

// ---- Opening and closing --------------------------------------------------------------------

bd_status bd_token_file_open(bd_token_file **file, const char *path,
                             const bd_token_layout *layout, int raw_id_bytes,
                             int64_t end_of_text, bd_error *err)
{
    *file = NULL;
    bd_token_file *opened = malloc(sizeof *opened);
    if (!opened)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to open '%s'", path);
    *opened =
        (bd_token_file){.layout = layout, .ids_file = {.slot = -1}, .index_file = {.slot = -1}};
    const bd_status status = layout->open(opened, path, raw_id_bytes, end_of_text, err);
    if (status == BD_OK)
        *file = opened;
    else
        bd_token_file_close(opened);
    return status;
}

void bd_token_file_close(void *source)
{
    bd_token_file *file = source;
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
    return file->layout->document_end != NULL;
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

void bd_token_file_begin(bd_token_file *file, int64_t begin, int64_t end)
{
    assert(0 <= begin && begin <= end);
    const int64_t extent = bd_token_file_extent(file);
    file->next = begin;
    file->slice_end = end < extent ? end : extent;
    file->is_at_start = begin == 0;
}

void bd_token_document_fill(const bd_token_file *file, int64_t begin, int64_t end,
                            bd_token_document *document)
{
    // An empty file has no mapping into which a pointer could point.
    document->ids = file->ids ? file->ids + begin * file->id_bytes : (const void *)"";
    document->n_ids = end - begin;
}

bd_status bd_token_file_next(bd_token_file *file, bd_token_document *document, bool *found,
                             bd_error *err)
{
    if (!bd_token_file_is_indexed(file)) {
        *found = file->layout->next(file, document);
        return BD_OK;
    }
    const int64_t d = file->next;
    *found = d < file->slice_end;
    if (!*found)
        return BD_OK;
    const int64_t begin = document_begin(file, d), end = document_end(file, d);
    if (begin < 0 || end < begin)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot use '%s': document %" PRId64
                       " was changed while it was being read",
                       file->index_path, d);
    file->next++;
    bd_token_document_fill(file, begin, end, document);
    document->position = d;
    document->headless = false;
    return BD_OK;
}

// ---- As inputs -------------------------------------------------------------------------------

bd_status bd_token_file_recognise(bd_input *input, const bd_input_head *head,
                                  const bd_input_options *options, bool *yes, bd_error *err)
{
    (void)options;
    // Files in folders are many, and those of tokens do not look like text.
    const bool may_be =
        (head->named && head->named->tokens) || !head->is_clean || input->folder == 0;
    if (!may_be || input->compression || (head->named && head->named->is_text))
        return BD_OK;
    return input->kind->tokens->recognise(input->path, yes, err);
}

// A pair of files may be given by its index; it is called after the file that holds the ids.
static bd_status use_ids_path(bd_input *input, const char *path, bd_error *err)
{
    const size_t n = strlen(input->entry.name), n_ending = strlen(".idx");
    if (strcmp(path, input->path) == 0)
        return BD_OK;
    char *ids_path = strdup(path);
    if (!ids_path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    free(input->path);
    input->path = ids_path;
    if (n > n_ending)
        memcpy(input->entry.name + n - n_ending, ".bin", n_ending);
    return BD_OK;
}

// Between documents, which join a slice while they stay within the unit's size together.
static bd_status cut_indexed(bd_input *input, const bd_token_file *file, int64_t per_unit,
                             bd_error *err)
{
    size_t capacity = 0;
    int64_t slice_begin = 0;  // token
    BD_TRY(bd_input_add_start(input, &capacity, 0, err));
    for (int64_t d = 1; d < input->entry.extent; d++) {
        const int64_t end = bd_token_file_document_begin(file, d + 1);
        if (end - slice_begin > per_unit) {
            BD_TRY(bd_input_add_start(input, &capacity, d, err));
            slice_begin = bd_token_file_document_begin(file, d);
        }
    }
    return BD_OK;
}

bd_status bd_token_file_cut(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bd_token_file *file;
    bd_input_entry *entry = &input->entry;
    BD_TRY(bd_token_file_open(&file, input->path, input->kind->tokens, options->raw_id_bytes,
                              options->end_of_text, err));
    input->id_bytes = bd_token_file_id_bytes(file);
    input->has_signed_ids = bd_token_file_is_signed(file);
    entry->extent = bd_token_file_extent(file);
    entry->weight = bd_token_file_n_tokens(file) * input->id_bytes;
    const int64_t per_unit = options->unit_bytes / input->id_bytes;
    bd_status status = BD_OK;
    if (bd_token_file_is_indexed(file))
        status = cut_indexed(input, file, per_unit, err);
    else
        entry->stride = per_unit > 0 ? per_unit : 1;
    if (status == BD_OK)
        status = use_ids_path(input, bd_token_file_path(file), err);
    if (status == BD_OK)
        status = bd_input_digest_edges(input, bd_token_file_sidecar(file), err);
    bd_token_file_close(file);
    return status;
}

bd_status bd_token_file_open_input(void **source, const bd_input *input,
                                   const bd_input_options *options, bd_error *err)
{
    bd_token_file *file;
    BD_TRY(bd_token_file_open(&file, input->path, input->kind->tokens, options->raw_id_bytes,
                              options->end_of_text, err));
    *source = file;
    return bd_token_file_extent(file) == input->entry.extent
               ? BD_OK
               : bd_input_fail_changed(input, err);
}

void bd_token_file_begin_slice(void *source, bd_slice slice)
{
    bd_token_file_begin(source, slice.begin, slice.end);
}

bd_status bd_token_file_next_record(void *source, int64_t end, bd_record *record, bool *found,
                                    bd_error *err)
{
    bd_token_file *file = source;
    bd_token_document document = {0};
    (void)end;
    BD_TRY(bd_token_file_next(file, &document, found, err));
    *record = (bd_record){.data = document.ids,
                          .size_bytes = (size_t)document.n_ids * (size_t)file->id_bytes,
                          .position = document.position,
                          .headless = document.headless};
    return BD_OK;
}
