// metrics_reader.h - reads metrics.jsonl line by line.
//
// The file comes from outside: every field that is used is checked. A damaged log must not stop a
// run that is sound, so damaged lines (torn in the middle of the file, overwritten, out of order)
// are left out and counted, and the first one is described by file, line and field. A last line
// without its newline is ignored: it is being written, or a killed run did not finish it. Lines of
// an unknown kind and unknown fields are for newer readers; only the step of such lines is read.
//
//   bd_metrics_reader reader;
//   BD_TRY(bd_metrics_reader_open(&reader, path, err));
//   while ((status = bd_metrics_reader_next(&reader, &line, &more, err)) == BD_OK && more)
//       …
//   bd_metrics_reader_close(&reader);
#ifndef BINDERY_TRAINER_METRICS_METRICS_READER_H
#define BINDERY_TRAINER_METRICS_METRICS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"
#include "common/base/json.h"

enum { BD_METRICS_LINE_BYTES = 16 << 20 };  // a longer line is damaged

typedef enum bd_metrics_kind {
    BD_METRICS_STEP,
    BD_METRICS_EVAL,
    BD_METRICS_SAMPLE,
    BD_METRICS_OTHER,
} bd_metrics_kind;

// A step. Numbers that the line has not, or has as null, are NAN.
typedef struct bd_metrics_step {
    double loss;  // NAN also if there were no targets
    double gradient_norm, learning_rate, seconds;
    double tokens;  // without padding, if the line has that
    double flop, mfu;
} bd_metrics_step;

typedef struct bd_metrics_line {
    bd_metrics_kind kind;
    int64_t step;
    bd_metrics_step figures;  // BD_METRICS_STEP
    const bd_json *values;    // BD_METRICS_EVAL and _SAMPLE: an array of objects; borrowed
                              // until the next line
} bd_metrics_line;

// Lines that were left out.
typedef struct bd_metrics_damage {
    int64_t n_lines, first_line;  // the number of the first one, from 1
    bd_error why;                 // the first one is damaged, with file and line
} bd_metrics_damage;

typedef struct bd_metrics_reader {
    const char *path;  // borrowed
    FILE *file;        // owned
    char *text;        // the line, owned
    size_t capacity;
    bd_json *json;             // of the line, owned
    int64_t number;            // of the line, from 1
    int64_t end;               // the byte after it
    int64_t last_step;         // of all lines so far
    int64_t last_trained;      // of the lines of steps, which must rise
    int64_t n_torn;            // bytes of a last line without its newline
    bd_metrics_damage damage;  // of all lines so far
} bd_metrics_reader;

// `path` must outlive the reader. On failure there is nothing to close. Memory: a line and its
// JSON.
bd_status bd_metrics_reader_open(bd_metrics_reader *reader, const char *path, bd_error *err);
void bd_metrics_reader_close(bd_metrics_reader *reader);  // safe on an empty struct and twice

// Reads the next whole line that is not damaged; *more becomes false after the last one.
bd_status bd_metrics_reader_next(bd_metrics_reader *reader, bd_metrics_line *line, bool *more,
                                 bd_error *err);

// An element of an evaluation's values: the mean loss over the targets of a dataset.
typedef struct bd_eval_value {
    const char *dataset;  // borrowed
    double loss;
    int64_t n_targets;
} bd_eval_value;

// An element of a sample's values: the text that the model generated after `prompt`.
typedef struct bd_sample_value {
    const char *prompt, *text;  // borrowed
} bd_sample_value;

// Element i of line->values.
bd_eval_value bd_metrics_eval_value(const bd_metrics_line *line, size_t i);
bd_sample_value bd_metrics_sample_value(const bd_metrics_line *line, size_t i);

#endif
