// The CUDA backend: its table, which calls everything else in this folder, and the two symbols
// of the module.
#include "kernels/backend.h"

#include <cstdlib>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/runtime/check.cuh"
#include "kernels/cuda/runtime/collectives.h"
#include "kernels/cuda/runtime/gemm.h"
#include "kernels/cuda/runtime/gpu.cuh"
#include "kernels/cuda/runtime/pool.h"
#include "kernels/cuda/runtime/transfer.h"
#include "kernels/module.h"

static constexpr int kOldestMajor = 8;  // compute capability: bf16 tensor cores and cp.async

struct cuda_backend {
    bd_backend base;
    int device;
    cudaStream_t stream;
    bd_cuda_queue queue;
    bd_cuda_pool pool;
    bd_cuda_transfer transfer;
    double *sum;  // device memory: the result of sum_of_squares, before it is downloaded
};

static cuda_backend *cuda_of(bd_backend *backend)
{
    return (cuda_backend *)backend;
}

// Every call may come from another thread, and CUDA has a current device for each thread.
static bd_status enter_device(const cuda_backend *cuda, bd_error *err)
{
    return bd_cuda_check(cudaSetDevice(cuda->device), "use the device", err);
}

// ---- Copies ---------------------------------------------------------------------------------

static bd_status cuda_upload(bd_backend *backend, void *to, const void *from, size_t size_bytes,
                             bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_upload(&cuda_of(backend)->transfer, to, from, size_bytes, err);
}

static bd_status cuda_download(bd_backend *backend, void *to, const void *from,
                               size_t size_bytes, bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_download(&cuda_of(backend)->transfer, to, from, size_bytes, err);
}

static bd_status cuda_send(bd_backend *backend, int slot, void *to, const void *from,
                           size_t size_bytes, bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_send(&cuda_of(backend)->transfer, slot, to, from, size_bytes, err);
}

static bd_status cuda_arrive(bd_backend *backend, int slot, bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_arrive(&cuda_of(backend)->transfer, slot, err);
}

static bd_status cuda_leave(bd_backend *backend, int slot, bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_leave(&cuda_of(backend)->transfer, slot, err);
}

// ---- Memory ---------------------------------------------------------------------------------

static bd_status cuda_zero(bd_backend *backend, void *memory, size_t size_bytes, bd_error *err)
{
    cuda_backend *cuda = cuda_of(backend);
    if (size_bytes == 0)
        return BD_OK;
    BD_TRY(enter_device(cuda, err));
    return bd_cuda_check(cudaMemsetAsync(memory, 0, size_bytes, cuda->stream), "clear memory",
                         err);
}

static void cuda_release(bd_backend *backend, void *memory)
{
    bd_cuda_pool_release(&cuda_of(backend)->pool, memory);
}

static bd_status cuda_allocate(bd_backend *backend, size_t size_bytes, void **memory,
                               bd_error *err)
{
    cuda_backend *cuda = cuda_of(backend);
    *memory = NULL;
    void *allocated;
    BD_TRY(enter_device(cuda, err));
    BD_TRY(bd_cuda_pool_allocate(&cuda->pool, size_bytes, &allocated, err));
    bd_status status = bd_cuda_transfer_before_reuse(&cuda->transfer, err);
    if (status == BD_OK)
        status = cuda_zero(backend, allocated, size_bytes, err);
    if (status == BD_OK)
        status = bd_cuda_transfer_after_clearing(&cuda->transfer, err);
    if (status != BD_OK) {
        cuda_release(backend, allocated);
        return status;
    }
    *memory = allocated;
    return BD_OK;
}

static bd_status cuda_free_memory(bd_backend *backend, size_t *size_bytes, bd_error *err)
{
    size_t total_bytes;
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_check(cudaMemGetInfo(size_bytes, &total_bytes), "ask for the free memory",
                         err);
}

// Called before an operation. The scratch memory grows to the most that any operation has
// needed. That is the same in every step, so that only the first step allocates.
static bd_status prepare(cuda_backend *cuda, size_t scratch_bytes, bd_error *err)
{
    bd_cuda_queue *queue = &cuda->queue;
    BD_TRY(enter_device(cuda, err));
    if (scratch_bytes <= queue->scratch_bytes)
        return BD_OK;
    bd_cuda_pool_release(&cuda->pool, queue->scratch);
    queue->scratch = NULL;
    queue->scratch_bytes = 0;
    BD_TRY(bd_cuda_pool_allocate(&cuda->pool, scratch_bytes, &queue->scratch, err));
    queue->scratch_bytes = scratch_bytes;
    return bd_cuda_transfer_before_reuse(&cuda->transfer, err);
}

// ---- Operations -----------------------------------------------------------------------------

