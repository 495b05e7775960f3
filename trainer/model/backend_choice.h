// backend_choice.h - which backend a command computes on, as its options say.
#ifndef BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H
#define BINDERY_TRAINER_MODEL_BACKEND_CHOICE_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/model/model_config.h"

typedef enum bd_backend_choice {
    BD_BACKEND_AUTO,  // cuda if it can be had, else cpu
    BD_BACKEND_CPU,
    BD_BACKEND_CUDA,
} bd_backend_choice;

extern const char *const bd_backend_choice_words[];  // in the order of the enum, ended by NULL

// Which vector code the CPU's kernels take: from BD_ISA_BASELINE on, as bd_cpu_isa.
typedef enum bd_isa_choice {
    BD_ISA_AUTO,  // the best that there is
    BD_ISA_BASELINE,
    BD_ISA_AVX2,
    BD_ISA_AVX512,
} bd_isa_choice;
_Static_assert(BD_ISA_AVX512 - BD_ISA_BASELINE + 1 == BD_CPU_N_ISA, "one word for each");

extern const char *const bd_isa_choice_words[];  // likewise

extern const char *const bd_precision_words[];  // of bd_type, likewise

// Opens it. `module` is the path of the CUDA module, or NULL for the one that was installed
// with the program; `device` is for CUDA (the first if there is none of that number: a launcher
// may show each process its own device alone), `n_threads` for the CPU. An instruction set, if
// one was asked for, is one for the CPU, also with BD_BACKEND_AUTO. Where cuda or an instruction
// set was asked for and cannot be had, the message says why. Close with
// backend->operations->close(backend).
bd_status bd_backend_open_choice(bd_backend **backend, bd_backend_choice choice,
                                 const char *module, bd_isa_choice isa, int32_t device,
                                 int n_threads, bd_error *err);

// What to compute in.
typedef enum bd_precision_choice {
    BD_PRECISION_AUTO,
    BD_PRECISION_FLOAT,
    BD_PRECISION_BF16,
} bd_precision_choice;

extern const char *const bd_precision_choice_words[];  // in the order of the enum

// The type that was chosen for a model of this shape. BD_PRECISION_AUTO takes `usual` if the
// backend computes such a model in it, and else float: then `why` has the reason as its message,
// which is empty otherwise.
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

// The options, for a command's table of settings with fields `backend`, `backend_module`, `isa`
// and `precision`, a bd_type: for what is measured or proved of one type.
#define BD_BACKEND_OPTIONS(settings) \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_words, "float", "What to compute in; ")

// The same with a bd_precision_choice; `of_auto` says what it takes.
#define BD_AUTO_BACKEND_OPTIONS(settings, of_auto)                     \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_choice_words, "auto", \
                          "What to compute in; auto takes " of_auto "; ")

#endif
