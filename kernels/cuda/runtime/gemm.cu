// cuBLASLt wants a description of the product, of its matrices and of its limits, and then
// chooses an algorithm. All of this is made once for each shape and kept as a plan; a training
// run has a few dozen of them.
//
// Products of float are computed in full float precision: TF32 would keep only 10 bits.
//
// An algorithm may split a sum into parts. That is forbidden where the result of a token is
// written, so that the sums of every token are added in the same order wherever it lies. It is
// allowed for the gradient of the weights, which is a sum over all tokens, if the parts are
// added in a fixed order.
#include "kernels/cuda/runtime/gemm.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <cublasLt.h>

#include "kernels/cuda/runtime/check.cuh"

// The size that cuBLAS's own handles allocate on recent devices.
static constexpr size_t kWorkspaceBytes = size_t(32) << 20;

// The rules of cuBLASLt for the matrix into which it writes the argument of GELU.
static constexpr int64_t kAuxColumnMultiple = 8;
static constexpr uint64_t kAuxAlignment = 16;

// ---- Plans ----------------------------------------------------------------------------------

// Everything that the choice of an algorithm depends on. All members have 64 bits, so that
// there is no padding and two shapes can be compared as bytes.
struct gemm_shape {
    int64_t m, n, k;
    int64_t a_stride, b_stride, d_stride;
    int64_t a_transposed, b_transposed;
    int64_t adds;
    int64_t type, d_type;
    int64_t epilogue;
    uint64_t a_alignment, b_alignment, d_alignment;
    uint64_t bias_alignment, before_alignment;  // 0: there is none
};

struct gemm_plan {
    gemm_shape shape;
    cublasLtMatmulDesc_t gemm;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    bool possible;  // cuBLASLt has an algorithm
    gemm_plan *next;
};

// bd_cuda_queue.blas points to this.
struct blas_state {
    cublasLtHandle_t handle;
    gemm_plan *plans;  // newest first
};

static bd_status check_blas(cublasStatus_t code, const char *what, bd_error *err)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return BD_OK;
    const bd_status status = code == CUBLAS_STATUS_ALLOC_FAILED ? BD_ERR_MEMORY : BD_ERR_DEVICE;
    return bd_fail(err, status, "cannot %s: %s", what, cublasLtGetStatusString(code));
}

static void free_plan(gemm_plan *plan)
{
    if (plan->gemm)
        cublasLtMatmulDescDestroy(plan->gemm);
    for (cublasLtMatrixLayout_t layout : {plan->a, plan->b, plan->d})
        if (layout)
            cublasLtMatrixLayoutDestroy(layout);
    free(plan);
}

bd_status bd_cuda_blas_new(void **blas, bd_error *err)
{
    *blas = NULL;
    blas_state *state = (blas_state *)calloc(1, sizeof *state);
    if (!state)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for cuBLASLt's handle");
    const bd_status status = check_blas(cublasLtCreate(&state->handle), "open cuBLASLt", err);
    if (status != BD_OK) {
        free(state);
        return status;
    }
    *blas = state;
    return BD_OK;
}

void bd_cuda_blas_free(void *blas)
{
    blas_state *state = (blas_state *)blas;
    if (!state)
        return;
    while (state->plans) {
        gemm_plan *plan = state->plans;
        state->plans = plan->next;
        free_plan(plan);
    }
    cublasLtDestroy(state->handle);
    free(state);
}

// ---- Shapes ---------------------------------------------------------------------------------

// The largest power of two that divides the address, up to what cuBLASLt distinguishes.
static uint64_t alignment_of(const void *pointer)
{
    uint64_t alignment = 256;
    while ((uintptr_t)pointer % alignment != 0)
        alignment /= 2;
    return alignment;
}

static int64_t epilogue_of(const bd_cuda_gemm_args &p)
{
    if (p.activation == BD_ACTIVATION_RELU)
        return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (p.activation == BD_ACTIVATION_GELU && p.before)
        return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (p.activation == BD_ACTIVATION_GELU)
        return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static gemm_shape shape_of(const bd_cuda_gemm_args &p)
{
    return {
        p.m,
        p.n,
        p.k,
        p.a_stride,
        p.b_stride,
        p.d_stride,
        p.a_transposed,
        p.b_transposed,
        p.adds,
        p.type,
        p.d_type,
        epilogue_of(p),
        alignment_of(p.a),
        alignment_of(p.b),
        alignment_of(p.d),
        p.bias ? alignment_of(p.bias) : 0,
        p.before ? alignment_of(p.before) : 0,
    };
}

static bool keeps_the_rules(const gemm_shape &s)
{
    return s.before_alignment == 0 ||
           (s.m % kAuxColumnMultiple == 0 && s.before_alignment >= kAuxAlignment);
}

// ---- Describing a product to cuBLASLt -------------------------------------------------------

template <class T>
static bd_status set_gemm(cublasLtMatmulDesc_t gemm, cublasLtMatmulDescAttributes_t attribute,
                          T value, bd_error *err)
{
    return check_blas(cublasLtMatmulDescSetAttribute(gemm, attribute, &value, sizeof value),
                      "describe a matrix product", err);
}

template <class T>
static bd_status set_preference(cublasLtMatmulPreference_t preference,
                                cublasLtMatmulPreferenceAttributes_t attribute, T value,
                                bd_error *err)
{
    return check_blas(
        cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "state the limits of a matrix product", err);
}

// Also needed before an algorithm is chosen, which depends on their alignment.
static bd_status set_pointers(gemm_plan *plan, const bd_cuda_gemm_args &p, bd_error *err)
{
    if (p.bias)
        BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias, err));
    if (p.before)
        BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before, err));
    return BD_OK;
}

