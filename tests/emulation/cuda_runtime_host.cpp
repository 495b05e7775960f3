// The CUDA runtime that our backend calls, on the host.
//
// Nothing runs when it is queued. When a host thread waits, one of the streams whose first
// operation is not held back by an event runs it, chosen by bd_emulation_settings.streams,
// until the awaited work is done; the other streams stay where they are. So a missing event
// gives a wrong order under some setting, and a pinned buffer that is reused too early is
// copied with its new contents. Work that the real runtime does at the call is done at the
// call: pageable memory is read, or waited for.
//
// Host threads may each have a device. A waiting thread runs the streams of all devices; if
// none can run, it sleeps until another thread has queued or run something.
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <pthread.h>

#include "tests/emulation/device.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/runtime.h"

namespace emulation
{

namespace
{

struct Operation {
    std::function<void()> act;
    std::shared_ptr<Mark> waits_for;  // NULL: it does not wait
    const void *pinned;               // host memory that it will access
};

struct Stream {
    std::deque<Operation> queue;
    int device;
    bool destroyed;
};

struct Event {
    std::shared_ptr<Mark> last;  // NULL: never recorded, nothing to wait for
};

// One lock for everything: operations run under it, too.
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;  // something was queued or run
struct Locked {
    Locked()
    {
        pthread_mutex_lock(&lock);
    }
    ~Locked()
    {
        pthread_mutex_unlock(&lock);
    }
};

std::vector<Stream *> streams;  // in the order of their creation
std::vector<Event *> events;
std::map<const void *, int> dynamic_shared_limits;
uint64_t n_choices;

__thread int device_of_thread;
__thread cudaError_t last_error;
__thread Place unchecked_launch;  // without a file: there is none

cudaError_t report(cudaError_t code)
{
    if (code != cudaSuccess)
        last_error = code;
    return code;
}

void insist_on_check()
{
    if (unchecked_launch.file)
        fatal(unchecked_launch, "this launch was not checked before the next call");
}

// ---- Running queued operations --------------------------------------------------------------

bool can_go_on(const Stream *stream)
{
    if (stream->queue.empty())
        return false;
    const Operation &first = stream->queue.front();
    return !first.waits_for || first.waits_for->reached;
}

// Returns NULL if all are held back.
Stream *next_stream()
{
    std::vector<Stream *> able;
    for (Stream *stream : streams)
        if (can_go_on(stream))
            able.push_back(stream);
    if (able.empty())
        return nullptr;
    if (settings().streams == BD_STREAMS_FORWARD)
        return able.front();
    if (settings().streams == BD_STREAMS_REVERSE)
        return able.back();
    uint64_t random = settings().seed + n_choices++;
    return able[draw(&random) % able.size()];
}

bool others_may_help()
{
    for (const Stream *stream : streams)
        if (!stream->queue.empty() && stream->queue.front().waits_for->comes_from_afar)
            return true;
    return false;
}

// Called when all streams are held back.
void wait_for_other_threads()
{
    if (!others_may_help())
        fatal({nullptr, 0}, "streams wait for events that will never be recorded");
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kPatienceSeconds;
    if (pthread_cond_timedwait(&changed, &lock, &deadline) == ETIMEDOUT)
        fatal({nullptr, 0}, "streams wait for a rank that does not come");
}

void run_one(Stream *stream)
{
    const Operation first = std::move(stream->queue.front());
    stream->queue.pop_front();
    first.act();
    pthread_cond_broadcast(&changed);
    if (stream->destroyed && stream->queue.empty()) {
        streams.erase(std::find(streams.begin(), streams.end(), stream));
        delete stream;
    }
}

// Returns false if all streams are held back before that.
template <class Condition>
bool run_streams_until(Condition done)
{
    DeviceAccess access;
    while (!done()) {
        Stream *stream = next_stream();
        if (!stream)
            return false;
        run_one(stream);
    }
    return true;
}

template <class Condition>
void run_until(Condition done)
{
    while (!done() && !run_streams_until(done))
        wait_for_other_threads();
}

// Tells whether all streams of the current device are empty.
bool all_done()
{
    for (const Stream *stream : streams)
        if (stream->device == device_of_thread && !stream->queue.empty())
            return false;
    return true;
}

// The stream of a handle, NULL if the handle is invalid.
Stream *stream_of(cudaStream_t handle)
{
    Stream *stream = reinterpret_cast<Stream *>(handle);
    const auto found = std::find(streams.begin(), streams.end(), stream);
    return found != streams.end() && !stream->destroyed ? stream : nullptr;
}

Event *event_of(cudaEvent_t handle)
{
    Event *event = reinterpret_cast<Event *>(handle);
    return std::find(events.begin(), events.end(), event) != events.end() ? event : nullptr;
}

// The default stream waits for everything that was queued before, and everything after waits
// for it, so its operations may run at once.
cudaError_t queue_operation(cudaStream_t handle, Operation operation)
{
    if (handle == nullptr) {
        run_until(all_done);
        DeviceAccess access;
        operation.act();
        return cudaSuccess;
    }
    Stream *stream = stream_of(handle);
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    stream->queue.push_back(std::move(operation));
    pthread_cond_broadcast(&changed);
    return cudaSuccess;
}

// A kernel runs on the current device, so its stream must belong to that device.
cudaError_t check_stream(cudaStream_t handle)
{
    const Stream *stream = stream_of(handle);
    return !handle || (stream && stream->device == device_of_thread)
               ? cudaSuccess
               : cudaErrorInvalidResourceHandle;
}

// ---- Launches -------------------------------------------------------------------------------

cudaError_t check_shape(const LaunchShape &shape)
{
    const dim3 g = shape.grid, b = shape.block;
    const uint64_t n_threads = static_cast<uint64_t>(b.x) * b.y * b.z;
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT_MAX || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || n_threads == 0 || n_threads > 1024)
        return cudaErrorInvalidConfiguration;
    const auto limit = dynamic_shared_limits.find(shape.kernel);
    const int allowed = limit == dynamic_shared_limits.end() ? 48 * 1024 : limit->second;
    if (shape.dynamic_shared_bytes > static_cast<size_t>(allowed))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

// ---- Copies ---------------------------------------------------------------------------------

bool copy_is_possible(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!to_device && !from_device)
        return false;  // our backend uses neither host to host nor the default kind
    const auto matches = [n](const void *p, bool device) {
        if (device)
            return memory_has(MemoryKind::kDevice, p, n);
        return memory_kind(p) == MemoryKind::kPageable || memory_has(MemoryKind::kPinned, p, n);
    };
    return dst && src && matches(dst, to_device) && matches(src, from_device);
}

cudaError_t copy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    if (!copy_is_possible(dst, src, n, kind))
        return cudaErrorInvalidValue;
    const void *host = kind == cudaMemcpyHostToDevice ? src : dst;
    if (kind == cudaMemcpyDeviceToDevice || memory_kind(host) == MemoryKind::kPinned)
        return queue_operation(stream, {[=] { memmove(dst, src, n); }, nullptr,
                                        kind == cudaMemcpyDeviceToDevice ? nullptr : host});

