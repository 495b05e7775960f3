// cuBLASLt stores matrices column by column, so that our [rows][columns] is, without a copy,
// its matrix of `columns` rows: the transposed one. Therefore every product is written
// transposed: out^T = weight^T * x^T.
#include "kernels/linear.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/columns.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"
#include "kernels/cuda/runtime/gemm.h"

static int64_t n_tokens_in(const bd_boundaries &boundaries)
{
    return boundaries.n_rows * boundaries.seq_len;
}

// ---- Forward --------------------------------------------------------------------------------

// One warp for each token. In padding the product is not 0: it has the bias, and x may hold
// anything there. `second` may be NULL.
template <class T, int W>
static __global__ void clear_padding_kernel(bd_boundaries boundaries, int64_t n, int64_t stride,
                                            bool aligned, T *first, T *second)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(boundaries) || token_is_used(boundaries, token))
        return;
    for (int64_t c = lane_of_thread() * W; c < n; c += kWarpSize * W) {
        store_pack<W>(first + token * stride + c, zero_pack<W>(), aligned);
        if (second)
            store_pack<W>(second + token * stride + c, zero_pack<W>(), aligned);
    }
}

static bd_status clear_padding(const bd_linear_forward_args *args, void *first, void *second,
                               void *stream, bd_error *err)
{
    const unsigned n_blocks = blocks_for(n_tokens_in(args->boundaries), kWarpsPerBlock);
    const int64_t stride = bd_stride(args->out_stride, args->n_out);
    return for_rows_of(args->type, args->n_out, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        LAUNCH((clear_padding_kernel<T, packs.width>), n_blocks, kThreadsPerBlock, 0, stream,
               args->boundaries, args->n_out, stride,
               all_aligned({first, second}) && stride % packs.width == 0, (T *)first,
               (T *)second);
        return bd_cuda_check_launch("clear_padding", err);
    });
}

static bd_cuda_gemm_args forward_gemm(const bd_linear_forward_args *args, void *d)
{
    bd_cuda_gemm_args p = {};
    p.m = args->n_out;
    p.n = n_tokens_in(args->boundaries);
    p.k = args->n_in;
    p.d_stride = args->out_stride;
    p.a_transposed = args->layout == BD_WEIGHT_OUT_IN;
    p.type = args->type;
    p.d_type = args->type;
    p.a = args->weight;
    p.b = args->x;
    p.bias = args->bias;
    p.d = d;
    return p;
}

// Product, bias and activation in one kernel of cuBLASLt, if it has one.
static bd_status multiply_and_activate(const bd_linear_forward_args *args, bd_cuda_queue *queue,
                                       bool *done, bd_error *err)
{
    *done = false;
    if (args->type != BD_BF16 || args->activation == BD_ACTIVATION_NONE)
        return BD_OK;
    if (args->activation == BD_ACTIVATION_SILU)
        return BD_OK;  // it does not know SiLU
    if (args->activation == BD_ACTIVATION_RELU && args->out)
        return BD_OK;  // with ReLU it cannot also write the sums
    bd_cuda_gemm_args p = forward_gemm(args, args->activated);
    p.activation = args->activation;
    p.before = args->out;
    return bd_cuda_try_gemm(&p, queue, done, err);
}

extern "C" BD_CUDA_SCRATCH(linear_forward)
{
    (void)args;
    return bd_cuda_gemm_scratch();
}

extern "C" BD_CUDA_OPERATION(linear_forward)
{
    bool done = false;
    BD_TRY(multiply_and_activate(args, queue, &done, err));
    if (done)
        return clear_padding(args, args->activated, args->out, queue->stream, err);

    void *sums = args->out ? args->out : args->activated;
    const bd_cuda_gemm_args p = forward_gemm(args, sums);
    BD_TRY(bd_cuda_gemm(&p, queue, err));
    BD_TRY(clear_padding(args, sums, NULL, queue->stream, err));
    if (args->activation == BD_ACTIVATION_NONE)
        return BD_OK;
    const bd_activation_forward_args activate = {args->type, args->activation, p.m * p.n, sums,
                                                 args->activated};
    return bd_cuda_activation_forward(&activate, queue, err);
}

