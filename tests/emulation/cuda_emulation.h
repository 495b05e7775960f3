// cuda_emulation.h - the part of CUDA that our kernels are written in, for a host compiler.
//
// kernels/cuda/runtime/gpu.cuh includes it if the compiler is not nvcc, because
// bindery_emulate_cuda() (CMakeLists.txt) names it there. Types and attributes are the CUDA
// Toolkit's own (its headers are plain C++ to a host compiler), so a kernel that compiles here
// means the same there. Features that are missing here are not allowed in a kernel: no float
// atomics, no __activemask, no `__shared__` outside DYN_SHARED and SHARED_ARRAY.
//
// Every function that can go wrong takes the caller's place in the source as its last,
// defaulted argument.
#ifndef BINDERY_TESTS_EMULATION_CUDA_EMULATION_H
#define BINDERY_TESTS_EMULATION_CUDA_EMULATION_H

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ use_DYN_SHARED_or_SHARED_ARRAY

namespace emulation
{

struct Place {
    const char *file;
    int line;

    // As a default argument, this is the place of the outermost call.
    static constexpr Place here(const char *file = __builtin_FILE(),
                                int line = __builtin_LINE())
    {
        return {file, line};
    }
};

// The built-in variables of a CUDA thread.
struct Thread {
    uint3 index, block;
    dim3 block_size, grid_size;
    int number;  // in its block
    int lane, warp;
    unsigned char *dynamic_shared;
};
// A GNU thread-local, because a C++ one would cost a call at every use of threadIdx.
extern __thread const Thread *current;

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// ---- Functions of device.cpp ----------------------------------------------------------------

enum class Vote { kNone, kAny, kAll, kCount };
int block_barrier(Vote vote, int predicate, Place place);

// The lanes of `mask` meet; the last one calls `act` with the operands of all, NULL for lanes
// outside the mask.
typedef void (*WarpAction)(void *const operands[kLanes]);
void warp_meet(WarpAction act, void *operand, unsigned mask, const char *what, Place place);
void warp_barrier(unsigned mask, Place place);

void *static_shared(const void *key, size_t size_bytes, size_t alignment, Place place);
void copy_async(void *dst, const void *src, bool from_source, Place place);
void commit_copies();
void wait_for_copies(int n_groups_left);
void count_of_kernels(int counter);

// ---- Functions of collectives.cpp: one action per instruction -------------------------------

struct ShuffleOperand {
    uint64_t value, result;
    int source;  // lane to read from; the caller's own if there is none
};
struct BallotOperand {
    bool predicate;
    unsigned result;
};
struct MmaOperand {
    uint32_t a[4], b[2];
    float c[4], d[4];
};
struct MatrixOperand {
    const void *address;
    uint32_t row[4];
    uint32_t result[4];
};
void shuffle(void *const operands[kLanes]);
void ballot(void *const operands[kLanes]);
void multiply(void *const operands[kLanes]);
void load_matrices(void *const operands[kLanes]);
void load_matrices_transposed(void *const operands[kLanes]);
void check_matrix_row(const void *address, Place place);

// ---- Launches -------------------------------------------------------------------------------

struct LaunchShape {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t dynamic_shared_bytes;
    cudaStream_t stream;
    Place place;
};
// Queues the launch; every CUDA thread calls `body` once. A refusal becomes the last error, as
// with the real runtime.
void enqueue_launch(const LaunchShape &shape, std::function<void()> body);

template <class... Parameters>
struct Launcher {
    void (*kernel)(Parameters...);
    LaunchShape shape;

    void operator()(Parameters... arguments) const
    {
        if (shape.dynamic_shared_bytes > 48 * 1024)
            cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.dynamic_shared_bytes));
        // Stored in the kernel's own parameter types: the launch runs after its caller has
        // returned.
        enqueue_launch(shape, [k = kernel, kept = std::tuple<Parameters...>(arguments...)] {
            std::apply(k, kept);
        });
    }
};

template <class... Parameters>
Launcher<Parameters...> launcher(void (*kernel)(Parameters...), const char *name, dim3 grid,
                                 dim3 block, size_t dynamic_shared_bytes, void *stream,
                                 Place place)
{
    return {kernel,
            {name, reinterpret_cast<const void *>(kernel), grid, block, dynamic_shared_bytes,
             static_cast<cudaStream_t>(stream), place}};
}

}  // namespace emulation

#define LAUNCH(kernel, grid, block, smem, stream, ...)                        \
    emulation::launcher((kernel), #kernel, (grid), (block), (smem), (stream), \
                        emulation::Place::here())(__VA_ARGS__)

#define threadIdx (emulation::current->index)
#define blockIdx  (emulation::current->block)
#define blockDim  (emulation::current->block_size)
#define gridDim   (emulation::current->grid_size)

constexpr int warpSize = emulation::kLanes;

