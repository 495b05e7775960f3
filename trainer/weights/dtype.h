// dtype.h - the types that numbers have in a safetensors file.
#ifndef BINDERY_TRAINER_WEIGHTS_DTYPE_H
#define BINDERY_TRAINER_WEIGHTS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

// Every type of the format, so that tensors of any type can be skipped.
typedef enum bd_dtype {
    BD_DTYPE_F32,
    BD_DTYPE_F64,
    BD_DTYPE_F16,
    BD_DTYPE_BF16,
    BD_DTYPE_I64,
    BD_DTYPE_I32,
    BD_DTYPE_I16,
    BD_DTYPE_I8,
    BD_DTYPE_U64,
    BD_DTYPE_U32,
    BD_DTYPE_U16,
    BD_DTYPE_U8,
    BD_DTYPE_BOOL,
    BD_DTYPE_C64,
    BD_DTYPE_F8_E4M3,
    BD_DTYPE_F8_E5M2,
    BD_DTYPE_F8_E8M0,
    BD_DTYPE_F8_E4M3FNUZ,
    BD_DTYPE_F8_E5M2FNUZ,
    BD_DTYPE_F6_E2M3,
    BD_DTYPE_F6_E3M2,
    BD_DTYPE_F4,
} bd_dtype;

const char *bd_dtype_name(bd_dtype dtype);  // "F32"
bool bd_dtype_from_name(bd_dtype *dtype, const char *name);
int bd_dtype_bits(bd_dtype dtype);  // of one number

// Converts `n` numbers that lie at `bytes`, aligned or not, to floats. F32, F16 and BF16, all
// of whose numbers are floats, can be converted; false for every other type.
bool bd_dtype_to_floats(bd_dtype dtype, const void *bytes, int64_t n, float *to);

#endif
