// backend.h - the table of operations. The trainer opens a backend once and never names one
// again.
//
// A backend is one folder (cpu/, cuda/) that fills this table. Contracts, shapes and
// meaning of each operation are in its own header and are the same for every backend:
//   - padding gives and gets exact zeros;
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
    bool works_on_host;  // its memory is the host's: arguments may point anywhere
    bool computes_bf16;  // takes tensors of BD_BF16, not of BD_FLOAT alone

    // Memory of the backend, filled with zeros; NULL-safe free.
    bd_status (*allocate)(bd_backend *, size_t size_bytes, void **memory, bd_error *err);
    void (*release)(bd_backend *, void *memory);
    // How many bytes could still be allocated; SIZE_MAX if that is not known.
    bd_status (*free_memory)(bd_backend *, size_t *size_bytes, bd_error *err);
    // Between host and backend memory; done on return.
    bd_status (*upload)(bd_backend *, void *to, const void *from, size_t size_bytes,
                        bd_error *err);
    bd_status (*download)(bd_backend *, void *to, const void *from, size_t size_bytes,
                          bd_error *err);
    bd_status (*zero)(bd_backend *, void *memory, size_t size_bytes, bd_error *err);

    // A batch travels to the backend while the one before it is computed. Batches take the
    // BD_TRANSFER_SLOTS transfer slots in turn. For each batch: send() all of its parts; arrive(),
    // so that operations queued from then on see them; queue the operations that read them; and
    // leave(), which says that no later operation does. send() has read `from` when it returns. It
    // waits for the slot's last leave(), but not for anything queued after that. If a call
    // between send() and leave() fails, the slot may still be read: close the backend.
    bd_status (*send)(bd_backend *, int slot, void *to, const void *from, size_t size_bytes,
                      bd_error *err);
    bd_status (*arrive)(bd_backend *, int slot, bd_error *err);
    bd_status (*leave)(bd_backend *, int slot, bd_error *err);
    void (*close)(bd_backend *);

    // Exchanges of the backend's memory among ranks; NULL where that is the host's, which
    // others can exchange. An id is made by one rank and handed to all, each of which then
    // opens the collectives of the run, at the same time. Close them before the backend.
    bd_status (*make_collectives_id)(bd_backend *, bd_collectives_id *id, bd_error *err);
    bd_status (*open_collectives)(bd_backend *, const bd_collectives_id *id, int32_t rank,
                                  int32_t n_ranks, bd_collectives **collectives, bd_error *err);

    // The operations of the list: queued on the backend's stream (cuda) or done on return (cpu).
    // All pointers in the arguments are the backend's memory unless the header says host memory.
#define BD_OPERATION(name) \
    bd_status (*name)(bd_backend *, const bd_##name##_args *, bd_error *);
    BD_FOR_EACH_OPERATION(BD_OPERATION)
#undef BD_OPERATION
} bd_operations;

// Every backend's own struct begins with this.
struct bd_backend {
    const bd_operations *operations;
};

// Whether the backend takes tensors of this type.
static inline bd_status bd_backend_check_type(const bd_backend *backend, bd_type type,
                                              bd_error *err)
{
    if (type == BD_FLOAT || backend->operations->computes_bf16)
        return BD_OK;
    return bd_fail(err, BD_ERR_UNSUPPORTED, "the %s backend computes in float only",
                   backend->operations->name);
}

// ---- The CPU backend ------------------------------------------------------------------------

// Each has vector code of its own, which sums in an order of its own: other bits, the same bounds.
typedef enum bd_cpu_isa {
    BD_CPU_ISA_BASELINE,  // what the compiler assumes of every machine
    BD_CPU_ISA_AVX2,      // x86-64-v3: AVX2 and FMA
    BD_CPU_ISA_AVX512,    // x86-64-v4; matrix products by the BLAS
    BD_CPU_N_ISA,
} bd_cpu_isa;

// The best that this machine and this build have; they have those before it, too.
bd_cpu_isa bd_cpu_isa_best(void);

// "baseline", "avx2", "avx512".
const char *bd_cpu_isa_name(bd_cpu_isa isa);

// The CPU backend on `n_threads` threads, with the best instruction set or with a given one
// (BD_ERR_UNSUPPORTED if it is not there: the message says which are). No kernel takes the code of
// another one. Close with backend->operations->close(backend).
bd_status bd_backend_open_cpu(bd_backend **backend, int n_threads, bd_error *err);
bd_status bd_backend_open_cpu_isa(bd_backend **backend, int n_threads, bd_cpu_isa isa,
                                  bd_error *err);

#endif
