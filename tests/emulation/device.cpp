// Runs the blocks of a grid: every CUDA thread is a fiber, and the schedule decides which one
// runs next. Compiled without ThreadSanitizer, so that it sees only barriers and launches as
// order.
#include "tests/emulation/device.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include <pthread.h>

#include "tests/emulation/fiber.h"
#include "tests/emulation/shared_memory.h"

namespace emulation
{

__thread const Thread *current;

namespace
{

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kLanes;

// ---- State of a running block ---------------------------------------------------------------

enum class State { kReady, kAtBarrier, kInWarp, kDone };

struct Copy {
    void *dst;
    const void *src;
    int64_t group;
    bool from_source, landed;
};

struct CudaThread {
    Thread self;
    Fiber fiber;
    State state;
    const char *waits_in;
    Place waits_at;
    std::vector<Copy> copies;  // not waited for yet, oldest first
    int64_t n_groups;          // committed
};

// Lanes that wait for each other. There may be several meetings, because masks may be disjoint.
struct Meeting {
    WarpAction act;
    unsigned mask, arrived;
    int n_completed;
    Place place;
    void *operands[kLanes];
};

struct Warp {
    unsigned alive, ready;
    Meeting meetings[kLanes];
};

struct Grid {
    const LaunchShape *shape;
    const std::function<void()> *body;
    int64_t n_blocks;
    uint64_t first, stride;  // the order in which blocks are run
    std::atomic<int64_t> next;
};

// A host thread and the block that it runs.
struct Worker {
    Worker *next_idle;
    Fiber host;
    const Grid *grid;
    CudaThread threads[kMaxThreads];
    Warp warps[kMaxWarps];
    int n_threads, n_warps;
    int priority[kMaxWarps];  // by warp, for BD_SCHEDULE_WARP_AHEAD
    int last;                 // thread that ran last
    int n_done;
    uint64_t random;
    SharedMemory shared;

    int n_at_barrier, n_votes, n_votes_of_last;
    int64_t n_barriers;
    Place barrier_place;

