// token_file_slices.h - token files that lie in memory, and their documents slice by slice.
#ifndef BINDERY_TESTS_FUZZ_TOKEN_FILE_SLICES_H
#define BINDERY_TESTS_FUZZ_TOKEN_FILE_SLICES_H

#include "common/base/mapped_file.h"
#include "tests/fuzz/memory_file.h"

// The source itself instead of the library. Its files are copies on the heap, whose ends
// AddressSanitizer watches, instead of mappings.
#define bd_mapped_file_open  heap_file_open
#define bd_mapped_file_close heap_file_close
static bd_status heap_file_open(bd_mapped_file *file, const char *path, bd_error *err);
static void heap_file_close(bd_mapped_file *file);
#include "packer/input/token_file.c"  // NOLINT(bugprone-suspicious-include)

typedef struct heap_file {
    const uint8_t *data;
    size_t size_bytes;
} heap_file;

// The fuzzer's bytes: for files named .idx, and for all others.
static heap_file index_bytes, ids_bytes;

static bd_status heap_file_open(bd_mapped_file *file, const char *path, bd_error *err)
{
    (void)err;
    const heap_file *source = bd_path_has_ending(path, ".idx") ? &index_bytes : &ids_bytes;
    *file = (bd_mapped_file){.size_bytes = source->size_bytes, .slot = -1};
    if (source->size_bytes == 0)
        return BD_OK;
    void *copy = malloc(source->size_bytes);
    REQUIRE(copy);
    memcpy(copy, source->data, source->size_bytes);
    file->data = copy;
    return BD_OK;
}

static void heap_file_close(bd_mapped_file *file)
{
    free((void *)file->data);
    *file = (bd_mapped_file){.slot = -1};
}

typedef struct slices {
    bd_token_file *file;
    int64_t size, begin;  // of the current slice
} slices;

static bool next_of_slices(slices *s, bd_token_document *document)
{
    for (;;) {
        bool found;
        bd_error err = {0};
        REQUIRE(bd_token_file_next(s->file, document, &found, &err) == BD_OK);
        if (found)
            return true;
        s->begin += s->size;
        if (s->begin >= bd_token_file_extent(s->file))
            return false;
        bd_token_file_begin(s->file, s->begin, s->begin + s->size);
    }
}

// Tells whether `document` is the next one after `n_documents` others and `n_used` tokens,
// including those of end-of-text.
static void check_place(const bd_token_file *file, const bd_token_document *document,
                        int64_t n_documents, int64_t n_used)
{
    if (bd_token_file_is_indexed(file)) {
        REQUIRE(document->position == n_documents && !document->headless);
        REQUIRE(bd_token_file_document_begin(file, n_documents) == n_used);
    } else {
        REQUIRE(document->position == n_used);
    }
}

// The documents of slices of `size` positions are those of the whole file, and together with
// the end-of-text tokens they are all of its tokens.
static void check_slices(const char *path, const bd_token_layout *layout, int64_t end_of_text,
                         int64_t size)
{
    slices parts = {.size = size}, whole = {0};
    bd_error err = {0};
    if (bd_token_file_open(&whole.file, path, layout, 0, end_of_text, &err) != BD_OK) {
        REQUIRE(err.status == BD_ERR_FORMAT && strstr(err.message, "cannot use '") != NULL);
        return;
    }
    REQUIRE(bd_token_file_open(&parts.file, path, layout, 0, end_of_text, &err) == BD_OK);
    const bool indexed = bd_token_file_is_indexed(whole.file);
    const int64_t n = bd_token_file_n_tokens(whole.file);
    const size_t id_bytes = (size_t)bd_token_file_id_bytes(whole.file);
    whole.size = bd_token_file_extent(whole.file) + 1;
    bd_token_file_begin(whole.file, 0, whole.size);
    bd_token_file_begin(parts.file, 0, size);
    int64_t n_documents = 0, n_used = 0;
    for (;;) {
        bd_token_document a, b;
        const bool found = next_of_slices(&whole, &a);
        REQUIRE(next_of_slices(&parts, &b) == found);
        if (!found)
            break;
        REQUIRE(a.position == b.position && a.n_ids == b.n_ids && a.headless == b.headless);
        REQUIRE(memcmp(a.ids, b.ids, (size_t)a.n_ids * id_bytes) == 0);
        check_place(whole.file, &a, n_documents, n_used);
        n_documents++;
        n_used += a.n_ids + (!indexed && !a.headless);
    }
    REQUIRE(n_used == n && (!indexed || n_documents == bd_token_file_extent(whole.file)));
    REQUIRE(!indexed || bd_token_file_document_begin(whole.file, n_documents) == n);
    bd_token_file_close(whole.file);
    bd_token_file_close(parts.file);
}

#endif
