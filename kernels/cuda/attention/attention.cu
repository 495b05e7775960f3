// The operations of attention by the type of their tensors.
#include "kernels/cuda/attention/attention.h"

extern "C" size_t bd_cuda_attention_forward_scratch(const bd_attention_forward_args *args)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_forward_scratch(args)
                                  : bd_cuda_attention_bf16_forward_scratch(args);
}

extern "C" bd_status bd_cuda_attention_forward(const bd_attention_forward_args *args,
                                               bd_cuda_queue *queue, bd_error *err)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_forward(args, queue, err)
                                  : bd_cuda_attention_bf16_forward(args, queue, err);
}

extern "C" size_t bd_cuda_attention_backward_scratch(const bd_attention_backward_args *args)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_backward_scratch(args)
                                  : bd_cuda_attention_bf16_backward_scratch(args);
}

extern "C" bd_status bd_cuda_attention_backward(const bd_attention_backward_args *args,
                                                bd_cuda_queue *queue, bd_error *err)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_backward(args, queue, err)
                                  : bd_cuda_attention_bf16_backward(args, queue, err);
}
