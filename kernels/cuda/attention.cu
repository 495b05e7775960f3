#include "kernels/cuda/attention.h"

// ---- The arguments of the bf16 form ---------------------------------------------------------

template <class To, class From>
static To common_args(const From &from)
{
    To to = {};
    to.boundaries = from.boundaries;
    to.n_heads = from.n_heads;
    to.n_kv_heads = from.n_kv_heads;
    to.head_size = from.head_size;
    to.q_stride = from.q_stride;
    to.kv_stride = from.kv_stride;
    to.scale = from.scale;
    to.q = (const uint16_t *)from.q;
    to.k = (const uint16_t *)from.k;
    to.v = (const uint16_t *)from.v;
    to.lse = from.lse;
    return to;
}

static bd_cuda_attention_bf16_forward_args in_bf16(const bd_attention_forward_args &args)
{
    auto to = common_args<bd_cuda_attention_bf16_forward_args>(args);
    to.out = (uint16_t *)args.out;
    return to;
}

static bd_cuda_attention_bf16_backward_args in_bf16(const bd_attention_backward_args &args)
{
    auto to = common_args<bd_cuda_attention_bf16_backward_args>(args);
    to.out = (const uint16_t *)args.out;
    to.d_out = (const uint16_t *)args.d_out;
    to.d_q = (uint16_t *)args.d_q;
    to.d_k = (uint16_t *)args.d_k;
    to.d_v = (uint16_t *)args.d_v;
    return to;
}

// ---- The operations -------------------------------------------------------------------------

extern "C" size_t bd_cuda_attention_forward_scratch(const bd_attention_forward_args *args)
{
    if (args->type == BD_FLOAT)
        return bd_cuda_attention_float_forward_scratch(args);
    const bd_cuda_attention_bf16_forward_args bf16 = in_bf16(*args);
    return bd_cuda_attention_bf16_forward_scratch(&bf16);
}

extern "C" bd_status bd_cuda_attention_forward(const bd_attention_forward_args *args,
                                               bd_cuda_queue *queue, bd_error *err)
{
    if (args->type == BD_FLOAT)
        return bd_cuda_attention_float_forward(args, queue, err);
    const bd_cuda_attention_bf16_forward_args bf16 = in_bf16(*args);
    return bd_cuda_attention_bf16_forward(&bf16, queue, err);
}

extern "C" size_t bd_cuda_attention_backward_scratch(const bd_attention_backward_args *args)
{
    if (args->type == BD_FLOAT)
        return bd_cuda_attention_float_backward_scratch(args);
    const bd_cuda_attention_bf16_backward_args bf16 = in_bf16(*args);
    return bd_cuda_attention_bf16_backward_scratch(&bf16);
}

extern "C" bd_status bd_cuda_attention_backward(const bd_attention_backward_args *args,
                                                bd_cuda_queue *queue, bd_error *err)
{
    if (args->type == BD_FLOAT)
        return bd_cuda_attention_float_backward(args, queue, err);
    const bd_cuda_attention_bf16_backward_args bf16 = in_bf16(*args);
    return bd_cuda_attention_bf16_backward(&bf16, queue, err);
}
