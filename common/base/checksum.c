#include "common/base/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"

// The 64-bit and 128-bit variants of XXH3 share one state; the caller chooses at the end.
struct bd_hasher {
    XXH3_state_t *state;
};

static bd_digest digest_from(XXH128_hash_t hash)
{
    bd_digest digest;
    snprintf(digest.hex, sizeof digest.hex, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    return digest;
}

bd_digest bd_digest_of(const void *data, size_t size_bytes)
{
    return digest_from(XXH3_128bits(data, size_bytes));
}

uint64_t bd_hash64(const void *data, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size_bytes, seed);
}

bd_status bd_digest_parse(bd_digest *digest, const char *hex, bd_error *err)
{
    if (strlen(hex) != sizeof digest->hex - 1 ||
        strspn(hex, "0123456789abcdef") != sizeof digest->hex - 1)
        return bd_fail(err, BD_ERR_FORMAT, "'%.40s' is not a checksum of 32 digits", hex);
    memcpy(digest->hex, hex, sizeof digest->hex);
    return BD_OK;
}

bd_hasher *bd_hasher_new(void)
{
    bd_hasher *hasher = malloc(sizeof *hasher);
    if (!hasher)
        return NULL;
    hasher->state = XXH3_createState();
    if (!hasher->state) {
        free(hasher);
        return NULL;
    }
    XXH3_128bits_reset(hasher->state);
    return hasher;
}

void bd_hasher_free(bd_hasher *hasher)
{
    if (!hasher)
        return;
    XXH3_freeState(hasher->state);
    free(hasher);
}

void bd_hasher_add(bd_hasher *hasher, const void *data, size_t size_bytes)
{
    XXH3_128bits_update(hasher->state, data, size_bytes);
}

void bd_hasher_add_number(bd_hasher *hasher, uint64_t number)
{
    bd_hasher_add(hasher, &number, sizeof number);
}

uint64_t bd_hasher_take64(bd_hasher *hasher)
{
    const uint64_t hash = XXH3_64bits_digest(hasher->state);
    XXH3_128bits_reset(hasher->state);
    return hash;
}

bd_digest bd_hasher_take128(bd_hasher *hasher)
{
    const bd_digest digest = digest_from(XXH3_128bits_digest(hasher->state));
    XXH3_128bits_reset(hasher->state);
    return digest;
}

bd_status bd_digest_file(const char *path, bd_digest *digest, int64_t *size_bytes,
                         bd_error *err)
{
    enum { CHUNK_BYTES = 1 << 20 };
    bd_status status = BD_OK;
    bd_hasher *hasher = bd_hasher_new();
    char *chunk = malloc(CHUNK_BYTES);
    int fd;
    int64_t file_bytes;
    status = bd_file_open(path, &fd, &file_bytes, err);
    *size_bytes = 0;
    if (status != BD_OK)
        goto done;
    if (!hasher || !chunk) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    for (;;) {
        status = bd_interrupt_check(err);  // a file may be a terabyte
        if (status != BD_OK)
            goto done;
        const ssize_t n = read(fd, chunk, CHUNK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = bd_fail_errno(err, "cannot read '%s'", path);
            goto done;
        }
        if (n == 0)
            break;
        bd_hasher_add(hasher, chunk, (size_t)n);
        *size_bytes += n;
    }
    *digest = bd_hasher_take128(hasher);
done:
    if (fd >= 0)
        close(fd);
    free(chunk);
    bd_hasher_free(hasher);
    return status;
}
