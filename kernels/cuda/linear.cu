// Matrix products by cuBLASLt, in float proper (TF32 would keep 10 bits). It thinks in
// columns: our [rows][columns] is its matrix of `columns` rows, so every product is written
// transposed, out^T = weight^T * x^T, and nothing is copied.
//
// Split sums are switched off where a token's result is written, so that every token is summed
// alike wherever it lies. For the weights' gradient, a sum over all tokens, they are allowed if
// the parts are added in a fixed order.
#include "kernels/linear.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <cublasLt.h>

#include "kernels/cuda/boundaries.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/operations.h"

// What cuBLAS's own handles take on recent devices.
static constexpr size_t kWorkspaceBytes = size_t(32) << 20;

// ---- Plans ----------------------------------------------------------------------------------

// d [m x n] = op(a) [m x k] * op(b) [k x n], in cuBLASLt's order and without gaps. Only 64-bit
// members: compared as bytes.
struct product_shape {
    int64_t m, n, k;
    int64_t a_transposed, b_transposed;              // op() transposes
    int64_t has_bias;                                // adds bias[i] to row i of d
    int64_t adds;                                    // adds the product to what d holds
    uint64_t a_alignment, b_alignment, d_alignment;  // d's and the bias's: stored together
};

struct product_operands {
    const float *a, *b, *bias;
    float *d;
};

struct product_plan {
    product_shape shape;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    product_plan *next;
};

// What bd_cuda_queue.blas points to.
struct blas_state {
    cublasLtHandle_t handle;
    product_plan *plans;  // newest first
};

static bd_status check_blas(cublasStatus_t code, const char *what, bd_error *err)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return BD_OK;
    const bd_status status = code == CUBLAS_STATUS_ALLOC_FAILED ? BD_ERR_MEMORY : BD_ERR_DEVICE;
    return bd_fail(err, status, "cannot %s: %s", what, cublasLtGetStatusString(code));
}

static void free_plan(product_plan *plan)
{
    if (plan->product)
        cublasLtMatmulDescDestroy(plan->product);
    for (cublasLtMatrixLayout_t layout : {plan->a, plan->b, plan->d})
        if (layout)
            cublasLtMatrixLayoutDestroy(layout);
    free(plan);
}

extern "C" bd_status bd_cuda_blas_new(void **blas, bd_error *err)
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

extern "C" void bd_cuda_blas_free(void *blas)
{
    blas_state *state = (blas_state *)blas;
    if (!state)
        return;
    while (state->plans) {
        product_plan *plan = state->plans;
        state->plans = plan->next;
        free_plan(plan);
    }
    cublasLtDestroy(state->handle);
    free(state);
}

// The largest power of two that divides the address, up to what cuBLASLt distinguishes.
static uint64_t alignment_of(const void *pointer)
{
    uint64_t alignment = 256;
    while ((uintptr_t)pointer % alignment != 0)
        alignment /= 2;
    return alignment;
}

