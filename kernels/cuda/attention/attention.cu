// The operations of attention: in float or in bf16, by the type of the tensors.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/operations/operations.h"

extern "C" BD_CUDA_SCRATCH(attention_forward)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_forward_scratch(args)
                                  : bd_cuda_attention_bf16_forward_scratch(args);
}

extern "C" BD_CUDA_OPERATION(attention_forward)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_forward(args, queue, err)
                                  : bd_cuda_attention_bf16_forward(args, queue, err);
}

extern "C" BD_CUDA_SCRATCH(attention_backward)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_backward_scratch(args)
                                  : bd_cuda_attention_bf16_backward_scratch(args);
}

extern "C" BD_CUDA_OPERATION(attention_backward)
{
    return args->type == BD_FLOAT ? bd_cuda_attention_float_backward(args, queue, err)
                                  : bd_cuda_attention_bf16_backward(args, queue, err);
}
