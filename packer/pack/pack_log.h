// pack_log.h - pack-log.json: how and where a run went. The one file of a dataset that says so.
#ifndef BINDERY_PACKER_PACK_PACK_LOG_H
#define BINDERY_PACKER_PACK_PACK_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/bad_records.h"
#include "packer/input/inputs.h"
#include "packer/pack/joined.h"

#define BD_PACK_LOG_NAME "pack-log.json"

typedef struct bd_pack_log {
    const bd_inputs *inputs;         // borrowed; NULL if the dataset was packed from others,
    const bd_joined *repacked_from;  // borrowed; which are here then
    const char *tokenizer;  // borrowed; the file that it was read from; NULL if unknown
    int n_threads;
    int64_t n_ranks;  // processes that took part, as far as this one was told
    int64_t n_units;
    int64_t n_continued;  // units that an earlier run had finished
    int64_t elapsed_ns;
    const bd_bad_places *bad;  // borrowed; NULL if there were none to look for
} bd_pack_log;

// The file that a dataset's tokenizer was read from, as its log says it: malloc'd; NULL if there
// is no log or it does not say.
char *bd_pack_log_tokenizer(const char *folder);

// Publishes the log of a run that begins: the marks of its inputs, by which a run that continues
// knows that they have not changed, and the bad records that are known already. With `there` it is
// published only if there is no log yet, and *there says whether there was one.
bd_status bd_pack_log_begin(const char *folder, const bd_inputs *inputs, const char *tokenizer,
                            const bd_bad_places *bad, bool *there, bd_error *err);

// Adds the bad records that the log in `folder` names, if there is one that can be read.
bd_status bd_pack_log_bad_places(const char *folder, const bd_inputs *inputs,
                                 bd_bad_places *places, bd_error *err);

// Publishes the log of an update that begins: it trusts no finished shard.
bd_status bd_pack_log_begin_update(const char *folder, bd_error *err);

// Whether the log in `folder` knows each input as it is now: same[inputs->n]. One that it does
// not know, and all if there is no log that can be read, may have changed. *is_updating says
// whether an update has begun and is not over.
void bd_pack_log_compare(const char *folder, const bd_inputs *inputs, bool *same,
                         bool *is_updating);

// Publishes the log of a run that is over into `folder`.
bd_status bd_pack_log_publish(const char *folder, const bd_pack_log *run, bd_error *err);

#endif
