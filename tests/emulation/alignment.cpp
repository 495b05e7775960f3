// Kernels are compiled with -fsanitize=alignment in every build: the host's processor accepts
// vector loads from addresses that a GPU would refuse, so these must be found. Such code calls
// this function, so that no sanitizer's runtime is needed. It is weak, because a program that
// is linked with clang's runtime has its own. gcc also checks copies of whole vectors, clang
// only accesses to their members.
#include "tests/emulation/device.h"

namespace
{

// The compilers' layout.
struct TypeMismatch {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment;
    unsigned char kind_of_access;
};

}  // namespace

extern "C" __attribute__((weak)) void __ubsan_handle_type_mismatch_v1_abort(void *data,
                                                                            void *address)
{
    const TypeMismatch *mismatch = static_cast<const TypeMismatch *>(data);
    emulation::fatal({mismatch->file, static_cast<int>(mismatch->line)},
                     "misaligned access: address %p, where a multiple of %u is needed", address,
                     1u << mismatch->log_alignment);
}
