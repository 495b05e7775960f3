// The part of NCCL that our backend calls, on the host: ranks are threads of one process, each
// with a device of its own.
//
// A group of calls is one exchange. The stream of the last rank that reaches it does the
// exchange; until then it holds all streams back. Arguments are checked as the real library
// checks them, or more strictly: if ranks ask for different things, the real library would wait
// for ever or mix up data, but here the process ends with a line that says so.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include <nccl.h>

#include "tests/emulation/device.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/fiber.h"
#include "tests/emulation/runtime.h"

namespace emulation
{

namespace
{

enum class Kind { kReduceScatter, kReduce, kAllGather, kBroadcast };

struct Call {
    Kind kind;
    const char *name;
    const unsigned char *from;
    unsigned char *to;  // NULL if the rank receives nothing
    size_t count;
    ncclDataType_t type;
    int root;  // 0 if there is none
};

// Calls of one group. `calls` are written before a rank's stream can reach them, the rest under
// the lock that streams run under.
struct Exchange {
    std::vector<std::vector<Call>> calls;  // by rank
    int n_entered, n_arrived;
    std::shared_ptr<Mark> done;

    // ThreadSanitizer does not see that references are counted: the last one frees what all ranks
    // have allocated.
    ~Exchange()
    {
        order_acquire(this);
    }
};

struct Clique {
    int n_ranks;               // 0: nobody has joined yet
    std::vector<int> devices;  // by rank; -1: it has not joined
    int n_joined;
    bool failed;
    std::map<int64_t, std::shared_ptr<Exchange>> exchanges;  // not entered by all ranks yet
};

}  // namespace

}  // namespace emulation

using namespace emulation;

struct ncclComm {
    std::shared_ptr<Clique> clique;
    int rank, device;
    int64_t n_exchanges;   // exchanges that it has entered
    ncclResult_t failure;  // found while an exchange was under way
};

