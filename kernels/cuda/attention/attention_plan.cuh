// attention_plan.cuh - which tiles of which documents an attention kernel works on, and in
// which order.
//
//   row         a a a a a a a a a a | b b b | c c c c c | p p p
//   tiles of 4  a0      a1      a2    b0      c0      c1           none in padding
//
// A tile belongs to one document and is counted from the document's start: no tile straddles
// two documents, no value of a neighbour enters a product, and only tiles on the diagonal or at
// the edge of a window need a mask. The price is a partly empty tile at the end of each
// document.
//
// The host does not know the boundaries. A kernel on the device lists the tiles, those with the
// most tiles to visit first. The blocks of the next kernel then take one work item, a (tile,
// head), after the other until none is left. The result does not depend on which block takes
// which.
//
// In a list of KEY_TILES the tiles of a document come in rising order, and works are given out
// in the order of the list. So a block may wait for lower tiles of its own document: another
// block took them earlier. The backward kernel relies on this; with another order it would
// hang.
#ifndef BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_PLAN_CUH
#define BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_PLAN_CUH

#include <climits>
#include <initializer_list>

#include "common/base/error.h"
#include "kernels/boundaries.h"
#include "kernels/cuda/runtime/gpu.cuh"
#include "kernels/cuda/runtime/queue.h"

// Tile number `tile` of the document at begin … end - 1 of a row.
struct alignas(16) attention_tile {
    int row, begin, end, tile;
};

// Borrowed device memory.
struct attention_plan {
    unsigned *taken;    // works given out so far
    unsigned *n_tiles;  // in the list
    attention_tile *tiles;
};

// A tile of queries visits the tiles of its document up to itself; a tile of keys visits itself
// and those after it. A window leaves out those that are too far away; the list is the same.
enum attention_side { QUERY_TILES, KEY_TILES };

// The arguments that all attention operations have in common.
struct attention_shape {
    bd_boundaries boundaries;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;

    template <class Args>
    explicit attention_shape(const Args &a)
        : boundaries(a.boundaries), n_heads(a.n_heads), n_kv_heads(a.n_kv_heads),
          head_size(a.head_size), q_stride(a.q_stride), kv_stride(a.kv_stride)
    {
    }

    int64_t n_tokens() const
    {
        return boundaries.n_rows * boundaries.seq_len;
    }
};

// A tensor whose padding is to be cleared: `width` words of 4 bytes for each token.
struct padded_tensor {
    void *data;
    int64_t stride, width;  // words
};

size_t attention_plan_bytes(const attention_shape &shape);

// Where the plan lies in memory of attention_plan_bytes().
attention_plan attention_plan_at(void *memory);

// Checks what every attention operation requires. This one needs scratch_bytes.
bd_status attention_check(const attention_shape &shape, size_t scratch_bytes,
                          const bd_cuda_queue *queue, bd_error *err);

// Checks what the bf16 operations require besides; `pointers` are all that point to bf16.
bd_status attention_check_bf16(const attention_shape &shape,
                               std::initializer_list<const void *> pointers, bd_error *err);

// Queues the kernel that lists all tiles of tile_size tokens.
bd_status attention_make_plan(const attention_plan &plan, const attention_shape &shape,
                              int tile_size, attention_side side, bd_cuda_queue *queue,
                              bd_error *err);

// The number of blocks to launch for tiles of tile_size tokens and n_heads heads: enough to
// fill any device.
unsigned attention_blocks(const attention_shape &shape, int tile_size, int64_t n_heads);

// Queues the kernel that writes zeros into the padding of up to three tensors (data may be
// NULL).
bd_status attention_clear_padding(const attention_shape &shape, const padded_tensor tensors[3],
                                  bd_cuda_queue *queue, bd_error *err);

// ---- On the device --------------------------------------------------------------------------

// More than the length of any document that fits a device; a tile can still be added to it.
constexpr int kNoWindow = INT_MAX - 256;

// A work item: a tile and a head. It lies in shared memory, so that it occupies no registers
// during a long loop.
struct attention_work {
    int64_t first_token;  // of the document, in the batch
    int length;           // of the document
    int window;           // shorter than the document, or kNoWindow
    int tile;
    int head;
    bool exists;
};

// Takes the next work of this block; false if none is left. `work` is shared memory. All
// threads call it together; afterwards all shared memory may be overwritten.
static __device__ __forceinline__ bool take_work(attention_work *work,
                                                 const attention_plan &plan,
                                                 const bd_boundaries &boundaries,
                                                 int64_t window, unsigned n_heads)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned index = atomicAdd(plan.taken, 1u);
        work->exists = index < *plan.n_tiles * n_heads;
        if (work->exists) {
            const attention_tile t = plan.tiles[index / n_heads];
            work->first_token = t.row * boundaries.seq_len + t.begin;
            work->length = t.end - t.begin;
            work->window = 0 < window && window < work->length ? int(window) : kNoWindow;
            work->tile = t.tile;
            work->head = int(index % n_heads);
        }
    }
    __syncthreads();
    return work->exists;
}

// The first key that a query of the document sees, and the last query that sees a key.
static __device__ __forceinline__ int oldest_key(const attention_work &work, int query)
{
    return max(0, query - work.window + 1);
}

static __device__ __forceinline__ int newest_query(const attention_work &work, int key)
{
    return key + min(work.window, work.length - key) - 1;
}

// The counters of count_for_tests(): the kernels count the pairs of tiles that they visit.
enum attention_pass { PASS_FORWARD, PASS_KEY_GRADIENT, PASS_QUERY_GRADIENT };

#endif