static bd_status describe_matrix(cublasLtMatrixLayout_t *layout, bd_type type, int64_t rows,
                                 int64_t columns, int64_t stride, bd_error *err)
{
    const cudaDataType_t element = type == BD_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    return check_blas(cublasLtMatrixLayoutCreate(layout, element, uint64_t(rows),
                                                 uint64_t(columns), bd_stride(stride, rows)),
                      "describe a matrix", err);
}

static bd_status state_limits(cublasLtMatmulPreference_t preference, const gemm_shape &s,
                              bd_error *err)
{
    const uint32_t reductions =
        s.adds ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    BD_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                          uint64_t(kWorkspaceBytes), err));
    BD_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions,
                          err));
    BD_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                          uint32_t(s.a_alignment), err));
    BD_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          uint32_t(s.b_alignment), err));
    BD_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                          uint32_t(s.d_alignment), err));
    return set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                          uint32_t(s.d_alignment), err);
}

// ---- Finding and using a plan ---------------------------------------------------------------

static bd_status choose_algorithm(const blas_state *blas, gemm_plan *plan, bd_error *err)
{
    cublasLtMatmulHeuristicResult_t choice = {};
    int n_choices = 0;
    cublasLtMatmulPreference_t preference;
    BD_TRY(check_blas(cublasLtMatmulPreferenceCreate(&preference),
                      "state the limits of a matrix product", err));
    bd_status status = state_limits(preference, plan->shape, err);
    if (status == BD_OK) {
        const cublasStatus_t code =
            cublasLtMatmulAlgoGetHeuristic(blas->handle, plan->gemm, plan->a, plan->b, plan->d,
                                           plan->d, preference, 1, &choice, &n_choices);
        if (code != CUBLAS_STATUS_NOT_SUPPORTED)  // that is how it says that it has none
            status = check_blas(code, "choose how to multiply", err);
        plan->possible = code == CUBLAS_STATUS_SUCCESS && n_choices > 0;
        plan->algorithm = choice.algo;
    }
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static bd_status make_plan(const blas_state *blas, const bd_cuda_gemm_args &p, gemm_plan *plan,
                           bd_error *err)
{
    plan->shape = shape_of(p);
    if (!keeps_the_rules(plan->shape))
        return BD_OK;
    BD_TRY(check_blas(cublasLtMatmulDescCreate(&plan->gemm, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                      "describe a matrix product", err));
    BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_TRANSA,
                    p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, err));
    BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_TRANSB,
                    p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, err));
    BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE,
                    cublasLtEpilogue_t(plan->shape.epilogue), err));
    if (p.before)
        BD_TRY(set_gemm(plan->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m, err));
    BD_TRY(set_pointers(plan, p, err));
    BD_TRY(describe_matrix(&plan->a, p.type, p.a_transposed ? p.k : p.m,
                           p.a_transposed ? p.m : p.k, p.a_stride, err));
    BD_TRY(describe_matrix(&plan->b, p.type, p.b_transposed ? p.n : p.k,
                           p.b_transposed ? p.k : p.n, p.b_stride, err));
    BD_TRY(describe_matrix(&plan->d, p.d_type, p.m, p.n, p.d_stride, err));
    return choose_algorithm(blas, plan, err);
}

// Finds the plan of a shape; makes it if the shape is new.
static bd_status find_plan(blas_state *blas, const bd_cuda_gemm_args &p, gemm_plan **found,
                           bd_error *err)
{
    const gemm_shape shape = shape_of(p);
    for (gemm_plan *plan = blas->plans; plan; plan = plan->next) {
        if (memcmp(&plan->shape, &shape, sizeof shape) == 0) {
            *found = plan;
            return plan->possible ? set_pointers(plan, p, err) : BD_OK;
        }
    }
    gemm_plan *plan = (gemm_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan of a matrix product");
    const bd_status status = make_plan(blas, p, plan, err);
    if (status != BD_OK) {
        free_plan(plan);
        return status;
    }
    plan->next = blas->plans;
    blas->plans = plan;
    *found = plan;
    return BD_OK;
}

size_t bd_cuda_gemm_scratch(void)
{
    return kWorkspaceBytes;
}

bd_status bd_cuda_try_gemm(const bd_cuda_gemm_args *p, bd_cuda_queue *queue, bool *done,
                           bd_error *err)
{
    blas_state *blas = (blas_state *)queue->blas;
    gemm_plan *plan = NULL;
    BD_TRY(find_plan(blas, *p, &plan, err));
    *done = plan->possible;
    if (!plan->possible)
        return BD_OK;
    const float alpha = 1.0f, beta = p->adds ? 1.0f : 0.0f;
    return check_blas(cublasLtMatmul(blas->handle, plan->gemm, &alpha, p->a, plan->a, p->b,
                                     plan->b, &beta, p->d, plan->d, p->d, plan->d,
                                     &plan->algorithm, queue->scratch, kWorkspaceBytes,
                                     cudaStream_t(queue->stream)),
                      "multiply matrices", err);
}

bd_status bd_cuda_gemm(const bd_cuda_gemm_args *p, bd_cuda_queue *queue, bd_error *err)
{
    bool done = false;
    BD_TRY(bd_cuda_try_gemm(p, queue, &done, err));
    if (!done)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "cuBLASLt cannot multiply %lld x %lld x %lld on this device",
                       (long long)p->m, (long long)p->n, (long long)p->k);
    return BD_OK;
}