// ---- Backward -------------------------------------------------------------------------------

static bd_status input_gradient(const bd_linear_backward_args *args, bd_cuda_queue *queue,
                                bd_error *err)
{
    bd_cuda_gemm_args p = {};
    p.m = args->n_in;
    p.n = n_tokens_in(args->boundaries);
    p.k = args->n_out;
    p.b_stride = args->d_out_stride;
    p.a_transposed = args->layout == BD_WEIGHT_IN_OUT;
    p.type = args->type;
    p.d_type = args->type;
    p.a = args->weight;
    p.b = args->d_out;
    p.d = args->d_x;
    return bd_cuda_gemm(&p, queue, err);
}

static bd_status weight_gradient(const bd_linear_backward_args *args, bd_cuda_queue *queue,
                                 bd_error *err)
{
    const bool out_in = args->layout == BD_WEIGHT_OUT_IN;
    bd_cuda_gemm_args p = {};
    p.m = out_in ? args->n_in : args->n_out;
    p.n = out_in ? args->n_out : args->n_in;
    p.k = n_tokens_in(args->boundaries);
    p.b_transposed = true;
    p.adds = true;
    p.type = args->type;
    p.d_type = BD_FLOAT;
    p.a = out_in ? args->x : args->d_out;
    p.b = out_in ? args->d_out : args->x;
    (out_in ? p.b_stride : p.a_stride) = args->d_out_stride;
    p.d = args->d_weight;
    return bd_cuda_gemm(&p, queue, err);
}

// One block for each chunk of tokens and strip of outputs; see columns.cuh.
template <class T, int W>
static __global__ void bias_partials_kernel(const T *d_out, int64_t n_tokens, int64_t n,
                                            int64_t stride, bool aligned, float *partials)
{
    SHARED_ARRAY(pack<W>, staging, kThreadsPerBlock);
    const int64_t begin = int64_t(blockIdx.x) * kTokensPerChunk;
    const int64_t c = int64_t(blockIdx.y) * kColumnsPerStrip<W> + lane_of_thread() * W;
    pack<W> sums = zero_pack<W>();
#pragma unroll 4
    for (int i = int(threadIdx.x) / kWarpSize; i < kTokensPerChunk; i += kWarpsPerBlock) {
        if (c >= n || begin + i >= n_tokens)
            continue;
        const pack<W> d = load_pack<W>(d_out + (begin + i) * stride + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            sums.at[k] += d.at[k];
    }
    store_partials<W>(sums, staging, n, partials);
}

static bd_status bias_gradient(const bd_linear_backward_args *args, bd_cuda_queue *queue,
                               bd_error *err)
{
    const int64_t n_tokens = n_tokens_in(args->boundaries), n = args->n_out;
    const int64_t stride = bd_stride(args->d_out_stride, n);
    float *partials = (float *)queue->scratch;
    BD_TRY(for_rows_of(args->type, n, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        LAUNCH((bias_partials_kernel<T, packs.width>),
               chunks_and_strips<packs.width>(n_tokens, n), kThreadsPerBlock, 0, queue->stream,
               (const T *)args->d_out, n_tokens, n, stride,
               all_aligned({args->d_out}) && stride % packs.width == 0, partials);
        return bd_cuda_check_launch("bias_partials", err);
    }));
    return add_column_sums(partials, n_chunks_of(n_tokens), n, args->d_bias, queue->stream,
                           err);
}

extern "C" BD_CUDA_SCRATCH(linear_backward)
{
    const int64_t n_chunks = n_chunks_of(n_tokens_in(args->boundaries));
    const size_t partials = size_t(n_chunks) * size_t(args->n_out) * sizeof(float);
    return partials > bd_cuda_gemm_scratch() ? partials : bd_cuda_gemm_scratch();
}

extern "C" BD_CUDA_OPERATION(linear_backward)
{
    if (args->d_x)
        BD_TRY(input_gradient(args, queue, err));
    BD_TRY(weight_gradient(args, queue, err));
    return args->d_bias ? bias_gradient(args, queue, err) : BD_OK;
}
