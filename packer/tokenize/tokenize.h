// tokenize.h - a stream of text to ids, or of ids to text: what `bindery tokenize` does.
//
//   ids as text   "15496 995\n": decimal, a space between them, a line for each document
//   raw ids       u16 or u32, little-endian, the documents end to end
#ifndef BINDERY_PACKER_TOKENIZE_TOKENIZE_H
#define BINDERY_PACKER_TOKENIZE_TOKENIZE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/tokenizer/tokenizer.h"

#define BD_ID_FORMATS(X) X(BD_IDS_AS_TEXT, "text") X(BD_IDS_U16, "u16") X(BD_IDS_U32, "u32")
BD_ENUM(bd_id_format, BD_ID_FORMATS);

typedef struct bd_tokenize_job {
    const bd_tokenizer *tokenizer;  // borrowed
    bd_id_format format;
    bool lines;                  // a document is a line, else a whole file
    const char *text_field;      // the lines are JSON records and this is the documents' field;
                                 // NULL: they are text. Borrowed
    int64_t max_document_bytes;  // a larger document is an error
    FILE *out;                   // borrowed; NULL counts alone
} bd_tokenize_job;

typedef struct bd_tokenize_counts {
    int64_t documents, tokens, bytes;  // bytes of text
} bd_tokenize_counts;

// Tokenises the file at `path` ("-" is standard input; gzip and zstd are decompressed), adding to
// *counts. Ends early, without an error, if job->out cannot be written any more: ask ferror().
// Memory: 12 bytes per byte of the largest document, 36 if it is normalised, and 1 MiB.
bd_status bd_tokenize_text(const bd_tokenize_job *job, bd_encoder *encoder, const char *path,
                           bd_tokenize_counts *counts, bd_error *err);

// The inverse: from ids to text. A word that is not an id of the tokenizer is BD_ERR_FORMAT, and
// the message names its place. With job->lines every line of ids becomes a line of text. Memory: 1
// MiB.
bd_status bd_tokenize_decode(const bd_tokenize_job *job, const char *path, bd_error *err);

#endif
