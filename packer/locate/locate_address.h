// locate_address.h - which token of a dataset is meant: SHARD:ROW:TOKEN, or ROW:TOKEN.
//
//   3:12:40                   shard 3 of the manifest, its row 12, token 40 of that row
//   00012-00003.arrow:12:40   the same by the shard's name; ".arrow" may be left out
//   500:40                    row 500 of the whole dataset
//
// All count from 0.
#ifndef BINDERY_PACKER_LOCATE_LOCATE_ADDRESS_H
#define BINDERY_PACKER_LOCATE_LOCATE_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"

typedef struct bd_token_address {
    size_t shard;   // of the manifest
    int64_t row;    // of the shard
    int64_t token;  // of the row
} bd_token_address;

// An address that names no token of the dataset is BD_ERR_ARGUMENT; the message says which
// addresses do.
bd_status bd_token_address_parse(bd_token_address *address, const char *text,
                                 const bd_manifest *manifest, bd_error *err);

// The row's number in the whole dataset.
int64_t bd_token_address_row(const bd_token_address *address, const bd_manifest *manifest);

// Less than, equal to or greater than 0, as for qsort(): the order of the dataset.
int bd_token_address_compare(const bd_token_address *a, const bd_token_address *b);

#endif