    std::deque<Fiber> retired;  // fibers of earlier blocks, oldest first; see borrow_fiber()
};

__thread Worker *worker;
__thread CudaThread *running;

bd_emulation_settings the_settings;
bd_emulation_counters total;
pthread_mutex_t total_lock = PTHREAD_MUTEX_INITIALIZER;
__thread bd_emulation_counters own_counters;

// Synchronisation objects: for what came before a launch, and for what its threads did.
char grid_begin, grid_end;

bool same_place(Place a, Place b)
{
    if (a.line != b.line)
        return false;
    const char *p = a.file, *q = b.file;
    while (p != q && *p == *q && *p) {
        p++;
        q++;
    }
    return p == q || *p == *q;
}

// ---- Waiting --------------------------------------------------------------------------------

void set_ready(CudaThread *thread)
{
    thread->state = State::kReady;
    worker->warps[thread->self.warp].ready |= 1u << thread->self.lane;
}

void set_waiting(CudaThread *thread, State state, const char *what, Place place)
{
    thread->state = state;
    thread->waits_in = what;
    thread->waits_at = place;
    worker->warps[thread->self.warp].ready &= ~(1u << thread->self.lane);
}

void shuffle_priority()
{
    for (int i = worker->n_warps - 1; i > 0; i--) {
        const int k = static_cast<int>(draw(&worker->random) % static_cast<unsigned>(i + 1));
        const int kept = worker->priority[i];
        worker->priority[i] = worker->priority[k];
        worker->priority[k] = kept;
    }
}

int random_lane(unsigned ready)
{
    const unsigned turn = draw(&worker->random) % kLanes;
    const unsigned turned = turn ? ready >> turn | ready << (kLanes - turn) : ready;
    return (__builtin_ctz(turned) + static_cast<int>(turn)) % kLanes;
}

int lowest_lane(unsigned ready)
{
    return __builtin_ctz(ready);
}

int highest_lane(unsigned ready)
{
    return kLanes - 1 - __builtin_clz(ready);
}

// The number of the thread that runs next, -1 if none can.
int next_thread()
{
    const int n = worker->n_warps;
    const bd_emulation_schedule schedule = the_settings.schedule;
    const int start = schedule == BD_SCHEDULE_RANDOM
                          ? static_cast<int>(draw(&worker->random) % static_cast<unsigned>(n))
                          : worker->last / kLanes;
    for (int i = 0; i < n; i++) {
        int w = start + i < n ? start + i : start + i - n;
        if (schedule == BD_SCHEDULE_REVERSE)
            w = n - 1 - i;
        else if (schedule == BD_SCHEDULE_WARP_AHEAD)
            w = worker->priority[i];
        const unsigned ready = worker->warps[w].ready;
        if (!ready)
            continue;
        if (schedule == BD_SCHEDULE_FORWARD)
            return w * kLanes + lowest_lane(ready);
        if (schedule == BD_SCHEDULE_REVERSE)
            return w * kLanes + highest_lane(ready);
        return w * kLanes + random_lane(ready);
    }
    return -1;
}

// No thread can run: lists which threads wait for what, one entry per run of threads in one
// place.
[[noreturn]] void report_deadlock()
{
    char text[1024] = "";
    size_t n = 0;
    for (int i = 0; i < worker->n_threads && n + 1 < sizeof text; i++) {
        const CudaThread &t = worker->threads[i], &before = worker->threads[i > 0 ? i - 1 : 0];
        if (i > 0 && t.state == before.state &&
            (t.state == State::kDone || same_place(t.waits_at, before.waits_at)))
            continue;
        const int wrote =
            t.state == State::kDone
                ? snprintf(text + n, sizeof text - n, "; from thread %d on: ended", i)
                : snprintf(text + n, sizeof text - n, "; from thread %d on: in %s at %s:%d", i,
                           t.waits_in, t.waits_at.file, t.waits_at.line);
        n += static_cast<size_t>(wrote);
    }
    running = &worker->threads[0];
    current = &running->self;
    fatal(worker->threads[0].waits_at, "divergent threads wait for each other for ever%s",
          text);
}

// Lets the schedule choose the next thread instead of `from`: the host, if no thread can run.
void give_way(Fiber *from, bool last = false)
{
    const int number = next_thread();
    if (number >= 0) {
        worker->last = number;
        running = &worker->threads[number];
        current = &running->self;
    }
    Fiber *to = number >= 0 ? &running->fiber : &worker->host;
    if (to != from)
        fiber_switch(from, to, last);
}

// ---- The life of a CUDA thread --------------------------------------------------------------

void land(Copy *copy)
{
    if (copy->from_source) {
        note_read(copy->src, 16);
        __builtin_memcpy(copy->dst, copy->src, 16);
    } else {
        __builtin_memset(copy->dst, 0, 16);
    }
    copy->landed = true;
}

void check_end()
{
    const Warp &warp = worker->warps[running->self.warp];
    if (!running->copies.empty())
        fatal({nullptr, 0}, "thread ends with %zu cp.async that it has not waited for",
              running->copies.size());
    if (worker->n_at_barrier)
        fatal(worker->barrier_place, "thread ends while %d others wait at the barrier there",
              worker->n_at_barrier);
    for (const Meeting &meeting : warp.meetings)
        if (meeting.arrived && meeting.mask >> running->self.lane & 1)
            fatal(meeting.place, "lane %d ends while lanes %#x wait for it there",
                  running->self.lane, meeting.arrived);
}

void thread_body()
{
    order_acquire(&grid_begin);
    (*worker->grid->body)();
    check_end();
    order_release(&grid_end);
    worker->warps[running->self.warp].alive &= ~(1u << running->self.lane);
    set_waiting(running, State::kDone, "", {nullptr, 0});
    worker->n_done++;
    give_way(&running->fiber, true);
}

// ThreadSanitizer treats a fiber as a thread and sees no race inside one. So blocks that follow
// each other use different fibers, and a race between them is found; but a fiber needs about a
// megabyte there, so the one that has been idle longest is used again.
void borrow_fiber(Fiber *fiber)
{
    constexpr size_t kMostRetired = 1024;
    if (worker->retired.size() < kMostRetired)
        return;
    *fiber = worker->retired.front();
    worker->retired.pop_front();
}

void retire_fibers()
{
    for (int i = 0; i < worker->n_threads; i++) {
        worker->retired.push_back(worker->threads[i].fiber);
        worker->threads[i].fiber = Fiber();
    }
}

void prepare_thread(int number, uint3 block)
{
    CudaThread *thread = &worker->threads[number];
    const dim3 size = worker->grid->shape->block;
    const unsigned n = static_cast<unsigned>(number);
    thread->self = {{n % size.x, n / size.x % size.y, n / size.x / size.y},
                    block,
                    size,
                    worker->grid->shape->grid,
                    number,
                    number % kLanes,
                    number / kLanes,
                    worker->shared.arrays[0].memory};
    thread->waits_at = worker->grid->shape->place;
    thread->n_groups = 0;
    thread->copies.clear();
    if (under_thread_sanitizer())
        borrow_fiber(&thread->fiber);
    fiber_prepare(&thread->fiber, thread_body);
    worker->warps[thread->self.warp].alive |= 1u << thread->self.lane;
    set_ready(thread);
}

// ---- Blocks and grids -----------------------------------------------------------------------

void prepare_block(uint3 block)
{
    const dim3 size = worker->grid->shape->block;
    worker->n_threads = static_cast<int>(size.x * size.y * size.z);
    worker->n_warps = (worker->n_threads + kLanes - 1) / kLanes;
    worker->last = 0;
    worker->n_done = 0;
    worker->n_at_barrier = 0;
    worker->n_barriers = 0;
    shared_memory_map(&worker->shared, worker->grid->shape->dynamic_shared_bytes);
    for (int w = 0; w < worker->n_warps; w++) {
        worker->warps[w] = Warp();
        worker->priority[w] = w;
    }
    shuffle_priority();
    for (int i = 0; i < worker->n_threads; i++)
        prepare_thread(i, block);
    // After the poison is written, before any thread begins.
    order_release(&grid_begin);
}

void run_block(uint3 block, uint64_t seed)
{
    worker->random = seed;
    prepare_block(block);
    give_way(&worker->host);
    if (worker->n_done < worker->n_threads)
        report_deadlock();
    running = nullptr;
    shared_memory_unmap(&worker->shared);
    current = nullptr;
    if (under_thread_sanitizer())
        retire_fibers();
    own_counters.blocks++;
}

// Every worker takes the next block in the order of the grid until none is left.
void run_blocks(Grid *grid)
{
    const dim3 size = grid->shape->grid;
    worker->grid = grid;
    for (int64_t k = grid->next++; k < grid->n_blocks; k = grid->next++) {
        const unsigned __int128 turn = static_cast<unsigned __int128>(k) * grid->stride;
        const uint64_t b =
            static_cast<uint64_t>((turn + grid->first) % static_cast<uint64_t>(grid->n_blocks));
        const uint3 block = {static_cast<unsigned>(b % size.x),
                             static_cast<unsigned>(b / size.x % size.y),
                             static_cast<unsigned>(b / size.x / size.y)};
        run_block(block, the_settings.seed ^ (b + 1) * 0xd1b54a32d192ed03u);
    }
    worker->grid = nullptr;
}

uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Blocks are run in the order first, first + stride, … modulo their number.
void choose_order(Grid *grid)
{
    const uint64_t n = static_cast<uint64_t>(grid->n_blocks);
    grid->first = 0;
    grid->stride = 1;
    if (the_settings.schedule == BD_SCHEDULE_FORWARD)
        return;
    if (the_settings.schedule == BD_SCHEDULE_REVERSE) {
        grid->first = n - 1;
        grid->stride = n > 1 ? n - 1 : 1;
        return;
    }
    uint64_t random = the_settings.seed;
    grid->first = draw(&random) % n;
    grid->stride = draw(&random) % n + 1;
    while (greatest_common_divisor(grid->stride, n) != 1)
        grid->stride++;
}

// Workers of host threads that have ended; they keep their fibers' stacks.
Worker *first_idle;
pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

// Returns the worker of a host thread when the thread ends.
struct WorkerReturn {
    bool is_due;
    ~WorkerReturn()
    {
        if (!is_due)
            return;
        pthread_mutex_lock(&idle_lock);
        worker->next_idle = first_idle;
        first_idle = worker;
        pthread_mutex_unlock(&idle_lock);
    }
};
thread_local WorkerReturn worker_return;

void worker_begin()
{
    if (worker)
        return;
    pthread_mutex_lock(&idle_lock);
    if (first_idle) {
        worker = first_idle;
        first_idle = worker->next_idle;
    }
    pthread_mutex_unlock(&idle_lock);
    if (!worker)
        worker = new Worker();
    worker_return.is_due = true;
    fiber_adopt_host(&worker->host);
}

void add_counters()
{
    pthread_mutex_lock(&total_lock);
    int64_t *sum = reinterpret_cast<int64_t *>(&total);
    const int64_t *own = reinterpret_cast<const int64_t *>(&own_counters);
    for (size_t i = 0; i < sizeof total / sizeof *sum; i++)
        sum[i] += own[i];
    pthread_mutex_unlock(&total_lock);
    own_counters = bd_emulation_counters();
}

void *extra_host_thread(void *grid)
{
    worker_begin();
    run_blocks(static_cast<Grid *>(grid));
    add_counters();
    return nullptr;
}

}  // namespace

void run_grid(const LaunchShape &shape, const std::function<void()> &body)
{
    Grid grid = {&shape, &body, 0, 0, 0, {0}};
    grid.n_blocks = static_cast<int64_t>(shape.grid.x) * shape.grid.y * shape.grid.z;
    choose_order(&grid);

    std::vector<pthread_t> helpers;
    const int wanted = under_thread_sanitizer() ? 1 : the_settings.host_threads;
    for (int i = 1; i < wanted && i < grid.n_blocks; i++) {
        pthread_t helper;
        if (pthread_create(&helper, nullptr, extra_host_thread, &grid) != 0)
            fatal(shape.place, "no host thread for the blocks of %s", shape.name);
        helpers.push_back(helper);
    }
    worker_begin();
    run_blocks(&grid);
    for (pthread_t helper : helpers)
        pthread_join(helper, nullptr);

    order_acquire(&grid_end);
    own_counters.launches++;
    add_counters();
}

// ---- What a CUDA thread calls ---------------------------------------------------------------

int block_barrier(Vote vote, int predicate, Place place)
{
    if (worker->n_done)
        fatal(place, "barrier that %d threads of the block never reach: they have ended",
              worker->n_done);
    if (worker->n_at_barrier == 0) {
        worker->barrier_place = place;
        worker->n_votes = 0;
    } else if (!same_place(worker->barrier_place, place)) {
        fatal(place, "divergent barrier: %d threads wait at another one, %s:%d",
              worker->n_at_barrier, worker->barrier_place.file, worker->barrier_place.line);
    }
    worker->n_votes += predicate != 0;

    // Two counters alternate, since a fast thread may reach the next barrier before a slow one
    // has left this one.
    void *const order = worker->shared.order + 8 * (worker->n_barriers % 2);
    order_release(order);
    set_waiting(running, State::kAtBarrier, "__syncthreads", place);
    if (++worker->n_at_barrier == worker->n_threads) {
        worker->n_at_barrier = 0;
        worker->n_barriers++;
        worker->n_votes_of_last = worker->n_votes;
        own_counters.barriers++;
        for (int i = 0; i < worker->n_threads; i++)
            set_ready(&worker->threads[i]);
        shuffle_priority();
    }
    give_way(&running->fiber);  // the last one, too: the schedule decides who leaves first
    order_acquire(order);

    if (vote == Vote::kAny)
        return worker->n_votes_of_last > 0;
    if (vote == Vote::kAll)
        return worker->n_votes_of_last == worker->n_threads;
    return worker->n_votes_of_last;
}

static Meeting *find_meeting(Warp *warp, WarpAction act, unsigned mask, Place place)
{
    Meeting *unused = nullptr;
    for (Meeting &meeting : warp->meetings) {
        if (!meeting.arrived)
            unused = unused ? unused : &meeting;
        else if (meeting.act == act && meeting.mask == mask && same_place(meeting.place, place))
            return &meeting;
    }
    unused->act = act;
    unused->mask = mask;
    unused->place = place;
    __builtin_memset(unused->operands, 0, sizeof unused->operands);
    return unused;  // there is a free one, because a lane waits in one meeting at most
}

static void meet(Meeting *meeting, void *operand, const char *what)
{
    Warp *warp = &worker->warps[running->self.warp];
    const unsigned mask = meeting->mask;
    const int first_of_warp = running->self.warp * kLanes;
    meeting->operands[running->self.lane] = operand;
    meeting->arrived |= 1u << running->self.lane;
    if (meeting->arrived != mask) {
        set_waiting(running, State::kInWarp, what, meeting->place);
        give_way(&running->fiber);
        return;
    }
    running->waits_at = meeting->place;
    meeting->act(meeting->operands);
    meeting->arrived = 0;
    meeting->n_completed++;
    for (unsigned left = mask; left != 0; left &= left - 1)
        worker->threads[first_of_warp + lowest_lane(left)].state = State::kReady;
    warp->ready |= mask;
    if (the_settings.schedule != BD_SCHEDULE_FORWARD)
        give_way(&running->fiber);
}

static Meeting *arrive(WarpAction act, unsigned mask, const char *what, Place place)
{
    Warp *warp = &worker->warps[running->self.warp];
    if (!(mask >> running->self.lane & 1))
        fatal(place, "%s: lane %d is not in its own mask %#x", what, running->self.lane, mask);
    if (mask & ~warp->alive)
        fatal(place, "%s: lanes %#x of the mask are absent: they have ended or never were",
              what, mask & ~warp->alive);
    return find_meeting(warp, act, mask, place);
}

void warp_meet(WarpAction act, void *operand, unsigned mask, const char *what, Place place)
{
    meet(arrive(act, mask, what, place), operand, what);
}

static void count_exchange(void *const[kLanes])
{
    own_counters.warp_exchanges++;
}

void warp_barrier(unsigned mask, Place place)
{
    Meeting *meeting = arrive(count_exchange, mask, "__syncwarp", place);
    const int64_t slot = meeting - worker->warps[running->self.warp].meetings;
    const int64_t object = 2 + (running->self.warp * kLanes + slot) * 2;
    void *const order = worker->shared.order + 8 * (object + meeting->n_completed % 2);
    static_assert(2 + kMaxWarps * kLanes * 2 <= kOrderObjects, "one address per meeting");
    order_release(order);
    meet(meeting, running, "__syncwarp");
    order_acquire(order);
}

void *static_shared(const void *key, size_t size_bytes, size_t alignment, Place place)
{
    return shared_memory_array(&worker->shared, key, size_bytes, alignment, place);
}

void check_matrix_row(const void *address, Place place)
{
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
        fatal(place, "ldmatrix: row address is misaligned, not a multiple of 16");
    if (!shared_memory_has(&worker->shared, address, 16))
        fatal(place, "ldmatrix: row lies outside of shared memory");
}

void copy_async(void *dst, const void *src, bool from_source, Place place)
{
    if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) % 16 != 0)
        fatal(place, "cp.async: address is misaligned, not a multiple of 16");
    if (!shared_memory_has(&worker->shared, dst, 16))
        fatal(place, "cp.async: target lies outside of shared memory");
    own_counters.async_copies++;
    own_counters.async_global_bytes += from_source ? 16 : 0;
    Copy copy = {dst, src, running->n_groups, from_source, false};
    // From here until the wait, the target belongs to the copy.
    note_write(dst, 16);
    const bool at_once =
        the_settings.copies == BD_COPIES_AT_ONCE ||
        (the_settings.copies == BD_COPIES_RANDOM && draw(&worker->random) % 2 == 0);
    if (at_once)
        land(&copy);
    else
        poison(dst, 16);
    running->copies.push_back(copy);
}

