// The part of cuBLASLt that our backend calls, on the host: column-major products of float and
// bf16 matrices with float scale, bias and activation. Arguments are checked as the real
// library checks them, or more strictly: an algorithm is valid only for the problem it was
// found for.
#include <algorithm>
#include <cmath>
#include <vector>

#include <cublasLt.h>

#include "tests/emulation/device.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/runtime.h"

// ---- The objects behind the handles ---------------------------------------------------------

namespace emulation
{

namespace
{

struct Layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t order;
    int32_t n_batches;
    int64_t batch_stride;
};

struct Product {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transposes[2];  // A and B, as cublasOperation_t
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type;  // -1: the type of D
    void *aux;          // has the type of D
    int64_t aux_ld;
};

struct Preference {
    uint64_t most_workspace;
    uint32_t reductions;
    uint32_t alignments[4];  // A, B, C, D
};

enum { kA, kB, kC, kD, kMatrices };

struct Problem {
    Product product;
    Layout layouts[kMatrices];
};

// The contents of a cublasLtMatmulAlgo_t.
struct Algorithm {
    uint64_t problem;  // hash of the problem that it was found for
    uint64_t workspace;
    uint32_t alignments[kMatrices];
    uint32_t bias_alignment, aux_alignment;  // alignments that it was found with
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm must fit");

// The workspace that an algorithm asks for if allowed: not 0, so that it is really passed.
constexpr uint64_t kWorkspace = 8192;
constexpr uintptr_t kWorkspaceAlignment = 256;

// The matrix that receives GELU's argument; the documentation states only its leading
// dimension.
constexpr int64_t kAuxLdMultiple = 8;
constexpr uint32_t kAuxAlignment = 16;

size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

bool is_ours(cudaDataType_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_16BF;
}

// Reads one attribute, whose size must be the documented one.
template <class T>
cublasStatus_t set(T *attribute, const void *value, size_t size_bytes)
{
    if (!value || size_bytes != sizeof *attribute)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(attribute, value, sizeof *attribute);
    return CUBLAS_STATUS_SUCCESS;
}

template <class Handle, class Thing>
cublasStatus_t create(Handle *handle, const Thing &thing)
{
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    *handle = reinterpret_cast<Handle>(new Thing(thing));
    return CUBLAS_STATUS_SUCCESS;
}

template <class Thing, class Handle>
cublasStatus_t destroy(Handle handle)
{
    delete reinterpret_cast<Thing *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

// ---- Checking a problem ---------------------------------------------------------------------

bool has_bias(const Product &p)
{
    return (p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

bool has_aux(const Product &p)
{
    return (p.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX;
}

cudaDataType_t bias_type(const Problem &problem)
{
    const int32_t asked = problem.product.bias_type;
    return asked < 0 ? problem.layouts[kD].type : static_cast<cudaDataType_t>(asked);
}

cublasStatus_t check_layout(const Layout &l)
{
    if (l.rows == 0 || l.columns == 0 || l.ld < 0 || static_cast<uint64_t>(l.ld) < l.rows ||
        l.n_batches < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (l.order != CUBLASLT_ORDER_COL || !is_ours(l.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_product(const Product &p)
{
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int32_t t : p.transposes)
        if (t != CUBLAS_OP_N && t != CUBLAS_OP_T)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool known_compute =
        p.compute == CUBLAS_COMPUTE_32F || p.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    return known_compute && p.scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                  : CUBLAS_STATUS_NOT_SUPPORTED;
}

uint64_t rows_of(const Problem &problem, int matrix)
{
    const Layout &l = problem.layouts[matrix];
    return matrix < kC && problem.product.transposes[matrix] != CUBLAS_OP_N ? l.columns
                                                                            : l.rows;
}

uint64_t columns_of(const Problem &problem, int matrix)
{
    const Layout &l = problem.layouts[matrix];
    return matrix < kC && problem.product.transposes[matrix] != CUBLAS_OP_N ? l.rows
                                                                            : l.columns;
}

cublasStatus_t check_types(const Problem &problem)
{
    const Layout *l = problem.layouts;
    // bf16 gives bf16 or float; float gives float.
    if (l[kA].type != l[kB].type || l[kC].type != l[kD].type ||
        (l[kA].type == CUDA_R_32F && l[kD].type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_bias(problem.product) && bias_type(problem) != l[kD].type &&
        !(l[kD].type == CUDA_R_32F && bias_type(problem) == CUDA_R_16BF &&
          l[kA].type == CUDA_R_16BF))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_aux(const Problem &problem)
{
    const Product &p = problem.product;
    if (!has_aux(p))
        return CUBLAS_STATUS_SUCCESS;
    if (!p.aux || p.aux_ld < static_cast<int64_t>(problem.layouts[kD].rows) ||
        p.aux_ld % kAuxLdMultiple != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    return problem.layouts[kD].n_batches == 1 ? CUBLAS_STATUS_SUCCESS
                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t check_problem(const Problem &problem)
{
    cublasStatus_t status = check_product(problem.product);
    for (int i = 0; i < kMatrices && status == CUBLAS_STATUS_SUCCESS; i++)
        status = check_layout(problem.layouts[i]);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const uint64_t m = rows_of(problem, kD), n = columns_of(problem, kD);
    if (rows_of(problem, kA) != m || columns_of(problem, kB) != n ||
        columns_of(problem, kA) != rows_of(problem, kB) || rows_of(problem, kC) != m ||
        columns_of(problem, kC) != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const Layout &l : problem.layouts)
        if (l.n_batches != problem.layouts[kD].n_batches)
            return CUBLAS_STATUS_INVALID_VALUE;
    status = check_aux(problem);
    return status == CUBLAS_STATUS_SUCCESS ? check_types(problem) : status;
}

// Hashes everything except the pointers.
uint64_t hash_of(const Problem &problem)
{
    uint64_t hash = 0;
    const auto add = [&hash](uint64_t value) {
        uint64_t state = hash ^ value;
        hash = draw(&state);
    };
    const Product &p = problem.product;
    add(static_cast<uint64_t>(p.compute));
    add(static_cast<uint64_t>(p.transposes[0]));
    add(static_cast<uint64_t>(p.transposes[1]));
    add(p.epilogue);
    add(static_cast<uint64_t>(bias_type(problem)));
    add(has_aux(p) ? static_cast<uint64_t>(p.aux_ld) : 0);
    for (const Layout &l : problem.layouts) {
        add(static_cast<uint64_t>(l.type));
        add(l.rows);
        add(l.columns);
        add(static_cast<uint64_t>(l.ld));
        add(static_cast<uint64_t>(l.n_batches));
        add(static_cast<uint64_t>(l.batch_stride));
    }
    return hash;
}

cublasStatus_t get_problem(Problem *problem, cublasLtMatmulDesc_t product,
                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    if (!product || !a || !b || !c || !d)
        return CUBLAS_STATUS_INVALID_VALUE;
    problem->product = *reinterpret_cast<const Product *>(product);
    const cublasLtMatrixLayout_t handles[kMatrices] = {a, b, c, d};
    for (int i = 0; i < kMatrices; i++)
        problem->layouts[i] = *reinterpret_cast<const Layout *>(handles[i]);
    return check_problem(*problem);
}

// ---- Checking the addresses -----------------------------------------------------------------

bool is_aligned(const void *p, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

// The largest power of two that divides the address, up to the largest that the library knows.
uint32_t alignment_of(const void *p)
{
    uint32_t alignment = 256;
    while (!is_aligned(p, alignment))
        alignment /= 2;
    return alignment;
}

size_t extent_of(const Layout &l)
{
    const int64_t batches = (l.n_batches - 1) * l.batch_stride;
    const int64_t columns = static_cast<int64_t>(l.columns - 1) * l.ld;
    return static_cast<size_t>(batches + columns + static_cast<int64_t>(l.rows)) *
           size_of(l.type);
}

bool overlap(const void *p, size_t p_bytes, const void *q, size_t q_bytes)
{
    const uintptr_t a = reinterpret_cast<uintptr_t>(p), b = reinterpret_cast<uintptr_t>(q);
    return a < b + q_bytes && b < a + p_bytes;
}

Layout aux_layout(const Problem &problem)
{
    Layout l = problem.layouts[kD];
    l.ld = problem.product.aux_ld;
    return l;
}

void insist_on_aux(const Problem &problem, const void *const addresses[kMatrices])
{
    const void *aux = problem.product.aux;
    const size_t aux_bytes = extent_of(aux_layout(problem));
    if (!memory_has(MemoryKind::kDevice, aux, aux_bytes))
        fatal({nullptr, 0}, "cublasLtMatmul: the auxiliary matrix is not in device memory");
    for (int i = kA; i < kMatrices; i++)
        if (overlap(addresses[i], extent_of(problem.layouts[i]), aux, aux_bytes))
            fatal({nullptr, 0}, "cublasLtMatmul: the auxiliary matrix overlaps another");
}

// The real library cannot notice this; the device would compute something wrong.
void insist_on_memory(const Problem &problem, const void *const addresses[kMatrices])
{
    static const char names[] = "ABCD";
    const Layout *l = problem.layouts;
    for (int i = 0; i < kMatrices; i++)
        if (!memory_has(MemoryKind::kDevice, addresses[i], extent_of(l[i])))
            fatal({nullptr, 0},
                  "cublasLtMatmul: matrix %c (%llu x %llu, ld %lld) is not in "
                  "device memory, or reaches past its allocation",
                  names[i], static_cast<unsigned long long>(l[i].rows),
                  static_cast<unsigned long long>(l[i].columns),
                  static_cast<long long>(l[i].ld));
    const size_t d_bytes = extent_of(l[kD]);
    for (int i = kA; i <= kC; i++) {
        const bool in_place = i == kC && addresses[kC] == addresses[kD];
        if (!in_place && overlap(addresses[i], extent_of(l[i]), addresses[kD], d_bytes))
            fatal({nullptr, 0}, "cublasLtMatmul: D overlaps %c", names[i]);
    }
    const size_t bias_bytes = l[kD].rows * size_of(bias_type(problem));
    if (has_bias(problem.product) &&
        !memory_has(MemoryKind::kDevice, problem.product.bias, bias_bytes))
        fatal({nullptr, 0}, "cublasLtMatmul: the bias of %llu values is not in device memory",
              static_cast<unsigned long long>(l[kD].rows));
    if (has_aux(problem.product))
        insist_on_aux(problem, addresses);
}

cublasStatus_t check_addresses(const Problem &problem, const void *const addresses[kMatrices],
                               const Algorithm *algorithm)
{
    for (int i = 0; i < kMatrices; i++) {
        const size_t own = size_of(problem.layouts[i].type);
        if (!addresses[i] ||
            !is_aligned(addresses[i],
                        algorithm ? std::max<size_t>(own, algorithm->alignments[i]) : own))
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    // An operation in place must have the same matrix twice.
    const Layout &c = problem.layouts[kC], &d = problem.layouts[kD];
    if (addresses[kC] == addresses[kD] && (c.ld != d.ld || c.batch_stride != d.batch_stride))
        return CUBLAS_STATUS_INVALID_VALUE;
    const Product &p = problem.product;
    if (has_bias(p) &&
        (!p.bias ||
         !is_aligned(p.bias, std::max<size_t>(size_of(bias_type(problem)),
                                              algorithm ? algorithm->bias_alignment : 0))))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_aux(p) &&
        !is_aligned(p.aux, std::max(kAuxAlignment, algorithm ? algorithm->aux_alignment : 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- Multiplying ----------------------------------------------------------------------------

float load(const void *values, cudaDataType_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return static_cast<const float *>(values)[i];
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t *>(values)[i]) << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void store(void *values, cudaDataType_t type, int64_t i, float f)
{
    if (type == CUDA_R_32F)
        static_cast<float *>(values)[i] = f;
    else
        static_cast<uint16_t *>(values)[i] = f32_to_bf16(f).bits;
}

// Reads op(matrix), column after column.
std::vector<float> unpack(const Problem &problem, int matrix, const void *values, int64_t batch)
{
    const Layout &l = problem.layouts[matrix];
    const int64_t rows = static_cast<int64_t>(rows_of(problem, matrix));
    const int64_t columns = static_cast<int64_t>(columns_of(problem, matrix));
    const bool transposed = problem.product.transposes[matrix] != CUBLAS_OP_N;
    std::vector<float> unpacked(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t from = transposed ? c + r * l.ld : r + c * l.ld;
            unpacked[static_cast<size_t>(c * rows + r)] =
                load(values, l.type, batch * l.batch_stride + from);
        }
    return unpacked;
}

float activated(uint32_t epilogue, float x)
{
    if (epilogue & CUBLASLT_EPILOGUE_RELU)
        return x > 0.0f ? x : 0.0f;  // the real library also turns NaN into 0
    if (epilogue & CUBLASLT_EPILOGUE_GELU)
        return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return x;
}

void multiply_batch(const Problem &problem, float alpha, float beta,
                    const void *const addresses[kMatrices], void *d, int64_t batch)
{
    const int64_t m = static_cast<int64_t>(rows_of(problem, kD));
    const int64_t n = static_cast<int64_t>(columns_of(problem, kD));
    const int64_t k = static_cast<int64_t>(columns_of(problem, kA));
    const Layout &c_layout = problem.layouts[kC], &d_layout = problem.layouts[kD];
    const std::vector<float> a = unpack(problem, kA, addresses[kA], batch);
    const std::vector<float> b = unpack(problem, kB, addresses[kB], batch);
    std::vector<double> sums(static_cast<size_t>(m));
    for (int64_t j = 0; j < n; j++) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int64_t i = 0; i < k; i++) {
            const double factor = b[static_cast<size_t>(j * k + i)];
            const float *column = a.data() + i * m;
            for (int64_t r = 0; r < m; r++)
                sums[static_cast<size_t>(r)] += column[r] * factor;
        }
        for (int64_t r = 0; r < m; r++) {
            double x = alpha * sums[static_cast<size_t>(r)];
            if (beta != 0.0f)  // with 0, C may hold anything, even NaN
                x += beta * load(addresses[kC], c_layout.type,
                                 batch * c_layout.batch_stride + r + j * c_layout.ld);
            if (has_bias(problem.product))
                x += load(problem.product.bias, bias_type(problem), r);
            if (has_aux(problem.product))
                store(problem.product.aux, d_layout.type, r + j * problem.product.aux_ld,
                      static_cast<float>(x));
            store(d, d_layout.type, batch * d_layout.batch_stride + r + j * d_layout.ld,
                  activated(problem.product.epilogue, static_cast<float>(x)));
        }
    }
}

}  // namespace

}  // namespace emulation

using namespace emulation;

// ---- The entry points -----------------------------------------------------------------------

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    return create(handle, char());
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy<char>(handle);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    default:
        return "unknown status";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product,
                                        cublasComputeType_t compute, cudaDataType_t scale)
{
    return create(product, Product{compute,
                                   scale,
                                   {CUBLAS_OP_N, CUBLAS_OP_N},
                                   CUBLASLT_EPILOGUE_DEFAULT,
                                   nullptr,
                                   -1,
                                   nullptr,
                                   0});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return destroy<Product>(product);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size_bytes)
{
    Product *product = reinterpret_cast<Product *>(handle);
    if (!product)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&product->transposes[0], value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&product->transposes[1], value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&product->epilogue, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&product->bias, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&product->bias_type, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&product->aux, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&product->aux_ld, value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    return create(layout, Layout{type, rows, columns, ld, CUBLASLT_ORDER_COL, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size_bytes)
{
    Layout *layout = reinterpret_cast<Layout *>(handle);
    if (!layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(&layout->order, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return set(&layout->rows, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set(&layout->columns, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(&layout->ld, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&layout->n_batches, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&layout->batch_stride, value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return create(preference,
                  Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy<Preference>(preference);
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                     cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t size_bytes)
{
    Preference *preference = reinterpret_cast<Preference *>(handle);
    if (!preference)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->most_workspace, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&preference->reductions, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(
            &preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
            value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

// The real library writes GELU's argument only with some of its kernels, and does not say with
// which: here only those that read 16 bytes at a time do.
static bool has_kernel_for(const Problem &problem, const Algorithm &algorithm)
{
    if (!has_aux(problem.product))
        return true;
    for (int i = 0; i < kMatrices; i++) {
        const Layout &l = problem.layouts[i];
        if (algorithm.alignments[i] < 16 ||
            static_cast<size_t>(l.ld) * size_of(l.type) % 16 != 0)
            return false;
    }
    return algorithm.aux_alignment >= kAuxAlignment;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference_handle, int n_wanted,
                               cublasLtMatmulHeuristicResult_t *results, int *n_found)
{
    const Preference *preference = reinterpret_cast<const Preference *>(preference_handle);
    Problem problem;
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!preference || n_wanted < 1 || !results || !n_found)
        return CUBLAS_STATUS_INVALID_VALUE;
    *n_found = 0;
    const cublasStatus_t status = get_problem(&problem, product, a, b, c, d);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;

    Algorithm algorithm = {
        hash_of(problem), std::min(preference->most_workspace, kWorkspace), {}, 0, 0};
    for (int i = 0; i < kMatrices; i++) {
        const uint32_t alignment = preference->alignments[i];
        if (alignment == 0 || (alignment & (alignment - 1)) != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
        algorithm.alignments[i] = alignment;
    }
    if (has_bias(problem.product))
        algorithm.bias_alignment = alignment_of(problem.product.bias);
    if (has_aux(problem.product))
        algorithm.aux_alignment = alignment_of(problem.product.aux);
    if (!has_kernel_for(problem, algorithm))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = cublasLtMatmulHeuristicResult_t();
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1.0f;
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

// Without an algorithm, one without requirements is used.
static cublasStatus_t get_algorithm(Algorithm *algorithm, const cublasLtMatmulAlgo_t *asked,
                                    const Problem &problem)
{
    *algorithm = Algorithm();
    if (!asked)
        return CUBLAS_STATUS_SUCCESS;
    memcpy(algorithm, asked, sizeof *algorithm);
    return algorithm->problem == hash_of(problem) ? CUBLAS_STATUS_SUCCESS
                                                  : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t check_workspace(const Algorithm &algorithm, const void *workspace,
                                      size_t size_bytes)
{
    if (algorithm.workspace > size_bytes || !is_aligned(workspace, kWorkspaceAlignment))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algorithm.workspace > 0 && !workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size_bytes > 0 && !memory_has(MemoryKind::kDevice, workspace, size_bytes))
        fatal({nullptr, 0},
              "cublasLtMatmul: the workspace of %zu bytes is not in device memory", size_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    Problem problem;
    Algorithm algorithm;
    const void *const addresses[kMatrices] = {a, b, c, d};
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status =
        get_problem(&problem, product, a_layout, b_layout, c_layout, d_layout);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = get_algorithm(&algorithm, algo, problem);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_addresses(problem, addresses, algo ? &algorithm : nullptr);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_workspace(algorithm, workspace, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    insist_on_memory(problem, addresses);

    // Scalars are host memory and read at the call; the descriptors' contents are copied, too.
    const float kept_alpha = *static_cast<const float *>(alpha);
    const float kept_beta = *static_cast<const float *>(beta);
    const cudaError_t queued = enqueue(stream, [=] {
        const void *const kept[kMatrices] = {a, b, c, d};
        poison(workspace, algorithm.workspace);
        for (int64_t batch = 0; batch < problem.layouts[kD].n_batches; batch++)
            multiply_batch(problem, kept_alpha, kept_beta, kept, d, batch);
    });
    return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
