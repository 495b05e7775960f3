// emulation.h - how the tests control the host emulation of CUDA, and what they can read from
// it.
//
// Kernels of kernels/cuda compiled with cuda_emulation.h are executed on the host: every CUDA
// thread is a fiber, and tests can request every legal order of threads, copies and streams.
// Undefined behaviour of CUDA (a barrier that not all threads reach, a shuffle with an absent
// lane, a misaligned vector, an address outside shared memory) ends the process by abort() with
// one line
//
//   emulation: kernel K, block (x,y,z), thread (x,y,z), FILE:LINE: WHAT
//
// Shared memory and fresh device memory are filled with bytes 0xff, which are NaN in every
// floating-point type.
#ifndef BINDERY_TESTS_EMULATION_EMULATION_H
#define BINDERY_TESTS_EMULATION_EMULATION_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Devices share one memory, but each has its own streams.
enum { BD_N_DEVICES = 4 };

// The order in which the threads of a block and the blocks run.
typedef enum bd_emulation_schedule {
    BD_SCHEDULE_FORWARD,     // lowest thread of the running warp, then the next warps
    BD_SCHEDULE_REVERSE,     // highest thread first; last block first
    BD_SCHEDULE_WARP_AHEAD,  // one warp runs as far as it can; drawn anew at every barrier
    BD_SCHEDULE_RANDOM,      // any thread that can run
    BD_N_SCHEDULES,
} bd_emulation_schedule;

// When the bytes of a cp.async arrive.
typedef enum bd_emulation_copies {
    BD_COPIES_LATE,     // when the thread waits for their group; until then the target is NaN
    BD_COPIES_AT_ONCE,  // when they are issued
    BD_COPIES_RANDOM,   // each copy one or the other
    BD_N_COPIES,
} bd_emulation_copies;

// The stream that runs next when a host thread waits.
typedef enum bd_emulation_streams {
    BD_STREAMS_RANDOM,   // any one whose events allow it
    BD_STREAMS_FORWARD,  // the one that was created first
    BD_STREAMS_REVERSE,  // the one that was created last
    BD_N_STREAMS,
} bd_emulation_streams;

typedef struct bd_emulation_settings {
    bd_emulation_schedule schedule;
    bd_emulation_copies copies;
    bd_emulation_streams streams;
    uint64_t seed;     // of all random choices
    int host_threads;  // that run blocks in parallel; ThreadSanitizer builds always use 1
} bd_emulation_settings;

// Everything zero is the default. Not while another thread uses the emulation.
void bd_emulation_configure(const bd_emulation_settings *settings);

// Lets the NCCL call after `n` others fail with `code`, an ncclResult_t, and do nothing; a call
// that asks for an asynchronous error gets one. Ending a communicator does not count. With n =
// -1, none fails. Returns whether the call that was to fail until now has come.
bool bd_emulation_fail_nccl(int n, int code);

typedef struct bd_emulation_counters {
    int64_t launches;
    int64_t blocks;
    int64_t barriers;            // barriers of whole blocks
    int64_t warp_exchanges;      // shuffles, ballots and __syncwarp, per warp
    int64_t mma;                 // per warp
    int64_t ldmatrix;            // per warp
    int64_t bank_conflicts;      // extra turns that ldmatrix needs
    int64_t async_copies;        // cp.async, per thread
    int64_t async_global_bytes;  // bytes that they read from global memory
    int64_t of_kernels[3];       // calls of count_for_tests(i), per block
} bd_emulation_counters;

// Returns the counts since the last call.
bd_emulation_counters bd_emulation_take_counters(void);

#ifdef __cplusplus
}
#endif

#endif