// ---- Shared memory --------------------------------------------------------------------------

#define DYN_SHARED(type, name) \
    type *name = reinterpret_cast<type *>(emulation::current->dynamic_shared)
// The static variable identifies the array: one per instance of a template, as in CUDA.
#define SHARED_ARRAY(type, name, n)                                     \
    static_assert(std::is_trivially_default_constructible<type>::value, \
                  "shared memory has no constructors");                 \
    static const char name##_key_ = 0;                                  \
    type(&name)[n] = *static_cast<type(*)[n]>(emulation::static_shared( \
        &name##_key_, sizeof(type[n]), alignof(type), emulation::Place::here()))

// ---- Barriers -------------------------------------------------------------------------------

inline void __syncthreads(emulation::Place place = emulation::Place::here())
{
    emulation::block_barrier(emulation::Vote::kNone, 0, place);
}

inline int __syncthreads_or(int predicate, emulation::Place place = emulation::Place::here())
{
    return emulation::block_barrier(emulation::Vote::kAny, predicate, place);
}

inline int __syncthreads_and(int predicate, emulation::Place place = emulation::Place::here())
{
    return emulation::block_barrier(emulation::Vote::kAll, predicate, place);
}

inline int __syncthreads_count(int predicate, emulation::Place place = emulation::Place::here())
{
    return emulation::block_barrier(emulation::Vote::kCount, predicate, place);
}

inline void __syncwarp(unsigned mask = emulation::kAllLanes,
                       emulation::Place place = emulation::Place::here())
{
    emulation::warp_barrier(mask, place);
}

// A fence has no effect here, because all memory accesses are visible at once.
inline void __threadfence()
{
}

// ---- Shuffles and votes ---------------------------------------------------------------------

namespace emulation
{

template <class T>
T shuffle_from(unsigned mask, T value, int source, const char *what, Place place)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    ShuffleOperand operand = {0, 0, source};
    memcpy(&operand.value, &value, sizeof value);
    warp_meet(shuffle, &operand, mask, what, place);
    memcpy(&value, &operand.result, sizeof value);
    return value;
}

// The lane at `target`, or the caller's own if that lies outside of its part of the warp.
inline int lane_within(int target, int first, int width)
{
    return first <= target && target < first + width ? target : current->lane;
}

inline int first_of_part(int width)
{
    return current->lane & ~(width - 1);
}

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              emulation::Place place = emulation::Place::here())
{
    const int target = emulation::first_of_part(width) + (source & (width - 1));
    return emulation::shuffle_from(mask, value, target, "__shfl_sync", place);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  emulation::Place place = emulation::Place::here())
{
    const int lane = emulation::current->lane;
    const int part_end = emulation::first_of_part(width) + width;
    const int target = (lane ^ lane_mask) < part_end ? lane ^ lane_mask : lane;
    return emulation::shuffle_from(mask, value, target, "__shfl_xor_sync", place);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulation::Place place = emulation::Place::here())
{
    const int first = emulation::first_of_part(width);
    const int target = emulation::current->lane - static_cast<int>(delta);
    return emulation::shuffle_from(mask, value, emulation::lane_within(target, first, width),
                                   "__shfl_up_sync", place);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulation::Place place = emulation::Place::here())
{
    const int first = emulation::first_of_part(width);
    const int target = emulation::current->lane + static_cast<int>(delta);
    return emulation::shuffle_from(mask, value, emulation::lane_within(target, first, width),
                                   "__shfl_down_sync", place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulation::Place place = emulation::Place::here())
{
    emulation::BallotOperand operand = {predicate != 0, 0};
    emulation::warp_meet(emulation::ballot, &operand, mask, "__ballot_sync", place);
    return operand.result;
}

inline int __any_sync(unsigned mask, int predicate,
                      emulation::Place place = emulation::Place::here())
{
    return __ballot_sync(mask, predicate, place) != 0;
}

inline int __all_sync(unsigned mask, int predicate,
                      emulation::Place place = emulation::Place::here())
{
    return __ballot_sync(mask, !predicate, place) == 0;
}

// ---- Atomics: integers only, since float sums would depend on the order ---------------------

namespace emulation
{

template <class T, class Change>
T atomic_change(T *p, Change change)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, change(old), false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}

}  // namespace emulation

#define EMULATION_ATOMICS(type)                                                          \
    inline type atomicAdd(type *p, type v)                                               \
    {                                                                                    \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                               \
    }                                                                                    \
    inline type atomicExch(type *p, type v)                                              \
    {                                                                                    \
        return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                              \
    }                                                                                    \
    inline type atomicCAS(type *p, type expected, type v)                                \
    {                                                                                    \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED,            \
                                    __ATOMIC_RELAXED);                                   \
        return expected;                                                                 \
    }                                                                                    \
    inline type atomicMax(type *p, type v)                                               \
    {                                                                                    \
        return emulation::atomic_change(p, [v](type old) { return old > v ? old : v; }); \
    }                                                                                    \
    inline type atomicMin(type *p, type v)                                               \
    {                                                                                    \
        return emulation::atomic_change(p, [v](type old) { return old < v ? old : v; }); \
    }                                                                                    \
    inline type atomicOr(type *p, type v)                                                \
    {                                                                                    \
        return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);                                \
    }
