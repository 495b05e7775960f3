// A Megatron pair made of any bytes is refused, or its documents are the same in slices of any
// size and contain every token.
//
// byte 0       documents of a slice, minus one
// bytes 1, 2   bytes of the .idx, if there are that many; the rest is the .bin
#include "tests/fuzz/token_file_slices.h"

#include "packer/input/megatron.c"  // NOLINT(bugprone-suspicious-include)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    const int64_t slice = 1 + data[0];
    size_t n_index = data[1] + 256u * data[2];
    data += 3;
    size -= 3;
    if (n_index > size)
        n_index = size;
    index_bytes = (heap_file){data, n_index};
    ids_bytes = (heap_file){data + n_index, size - n_index};
    check_slices("fuzz.bin", &bd_megatron_layout, 0, slice);
    return 0;
}
