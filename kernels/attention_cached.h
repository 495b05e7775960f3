// attention_cached.h - attention of the new tokens of documents whose earlier tokens are in a
// cache of keys and values. It computes what attention_forward computes for the whole document.
//
// Bit for bit, a token's result depends on its document alone: neither on how many tokens were
// added at a time, nor on the other documents of the call, nor on the document's slot.
#ifndef BINDERY_KERNELS_ATTENTION_CACHED_H
#define BINDERY_KERNELS_ATTENTION_CACHED_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// The room for a document is a multiple of this.
enum { BD_CACHE_BLOCK = 64 };

// The numbers of keys, or of values, that a slot of the cache has for one head and token.
static inline int64_t bd_cache_width(int64_t head_size)
{
    return (head_size + 15) / 16 * 16;
}

// All tensors are of `type`. The segments of `boundaries`, one row without padding, are the new
// tokens of one document each.
//
// slots  [segments]: where the segment's document lies in the cache; no slot comes twice
// past   [segments]: how many tokens of the document are in the cache
// q, k, v, n_heads, n_kv_heads, head_size, q_stride, kv_stride, scale, window: as in attention.h,
//        except that bf16 takes every head size
// keys, values  the cache: each n_slots * capacity * n_kv_heads * bd_cache_width() numbers, all 0
//        at first and then written by this operation alone, in an order of the backend's own.
//        The new keys and values are added
// capacity  the tokens that a slot has room for, a multiple of BD_CACHE_BLOCK
// longest   the most tokens that one of these documents has, the new ones included
// out    [n_tokens][n_heads * head_size]
typedef struct bd_attention_cached_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    int64_t window, capacity, longest;
    float scale;
    const int32_t *slots;
    const int32_t *past;
    const void *q;
    const void *k;
    const void *v;
    void *keys;
    void *values;
    void *out;
} bd_attention_cached_args;

#endif
