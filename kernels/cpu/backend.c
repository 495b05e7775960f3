// The CPU backend besides its operations: the choice of an instruction set, memory, and how
// work is divided among threads.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/free_memory.h"
#include "kernels/cpu/cpu.h"

enum { ALIGNMENT = 64, LARGE_PAGE = 2 << 20 };

static bd_cpu_backend *cpu_of(bd_backend *backend)
{
    return (bd_cpu_backend *)backend;
}

// ---- Instruction sets -----------------------------------------------------------------------

static const bd_operations *const operations_of[BD_CPU_N_ISA] = {
    [BD_CPU_ISA_BASELINE] = &bd_cpu_operations_baseline,
#ifdef BD_CPU_X86_64
    [BD_CPU_ISA_AVX2] = &bd_cpu_operations_avx2,
    [BD_CPU_ISA_AVX512] = &bd_cpu_operations_avx512,
#endif
};

static int machine_has(bd_cpu_isa isa)
{
#ifdef BD_CPU_X86_64
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                     __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (isa == BD_CPU_ISA_AVX2)
        return avx2;
    if (isa == BD_CPU_ISA_AVX512)
        return avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return isa == BD_CPU_ISA_BASELINE;
}

bd_cpu_isa bd_cpu_isa_best(void)
{
    int isa = BD_CPU_ISA_BASELINE;
    while (isa + 1 < BD_CPU_N_ISA && operations_of[isa + 1] &&
           machine_has((bd_cpu_isa)(isa + 1)))
        isa++;
    return (bd_cpu_isa)isa;
}

const char *bd_cpu_isa_name(bd_cpu_isa isa)
{
    static const char *const names[BD_CPU_N_ISA] = {"baseline", "avx2", "avx512"};
    return names[isa];
}

// ---- Memory ---------------------------------------------------------------------------------

// Large tensors are put on large pages where the system has them: attention reads a few hundred
// bytes of one token after the other, and with small pages each of them would miss the TLB
// (bench/attention.c: a fifth slower).
static bd_status cpu_allocate(bd_backend *backend, size_t size_bytes, void **memory,
                              bd_error *err)
{
    (void)backend;
    const size_t alignment = size_bytes >= LARGE_PAGE ? LARGE_PAGE : ALIGNMENT;
    *memory = NULL;
    void *allocated;
    if (posix_memalign(&allocated, alignment, size_bytes > 0 ? size_bytes : 1) != 0)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes", size_bytes);
    if (alignment == LARGE_PAGE)
        madvise(allocated, size_bytes, MADV_HUGEPAGE);  // may fail: small pages work as well
    memset(allocated, 0, size_bytes);
    *memory = allocated;
    return BD_OK;
}

static bd_status cpu_free_memory(bd_backend *backend, size_t *size_bytes, bd_error *err)
{
    (void)backend;
    (void)err;
    *size_bytes = bd_free_memory();
    return BD_OK;
}

