#include "trainer/backend_choice.h"

#include <stddef.h>

#include "kernels/module.h"
#include "trainer/model.h"

const char *const bd_backend_choice_words[] = {"auto", "cpu", "cuda", NULL};
const char *const bd_precision_words[] = {"float", "bf16", NULL};
const char *const bd_precision_choice_words[] = {"auto", "float", "bf16", NULL};

bd_status bd_backend_open_choice(bd_backend **backend, bd_backend_choice choice,
                                 const char *module, int32_t device, int n_threads,
                                 bd_error *err)
{
    const bd_cuda_settings own = {.device = device}, first = {.device = 0};
    if (choice == BD_BACKEND_CPU)
        return bd_backend_open_cpu(backend, n_threads, err);
    bd_status status = bd_backend_open_module(backend, module, &own, err);
    if (status == BD_ERR_ARGUMENT && device > 0)
        status = bd_backend_open_module(backend, module, &first, err);
    // A module that was named, or a device that fails, is not passed over in silence.
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