EMULATION_ATOMICS(int)
EMULATION_ATOMICS(unsigned)
EMULATION_ATOMICS(unsigned long long)
#undef EMULATION_ATOMICS

// ---- Arithmetic -----------------------------------------------------------------------------

// glibc declares functions of these names, so that only macros can take their place.
#define __expf expf
#define __logf logf

#define EMULATION_MIN_MAX(type)     \
    inline type min(type a, type b) \
    {                               \
        return b < a ? b : a;       \
    }                               \
    inline type max(type a, type b) \
    {                               \
        return a < b ? b : a;       \
    }
EMULATION_MIN_MAX(int)
EMULATION_MIN_MAX(unsigned)
EMULATION_MIN_MAX(long)
EMULATION_MIN_MAX(unsigned long)
EMULATION_MIN_MAX(long long)
EMULATION_MIN_MAX(unsigned long long)
#undef EMULATION_MIN_MAX

template <class T>
T __ldg(const T *p)
{
    return *p;
}

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

// The sine and the cosine of pi x.
inline void sincospif(float x, float *sine, float *cosine)
{
    const double angle = M_PI * fmod(static_cast<double>(x), 2.0);
    *sine = static_cast<float>(sin(angle));
    *cosine = static_cast<float>(cos(angle));
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline uint32_t __float_as_uint(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

inline float __uint_as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

inline int __float_as_int(float f)
{
    return static_cast<int>(__float_as_uint(f));
}

inline float __int_as_float(int bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits));
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

// ---- The names of gpu.cuh -------------------------------------------------------------------

struct bf16_t {
    uint16_t bits;
};

inline float bf16_to_f32(bf16_t b)
{
    return __uint_as_float(static_cast<uint32_t>(b.bits) << 16);
}

// To nearest, ties to even; every NaN becomes the one that cvt.rn.bf16 gives.
inline bf16_t f32_to_bf16(float f)
{
    const uint32_t bits = __float_as_uint(f);
    if (f != f)
        return {0x7fff};
    return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

inline uint32_t pack_bf16x2(float lo, float hi)
{
    return static_cast<uint32_t>(f32_to_bf16(hi).bits) << 16 | f32_to_bf16(lo).bits;
}

inline float ex2(float x)
{
    const float y = exp2f(x);
    return y < FLT_MIN ? 0.0f : y;
}

inline void publish(unsigned *p, unsigned value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

inline unsigned read_published(const unsigned *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

inline void mma_m16n8k16_bf16(float *d, const uint32_t *a, const uint32_t *b, const float *c,
                              emulation::Place place = emulation::Place::here())
{
    emulation::MmaOperand operand;
    memcpy(operand.a, a, sizeof operand.a);
    memcpy(operand.b, b, sizeof operand.b);
    memcpy(operand.c, c, sizeof operand.c);
    emulation::warp_meet(emulation::multiply, &operand, emulation::kAllLanes, "mma", place);
    memcpy(d, operand.d, sizeof operand.d);
}

namespace emulation
{

inline void load_matrices_by(WarpAction act, uint32_t *r, const void *p, Place place)
{
    MatrixOperand operand;
    check_matrix_row(p, place);
    operand.address = p;
    // The lane reads its row here, in the kernel's own file, where the sanitizers see it.
    memcpy(operand.row, p, sizeof operand.row);
    warp_meet(act, &operand, kAllLanes, "ldmatrix", place);
    memcpy(r, operand.result, sizeof operand.result);
}

}  // namespace emulation

inline void ldmatrix_x4(uint32_t *r, const void *p,
                        emulation::Place place = emulation::Place::here())
{
    emulation::load_matrices_by(emulation::load_matrices, r, p, place);
}

inline void ldmatrix_x4_trans(uint32_t *r, const void *p,
                              emulation::Place place = emulation::Place::here())
{
    emulation::load_matrices_by(emulation::load_matrices_transposed, r, p, place);
}

inline void cp_async_16(void *dst, const void *src, bool pred,
                        emulation::Place place = emulation::Place::here())
{
    emulation::copy_async(dst, src, pred, place);
}

inline void cp_async_commit()
{
    emulation::commit_copies();
}

template <int N>
void cp_async_wait()
{
    emulation::wait_for_copies(N);
}

inline void count_for_tests(int counter)
{
    emulation::count_of_kernels(counter);
}

#endif
