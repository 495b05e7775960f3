// backend_choice.h - which backend a command computes on, as its options say.
#ifndef BINDERY_TRAINER_BACKEND_CHOICE_H
#define BINDERY_TRAINER_BACKEND_CHOICE_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/backend.h"
#include "trainer/model_config.h"

typedef enum bd_backend_choice {
    BD_BACKEND_AUTO,  // cuda if it can be had, else cpu
    BD_BACKEND_CPU,
    BD_BACKEND_CUDA,
} bd_backend_choice;

extern const char *const bd_backend_choice_words[];  // in the order of the enum, ended by NULL

extern const char *const bd_precision_words[];  // of bd_type, likewise

// Opens it. `module` is the path of the CUDA module, or NULL for the one that was installed
// with the program; `device` is for CUDA (the first if there is none of that number: a launcher
// may show each process its own device alone), `n_threads` for the CPU. Where cuda was asked
// for and cannot be had, the message says why. Close with backend->operations->close(backend).
bd_status bd_backend_open_choice(bd_backend **backend, bd_backend_choice choice,
                                 const char *module, int32_t device, int n_threads,
                                 bd_error *err);

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
        {.name = "precision",                                                            \
         .value = "TYPE",                                                                \
         BD_CHOICE(settings, precision, words),                                          \
         .initial = (usual),                                                             \
         .help = of_precision "bf16 needs cuda and keeps float master weights"},         \
    {                                                                                    \
        .name = "backend-module", .value = "FILE", BD_FILE(settings, backend_module),    \
        .initial_note = "the one that is installed", .help = "The CUDA backend's module" \
    }

// The options, for a command's table of settings with fields `backend`, `backend_module` and
// `precision`, a bd_type: for what is measured or proved of one type.
#define BD_BACKEND_OPTIONS(settings) \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_words, "float", "What to compute in; ")

// The same with a bd_precision_choice; `of_auto` says what it takes.
#define BD_AUTO_BACKEND_OPTIONS(settings, of_auto)                     \
    BD_BACKEND_OPTIONS_OF(settings, bd_precision_choice_words, "auto", \
                          "What to compute in; auto takes " of_auto "; ")

#endif
