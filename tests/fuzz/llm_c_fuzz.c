// An llm.c file made of any bytes is refused, or its documents are the same in slices of any
// size and contain every token.
//
// byte 0       tokens of a slice, minus one
//   bytes 1, 2   the end-of-text token's id
// byte 3       0: the rest is the file; otherwise its last bit chooses the version, and
//              the rest is the file's ids
#include "tests/fuzz/token_file_slices.h"

#include "packer/input/llm_c.c"  // NOLINT(bugprone-suspicious-include)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Makes a file with a valid header for `n` bytes of ids, so that most inputs get past it.
static uint8_t *with_header(int kind, const uint8_t *ids, size_t n, size_t *size_bytes)
{
    const size_t id_bytes = (size_t)llm_c_kinds[kind].id_bytes;
    const int32_t n_ids = (int32_t)(n / id_bytes);
    *size_bytes = LLM_C_HEADER_BYTES + (size_t)n_ids * id_bytes;
    uint8_t *file = calloc(*size_bytes, 1);
    REQUIRE(file);
    memcpy(file, &llm_c_kinds[kind].magic, 4);
    memcpy(file + 4, &llm_c_kinds[kind].version, 4);
    memcpy(file + 8, &n_ids, 4);
    memcpy(file + LLM_C_HEADER_BYTES, ids, (size_t)n_ids * id_bytes);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    const int64_t slice = 1 + data[0], end_of_text = data[1] + 256 * data[2];
    const int choice = data[3];
    uint8_t *made = NULL;
    ids_bytes = (heap_file){data + 4, size - 4};
    if (choice != 0) {
        made = with_header(choice & 1, data + 4, size - 4, &ids_bytes.size_bytes);
        ids_bytes.data = made;
    }
    check_slices("fuzz.bin", &bd_llm_c_layout, end_of_text, slice);
    free(made);
    return 0;
}
