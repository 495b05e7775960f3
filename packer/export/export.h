// export.h - a dataset as tables that other trainers read: one file for each shard, and an
// export.json that says what they are.
//
//   shards/00000-00000.arrow   ->   out/00000-00000.arrows    an Arrow stream, or
//                                   out/00000-00000.parquet
#ifndef BINDERY_PACKER_EXPORT_EXPORT_H
#define BINDERY_PACKER_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/export/arrow_tables.h"
#include "packer/export/export_columns.h"

#define BD_EXPORT_NAME "export.json"

typedef struct bd_export_job {
    const char *dataset;  // folders, borrowed
    const char *folder;
    bd_table_format format;
    bd_export_columns columns;
    bool overwrite;  // remove an export that the folder holds
    bool quiet;
} bd_export_job;

typedef struct bd_export_result {
    size_t n_files;
    int64_t n_rows;
    uint64_t n_bytes;  // of the files
} bd_export_result;

// Exports on `n_threads` threads. The folder must be absent or empty; with `overwrite` an export in
// it is replaced, and anything else is refused. Every row is checked as it is read. No file has its
// final name before all are complete, and export.json, which is sealed (common/base/json.h), is the
// last; after a failure none of them exists. The bytes of the files do not depend on the number of
// threads.
bd_status bd_export(const bd_export_job *job, int n_threads, bd_export_result *result,
                    bd_error *err);

#endif
