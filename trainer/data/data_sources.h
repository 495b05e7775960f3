// data_sources.h - which datasets a run reads, and how much of each: --data DIR[:WEIGHT].
#ifndef BINDERY_TRAINER_DATA_DATA_SOURCES_H
#define BINDERY_TRAINER_DATA_DATA_SOURCES_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/cli/options.h"

typedef struct bd_data_sources {
    char **folders;   // [n], owned
    double *weights;  // [n], owned; more than 0
    size_t n;
} bd_data_sources;

// A number behind the last colon is the weight, unless a folder of the whole name exists. Each
// of several datasets needs a weight. BD_ERR_ARGUMENT names the text. On failure *sources is
// empty. Release what comes out.
bd_status bd_data_sources_parse(bd_data_sources *sources, const bd_texts *texts, bd_error *err);
void bd_data_sources_release(bd_data_sources *sources);  // safe on empty ones and safe twice

#endif
