// backend_choice.h - the options that choose a backend and a precision.
#ifndef BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H
#define BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H

#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/model/model_config.h"

#define BD_BACKEND_CHOICES(X)                                          \
    X(BD_BACKEND_AUTO, "auto") /* cuda if it is available, else cpu */ \
    X(BD_BACKEND_CPU, "cpu")                                           \
    X(BD_BACKEND_CUDA, "cuda")
BD_ENUM(bd_backend_choice, BD_BACKEND_CHOICES);

// The vector instructions of the CPU's kernels: bd_cpu_isa from BD_ISA_BASELINE on.
#define BD_ISA_CHOICES(X)                                        \
    X(BD_ISA_AUTO, "auto") /* the best that the processor has */ \
    X(BD_ISA_BASELINE, "baseline")                               \
    X(BD_ISA_AVX2, "avx2")                                       \
    X(BD_ISA_AVX512, "avx512")
BD_ENUM(bd_isa_choice, BD_ISA_CHOICES);
_Static_assert(BD_ISA_AVX512 - BD_ISA_BASELINE + 1 == BD_CPU_N_ISA, "one name for each");

extern const char *const bd_precision_names[];  // of bd_type, ended by NULL

// Opens the chosen backend. `module` is the path of the CUDA module, or NULL for the one that
// was installed with the program. `device` is the number of the CUDA device; if there is no
// such device, the first is taken, because a launcher may show each process only its own.
// `n_threads` is for the CPU. An instruction set implies the CPU, also with BD_BACKEND_AUTO. If
// cuda or an instruction set was asked for and is not available, the message says why. Close
// with backend->operations->close(backend).
bd_status bd_backend_open_choice(bd_backend **backend, bd_backend_choice choice,
                                 const char *module, bd_isa_choice isa, int32_t device,
                                 int n_threads, bd_error *err);

// The type that a model is computed in.
#define BD_PRECISION_CHOICES(X)    \
    X(BD_PRECISION_AUTO, "auto")   \
    X(BD_PRECISION_FLOAT, "float") \
    X(BD_PRECISION_BF16, "bf16")
BD_ENUM(bd_precision_choice, BD_PRECISION_CHOICES);

// Resolves a choice for a model of this shape. BD_PRECISION_AUTO becomes `usual` if the backend
// can compute such a model in it, and float otherwise; `why` then has the reason as its
// message, which is empty in all other cases.
bd_type bd_precision_settle(bd_precision_choice choice, bd_type usual,
                            const bd_backend *backend, const bd_model_config *config,
                            bd_error *why);

#define BD_BACKEND_OPTIONS_OF(settings, names, usual, of_precision)                      \
    {.name = "backend",                                                                  \
     .value = "WHICH",                                                                   \
     BD_CHOICE(settings, backend, bd_backend_choice_names),                              \
     .initial = "auto",                                                                  \
     .help = "Where to compute; auto takes cuda if there is a device"},                  \
        {.name = "isa",                                                                  \
         .value = "SET",                                                                 \
         BD_CHOICE(settings, isa, bd_isa_choice_names),                                  \
         .initial = "auto",                                                              \
         .help = "Vector instructions that the CPU's kernels use; auto takes the best"}, \
        {.name = "precision",                                                            \
         .value = "TYPE",                                                                \
         BD_CHOICE(settings, precision, names),                                          \
         .initial = (usual),                                                             \
         .help = of_precision "bf16 needs cuda and keeps float master weights"},         \
    {                                                                                    \
        .name = "backend-module", .value = "FILE", BD_FILE(settings, backend_module),    \
        .initial_note = "the one that is installed", .help = "The CUDA backend's module" \
    }

// The options for a table of settings with the fields `backend`, `backend_module`, `isa` and
// `precision`, which is a bd_type: for commands that measure or prove one type.
#define BD_BACKEND_OPTIONS(settings) \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_names, "float", "What to compute in; ")

// The same options with a bd_precision_choice; `of_auto` says what auto takes.
#define BD_AUTO_BACKEND_OPTIONS(settings, of_auto)                     \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_choice_names, "auto", \
                          "What to compute in; auto takes " of_auto "; ")

#endif