namespace emulation
{

namespace
{

// Guards what follows, and all cliques.
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t joined = PTHREAD_COND_INITIALIZER;
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

std::map<std::string, std::shared_ptr<Clique>> waiting;  // by id, until all have joined
std::set<ncclComm_t> communicators;
int64_t n_ids;
int calls_before_failure = -1;  // -1: none is planned
ncclResult_t planned_failure;

__thread char last_error[256];

ncclResult_t refuse(ncclResult_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

ncclResult_t refuse(ncclResult_t code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

// Called at the beginning of every call that can fail.
ncclResult_t fail_as_planned()
{
    Locked locked;
    if (calls_before_failure < 0 || calls_before_failure-- > 0)
        return ncclSuccess;
    return refuse(planned_failure, "as planned");
}

// ---- Groups ---------------------------------------------------------------------------------

struct Queued {
    ncclComm_t communicator;
    cudaStream_t stream;
    Call call;
};

struct Group {
    int depth;
    ncclResult_t failure;
    std::vector<Queued> calls;
};

__thread Group *group;  // NULL outside a group

void group_begin()
{
    if (!group)
        group = new Group();
    group->depth++;
}

size_t size_of(const Call &call)
{
    return call.count * (call.type == ncclFloat32 ? 4 : 1);
}

struct Range {
    const unsigned char *begin;
    size_t size;
};

bool overlap(Range a, Range b)
{
    return a.begin && b.begin && a.begin < b.begin + b.size && b.begin < a.begin + a.size;
}

Range read_by(const Call &call, size_t n_ranks)
{
    return {call.from, size_of(call) * (call.kind == Kind::kReduceScatter ? n_ranks : 1)};
}

Range written_by(const Call &call, size_t n_ranks)
{
    return {call.to, size_of(call) * (call.kind == Kind::kAllGather ? n_ranks : 1)};
}

bool is_in_place(const Call &call, int rank)
{
    const size_t before = static_cast<size_t>(rank) * size_of(call);
    if (call.kind == Kind::kReduceScatter)
        return call.to == call.from + before;
    if (call.kind == Kind::kAllGather)
        return call.from == call.to + before;
    return call.to == call.from;
}

// The calls of a group are made at the same time, as far as the real library can do it.
void insist_on_independence(const std::vector<Call> &calls, int rank, size_t n_ranks)
{
    for (size_t i = 0; i < calls.size(); i++) {
        const Range written = written_by(calls[i], n_ranks);
        if (!is_in_place(calls[i], rank) && overlap(written, read_by(calls[i], n_ranks)))
            fatal({nullptr, 0}, "%s: rank %d receives where it sends from, but not in place",
                  calls[i].name, rank);
        for (size_t k = 0; k < calls.size(); k++)
            if (k != i && (overlap(written, read_by(calls[k], n_ranks)) ||
                           overlap(written, written_by(calls[k], n_ranks))))
                fatal({nullptr, 0}, "%s and %s of a group touch the same memory of rank %d",
                      calls[i].name, calls[k].name, rank);
    }
}

// ---- Exchanging -----------------------------------------------------------------------------

void insist_on_agreement(const Exchange &exchange)
{
    const std::vector<Call> &first = exchange.calls[0];
    for (size_t r = 1; r < exchange.calls.size(); r++) {
        const std::vector<Call> &other = exchange.calls[r];
        if (other.size() != first.size())
            fatal({nullptr, 0}, "a group of %zu calls on rank 0 has %zu on rank %zu",
                  first.size(), other.size(), r);
        for (size_t i = 0; i < first.size(); i++) {
            const Call &a = first[i], &b = other[i];
            if (a.kind != b.kind || a.count != b.count || a.type != b.type || a.root != b.root)
                fatal({nullptr, 0},
                      "%s on rank 0 (count %zu, type %d, root %d) meets %s on rank %zu (count "
                      "%zu, type %d, root %d)",
                      a.name, a.count, a.type, a.root, b.name, r, b.count, b.type, b.root);
        }
    }
}

// Sums from rank to rank around a ring that ends at `last`, which is usual.
void sum_at(const Exchange &exchange, size_t i, size_t offset, size_t last, unsigned char *to)
{
    const size_t n_ranks = exchange.calls.size();
    const size_t count = exchange.calls[0][i].count;
    std::vector<float> sums(count);
    for (size_t k = 1; k <= n_ranks; k++) {
        const Call &call = exchange.calls[(last + k) % n_ranks][i];
        const float *values = reinterpret_cast<const float *>(call.from) + offset;
        for (size_t c = 0; c < count; c++)
            sums[c] = k == 1 ? values[c] : sums[c] + values[c];
    }
    memcpy(to, sums.data(), count * sizeof(float));
}

// Our contract does not define an array that was summed in place outside its sum: nobody may
// depend on the terms that the real library leaves there.
void spoil_terms(const Call &call, size_t rank, size_t n_ranks)
{
    unsigned char *terms = const_cast<unsigned char *>(call.from);
    const size_t size = size_of(call);
    if (!is_in_place(call, static_cast<int>(rank)))
        return;
    if (call.kind == Kind::kReduce && static_cast<size_t>(call.root) != rank)
        poison(terms, size);
    for (size_t r = 0; call.kind == Kind::kReduceScatter && r < n_ranks; r++)
        if (r != rank)
            poison(terms + r * size, size);
}

void perform_call(const Exchange &exchange, size_t i)
{
    const size_t n_ranks = exchange.calls.size();
    const Call &first = exchange.calls[0][i];
    const size_t root = static_cast<size_t>(first.root), size = size_of(first);
    for (size_t r = 0; r < n_ranks; r++) {
        const Call &call = exchange.calls[r][i];
        if (call.kind == Kind::kReduceScatter)
            sum_at(exchange, i, r * call.count, r, call.to);
        else if (call.kind == Kind::kReduce && r == root)
            sum_at(exchange, i, 0, r, call.to);
        else if (call.kind == Kind::kBroadcast)
            memmove(call.to, exchange.calls[root][i].from, size);
        for (size_t s = 0; call.kind == Kind::kAllGather && s < n_ranks; s++)
            memmove(call.to + s * size, exchange.calls[s][i].from, size);
    }
    for (size_t r = 0; r < n_ranks; r++)
        spoil_terms(exchange.calls[r][i], r, n_ranks);
}

void arrive(Exchange *exchange)
{
    if (++exchange->n_arrived < static_cast<int>(exchange->calls.size()))
        return;
    insist_on_agreement(*exchange);
    for (size_t i = 0; i < exchange->calls[0].size(); i++)
        perform_call(*exchange, i);
    exchange->done->reached = true;
}

// The exchange that the communicator reaches next, with its calls.
std::shared_ptr<Exchange> enter_exchange(ncclComm_t communicator, std::vector<Call> calls)
{
    Locked locked;
    Clique *clique = communicator->clique.get();
    const int64_t number = communicator->n_exchanges++;
    std::shared_ptr<Exchange> &slot = clique->exchanges[number];
    if (!slot)
        slot = std::make_shared<Exchange>(
            Exchange{std::vector<std::vector<Call>>(static_cast<size_t>(clique->n_ranks)), 0, 0,
                     std::make_shared<Mark>(Mark{false, true})});
    const std::shared_ptr<Exchange> exchange = slot;
    exchange->calls[static_cast<size_t>(communicator->rank)] = std::move(calls);
    order_release(exchange.get());
    if (++exchange->n_entered == clique->n_ranks)
        clique->exchanges.erase(number);
    return exchange;
}

// On the communicator's device, which may differ from the current one.
ncclResult_t queue_exchange(ncclComm_t communicator, cudaStream_t stream,
                            std::vector<Call> calls)
{
    const size_t n_ranks = static_cast<size_t>(communicator->clique->n_ranks);
    insist_on_independence(calls, communicator->rank, n_ranks);
    const std::shared_ptr<Exchange> exchange = enter_exchange(communicator, std::move(calls));
    const int device = current_device();
    cudaSetDevice(communicator->device);
    cudaError_t code = enqueue(stream, [exchange] { arrive(exchange.get()); });
    if (code == cudaSuccess)
        code = enqueue_wait(stream, exchange->done);
    cudaSetDevice(device);
    return code == cudaSuccess ? ncclSuccess
                               : refuse(ncclUnhandledCudaError, "the stream cannot be used");
}

// All calls of one communicator together, which must then be on one stream.
ncclResult_t queue_group(const std::vector<Queued> &queued)
{
    std::set<ncclComm_t> seen;
    for (const Queued &first : queued) {
        std::vector<Call> calls;
        if (!seen.insert(first.communicator).second)
            continue;
        for (const Queued &other : queued) {
            if (other.communicator != first.communicator)
                continue;
            if (other.stream != first.stream)
                return refuse(ncclInvalidUsage, "a group on two streams is not emulated");
            calls.push_back(other.call);
        }
        const ncclResult_t code = queue_exchange(first.communicator, first.stream, calls);
        if (code != ncclSuccess)
            return code;
    }
    return ncclSuccess;
}

ncclResult_t group_end()
{
    if (!group)
        return refuse(ncclInvalidUsage, "no group was begun");
    if (--group->depth > 0)
        return ncclSuccess;
    const std::unique_ptr<Group> ended(group);
    group = nullptr;
    return ended->failure == ncclSuccess ? queue_group(ended->calls) : ended->failure;
}

// ---- Checking a call ------------------------------------------------------------------------

void insist_on_memory(const Call &call, const char *what, Range range)
{
    if (range.size > 0 && !memory_has(MemoryKind::kDevice, range.begin, range.size))
        fatal({nullptr, 0}, "%s: the %zu bytes to %s are not in device memory", call.name,
              range.size, what);
}

ncclResult_t judge(const Call &call, ncclComm_t communicator)
{
    {
        Locked locked;
        if (communicators.count(communicator) == 0)
            return refuse(ncclInvalidArgument, "%s: no such communicator", call.name);
    }
    const bool sums = call.kind == Kind::kReduceScatter || call.kind == Kind::kReduce;
    if (call.type != ncclFloat32 && (sums || call.type != ncclUint8))
        return refuse(ncclInvalidArgument, "%s: type %d is not emulated", call.name, call.type);
    const int n_ranks = communicator->clique->n_ranks;
    if (call.root < 0 || call.root >= n_ranks)
        return refuse(ncclInvalidArgument, "%s: there is no rank %d to be the root", call.name,
                      call.root);
    const bool sends = call.kind != Kind::kBroadcast || call.root == communicator->rank;
    const bool receives = call.kind != Kind::kReduce || call.root == communicator->rank;
    if ((sends && !call.from) || (receives && !call.to))
        return refuse(ncclInvalidArgument, "%s: a buffer is NULL", call.name);
    if (sends)
        insist_on_memory(call, "send", read_by(call, static_cast<size_t>(n_ranks)));
    if (receives)
        insist_on_memory(call, "receive", written_by(call, static_cast<size_t>(n_ranks)));
    return ncclSuccess;
}

// A call outside a group is a group by itself.
ncclResult_t take_call(const Call &call, ncclComm_t communicator, cudaStream_t stream)
{
    ncclResult_t code = fail_as_planned();
    if (code == ncclSuccess)
        code = judge(call, communicator);
    group_begin();
    if (code == ncclSuccess)
        group->calls.push_back({communicator, stream, call});
    else
        group->failure = code;
    const ncclResult_t end = group_end();
    return code == ncclSuccess ? end : code;
}

// ---- Joining --------------------------------------------------------------------------------

// The rank that already has the device, -1 if none has.
int rank_on(const Clique &clique, int device)
{
    for (int r = 0; r < clique.n_ranks; r++)
        if (clique.devices[static_cast<size_t>(r)] == device)
            return r;
    return -1;
}

ncclResult_t join(Clique *clique, int n_ranks, int rank, int device)
{
    if (clique->n_ranks == 0) {
        clique->n_ranks = n_ranks;
        clique->devices.assign(static_cast<size_t>(n_ranks), -1);
    }
    if (clique->n_ranks != n_ranks)
        fatal({nullptr, 0}, "rank %d joins %d ranks, others have joined %d", rank, n_ranks,
              clique->n_ranks);
    const int other = rank_on(*clique, device);
    if (other >= 0 || clique->devices[static_cast<size_t>(rank)] >= 0) {
        clique->failed = true;
        pthread_cond_broadcast(&joined);
    }
    if (other >= 0)
        return refuse(ncclInvalidUsage,
                      "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d",
                      rank, other, device);
    if (clique->failed)
        return refuse(ncclInvalidUsage, "rank %d has joined already", rank);
    clique->devices[static_cast<size_t>(rank)] = device;
    clique->n_joined++;
    pthread_cond_broadcast(&joined);
    return ncclSuccess;
}

ncclResult_t wait_for_ranks(const Clique &clique)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kPatienceSeconds;
    while (clique.n_joined < clique.n_ranks && !clique.failed)
        if (pthread_cond_timedwait(&joined, &lock, &deadline) == ETIMEDOUT)
            fatal({nullptr, 0}, "%d of %d ranks wait for the others to join", clique.n_joined,
                  clique.n_ranks);
    return clique.failed ? refuse(ncclInvalidUsage, "another rank could not join")
                         : ncclSuccess;
}

void end_communicator(ncclComm_t communicator, const char *name)
{
    if (group)
        fatal({nullptr, 0}, "%s: in a group that was not ended", name);
    Locked locked;
    if (communicators.erase(communicator) == 0)
        fatal({nullptr, 0}, "%s: no such communicator", name);
    delete communicator;
}

}  // namespace

}  // namespace emulation

bool bd_emulation_fail_nccl(int n, int code)
{
    Locked locked;
    const bool came = calls_before_failure < 0;
    calls_before_failure = n;
    planned_failure = static_cast<ncclResult_t>(code);
    return came;
}

// ---- The entry points -----------------------------------------------------------------------

const char *ncclGetErrorString(ncclResult_t code)
{
    switch (code) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const ncclResult_t code = fail_as_planned();
    if (code != ncclSuccess)
        return code;
    Locked locked;
    *id = ncclUniqueId();
    snprintf(id->internal, sizeof id->internal, "emulated id %lld of process %d",
             static_cast<long long>(n_ids++), static_cast<int>(getpid()));
    waiting[id->internal] = std::make_shared<Clique>();
    return ncclSuccess;
}

// Waits for all ranks.
ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int n_ranks, ncclUniqueId id, int rank)
{
    ncclResult_t code = fail_as_planned();
    if (code != ncclSuccess)
        return code;
    if (!communicator || n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return refuse(ncclInvalidArgument, "rank %d of %d", rank, n_ranks);
    *communicator = nullptr;
    Locked locked;
    const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
    const auto found = waiting.find(name);
    if (found == waiting.end())
        return refuse(ncclSystemError,
                      "no id of this process: the emulation's ranks are threads");
    const std::shared_ptr<Clique> clique = found->second;
    code = join(clique.get(), n_ranks, rank, current_device());
    if (code == ncclSuccess)
        code = wait_for_ranks(*clique);
    waiting.erase(name);
    if (code != ncclSuccess)
        return code;
    *communicator = new ncclComm{clique, rank, current_device(), 0, ncclSuccess};
    communicators.insert(*communicator);
    return ncclSuccess;
}

// The real one may wait for exchanges that have failed.
ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
    if (communicator->failure != ncclSuccess)
        fatal({nullptr, 0}, "ncclCommDestroy: after an error, not ncclCommAbort");
    end_communicator(communicator, "ncclCommDestroy");
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
    end_communicator(communicator, "ncclCommAbort");
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *failure)
{
    const ncclResult_t planned = fail_as_planned();
    if (planned != ncclSuccess)
        communicator->failure = planned;
    *failure = communicator->failure;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart()
{
    const ncclResult_t code = fail_as_planned();
    if (code == ncclSuccess)
        group_begin();
    return code;
}

ncclResult_t ncclGroupEnd()
{
    const ncclResult_t code = fail_as_planned();
    if (code != ncclSuccess && group)
        group->failure = code;
    return group_end();
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
    if (op != ncclSum)
        return refuse(ncclInvalidArgument, "ncclReduceScatter: only sums are emulated");
    return take_call({Kind::kReduceScatter, "ncclReduceScatter",
                      static_cast<const unsigned char *>(from),
                      static_cast<unsigned char *>(to), count, type, 0},
                     communicator, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream)
{
    if (op != ncclSum)
        return refuse(ncclInvalidArgument, "ncclReduce: only sums are emulated");
    return take_call({Kind::kReduce, "ncclReduce", static_cast<const unsigned char *>(from),
                      static_cast<unsigned char *>(to), count, type, root},
                     communicator, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream)
{
    return take_call({Kind::kAllGather, "ncclAllGather",
                      static_cast<const unsigned char *>(from),
                      static_cast<unsigned char *>(to), count, type, 0},
                     communicator, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream)
{
    return take_call({Kind::kBroadcast, "ncclBroadcast",
                      static_cast<const unsigned char *>(from),
                      static_cast<unsigned char *>(to), count, type, root},
                     communicator, stream);
}
