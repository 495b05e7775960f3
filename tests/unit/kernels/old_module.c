// A module of an older build, for module_test.c.
#include <stdlib.h>

#include "kernels/module.h"

#ifdef BINDERY_OLD_MODULE
const bd_module_abi bd_cuda_module_abi = {0, sizeof(bd_operations), 0};
#endif

bd_status bd_backend_open_cuda(bd_backend **backend, const bd_cuda_settings *settings,
                               bd_error *err)
{
    (void)backend;
    (void)settings;
    (void)err;
    abort();  // it was called although it must not be
}
