// token_ids.h - token ids as they are stored: 2 or 4 bytes each.
#ifndef BINDERY_COMMON_BASE_TOKEN_IDS_H
#define BINDERY_COMMON_BASE_TOKEN_IDS_H

#include <stdint.h>

// Token t of ids that are `id_bytes` wide.
static inline uint32_t bd_id_at(const void *ids, int id_bytes, int64_t t)
{
    return id_bytes == 2 ? ((const uint16_t *)ids)[t] : ((const uint32_t *)ids)[t];
}

#endif
