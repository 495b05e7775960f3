// progress.h - one line on the terminal that says how far a long job is.
//
//   packing  42%  1.23 M of 2.93 M documents  45.6 k/s  37 s left
//
//   bd_progress *progress = bd_progress_new(&(bd_progress_config){
//       .label = "packing", .unit = "bytes", .total = n_bytes, .quiet = arguments->quiet});
//   ...
//   bd_progress_add(progress, n);    // from any thread
//   ...
//   bd_progress_free(progress);      // before printing anything else on stderr
//
// If nothing can be shown (quiet, stderr is not a terminal, no memory or no thread left), the
// progress is NULL, which every function accepts: it is never a reason to fail.
#ifndef BINDERY_COMMON_CLI_PROGRESS_H
#define BINDERY_COMMON_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bd_progress bd_progress;

typedef struct bd_progress_config {
    const char *label;  // "packing"; borrowed until free
    const char *unit;   // "documents", "rows"; "bytes" is shown as KiB, MiB...; borrowed
    uint64_t total;     // 0 if unknown: then no share and no time left
    uint64_t already;   // done by an earlier run: part of the share, not of the rate
    bool quiet;
    FILE *out;  // NULL in programs: stderr, if it is a terminal. Tests draw into any stream.
} bd_progress_config;

// Starts a thread that draws the line a few times a second, the first time after a moment.
// The caller frees the result.
bd_progress *bd_progress_new(const bd_progress_config *config);

// Adds to the amount done. One atomic addition; callable from several threads at once.
void bd_progress_add(bd_progress *progress, uint64_t n);

// Ends the drawing and erases the line. All bd_progress_add() must have returned.
void bd_progress_free(bd_progress *progress);

// The text of the line with `done` (including `already`) after `elapsed_ns`, without control
// characters, at most `size - 1` columns: parts that do not fit are left out from the right.
void bd_progress_line(const bd_progress_config *config, uint64_t done, int64_t elapsed_ns,
                      char *line, size_t size);

#ifdef __cplusplus
}
#endif

#endif
