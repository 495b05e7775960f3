// token_layout.h - what a layout of token files has to be able to do, and what token_file.c does
// for all of them: for megatron.c, llm_c.c and raw_ids.c.
#ifndef BINDERY_PACKER_INPUT_TOKEN_LAYOUT_H
#define BINDERY_PACKER_INPUT_TOKEN_LAYOUT_H

#include <string.h>

#include "common/base/mapped_file.h"
#include "packer/input/dolma_index.h"
#include "packer/input/kinds.h"
#include "packer/input/token_file.h"

struct bd_token_layout {
    // Whether the file at `path` has this layout: by its first bytes or by the files beside it.
    bd_status (*recognise)(const char *path, bool *yes, bd_error *err);
    // Maps the files and checks all that can be checked without reading the ids.
    bd_status (*open)(bd_token_file *file, const char *path, int raw_id_bytes,
                      int64_t end_of_text, bd_error *err);
    // Where document `d` ends, in tokens; the result may be impossible, for somebody may write
    // into a mapped file after open() has checked it. NULL: the layout has no index.
    int64_t (*document_end)(const bd_token_file *file, int64_t d);
    // The next document of a layout without an index.
    bool (*next)(bd_token_file *file, bd_token_document *document);
};

struct bd_token_file {
    const bd_token_layout *layout;
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
    bool is_at_start;   // of a slice that begins with the file: a headless document may come
};

static inline int64_t bd_int64_at(const unsigned char *array, int64_t i)
{
    int64_t value;
    memcpy(&value, array + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static inline int32_t bd_int32_at(const unsigned char *array, int64_t i)
{
    int32_t value;
    memcpy(&value, array + i * (int64_t)sizeof value, sizeof value);
    return value;
}

// Whether `path` ends with `ending` and is longer.
bool bd_path_has_ending(const char *path, const char *ending);

// `path` with `ending` in the place of its last `n_old` characters; malloc'd.
bd_status bd_path_replace_ending(const char *path, size_t n_old, const char *ending,
                                 char **replaced, bd_error *err);

bool bd_is_regular_file(const char *path);

// Whether there is a regular file at `path` that begins with the `n` <= 16 bytes of `magic`.
bd_status bd_file_begins_with(const char *path, const void *magic, size_t n, bool *yes,
                              bd_error *err);

// Sets the document to the tokens [begin, end).
void bd_token_document_fill(const bd_token_file *file, int64_t begin, int64_t end,
                            bd_token_document *document);

// The functions that all kinds of token files have (kinds.h).
bd_status bd_token_file_recognise(bd_input *input, const bd_input_head *head,
                                  const bd_input_options *options, bool *yes, bd_error *err);
bd_status bd_token_file_cut(bd_input *input, const bd_input_options *options, bd_error *err);
bd_status bd_token_file_open_input(void **source, const bd_input *input,
                                   const bd_input_options *options, bd_error *err);
void bd_token_file_begin_slice(void *source, bd_slice slice);
bd_status bd_token_file_next_record(void *source, int64_t end, bd_record *record, bool *found,
                                    bd_error *err);

// The functions of a kind whose layout is bd_NAME_layout.
#define BD_TOKEN_KIND(name)                                                \
    .tokens = &bd_##name##_layout, .recognise = bd_token_file_recognise,   \
    .cut = bd_token_file_cut, .open = bd_token_file_open_input,            \
    .begin = bd_token_file_begin_slice, .next = bd_token_file_next_record, \
    .close = bd_token_file_close

#endif
