// gpu.cuh - the language of the kernels; every kernel file includes it.
//
// With nvcc it is CUDA and a few names for instructions that C++ cannot express. With a host
// compiler the same names come from an emulation of the device (the build says which header
// that is), so that the tests execute the same files without a GPU.
//
//   bf16_t, bf16_to_f32(b), f32_to_bf16(f)   round to nearest even
//   pack_bf16x2(lo, hi)                      two floats as one register of two bf16
//   mma_m16n8k16_bf16(d, a, b, c)            d = a * b + c by the whole warp, sums in float
//   ldmatrix_x4(r, p), ldmatrix_x4_trans     four 8x8 matrices of 16-bit values; lane l gives
//                                            the address of row l % 8 of matrix l / 8
//   cp_async_16(dst, src, pred)              16 bytes global to shared; zeros if not `pred`
//   cp_async_commit(), cp_async_wait<N>()    all but the newest N groups have landed
//   ex2(x)                                   2^x, approximate, subnormal results are 0
//   publish(p, value), read_published(p)     store that releases and load that acquires, among
//                                            all threads of the device
//   count_for_tests(counter)                 each block adds one to a counter of the emulation;
//                                            does nothing on a device
//   DYN_SHARED(type, name)                   pointer to the dynamic shared memory, 1024-aligned
//   SHARED_ARRAY(type, name, n)              static shared array
//   LAUNCH(kernel, grid, block, smem, stream, ...)
//       launches on `stream` (a cudaStream_t, or the void pointer of a bd_cuda_queue) without a
//       check: bd_cuda_check_launch() has to follow. If the kernel's name contains a comma, put
//       it into parentheses.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_GPU_CUH
#define BINDERY_KERNELS_CUDA_RUNTIME_GPU_CUH

#ifndef __CUDACC__
#include BINDERY_DEVICE_EMULATION
#else

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef __nv_bfloat16 bf16_t;

#define DYN_SHARED(type, name)                                         \
    extern __shared__ __align__(1024) unsigned char name##_storage_[]; \
    type *name = reinterpret_cast<type *>(name##_storage_)
#define SHARED_ARRAY(type, name, n) __shared__ type name[n]

// A kernel must be allowed once to use more than 48 KiB of dynamic shared memory. If that
// fails, it remains the last error, which the caller's check finds.
#define LAUNCH(kernel, grid, block, smem, stream, ...)                                        \
    do {                                                                                      \
        auto *const launch_kernel_ = (kernel);                                                \
        const size_t launch_smem_ = (smem);                                                   \
        if (launch_smem_ > 48 * 1024)                                                         \
            cudaFuncSetAttribute(reinterpret_cast<const void *>(launch_kernel_),              \
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,                 \
                                 static_cast<int>(launch_smem_));                             \
        launch_kernel_<<<(grid), (block), launch_smem_, static_cast<cudaStream_t>(stream)>>>( \
            __VA_ARGS__);                                                                     \
    } while (0)

__device__ __forceinline__ void count_for_tests(int)
{
}

__device__ __forceinline__ float bf16_to_f32(bf16_t b)
{
    return __bfloat162float(b);
}

__device__ __forceinline__ bf16_t f32_to_bf16(float f)
{
    return __float2bfloat16_rn(f);
}

__device__ __forceinline__ uint32_t pack_bf16x2(float lo, float hi)
{
    uint32_t packed;  // the instruction's first operand is the upper half
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

__device__ __forceinline__ float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void publish(unsigned *p, unsigned value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned read_published(const unsigned *p)
{
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const uint32_t a[4],
                                                  const uint32_t b[2], const float c[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

// Without `pred` nothing is read from `src`, but it must still be a valid address.
__device__ __forceinline__ void cp_async_16(void *dst, const void *src, bool pred)
{
    const int n_bytes = pred ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)),
                 "l"(src), "r"(n_bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
#endif
