// A safetensors file made of any bytes is refused with its name, or keeps every promise of its
// header and survives being written and read again.
//
// byte 0      0: the rest is the file; otherwise the rest is its header
// bytes 1, 2  bytes of data after that header
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Makes a header of the right length and some data, so that most inputs get past the length.
static void set_file(const uint8_t *header, size_t n, size_t data_bytes)
{
    static uint8_t bytes[1 << 17];
    const uint64_t length = n;
    REQUIRE(sizeof length + n + data_bytes <= sizeof bytes);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + sizeof length, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[sizeof length + n + i] = (uint8_t)(7 * i);
    memory_file_set(bytes, sizeof length + n + data_bytes);
}

// Reads every byte; returns their number.
static int64_t check_tensor(const bd_safetensors *file, const bd_tensor_view *view)
{
    int64_t n = 1;
    for (int d = 0; d < view->n_dimensions; d++)
        n *= view->shape[d];
    REQUIRE(n == view->n && bd_safetensors_find(file, view->name) == view);
    float *numbers = malloc((size_t)n * sizeof *numbers + 1);
    REQUIRE(numbers);
    const bd_status status = bd_safetensors_convert(file, view->name, view->n_dimensions,
                                                    view->shape, numbers, NULL);
    const bool converts = view->dtype == BD_DTYPE_F32 || view->dtype == BD_DTYPE_F16 ||
                          view->dtype == BD_DTYPE_BF16;
    REQUIRE((status == BD_OK) == converts);
    REQUIRE((bd_safetensors_copy_f32(file, view->name, view->n_dimensions, view->shape, numbers,
                                     NULL) == BD_OK) == (view->dtype == BD_DTYPE_F32));
    free(numbers);
    return n * bd_dtype_bits(view->dtype) / 8;
}

// A tensor that can be written is read again unchanged.
static void check_written(const bd_tensor_view *view)
{
    static const char *folder;
    char path[4096];
    if (!folder)
        folder = new_folder();
    snprintf(path, sizeof path, "%s/again", folder);
    const bd_safetensors_content content = {view, 1, NULL, 0};
    const bool writes = view->dtype == BD_DTYPE_F32 || view->dtype == BD_DTYPE_F64 ||
                        view->dtype == BD_DTYPE_BF16;
    REQUIRE((bd_safetensors_write(path, &content, NULL, NULL) == BD_OK) == writes);
    if (!writes)
        return;
    bd_safetensors *again;
    REQUIRE(bd_safetensors_open(&again, path, NULL) == BD_OK);
    const bd_tensor_view *other = bd_safetensors_find(again, view->name);
    REQUIRE(bd_safetensors_count(again) == 1 && other && other->n == view->n);
    REQUIRE(other->n == 0 || memcmp(other->data, view->data,
                                    (size_t)(view->n * bd_dtype_bits(view->dtype) / 8)) == 0);
    bd_safetensors_close(again);
}

static void check_file(const bd_safetensors *file, size_t size_bytes)
{
    int64_t covered = 0;
    for (size_t i = 0; i < bd_safetensors_count(file); i++) {
        const bd_tensor_view *view = bd_safetensors_at(file, i);
        REQUIRE(i == 0 || strcmp(bd_safetensors_at(file, i - 1)->name, view->name) < 0);
        covered += check_tensor(file, view);
        if (view->data && i < 4)
            check_written(view);
    }
    REQUIRE(covered < (int64_t)size_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    size_t size_bytes = size - 3;
    if (data[0] == 0) {
        memory_file_set(data + 3, size_bytes);
    } else {
        const size_t data_bytes = data[1] + 256u * data[2];
        set_file(data + 3, size - 3, data_bytes);
        size_bytes += sizeof(uint64_t) + data_bytes;
    }
    bd_safetensors *file;
    bd_error err = {0};
    if (bd_safetensors_open(&file, memory_file_path(), &err) == BD_OK)
        check_file(file, size_bytes);
    else
        REQUIRE(!file && strstr(err.message, memory_file_path()));
    bd_safetensors_close(file);
    return 0;
}
