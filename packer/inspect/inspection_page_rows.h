// inspection_page_rows.h - the rows that a page shows: some, spread over the dataset, with the
// tokens of their documents. Everything is bounded:
//
//   rows        at most BD_PAGE_ROWS
//   segments    of a row, at most BD_PAGE_SEGMENTS are listed, the first ones
//   tokens      of a row, at most BD_PAGE_ROW_TOKENS; long segments are cut to the same length
//   vocabulary  the texts of these tokens, at most BD_PAGE_VOCABULARY_BYTES of them
#ifndef BINDERY_PACKER_INSPECT_INSPECTION_PAGE_ROWS_H
#define BINDERY_PACKER_INSPECT_INSPECTION_PAGE_ROWS_H

#include "common/base/json.h"
#include "packer/inspect/inspection.h"

enum {
    BD_PAGE_ROWS = 32,
    BD_PAGE_COMPRESSED_RUN = 8,  // rows together in a compressed shard, to open fewer of them
    BD_PAGE_SEGMENTS = 96,
    BD_PAGE_ROW_TOKENS = 4096,
    BD_PAGE_VOCABULARY_BYTES = 1 << 18,
};

// The sample:
//
//   rows        row (of the dataset), shard, row_in_shard, used, n_segments, segments: each
//               from and to (tokens of the row), input, position, offset, length, ids
//   inputs      by number, of those that segments name: name, source, unit of its positions;
//               empty for a shard alone
//   vocabulary  by id: the text of a token, or its bytes if they are no text by themselves; a
//               token that stands for no text is not there
//   cut         whether the vocabulary had no room for others
//
// Every row is checked; damage is BD_ERR_FORMAT. Free with bd_json_free().
bd_status bd_inspection_page_sample(const bd_inspection *inspection, bd_json **sample,
                                    bd_error *err);

#endif
