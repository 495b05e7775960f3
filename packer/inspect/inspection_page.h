// inspection_page.h - an inspection as one HTML page: figures with plots, rows to look at, the
// shards.
//
// The page is made of common/page and of inspection_page*.{html,css,js}. Its data:
//
//   path         what was inspected
//   inspection   what bd_inspection_to_short_json() says, without inputs
//   totals       how many inputs, sources and shards there are: the lists may be shorter
//   shard_groups shards in order, as many in each group, for a plot: first, shards, rows
//   sample       rows with their documents: inspection_page_rows.h
#ifndef BINDERY_PACKER_INSPECT_INSPECTION_PAGE_H
#define BINDERY_PACKER_INSPECT_INSPECTION_PAGE_H

#include <stdbool.h>

#include "packer/inspect/inspection.h"

enum {
    BD_PAGE_SOURCES = 100,      // that a page lists at most
    BD_PAGE_SHARDS = 1000,      // that it lists at most
    BD_PAGE_SHARD_GROUPS = 64,  // bars for all of them
    BD_PAGE_NAME_BYTES = 80,    // of the name of an input or a source
};

// The statistics must have been filled. Reads the sample of rows, writes the page to `path`
// (bd_page_publish()) and tells its size: usually less than 1 MB, never more than 10 MB,
// whatever the dataset holds. Memory: about ten times that.
bd_status bd_inspection_page_publish(const bd_inspection *inspection, const char *path,
                                     bool overwrite, size_t *size_bytes, bd_error *err);

#endif
