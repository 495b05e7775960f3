// turn_encoder.h - from the turns of a record to the ids of its document, and which of them are
// trained.
#ifndef BINDERY_PACKER_PACK_TURN_ENCODER_H
#define BINDERY_PACKER_PACK_TURN_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/chat/turns.h"
#include "common/dataset/config.h"
#include "common/tokenizer/spans.h"
#include "packer/input/input_options.h"

// Keeps its memory from record to record. Initialize it with zero.
typedef struct bd_turn_encoder {
    bd_spans spans;
    bd_span_ids ids;
    bd_hasher *hasher;  // owned; NULL until the first hash
} bd_turn_encoder;

// A document without the BOS and the separator that the config asks for. Borrowed from the encoder.
typedef struct bd_turn_ids {
    const uint32_t *ids;     // [n]
    const uint8_t *trained;  // [n], 0 or 1
    size_t n;
    bool end_trained;  // the separator
} bd_turn_ids;

// A conversation whose format ends it with the separator's token is not given a second one, and one
// that begins with BOS no second BOS. Turns of which no document can be made are BD_ERR_FORMAT.
bd_status bd_turns_encode(bd_turn_encoder *turn_encoder, const bd_turns *turns,
                          const bd_input_options *reading, const bd_dataset_config *config,
                          bd_encoder *encoder, bd_turn_ids *result, bd_error *err);

// A hash of all that the turns say: XXH3-64 over role, zero byte, text, zero byte of each turn, and
// after it each of its calls and a zero byte.
bd_status bd_turns_hash(bd_turn_encoder *turn_encoder, const bd_turns *turns, uint64_t *hash,
                        bd_error *err);

void bd_turn_encoder_release(bd_turn_encoder *turn_encoder);  // safe twice

#endif