#define DEFINE(name)                                                                \
    static bd_status cuda_##name(bd_backend *backend, const bd_##name##_args *args, \
                                 bd_error *err)                                     \
    {                                                                               \
        cuda_backend *cuda = cuda_of(backend);                                      \
        BD_TRY(prepare(cuda, bd_cuda_##name##_scratch(args), err));                 \
        return bd_cuda_##name(args, &cuda->queue, err);                             \
    }
BD_FOR_EACH_OPERATION(DEFINE)

// The kernels leave the sum in device memory; the contract wants it in the host's.
static bd_status sum_of_squares_to_host(bd_backend *backend, const bd_sum_of_squares_args *args,
                                        bd_error *err)
{
    double *sum = cuda_of(backend)->sum;
    const bd_sum_of_squares_args on_device = {args->n, args->x, sum};
    BD_TRY(cuda_sum_of_squares(backend, &on_device, err));
    return cuda_download(backend, args->sum, sum, sizeof *sum, err);
}

// ---- Collectives ----------------------------------------------------------------------------

static bd_status cuda_make_collectives_id(bd_backend *backend, bd_collectives_id *id,
                                          bd_error *err)
{
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_make_collectives_id(id, err);
}

static bd_status cuda_open_collectives(bd_backend *backend, const bd_collectives_id *id,
                                       int32_t rank, int32_t n_ranks,
                                       bd_collectives **collectives, bd_error *err)
{
    *collectives = NULL;
    BD_TRY(enter_device(cuda_of(backend), err));
    return bd_cuda_open_collectives(id, rank, n_ranks, cuda_of(backend)->stream, collectives,
                                    err);
}

// ---- Opening and closing --------------------------------------------------------------------

static void cuda_close(bd_backend *backend)
{
    cuda_backend *cuda = cuda_of(backend);
    if (!cuda)
        return;
    cudaSetDevice(cuda->device);
    if (cuda->stream)
        cudaStreamSynchronize(cuda->stream);
    bd_cuda_transfer_release(&cuda->transfer);
    bd_cuda_blas_free(cuda->queue.blas);
    bd_cuda_pool_free(&cuda->pool);
    if (cuda->stream)
        cudaStreamDestroy(cuda->stream);
    free(cuda);
}

// Members are assigned by name, since C++17 has no designated initializers.
static constexpr bd_operations make_table()
{
    bd_operations table = {};
    table.name = "cuda";
    table.computes_bf16 = true;
    table.allocate = cuda_allocate;
    table.release = cuda_release;
    table.free_memory = cuda_free_memory;
    table.upload = cuda_upload;
    table.download = cuda_download;
    table.zero = cuda_zero;
    table.send = cuda_send;
    table.arrive = cuda_arrive;
    table.leave = cuda_leave;
    table.close = cuda_close;
    table.make_collectives_id = cuda_make_collectives_id;
    table.open_collectives = cuda_open_collectives;
#define ENTER(name) table.name = cuda_##name;
    BD_FOR_EACH_OPERATION(ENTER)
    table.sum_of_squares = sum_of_squares_to_host;
    return table;
}
static constexpr bd_operations cuda_operations = make_table();

// By CUDA's minor version compatibility any driver of the runtime's major version will do, even
// if it is older than the runtime.
static bd_status check_driver(bd_error *err)
{
    int version = 0;  // stays 0 where there is no driver
    BD_TRY(bd_cuda_check(cudaDriverGetVersion(&version), "ask for the driver's version", err));
    if (version == 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "no NVIDIA driver is installed");
    if (version / 1000 < CUDART_VERSION / 1000)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "the NVIDIA driver is too old: it knows CUDA %d.%d, needed is %d.0",
                       version / 1000, version % 1000 / 10, CUDART_VERSION / 1000);
    return BD_OK;
}

static bd_status check_device(int device, bd_error *err)
{
    int n_devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&n_devices);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && n_devices == 0))
        return bd_fail(err, BD_ERR_UNSUPPORTED, "the NVIDIA driver sees no GPU");
    BD_TRY(bd_cuda_check(code, "count the devices", err));
    if (device < 0 || device >= n_devices)
        return bd_fail(err, BD_ERR_ARGUMENT, "there is no device %d: the driver sees %d",
                       device, n_devices);
    cudaDeviceProp properties;
    BD_TRY(bd_cuda_check(cudaGetDeviceProperties(&properties, device), "describe the device",
                         err));
    if (properties.major < kOldestMajor)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "device %d (%s) is too old: it has compute capability %d.%d, needed is "
                       "%d.0",
                       device, properties.name, properties.major, properties.minor,
                       kOldestMajor);
    return BD_OK;
}

// Fills the members that cuda_close() releases. If it fails, some of them are still empty;
// cuda_close() accepts that.
static bd_status fill_backend(cuda_backend *cuda, bd_error *err)
{
    BD_TRY(enter_device(cuda, err));
    BD_TRY(bd_cuda_check(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                         "create a stream", err));
    cuda->queue.stream = cuda->stream;
    BD_TRY(bd_cuda_blas_new(&cuda->queue.blas, err));
    BD_TRY(bd_cuda_transfer_init(&cuda->transfer, cuda->stream, err));
    void *sum;
    BD_TRY(bd_cuda_pool_allocate(&cuda->pool, sizeof *cuda->sum, &sum, err));
    cuda->sum = (double *)sum;
    return BD_OK;
}

extern "C" bd_status bd_backend_open_cuda(bd_backend **backend,
                                          const bd_cuda_settings *settings, bd_error *err)
{
    *backend = NULL;
    BD_TRY(check_driver(err));
    BD_TRY(check_device(settings->device, err));
    cuda_backend *cuda = (cuda_backend *)calloc(1, sizeof *cuda);
    if (!cuda)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the CUDA backend");
    cuda->base.operations = &cuda_operations;
    cuda->device = settings->device;
    const bd_status status = fill_backend(cuda, err);
    if (status != BD_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *backend = &cuda->base;
    return BD_OK;
}

extern "C" const bd_module_abi bd_cuda_module_abi = BD_MODULE_ABI;