void commit_copies()
{
    running->n_groups++;
}

void wait_for_copies(int n_groups_left)
{
    std::vector<Copy> &copies = running->copies;
    size_t n = 0;
    for (; n < copies.size() && copies[n].group < running->n_groups - n_groups_left; n++) {
        note_write(copies[n].dst, 16);
        if (!copies[n].landed)
            land(&copies[n]);
    }
    copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(n));
}

void count_of_kernels(int counter)
{
    if (current->number == 0)
        own_counters.of_kernels[counter]++;
}

// ---- For the rest of the emulation ----------------------------------------------------------

void fatal(Place place, const char *format, ...)
{
    char where[1024] = "", what[2048];
    size_t n = 0;
    const auto add = [&](const char *words, auto... values) {
        n += static_cast<size_t>(snprintf(where + n, sizeof where - n, words, values...));
        n = n < sizeof where ? n : sizeof where - 1;
    };
    if (worker && worker->grid)
        add("kernel %s, ", worker->grid->shape->name);
    if (current)
        add("block (%u,%u,%u), ", current->block.x, current->block.y, current->block.z);
    if (running) {
        add("thread (%u,%u,%u), ", current->index.x, current->index.y, current->index.z);
        // An event without a place happened at or after the last known place.
        place = place.file ? place : running->waits_at;
    }
    if (!place.file && worker && worker->grid)
        place = worker->grid->shape->place;
    if (place.file)
        add("%s:%d: ", place.file, place.line);

    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    // Printed by one call, since other host threads may print, too.
    fprintf(stderr, "emulation: %s%s\n", where, what);
    abort();
}

const bd_emulation_settings &settings()
{
    return the_settings;
}

bd_emulation_counters &counters()
{
    return own_counters;
}

}  // namespace emulation

void bd_emulation_configure(const bd_emulation_settings *settings)
{
    emulation::the_settings = *settings;
}

bd_emulation_counters bd_emulation_take_counters(void)
{
    const bd_emulation_counters counted = emulation::total;
    emulation::total = bd_emulation_counters();
    return counted;
}