static void cpu_release(bd_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static bd_status cpu_copy(bd_backend *backend, void *to, const void *from, size_t size_bytes,
                          bd_error *err)
{
    (void)backend;
    (void)err;
    if (size_bytes > 0)
        memcpy(to, from, size_bytes);
    return BD_OK;
}

static void zero_loop(const void *args, int64_t first, int64_t last)
{
    memset(*(char *const *)args + first, 0, (size_t)(last - first));
}

static bd_status cpu_zero(bd_backend *backend, void *memory, size_t size_bytes, bd_error *err)
{
    return bd_cpu_for(backend, (int64_t)size_bytes, 1 << 20, zero_loop, &memory, err);
}

// A copy is done on return, so that cpu_pass() has nothing to wait for.
static bd_status cpu_send(bd_backend *backend, int slot, void *to, const void *from,
                          size_t size_bytes, bd_error *err)
{
    (void)slot;
    return cpu_copy(backend, to, from, size_bytes, err);
}

static bd_status cpu_pass(bd_backend *backend, int slot, bd_error *err)
{
    (void)backend;
    (void)slot;
    (void)err;
    return BD_OK;
}

// ---- Dividing work among threads ------------------------------------------------------------

typedef struct chunked_loop {
    bd_cpu_loop loop;
    const void *args;
    int64_t n, chunk;
} chunked_loop;

static bd_status run_chunk(void *context, int64_t index, bd_error *err)
{
    (void)err;
    const chunked_loop *c = context;
    const int64_t first = index * c->chunk;
    c->loop(c->args, first, bd_min(first + c->chunk, c->n));
    return BD_OK;
}

bd_status bd_cpu_for(bd_backend *backend, int64_t n, int64_t chunk, bd_cpu_loop loop,
                     const void *args, bd_error *err)
{
    if (n == 0)
        return BD_OK;
    chunked_loop c = {loop, args, n, chunk};
    return bd_threads_run(cpu_of(backend)->threads, run_chunk, &c, bd_ceil_divide(n, chunk),
                          err);
}

static int longest_first(const void *left, const void *right)
{
    const bd_cpu_segment *a = left, *b = right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

bd_status bd_cpu_scratch(bd_backend *backend, size_t size_bytes, void **memory, bd_error *err)
{
    bd_cpu_backend *cpu = cpu_of(backend);
    if (size_bytes > cpu->scratch_bytes) {
        void *grown = realloc(cpu->scratch, size_bytes);
        if (!grown)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of scratch",
                           size_bytes);
        cpu->scratch = grown;
        cpu->scratch_bytes = size_bytes;
    }
    *memory = cpu->scratch;
    return BD_OK;
}

bd_status bd_cpu_sort_segments(bd_backend *backend, const bd_boundaries *boundaries,
                               const bd_cpu_segment **segments, int64_t *n_segments,
                               bd_error *err)
{
    const int64_t n_all = bd_count_segments(boundaries);
    void *memory = NULL;
    BD_TRY(bd_cpu_scratch(backend, (size_t)n_all * sizeof **segments, &memory, err));

    bd_cpu_segment *all = memory;
    int64_t n = 0;
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n_row;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_row);
        for (int64_t s = 0; s < n_row; s++)
            all[n++] = (bd_cpu_segment){r * boundaries->seq_len + bounds[s],
                                        bounds[s + 1] - bounds[s]};
    }
    if (n > 0)
        qsort(all, (size_t)n, sizeof *all, longest_first);
    *segments = all;
    *n_segments = n;
    return BD_OK;
}

// ---- Opening and closing --------------------------------------------------------------------

static void cpu_close(bd_backend *backend)
{
    if (!backend)
        return;
    bd_cpu_backend *cpu = cpu_of(backend);
    bd_threads_free(cpu->threads);
    free(cpu->scratch);
    free(cpu);
}

bd_status bd_backend_open_cpu_isa(bd_backend **backend, int n_threads, bd_cpu_isa isa,
                                  bd_error *err)
{
    *backend = NULL;
    if (n_threads < 1)
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot compute on %d threads", n_threads);
    if (isa > bd_cpu_isa_best()) {
        char had[64] = "";
        for (int i = 0; i <= (int)bd_cpu_isa_best(); i++) {
            const size_t used = strlen(had);
            snprintf(had + used, sizeof had - used, "%s%s", i == 0 ? "" : ", ",
                     bd_cpu_isa_name((bd_cpu_isa)i));
        }
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "no %s on this machine or in this build, which have %s",
                       bd_cpu_isa_name(isa), had);
    }

    bd_cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the CPU backend");
    cpu->base.operations = &cpu->table;
    cpu->table = *operations_of[isa];
    cpu->table.name = "cpu";
    cpu->table.works_on_host = true;
    cpu->table.allocate = cpu_allocate;
    cpu->table.release = cpu_release;
    cpu->table.free_memory = cpu_free_memory;
    cpu->table.upload = cpu_copy;
    cpu->table.download = cpu_copy;
    cpu->table.zero = cpu_zero;
    cpu->table.send = cpu_send;
    cpu->table.arrive = cpu_pass;
    cpu->table.leave = cpu_pass;
    cpu->table.close = cpu_close;
    const bd_status status = bd_threads_new(&cpu->threads, n_threads, err);
    if (status != BD_OK) {
        free(cpu);
        return status;
    }
    *backend = &cpu->base;
    return BD_OK;
}

bd_status bd_backend_open_cpu(bd_backend **backend, int n_threads, bd_error *err)
{
    return bd_backend_open_cpu_isa(backend, n_threads, bd_cpu_isa_best(), err);
}
