// packs.cuh - reads and writes tensors of float or bf16 as floats, 16 bytes at a time.
//
// A row of n values is divided into packs of W neighbours, and the lanes take packs in turn. A
// pack has 16 bytes if n is a multiple of that many values; otherwise W is 1:
//
//   bf16, n = 64   lane 0: 0 … 7   lane 1: 8 … 15   …      16 bytes each
//   bf16, n = 33   lane 0: 0       lane 1: 1        …
//
// The division depends only on type and length. If an array is not aligned to 16 bytes, its
// packs are read value by value. So the order of additions does not depend on where an array
// lies.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_PACKS_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_PACKS_CUH

#include <initializer_list>

#include "common/base/error.h"
#include "kernels/cuda/runtime/gpu.cuh"
#include "kernels/type.h"

static constexpr int kPackBytes = 16;

template <class T>
static constexpr int kPackSize = kPackBytes / int(sizeof(T));

template <int W>
struct alignas(W % 4 == 0 ? 16 : 4) pack {
    float at[W];
};

// ---- One value ------------------------------------------------------------------------------

static __device__ __forceinline__ float load_value(const float *x)
{
    return *x;
}

static __device__ __forceinline__ float load_value(const bf16_t *x)
{
    return bf16_to_f32(*x);
}

static __device__ __forceinline__ void store_value(float *x, float value)
{
    *x = value;
}

static __device__ __forceinline__ void store_value(bf16_t *x, float value)
{
    *x = f32_to_bf16(value);
}

// ---- 16 bytes at an aligned address ---------------------------------------------------------

static __device__ __forceinline__ void load_whole(float *to, const float *x)
{
    const float4 v = *(const float4 *)x;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

// Unpacks a register of two bf16; the first is in its lower half.
static __device__ __forceinline__ void unpack_two(float *to, uint32_t two)
{
    to[0] = __uint_as_float(two << 16);
    to[1] = __uint_as_float(two & 0xffff0000u);
}

static __device__ __forceinline__ void load_whole(float *to, const bf16_t *x)
{
    const uint4 v = *(const uint4 *)x;
    unpack_two(to, v.x);
    unpack_two(to + 2, v.y);
    unpack_two(to + 4, v.z);
    unpack_two(to + 6, v.w);
}

// Stores four values of either type; in bf16 they have only 8 bytes.
static __device__ __forceinline__ void store_four(float *x, const float *from)
{
    *(float4 *)x = make_float4(from[0], from[1], from[2], from[3]);
}

static __device__ __forceinline__ void store_four(bf16_t *x, const float *from)
{
    *(uint2 *)x = make_uint2(pack_bf16x2(from[0], from[1]), pack_bf16x2(from[2], from[3]));
}

static __device__ __forceinline__ void store_whole(float *x, const float *from)
{
    store_four(x, from);
}

static __device__ __forceinline__ void store_whole(bf16_t *x, const float *from)
{
    *(uint4 *)x = make_uint4(pack_bf16x2(from[0], from[1]), pack_bf16x2(from[2], from[3]),
                             pack_bf16x2(from[4], from[5]), pack_bf16x2(from[6], from[7]));
}

// ---- Packs ----------------------------------------------------------------------------------

template <int W>
static __device__ __forceinline__ pack<W> zero_pack()
{
    pack<W> p;
#pragma unroll
    for (int k = 0; k < W; k++)
        p.at[k] = 0.0f;
    return p;
}

// `aligned` says that x is aligned to 16 bytes, or to the whole pack if that has fewer.
template <int W, class T>
static __device__ __forceinline__ pack<W> load_pack(const T *x, bool aligned)
{
    pack<W> p;
    if (W % kPackSize<T> == 0 && aligned) {
#pragma unroll
        for (int k = 0; k + kPackSize<T> <= W; k += kPackSize<T>)
            load_whole(p.at + k, x + k);
    } else {
#pragma unroll
        for (int k = 0; k < W; k++)
            p.at[k] = load_value(x + k);
    }
    return p;
}

template <int W, class T>
static __device__ __forceinline__ void store_pack(T *x, const pack<W> &p, bool aligned)
{
    if (W % 4 == 0 && aligned) {
#pragma unroll
        for (int k = 0; k + kPackSize<T> <= W; k += kPackSize<T>)
            store_whole(x + k, p.at + k);
        if (W % kPackSize<T> == 4)
            store_four(x + W - 4, p.at + W - 4);
    } else {
#pragma unroll
        for (int k = 0; k < W; k++)
            store_value(x + k, p.at[k]);
    }
}

// ---- On the host: the choice of a kernel's instance -----------------------------------------

static inline bool all_aligned(std::initializer_list<const void *> pointers)
{
    for (const void *p : pointers)
        if ((uintptr_t)p % kPackBytes != 0)
            return false;
    return true;
}

// With strides that are multiples of a pack's width, all tokens are aligned as the first is.
static inline bool all_multiples(std::initializer_list<int64_t> strides, int width)
{
    for (int64_t stride : strides)
        if (stride % width != 0)
            return false;
    return true;
}

template <class T, int W>
struct packs_of {
    typedef T value;
    static constexpr int width = W;
};

// Calls work(packs_of<T, W>()) for rows of `length` values.
template <class Work>
static inline bd_status for_rows_of(bd_type type, int64_t length, Work work)
{
    if (type == BD_BF16)
        return length % kPackSize<bf16_t> == 0 ? work(packs_of<bf16_t, kPackSize<bf16_t>>())
                                               : work(packs_of<bf16_t, 1>());
    return length % kPackSize<float> == 0 ? work(packs_of<float, kPackSize<float>>())
                                          : work(packs_of<float, 1>());
}

// The same for arrays whose elements are independent of one another, where W is never 1.
template <class Work>
static inline bd_status for_elements_of(bd_type type, Work work)
{
    return type == BD_BF16 ? work(packs_of<bf16_t, kPackSize<bf16_t>>())
                           : work(packs_of<float, kPackSize<float>>());
}

#endif
