// Kernels are compiled with -fsanitize=alignment, whatever the build: a vector load from an
// address that a GPU would refuse must not pass because the host's processor is generous. This
// is the function that such code calls, so that no sanitizer's runtime is needed. Weak, because
// a program that is linked with clang's runtime has its own. gcc also checks copies of whole
// vectors, clang only their members.
#include "tests/emulation/device.h"

namespace
{

// As the compilers lay it out.
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
