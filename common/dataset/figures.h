// figures.h - the counts of a shard or a dataset, and the ledger that ties them together.
//
// schemas/shard-v1.md says what each one counts. The packer fills them from both ends: what
// the inputs gave (text, bos, separators, truncated, dropped) and what the rows hold (the
// rest); the ledger's equations must then agree. A scan of the rows fills what rows can tell.
#ifndef BINDERY_COMMON_DATASET_FIGURES_H
#define BINDERY_COMMON_DATASET_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/tokenizer/added_counts.h"

enum { BD_HISTOGRAM_BINS = 33 };  // bin i counts values from 2^i to 2^(i+1) - 1

typedef struct bd_figures {
    int64_t rows, segments, documents;
    int64_t text, bos, separators, repeated;               // tokens in
    int64_t packed, padding, truncated, dropped, targets;  // tokens out
    int64_t too_short, held_out, untrained;                // tokens out as well
    int64_t masked;  // packed tokens other than a segment's first that are not trained
    int64_t empty_documents, split_documents, truncated_documents, dropped_documents;
    int64_t too_short_documents, held_out_documents, untrained_documents, headless_documents;
    int64_t separator_collisions, invalid_utf8_documents;
    int64_t bad_missing_text, bad_json, bad_utf8, bad_too_large, bad_pattern;  // records
    int64_t longest_segment, attention_pairs;
    bd_added_counts added;  // added tokens that were recognised in text
    int64_t document_lengths[BD_HISTOGRAM_BINS];
    int64_t segments_per_row[BD_HISTOGRAM_BINS];
} bd_figures;

// The plain counts by the names that they have in JSON, for printing, reading and comparing.
typedef struct bd_figure_field {
    const char *name;
    size_t offset;  // in bd_figures, of an int64_t
    int since;      // format 1.<since> is the first that has it; before, it is 0
    bool of_masks;  // only datasets with loss masks state it; for others it is 0
} bd_figure_field;
extern const bd_figure_field bd_figure_fields[];
extern const size_t bd_n_figure_fields;

// Counts one row of `n_segments` segments with `used` tokens.
void bd_figures_count_row(bd_figures *figures, int64_t seq_len, int64_t used,
                          int64_t n_segments);
// Counts a segment of `length` tokens that begins at token `offset` of its document. Its other
// tokens than the first that are not among the `n_targets` are masked.
void bd_figures_count_segment(bd_figures *figures, int64_t offset, int64_t length,
                              int64_t n_targets);
// Counts a document that has at least one piece in a row.
void bd_figures_count_document(bd_figures *figures, int64_t length);

// Documents that were read, whether or not anything of them is in a row.
int64_t bd_figures_documents_read(const bd_figures *figures);

// Records that were left out because nothing could be made of them.
int64_t bd_figures_bad_records(const bd_figures *figures);

// Copies from `from` the counts that cannot be found from rows, only by reading the inputs:
// documents that were left out (dropped, too short, held out, untrained), that were headless or
// not UTF-8, bad records, and the added tokens that were recognised.
void bd_figures_take_left_out(bd_figures *figures, const bd_figures *from);

// total += part; longest_segment becomes the larger one. A sum that does not fit is
// BD_ERR_FORMAT.
bd_status bd_figures_add(bd_figures *total, const bd_figures *part, bd_error *err);

// The three equations of the ledger (S6). BD_ERR_FORMAT names the one that does not hold.
bd_status bd_figures_check_ledger(const bd_figures *figures, int64_t seq_len, bd_error *err);

// Whether the figures differ, and where they first do (as bd_json_difference() says it). Added
// tokens that `there` did not count are not compared.
bool bd_figures_difference(const bd_figures *here, const bd_figures *there, char *where,
                           size_t where_size);

// `masked`: the dataset has loss masks, and its figures those that belong to them.
bd_json *bd_figures_to_json(const bd_figures *figures, bool masked);
bd_status bd_figures_from_json(bd_figures *figures, const bd_json *json, bool masked,
                               bd_error *err);

#endif
