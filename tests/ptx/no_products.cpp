// no_products.cpp - kernels/cuda/runtime/matmul.h without cuBLASLt: products leave everything as it is.
// What the kernels of linear.cu do before and after them is executed.
#include "kernels/cuda/runtime/matmul.h"

// Whether a product, its bias and its activation are to count as done in one go.
extern "C" bool bd_products_activate;
bool bd_products_activate = false;

size_t bd_cuda_multiply_scratch(void)
{
    return 0;
}

bd_status bd_cuda_multiply(const bd_cuda_product *, bd_cuda_queue *, bd_error *)
{
    return BD_OK;
}

bd_status bd_cuda_try_to_multiply(const bd_cuda_product *, bd_cuda_queue *, bool *done,
                                  bd_error *)
{
    *done = bd_products_activate;
    return BD_OK;
}
