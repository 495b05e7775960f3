// checksum.h - XXH3 checksums: 64 bits for a row, 128 bits for a file or a fingerprint.
//
// They guard against damage, not against an adversary.
#ifndef BINDERY_COMMON_BASE_CHECKSUM_H
#define BINDERY_COMMON_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// 32 lower-case hexadecimal digits, the canonical (big-endian) form of XXH3-128.
typedef struct bd_digest {
    char hex[33];
} bd_digest;

bd_digest bd_digest_of(const void *data, size_t size_bytes);

// XXH3-64 of one piece of memory.
uint64_t bd_hash64(const void *data, size_t size_bytes, uint64_t seed);

// Copies `hex`, which must have that form.
bd_status bd_digest_parse(bd_digest *digest, const char *hex, bd_error *err);

// Reads the regular file at `path` from start to end; *size_bytes is the number of bytes read.
// Ends soon after an interrupt.
bd_status bd_digest_file(const char *path, bd_digest *digest, int64_t *size_bytes,
                         bd_error *err);

// Hashes several pieces one after another; free with bd_hasher_free().
typedef struct bd_hasher bd_hasher;
bd_hasher *bd_hasher_new(void);  // NULL when out of memory
void bd_hasher_free(bd_hasher *hasher);
void bd_hasher_add(bd_hasher *hasher, const void *data, size_t size_bytes);
void bd_hasher_add_number(bd_hasher *hasher, uint64_t number);  // its 8 bytes
// The result so far; the hasher is then as new.
uint64_t bd_hasher_take64(bd_hasher *hasher);
bd_digest bd_hasher_take128(bd_hasher *hasher);

#endif
