// type.h - the number types of tensors.
//
// Operations take activations and parameters as `void *` with a `type` beside them. They
// compute in float whatever the type is. Statistics (mean, lse, losses …), the gradients of
// parameters and the optimizer's state are always float.
#ifndef BINDERY_KERNELS_TYPE_H
#define BINDERY_KERNELS_TYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum bd_type {
    BD_FLOAT,
    BD_BF16,  // the upper half of a float, as uint16_t
} bd_type;

static inline size_t bd_type_bytes(bd_type type)
{
    return type == BD_BF16 ? sizeof(uint16_t) : sizeof(float);
}

// The distance between rows of `width` numbers: a stride of 0 means that there are no gaps.
static inline int64_t bd_stride(int64_t stride, int64_t width)
{
    return stride == 0 ? width : stride;
}

static inline float bd_float_of_bf16(uint16_t b)
{
    const uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// Rounds to nearest even; a NaN stays a NaN.
static inline uint16_t bd_bf16_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f)
        return (uint16_t)(bits >> 16 | 0x40);  // quiet: rounding up could make it an infinity
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