template <class T>
static bd_status set_product(cublasLtMatmulDesc_t product,
                             cublasLtMatmulDescAttributes_t attribute, T value, bd_error *err)
{
    return check_blas(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
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

static bd_status set_bias(product_plan *plan, const float *bias, bd_error *err)
{
    if (!plan->shape.has_bias)
        return BD_OK;
    return set_product(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, err);
}

static bd_status describe_product(product_plan *plan, const float *bias, bd_error *err)
{
    const product_shape &s = plan->shape;
    BD_TRY(check_blas(cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                      "describe a matrix product", err));
    BD_TRY(set_product(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                       s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, err));
    BD_TRY(set_product(plan->product, CUBLASLT_MATMUL_DESC_TRANSB,
                       s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, err));
    BD_TRY(set_product(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                       s.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, err));
    return set_bias(plan, bias, err);
}

static bd_status describe_matrix(cublasLtMatrixLayout_t *layout, int64_t rows, int64_t columns,
                                 bd_error *err)
{
    return check_blas(
        cublasLtMatrixLayoutCreate(layout, CUDA_R_32F, uint64_t(rows), uint64_t(columns), rows),
        "describe a matrix", err);
}

static bd_status describe_matrices(product_plan *plan, bd_error *err)
{
    const product_shape &s = plan->shape;
    BD_TRY(
        describe_matrix(&plan->a, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k, err));
    BD_TRY(
        describe_matrix(&plan->b, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n, err));
    return describe_matrix(&plan->d, s.m, s.n, err);
}

static bd_status state_limits(cublasLtMatmulPreference_t preference, const product_shape &s,
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

static bd_status choose_algorithm(const blas_state *blas, product_plan *plan, bd_error *err)
{
    const product_shape &s = plan->shape;
    cublasLtMatmulHeuristicResult_t choice = {};
    int n_choices = 0;
    cublasLtMatmulPreference_t preference;
    BD_TRY(check_blas(cublasLtMatmulPreferenceCreate(&preference),
                      "state the limits of a matrix product", err));
    bd_status status = state_limits(preference, s, err);
    if (status == BD_OK)
        status = check_blas(cublasLtMatmulAlgoGetHeuristic(blas->handle, plan->product, plan->a,
                                                           plan->b, plan->d, plan->d,
                                                           preference, 1, &choice, &n_choices),
                            "choose how to multiply", err);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == BD_OK && n_choices == 0)
        status = bd_fail(err, BD_ERR_UNSUPPORTED,
                         "cuBLASLt cannot multiply %lld x %lld x %lld on this device",
                         (long long)s.m, (long long)s.n, (long long)s.k);
    plan->algorithm = choice.algo;
    return status;
}

// The plan of a shape, made when the shape is first met.
static bd_status find_plan(blas_state *blas, const product_shape &shape, const float *bias,
                           product_plan **found, bd_error *err)
{
    for (product_plan *plan = blas->plans; plan; plan = plan->next) {
        if (memcmp(&plan->shape, &shape, sizeof shape) == 0) {
            *found = plan;
            return set_bias(plan, bias, err);
        }
    }
    product_plan *plan = (product_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the plan of a matrix product");
    plan->shape = shape;
    bd_status status = describe_product(plan, bias, err);
    if (status == BD_OK)
        status = describe_matrices(plan, err);
    if (status == BD_OK)
        status = choose_algorithm(blas, plan, err);
    if (status != BD_OK) {
        free_plan(plan);
        return status;
    }
    plan->next = blas->plans;
    blas->plans = plan;
    *found = plan;
    return BD_OK;
}

// Fills in bias and alignments of `shape` and multiplies.
static bd_status multiply(product_shape shape, const product_operands &p, bd_cuda_queue *queue,
                          bd_error *err)
{
    blas_state *blas = (blas_state *)queue->blas;
    shape.has_bias = p.bias != NULL;
    shape.a_alignment = alignment_of(p.a);
    shape.b_alignment = alignment_of(p.b);
    shape.d_alignment = alignment_of(p.d);
    if (p.bias && alignment_of(p.bias) < shape.d_alignment)
        shape.d_alignment = alignment_of(p.bias);
    product_plan *plan = NULL;
    BD_TRY(find_plan(blas, shape, p.bias, &plan, err));
    const float alpha = 1.0f, beta = shape.adds ? 1.0f : 0.0f;
    return check_blas(cublasLtMatmul(blas->handle, plan->product, &alpha, p.a, plan->a, p.b,
                                     plan->b, &beta, p.d, plan->d, p.d, plan->d,
                                     &plan->algorithm, queue->scratch, kWorkspaceBytes,
                                     cudaStream_t(queue->stream)),
                      "multiply matrices", err);
}

// ---- Forward --------------------------------------------------------------------------------

// One warp per token: the bias, or what x holds there, has made padding other than 0.
static __global__ void clear_padding_kernel(bd_boundaries boundaries, int64_t n, float *out)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(boundaries) || token_is_used(boundaries, token))
        return;
    for (int64_t c = lane_of_thread(); c < n; c += kWarpSize)
        out[token * n + c] = 0.0f;
}

extern "C" BD_CUDA_SCRATCH(linear_forward)
{
    (void)args;
    return kWorkspaceBytes;
}

extern "C" BD_CUDA_OPERATION(linear_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    product_shape shape = {};
    shape.m = args->n_out;
    shape.n = n_tokens;
    shape.k = args->n_in;
    shape.a_transposed = args->layout == BD_WEIGHT_OUT_IN;
    BD_TRY(multiply(shape, {args->weight, args->x, args->bias, args->out}, queue, err));
    LAUNCH(clear_padding_kernel, blocks_for(n_tokens, kWarpsPerBlock), kThreadsPerBlock, 0,
           queue->stream, args->boundaries, args->n_out, args->out);
    return bd_cuda_check_launch("clear_padding", err);
}

// ---- Backward -------------------------------------------------------------------------------

static bd_status input_gradient(const bd_linear_backward_args *args, int64_t n_tokens,
                                bd_cuda_queue *queue, bd_error *err)
{
    product_shape shape = {};
    shape.m = args->n_in;
    shape.n = n_tokens;
    shape.k = args->n_out;
    shape.a_transposed = args->layout == BD_WEIGHT_IN_OUT;
    return multiply(shape, {args->weight, args->d_out, NULL, args->d_x}, queue, err);
}

static bd_status weight_gradient(const bd_linear_backward_args *args, int64_t n_tokens,
                                 bd_cuda_queue *queue, bd_error *err)
{
    const bool out_in = args->layout == BD_WEIGHT_OUT_IN;
    product_shape shape = {};
    shape.m = out_in ? args->n_in : args->n_out;
    shape.n = out_in ? args->n_out : args->n_in;
    shape.k = n_tokens;
    shape.b_transposed = true;
    shape.adds = true;
    const float *a = out_in ? args->x : args->d_out, *b = out_in ? args->d_out : args->x;
    return multiply(shape, {a, b, NULL, args->d_weight}, queue, err);
}

// One block per chunk of tokens (x) and strip of outputs (y); see columns.cuh.
static __global__ void bias_partials_kernel(const float *d_out, int64_t n_tokens, int64_t n,
                                            float *partials)
{
    SHARED_ARRAY(float, staging, kThreadsPerBlock);
    const int warp = int(threadIdx.x) / kWarpSize;
    const int64_t c = int64_t(blockIdx.y) * kWarpSize + lane_of_thread();
    const int64_t begin = int64_t(blockIdx.x) * kTokensPerChunk;
    float sum = 0.0f;
    for (int i = warp; i < kTokensPerChunk; i += kWarpsPerBlock)
        if (c < n && begin + i < n_tokens)
            sum += d_out[(begin + i) * n + c];
    sum = sum_over_warps(sum, staging);
    if (warp == 0 && c < n)
        partials[blockIdx.x * n + c] = sum;
}

static bd_status bias_gradient(const bd_linear_backward_args *args, int64_t n_tokens,
                               bd_cuda_queue *queue, bd_error *err)
{
    const int64_t n_chunks = n_chunks_of(n_tokens), n = args->n_out;
    float *partials = (float *)queue->scratch;
    LAUNCH(bias_partials_kernel, dim3(unsigned(n_chunks), blocks_for(n, kWarpSize)),
           kThreadsPerBlock, 0, queue->stream, args->d_out, n_tokens, n, partials);
    BD_TRY(bd_cuda_check_launch("bias_partials", err));
    return add_column_sums(partials, n_chunks, n, args->d_bias, queue->stream, err);
}

extern "C" BD_CUDA_SCRATCH(linear_backward)
{
    const int64_t n_chunks = n_chunks_of(args->boundaries.n_rows * args->boundaries.seq_len);
    const size_t partials = size_t(n_chunks) * size_t(args->n_out) * sizeof(float);
    return partials > kWorkspaceBytes ? partials : kWorkspaceBytes;
}

extern "C" BD_CUDA_OPERATION(linear_backward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    if (args->d_x)
        BD_TRY(input_gradient(args, n_tokens, queue, err));
    BD_TRY(weight_gradient(args, n_tokens, queue, err));
    return args->d_bias ? bias_gradient(args, n_tokens, queue, err) : BD_OK;
}
