// backend.h - the table of functions that a backend provides. The trainer opens a backend and
// afterwards calls it through this table alone.
//
// A backend is one folder (cpu/, cuda/) that fills this table. The contract of each operation
// is in a header of its own (operations.h lists them) and is the same for every backend:
//   - the values of padding tokens are exact zeros in every result, and change no other value;
//   - results do not depend on the number of threads;
//   - a segment's result does not depend on its neighbours' values, bit for bit;
//   - nothing of size seq_len x seq_len exists.
#ifndef BINDERY_KERNELS_BACKEND_H
#define BINDERY_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "kernels/collectives.h"
#include "kernels/operations.h"

typedef struct bd_backend bd_backend;

enum { BD_TRANSFER_SLOTS = 2 };  // batches that can be on their way or in use at a time

typedef struct bd_operations {
    const char *name;  // "cpu"
    const char *isa;   // the instruction set, where a machine may have several: "avx2", or NULL
    bool works_on_host;  // its memory is host memory: arguments may point anywhere
    bool computes_bf16;  // takes tensors of BD_BF16 as well as of BD_FLOAT

    // Memory of the backend, filled with zeros. release() accepts NULL.
    bd_status (*allocate)(bd_backend *, size_t size_bytes, void **memory, bd_error *err);
    void (*release)(bd_backend *, void *memory);
    // The number of bytes that could still be allocated; SIZE_MAX if it is not known.
    bd_status (*free_memory)(bd_backend *, size_t *size_bytes, bd_error *err);
    // Copy between host and backend memory; done on return.
    bd_status (*upload)(bd_backend *, void *to, const void *from, size_t size_bytes,
                        bd_error *err);
    bd_status (*download)(bd_backend *, void *to, const void *from, size_t size_bytes,
                          bd_error *err);
    bd_status (*zero)(bd_backend *, void *memory, size_t size_bytes, bd_error *err);

    // A batch travels to the backend while the one before it is computed. Batches take the
    // BD_TRANSFER_SLOTS transfer slots in turn. For each batch: send() all of its parts;
    // arrive(), so that operations queued from then on see them; queue the operations that read
    // them; and leave(), which says that no later operation does. send() has read `from` when
    // it returns. It waits for the slot's last leave(), but not for anything queued after that.
    // If a call between send() and leave() fails, the slot may still be read: close the
    // backend.
    bd_status (*send)(bd_backend *, int slot, void *to, const void *from, size_t size_bytes,
                      bd_error *err);
    bd_status (*arrive)(bd_backend *, int slot, bd_error *err);
    bd_status (*leave)(bd_backend *, int slot, bd_error *err);
    void (*close)(bd_backend *);

    // Exchange the backend's memory among ranks. Both are NULL if works_on_host, because MPI
    // exchanges host memory. One rank makes an id and hands it to all; then every rank opens
    // the collectives, and the call returns when all have done so. Close them before the
    // backend.
    bd_status (*make_collectives_id)(bd_backend *, bd_collectives_id *id, bd_error *err);
    bd_status (*open_collectives)(bd_backend *, const bd_collectives_id *id, int32_t rank,
                                  int32_t n_ranks, bd_collectives **collectives, bd_error *err);

    // The operations of the list: queued on the backend's stream (cuda) or done on return
    // (cpu). All pointers in the arguments are the backend's memory unless the header says host
    // memory.
#define BD_OPERATION(name) \
    bd_status (*name)(bd_backend *, const bd_##name##_args *, bd_error *);
    BD_FOR_EACH_OPERATION(BD_OPERATION)
#undef BD_OPERATION
} bd_operations;

// Every backend's own struct begins with this.
struct bd_backend {
    const bd_operations *operations;
};

// BD_ERR_UNSUPPORTED if the backend takes no tensors of this type.
static inline bd_status bd_backend_check_type(const bd_backend *backend, bd_type type,
                                              bd_error *err)
{
    if (type == BD_FLOAT || backend->operations->computes_bf16)
        return BD_OK;
    return bd_fail(err, BD_ERR_UNSUPPORTED, "the %s backend computes in float only",
                   backend->operations->name);
}

// ---- The CPU backend ------------------------------------------------------------------------

// Each has its own vector code, which adds in its own order: results differ in the last bits,
// but keep within the same bounds (summation.h).
typedef enum bd_cpu_isa {
    BD_CPU_ISA_BASELINE,  // what the compiler assumes every machine to have
    BD_CPU_ISA_AVX2,      // x86-64-v3: AVX2 and FMA
    BD_CPU_ISA_AVX512,    // x86-64-v4; matrix products by the BLAS
    BD_CPU_N_ISA,
} bd_cpu_isa;

// The best instruction set that both this machine and this build have. They have all that come
// before it in the enum as well.
bd_cpu_isa bd_cpu_isa_best(void);

// "baseline", "avx2", "avx512".
const char *bd_cpu_isa_name(bd_cpu_isa isa);

// Opens the CPU backend on `n_threads` threads, with the best instruction set or with a given
// one. If that is not available, the call fails with BD_ERR_UNSUPPORTED and the message lists
// those that are. Every kernel uses the code of this one set. Close with
// backend->operations->close(backend).
bd_status bd_backend_open_cpu(bd_backend **backend, int n_threads, bd_error *err);
bd_status bd_backend_open_cpu_isa(bd_backend **backend, int n_threads, bd_cpu_isa isa,
                                  bd_error *err);

#endif
