// Nothing waits for the host: the norm of the direction stays on the device. The direction is
// not stored before it is divided by its norm, but computed twice, so that it is rounded once.
#include "kernels/muon.h"

#include "kernels/cuda/operations/elements.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/squares.cuh"
#include "kernels/cuda/runtime/check.cuh"
#include "kernels/cuda/runtime/gemm.h"

// ---- Scratch memory -------------------------------------------------------------------------

static constexpr size_t kAlignment = 256;

struct muon_memory {
    void *x, *product;    // [n_rows][n_columns]
    void *gram, *square;  // [side][side]
    double *parts;        // sums of squares
    float *factor;        // 1 / |u|
    size_t size_bytes;    // of all of it
};

static size_t padded(size_t size_bytes)
{
    return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A product's own scratch memory comes first.
static muon_memory lay_out(const bd_muon_args *args, void *scratch)
{
    const size_t n = size_t(args->n_rows) * size_t(args->n_columns);
    const size_t side = size_t(bd_muon_short_side(args)), type = bd_type_bytes(args->type);
    muon_memory memory = {};
    size_t at = padded(bd_cuda_gemm_scratch());
    const auto take = [&](size_t size_bytes) {
        void *taken = scratch ? (char *)scratch + at : NULL;
        at += padded(size_bytes);
        return taken;
    };
    memory.x = take(n * type);
    memory.product = take(n * type);
    memory.gram = take(side * side * type);
    memory.square = take(side * side * type);
    memory.parts = (double *)take(parts_of(int64_t(n)) * sizeof(double));
    memory.factor = (float *)take(sizeof(float));
    memory.size_bytes = at;
    return memory;
}

// ---- The direction --------------------------------------------------------------------------

// One block for each part.
static __global__ void momentum_kernel(bd_muon_args a, int64_t n, int64_t per_part,
                                       bool aligned, double *parts)
{
    SHARED_ARRAY(double, staging, kWarpsPerBlock);
    const int64_t first = int64_t(blockIdx.x) * per_part;
    const int64_t last = first + per_part < n ? first + per_part : n;
    double sum = 0.0;
    const auto move = [&](float gradient, float &m) {
        const float g = a.gradient_scale * gradient;
        m = a.momentum * m + g;
        const double u = double(g + a.momentum * m);
        sum += u * u;
    };
    int64_t i = first + int(threadIdx.x) * kSquares;
    for (; i + kSquares <= last; i += kThreadsPerBlock * kSquares) {
        const pack<kSquares> gradient = load_pack<kSquares>(a.gradient + i, aligned);
        pack<kSquares> m = load_pack<kSquares>(a.m + i, aligned);
#pragma unroll
        for (int k = 0; k < kSquares; k++)
            move(gradient.at[k], m.at[k]);
        store_pack<kSquares>(a.m + i, m, aligned);
    }
    for (; i < last; i++)  // only one thread has the incomplete pack
        move(a.gradient[i], a.m[i]);
    sum = sum_over_block(sum, staging);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

// One block.
static __global__ void factor_kernel(const double *parts, int64_t n_parts, double least_norm,
                                     float *factor)
{
    SHARED_ARRAY(double, staging, kWarpsPerBlock);
    const double norm = sqrt(sum_of_parts(parts, n_parts, staging));
    if (threadIdx.x == 0)
        *factor = norm > least_norm ? float(1.0 / norm) : 0.0f;
}

template <class T>
struct direction_step {
    bd_muon_args a;
    const float *factor;
    T *x;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        const pack<W> gradient = load_pack<W>(a.gradient + i, aligned);
        const pack<W> m = load_pack<W>(a.m + i, aligned);
        pack<W> x_pack;
#pragma unroll
        for (int k = 0; k < W; k++)
            x_pack.at[k] = (a.gradient_scale * gradient.at[k] + a.momentum * m.at[k]) * *factor;
        store_pack<W>(x + i, x_pack, aligned);
    }
};

static bd_status make_direction(const bd_muon_args *args, const muon_memory &memory,
                                void *stream, bd_error *err)
{
    const int64_t n = args->n_rows * args->n_columns;
    const bool aligned = all_aligned({args->gradient, args->m});
    LAUNCH(momentum_kernel, parts_of(n), kThreadsPerBlock, 0, stream, *args, n,
           elements_per_part(n), aligned, memory.parts);
    BD_TRY(bd_cuda_check_launch("momentum", err));
    LAUNCH(factor_kernel, 1, kThreadsPerBlock, 0, stream, memory.parts, int64_t(parts_of(n)),
           bd_muon_least_norm, memory.factor);
    BD_TRY(bd_cuda_check_launch("factor", err));
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const direction_step<T> step = {*args, memory.factor, (T *)memory.x};
        return for_each_element<packs.width>(step, n, aligned, "direction", stream, err);
    });
}

