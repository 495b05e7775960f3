// backend_choice.h - the options that choose a backend and a precision.
#ifndef BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H
#define BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/model/model_config.h"

typedef enum bd_backend_choice {
    BD_BACKEND_AUTO,  // cuda if it is available, else cpu
    BD_BACKEND_CPU,
    BD_BACKEND_CUDA,
} bd_backend_choice;

extern const char *const bd_backend_choice_words[];  // in the order of the enum, ended by NULL

// The vector instructions of the CPU's kernels: bd_cpu_isa from BD_ISA_BASELINE on.
typedef enum bd_isa_choice {
    BD_ISA_AUTO,  // the best that the processor has
    BD_ISA_BASELINE,
    BD_ISA_AVX2,
    BD_ISA_AVX512,
} bd_isa_choice;
_Static_assert(BD_ISA_AVX512 - BD_ISA_BASELINE + 1 == BD_CPU_N_ISA, "one word for each");

extern const char *const bd_isa_choice_words[];  // likewise

extern const char *const bd_precision_words[];  // the names of bd_type, likewise

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
typedef enum bd_precision_choice {
    BD_PRECISION_AUTO,
    BD_PRECISION_FLOAT,
    BD_PRECISION_BF16,
} bd_precision_choice;

extern const char *const bd_precision_choice_words[];  // in the order of the enum

// Resolves a choice for a model of this shape. BD_PRECISION_AUTO becomes `usual` if the backend
// can compute such a model in it, and float otherwise; `why` then has the reason as its
// message, which is empty in all other cases.
bd_type bd_precision_settle(bd_precision_choice choice, bd_type usual,
                            const bd_backend *backend, const bd_model_config *config,
                            bd_error *why);

#define BD_BACKEND_OPTIONS_OF(settings, words, usual, of_precision)                      \
    {.name = "backend",                                                                  \
     .value = "WHICH",                                                                   \
     BD_CHOICE(settings, backend, bd_backend_choice_words),                              \
     .initial = "auto",                                                                  \
     .help = "Where to compute; auto takes cuda if there is a device"},                  \
        {.name = "isa",                                                                  \
         .value = "SET",                                                                 \
         BD_CHOICE(settings, isa, bd_isa_choice_words),                                  \
         .initial = "auto",                                                              \
         .help = "Vector instructions that the CPU's kernels use; auto takes the best"}, \
        {.name = "precision",                                                            \
         .value = "TYPE",                                                                \
         BD_CHOICE(settings, precision, words),                                          \
         .initial = (usual),                                                             \
         .help = of_precision "bf16 needs cuda and keeps float master weights"},         \
    {                                                                                    \
        .name = "backend-module", .value = "FILE", BD_FILE(settings, backend_module),    \
        .initial_note = "the one that is installed", .help = "The CUDA backend's module" \
    }

// The options for a table of settings with the fields `backend`, `backend_module`, `isa` and
// `precision`, which is a bd_type: for commands that measure or prove one type.
#define BD_BACKEND_OPTIONS(settings) \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_words, "float", "What to compute in; ")

// The same options with a bd_precision_choice; `of_auto` says what auto takes.
#define BD_AUTO_BACKEND_OPTIONS(settings, of_auto)                     \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_choice_words, "auto", \
                          "What to compute in; auto takes " of_auto "; ")

#endif