    if (kind == cudaMemcpyHostToDevice) {
        const unsigned char *bytes = static_cast<const unsigned char *>(src);
        return queue_operation(stream,
                               {[dst, kept = std::vector<unsigned char>(bytes, bytes + n)] {
                                    memcpy(dst, kept.data(), kept.size());
                                },
                                nullptr, nullptr});
    }
    bool done = false;
    const cudaError_t code = queue_operation(stream, {[&] {
                                                          memcpy(dst, src, n);
                                                          done = true;
                                                      },
                                                      nullptr, nullptr});
    if (code == cudaSuccess)
        run_until([&] { return done; });
    return code;
}

}  // namespace

void enqueue_launch(const LaunchShape &shape, std::function<void()> body)
{
    Locked locked;
    insist_on_check();
    unchecked_launch = shape.place;
    cudaError_t code = check_shape(shape);
    if (code == cudaSuccess)
        code = check_stream(shape.stream);
    if (code == cudaSuccess)
        code = queue_operation(shape.stream,
                               {[shape, body] { run_grid(shape, body); }, nullptr, nullptr});
    report(code);
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> act)
{
    Locked locked;
    const cudaError_t code = check_stream(stream);
    return report(code == cudaSuccess
                      ? queue_operation(stream, {std::move(act), nullptr, nullptr})
                      : code);
}

cudaError_t enqueue_wait(cudaStream_t stream, const std::shared_ptr<Mark> &mark)
{
    Locked locked;
    return report(queue_operation(stream, {[] {}, mark, nullptr}));
}

int current_device()
{
    return device_of_thread;
}

}  // namespace emulation

using namespace emulation;

// ---- The device -----------------------------------------------------------------------------

static bool is_device(int device)
{
    return 0 <= device && device < BD_N_DEVICES;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = BD_N_DEVICES;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidDevice);
    device_of_thread = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_of_thread;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp();
    strcpy(properties->name, "Bindery's emulation");
    properties->totalGlobalMem = size_t(16) << 30;
    properties->sharedMemPerBlock = 48 * 1024;
    properties->sharedMemPerBlockOptin = kMaxSharedBytes;
    properties->warpSize = kLanes;
    properties->maxThreadsPerBlock = 1024;
    properties->multiProcessorCount = 2;
    properties->major = 8;
    properties->minor = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (!is_device(device))
        return report(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = 8;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = 2;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 * 1024;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(kMaxSharedBytes);
        return cudaSuccess;
    default:
        return report(cudaErrorInvalidValue);
    }
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    Locked locked;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) > kMaxSharedBytes)
        return report(cudaErrorInvalidValue);
    dynamic_shared_limits[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    Locked locked;
    insist_on_check();
    run_until(all_done);
    return cudaSuccess;
}

