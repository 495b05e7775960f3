#include "trainer/model/backend_choice.h"

#include <stddef.h>

#include "kernels/module.h"
#include "trainer/model/model.h"

BD_ENUM_NAMES(bd_backend_choice, BD_BACKEND_CHOICES);
BD_ENUM_NAMES(bd_isa_choice, BD_ISA_CHOICES);
const char *const bd_precision_names[] = {"float", "bf16", NULL};
BD_ENUM_NAMES(bd_precision_choice, BD_PRECISION_CHOICES);

bd_status bd_backend_open_choice(bd_backend **backend, bd_backend_choice choice,
                                 const char *module, bd_isa_choice isa, int32_t device,
                                 int n_threads, bd_error *err)
{
    const bd_cuda_settings own = {.device = device}, first = {.device = 0};
    bd_status status;
    if (isa != BD_ISA_AUTO && choice == BD_BACKEND_CUDA)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--isa %s is for the CPU: leave it out, or give --backend cpu",
                       bd_isa_choice_names[isa]);
    if (isa != BD_ISA_AUTO) {
        status = bd_backend_open_cpu_isa(backend, n_threads,
                                         (bd_cpu_isa)(isa - BD_ISA_BASELINE), err);
        return status == BD_OK
                   ? BD_OK
                   : bd_error_prefix(err, status, "--isa %s", bd_isa_choice_names[isa]);
    }
    if (choice == BD_BACKEND_CPU)
        return bd_backend_open_cpu(backend, n_threads, err);
    status = bd_backend_open_module(backend, module, &own, err);
    if (status == BD_ERR_ARGUMENT && device > 0)
        status = bd_backend_open_module(backend, module, &first, err);
    // Fall back to the CPU only if there is no CUDA at all: a module that the user named, or a
    // device that fails, must be reported.
    if (choice == BD_BACKEND_AUTO && !module && status == BD_ERR_UNSUPPORTED)
        return bd_backend_open_cpu(backend, n_threads, err);
    return status == BD_OK ? BD_OK
                           : bd_error_suffix(err, status, "--backend cpu needs no device");
}

bd_type bd_precision_settle(bd_precision_choice choice, bd_type usual,
                            const bd_backend *backend, const bd_model_config *config,
                            bd_error *why)
{
    *why = (bd_error){0};
    if (choice != BD_PRECISION_AUTO)
        return choice == BD_PRECISION_BF16 ? BD_BF16 : BD_FLOAT;
    return bd_model_check_type(backend, config, usual, why) == BD_OK ? usual : BD_FLOAT;
}