// ---- The iteration --------------------------------------------------------------------------

// out[i] = p a[i] + q b[i]; out may be one of them.
template <class T>
struct blend_step {
    float p, q;
    const T *a, *b;
    T *out;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        pack<W> one = load_pack<W>(a + i, aligned);
        const pack<W> other = load_pack<W>(b + i, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            one.at[k] = p * one.at[k] + q * other.at[k];
        store_pack<W>(out + i, one, aligned);
    }
};

static bd_status blend(bd_type type, int64_t n, float p, void *a, float q, const void *b,
                       void *stream, bd_error *err)
{
    return for_elements_of(type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const blend_step<T> step = {p, q, (const T *)a, (const T *)b, (T *)a};
        return for_each_element<packs.width>(step, n, true, "blend", stream, err);
    });
}

// d [m x n] = op(a) * op(b) in the words of gemm.h, for which our matrices are transposed.
static bd_status multiply(const bd_muon_args *args, int64_t m, int64_t n, int64_t k,
                          const void *a, bool a_transposed, const void *b, bool b_transposed,
                          void *d, bd_cuda_queue *queue, bd_error *err)
{
    bd_cuda_gemm_args p = {};
    p.m = m;
    p.n = n;
    p.k = k;
    p.a_transposed = a_transposed;
    p.b_transposed = b_transposed;
    p.type = args->type;
    p.d_type = args->type;
    p.a = a;
    p.b = b;
    p.d = d;
    return bd_cuda_gemm(&p, queue, err);
}

static bd_status iterate(const bd_muon_args *args, const muon_memory &memory,
                         bd_cuda_queue *queue, bd_error *err)
{
    const int64_t rows = args->n_rows, columns = args->n_columns;
    const int64_t side = bd_muon_short_side(args), longest = rows + columns - side;
    const bool wide = rows <= columns;
    BD_TRY(multiply(args, side, side, longest, memory.x, wide, memory.x, !wide, memory.gram,
                    queue, err));
    BD_TRY(multiply(args, side, side, side, memory.gram, false, memory.gram, false,
                    memory.square, queue, err));
    BD_TRY(blend(args->type, side * side, bd_muon_b, memory.gram, bd_muon_c, memory.square,
                 queue->stream, err));
    BD_TRY(multiply(args, columns, rows, side, wide ? memory.x : memory.gram, false,
                    wide ? memory.gram : memory.x, false, memory.product, queue, err));
    return blend(args->type, rows * columns, bd_muon_a, memory.x, 1.0f, memory.product,
                 queue->stream, err);
}

// ---- The step -------------------------------------------------------------------------------

template <class T>
struct update_step {
    bd_muon_args a;
    float rate, decay;
    const T *x;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        const pack<W> x_pack = load_pack<W>(x + i, aligned);
        pack<W> parameter = load_pack<W>(a.parameter + i, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            parameter.at[k] = parameter.at[k] * decay - rate * x_pack.at[k];
        store_pack<W>(a.parameter + i, parameter, aligned);
        if (a.rounded)
            store_pack<W>((bf16_t *)a.rounded + i, parameter, aligned);
    }
};

extern "C" BD_CUDA_SCRATCH(muon)
{
    return lay_out(args, NULL).size_bytes;
}

extern "C" BD_CUDA_OPERATION(muon)
{
    const muon_memory memory = lay_out(args, queue->scratch);
    BD_TRY(make_direction(args, memory, queue->stream, err));
    for (int i = 0; i < BD_MUON_ITERATIONS; i++)
        BD_TRY(iterate(args, memory, queue, err));
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const update_step<T> step = {*args, bd_muon_rate(args), bd_muon_decay(args),
                                     (const T *)memory.x};
        return for_each_element<packs.width>(step, args->n_rows * args->n_columns,
                                             all_aligned({args->parameter, args->rounded}),
                                             "update", queue->stream, err);
    });
}