// ---- Errors ---------------------------------------------------------------------------------

cudaError_t cudaPeekAtLastError()
{
    unchecked_launch.file = nullptr;
    return last_error;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t code = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return code;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    default:
        return "unrecognized error code";
    }
}

// ---- Memory ---------------------------------------------------------------------------------

static cudaError_t allocate(MemoryKind kind, void **memory, size_t size_bytes)
{
    Locked locked;
    *memory = nullptr;
    if (size_bytes > 0)
        *memory = memory_allocate(kind, size_bytes);
    return report(size_bytes == 0 || *memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMalloc(void **memory, size_t size_bytes)
{
    return allocate(MemoryKind::kDevice, memory, size_bytes);
}

cudaError_t cudaHostAlloc(void **memory, size_t size_bytes, unsigned)
{
    return allocate(MemoryKind::kPinned, memory, size_bytes);
}

cudaError_t cudaMallocHost(void **memory, size_t size_bytes)
{
    return allocate(MemoryKind::kPinned, memory, size_bytes);
}

// A device of 64 GiB, all of it free: the host has less or gives less.
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = size_t{64} << 30;
    return cudaSuccess;
}

// Waits for the current device; the real function waits for the device of the memory.
cudaError_t cudaFree(void *memory)
{
    Locked locked;
    if (!memory)
        return cudaSuccess;
    run_until(all_done);
    return report(memory_release(MemoryKind::kDevice, memory) ? cudaSuccess
                                                              : cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void *memory)
{
    Locked locked;
    if (!memory)
        return cudaSuccess;
    const unsigned char *begin = static_cast<unsigned char *>(memory);
    const size_t size_bytes = memory_size(memory);
    for (const Stream *stream : streams)
        for (const Operation &operation : stream->queue)
            if (begin <= operation.pinned && operation.pinned < begin + size_bytes)
                fatal({nullptr, 0},
                      "pinned memory is freed before a copy that uses it is done");
    return report(memory_release(MemoryKind::kPinned, memory) ? cudaSuccess
                                                              : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    Locked locked;
    return report(copy(dst, src, n, kind, stream));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t n, cudaStream_t stream)
{
    Locked locked;
    if (n == 0)
        return cudaSuccess;
    if (!memory_has(MemoryKind::kDevice, memory, n))
        return report(cudaErrorInvalidValue);
    return report(
        queue_operation(stream, {[=] { memset(memory, value, n); }, nullptr, nullptr}));
}

// ---- Streams and events ---------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    Locked locked;
    streams.push_back(new Stream{{}, device_of_thread, false});
    *stream = reinterpret_cast<cudaStream_t>(streams.back());
    return cudaSuccess;
}

// Queued operations still run.
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    Locked locked;
    Stream *stream = stream_of(handle);
    if (!stream)
        return report(cudaErrorInvalidResourceHandle);
    stream->destroyed = true;
    if (stream->queue.empty()) {
        streams.erase(std::find(streams.begin(), streams.end(), stream));
        delete stream;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    Locked locked;
    insist_on_check();
    if (!handle) {
        run_until(all_done);
        return cudaSuccess;
    }
    const Stream *stream = stream_of(handle);
    if (!stream)
        return report(cudaErrorInvalidResourceHandle);
    run_until([stream] { return stream->queue.empty(); });
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned)
{
    Locked locked;
    const Event *event = event_of(handle);
    if (!event)
        return report(cudaErrorInvalidResourceHandle);
    if (!event->last)
        return cudaSuccess;
    return report(queue_operation(stream, {[] {}, event->last, nullptr}));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    Locked locked;
    events.push_back(new Event());
    *event = reinterpret_cast<cudaEvent_t>(events.back());
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    Locked locked;
    Event *event = event_of(handle);
    if (!event)
        return report(cudaErrorInvalidResourceHandle);
    events.erase(std::find(events.begin(), events.end(), event));
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream)
{
    Locked locked;
    Event *event = event_of(handle);
    if (!event)
        return report(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<Mark> mark = std::make_shared<Mark>(Mark{false, false});
    const cudaError_t code =
        queue_operation(stream, {[mark] { mark->reached = true; }, nullptr, nullptr});
    if (code == cudaSuccess)
        event->last = mark;
    return report(code);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    Locked locked;
    insist_on_check();
    const Event *event = event_of(handle);
    if (!event)
        return report(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<Mark> mark = event->last;
    run_until([&] { return !mark || mark->reached; });
    return cudaSuccess;
}
