// kinds.h - the kinds of input: what a kind has to be able to do, and the list of all of them.
//
// A new kind is one file that defines bd_NAME_kind, and one line of BD_FOR_EACH_INPUT_KIND. The
// words of --format, the names in plans and manifests, recognising, cutting and reading all
// come from there.
#ifndef BINDERY_PACKER_INPUT_KINDS_H
#define BINDERY_PACKER_INPUT_KINDS_H

#include "packer/input/arrow_columns.h"
#include "packer/input/inputs.h"
#include "packer/input/records.h"
#include "packer/input/token_file.h"

// The beginning of an input, decompressed, and what its name suggests.
enum { BD_HEAD_BYTES = 1 << 12 };
typedef struct bd_input_head {
    char bytes[BD_HEAD_BYTES];
    size_t n;                    // less than BD_HEAD_BYTES: it is all of it
    bool is_clean;               // it is UTF-8 without NULs
    const bd_input_kind *named;  // the kind whose ending the name has; NULL: none
} bd_input_head;

bool bd_head_begins_with(const bd_input_head *head, const char *mark, size_t n);

struct bd_input_kind {
    const char *name;            // bd_NAME_name, from the list below
    const char *const *endings;  // of file names that suggest it, ended by NULL
    const char *place;           // what messages call a position: "row", "document at byte";
                                 // the last word is what positions count
    bool is_text;                // may be compressed or come from standard input
    bool is_json;                // its records are JSON, with the text in a field
    bool takes_strings;          // of JSON: a record may also be a string, which is its text
    bool has_lines;              // messages also name the line of a record
    bool is_stream;  // can only be read from front to back, even if it is not compressed
    const bd_token_layout *tokens;  // of token files, else NULL
    bool is_table;
    bd_columns_format columns;  // of tables

    // Sets *yes, which is false, if the input is of this kind, or input->passed if it is and
    // cannot be read. input->kind is this kind meanwhile. Also called where the name has decided
    // already. NULL: only the name can tell.
    bd_status (*recognise)(bd_input *input, const bd_input_head *head,
                           const bd_input_options *options, bool *yes, bd_error *err);

    // Fills in what only this kind can tell of the input: its edges, sizes, slices, and the
    // width of its ids.
    bd_status (*cut)(bd_input *input, const bd_input_options *options, bd_error *err);

    // Reading. The options are the input's own; they and the input outlive the source. If open()
    // fails, close() still releases what *source is. next() gives the records of the slice that
    // was begun last, whose end is given again.
    bd_status (*open)(void **source, const bd_input *input, const bd_input_options *options,
                      bd_error *err);
    void (*begin)(void *source, bd_slice slice);
    bd_status (*next)(void *source, int64_t end, bd_record *record, bool *found, bd_error *err);
    void (*close)(void *source);

    // For kinds whose extent may be unknown: whether the text has a byte at `position`, and how
    // many bytes of the file were taken in so far.
    bd_status (*reaches)(void *source, int64_t position, bool *reaches, bd_error *err);
    int64_t (*consumed)(const void *source);
};

// The list. Kinds told by a mark or by a file beside them come before a mark is looked for that
// says what else a file is; kinds of text come after it (recognise.c). Within either group the
// first that recognises a file has it: an index beside a file says more than the four bytes at
// the beginning of llm.c's files, which ids could have by chance.
#define BD_FOR_EACH_INPUT_KIND(X)   \
    X(text, "text")                 \
    X(jsonl, "jsonl")               \
    X(csv, "csv")                   \
    X(tsv, "tsv")                   \
    X(json, "json")                 \
    X(parquet, "parquet")           \
    X(arrow, "arrow")               \
    X(arrow_stream, "arrow-stream") \
    X(megatron, "megatron")         \
    X(llm_c, "llm.c")               \
    X(tokens, "tokens")

#define BD_DECLARE_INPUT_KIND(id, word)        \
    extern const bd_input_kind bd_##id##_kind; \
    extern const char bd_##id##_name[];
BD_FOR_EACH_INPUT_KIND(BD_DECLARE_INPUT_KIND)
#undef BD_DECLARE_INPUT_KIND

// All of them, ended by NULL.
extern const bd_input_kind *const bd_input_kinds[];

// The kind whose ending the name has once that of a compression is taken off; NULL: none.
const bd_input_kind *bd_input_kind_by_ending(const char *name);

// Whether the name ends so once the ending of a compression is taken off.
bool bd_name_has_ending(const char *name, const char *ending);

#endif
