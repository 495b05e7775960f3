// The one file that knows the BLAS: oneDNN, which is the fastest one in Debian for our shapes,
// or OpenBLAS. Either is limited to one thread, because our own threads take a tile each.
#include "kernels/cpu/gemm_blas.h"

#ifdef BD_CPU_ONEDNN

#include <oneapi/dnnl/dnnl.h>

// From libgomp. Its header comes with gcc only, but the library works with every compiler.
void omp_set_num_threads(int n_threads);

// Debian's oneDNN uses OpenMP, which keeps the number of threads for each calling thread.
static void hold_to_one_thread(void)
{
    static _Thread_local bool held;
    if (held)
        return;
    omp_set_num_threads(1);
    held = true;
}

bd_status bd_gemm_blas(const bd_gemm_args *args, bd_error *err)
{
    hold_to_one_thread();
    const dnnl_status_t status =
        dnnl_sgemm(args->transpose_a ? 'T' : 'N', args->transpose_b ? 'T' : 'N', args->m,
                   args->n, args->k, 1.0f, args->a, args->a_stride, args->b, args->b_stride,
                   args->add ? 1.0f : 0.0f, args->c, args->c_stride);
    if (status == dnnl_out_of_memory)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a matrix product in oneDNN");
    if (status != dnnl_success)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "oneDNN refused a matrix product (status %d)",
                       (int)status);
    return BD_OK;
}

#else

#include <cblas.h>
#include <pthread.h>

static pthread_once_t held = PTHREAD_ONCE_INIT;

static void hold_to_one_thread(void)
{
    openblas_set_num_threads(1);
}

bd_status bd_gemm_blas(const bd_gemm_args *args, bd_error *err)
{
    (void)err;
    pthread_once(&held, hold_to_one_thread);
    cblas_sgemm(CblasRowMajor, args->transpose_a ? CblasTrans : CblasNoTrans,
                args->transpose_b ? CblasTrans : CblasNoTrans, (blasint)args->m,
                (blasint)args->n, (blasint)args->k, 1.0f, args->a, (blasint)args->a_stride,
                args->b, (blasint)args->b_stride, args->add ? 1.0f : 0.0f, args->c,
                (blasint)args->c_stride);
    return BD_OK;
}

#endif
