// A model of any family beside a model.safetensors with any header is refused, and the message
// names the file; or every parameter has the values of the one tensor that is called so, and every
// other tensor is a head that equals the token table or a buffer.
//
// byte 0      the first byte of the data
// byte 1      the difference from each byte of the data to the next
// bytes 2, 3  bytes of data
// the rest    config.json in one line, then the header of the tensors
#include <math.h>
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/model/parameters.h"
#include "trainer/weights/pretrained.h"
#include "trainer/weights/pretrained_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool read_config(bd_model_config *config, const char *text, size_t size_bytes)
{
    bd_json *json;
    if (bd_json_parse(text, size_bytes, &json, NULL) != BD_OK)
        return false;
    const bd_status status = bd_model_config_from_json(config, json, NULL);
    bd_json_free(json);
    return status == BD_OK;
}

static void set_tensors(const uint8_t *numbers, const char *header, size_t header_bytes)
{
    static uint8_t bytes[1 << 17];
    const uint64_t length = header_bytes;
    const size_t data_bytes = numbers[2] + 256u * numbers[3];
    REQUIRE(sizeof length + header_bytes + data_bytes <= sizeof bytes);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + sizeof length, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[sizeof length + header_bytes + i] = (uint8_t)(numbers[0] + i * numbers[1]);
    memory_file_set(bytes, sizeof length + header_bytes + data_bytes);
}

// Whether `tensor` is a name of the parameter: with one of the family's prefixes in place of ours.
static bool is_called(const bd_family *family, const char *parameter, const char *tensor)
{
    if (strcmp(parameter, BD_HEAD_NAME) == 0)
        return strcmp(tensor, parameter) == 0;
    const char *rest = parameter + strlen(family->prefixes[0]);
    for (const char *const *prefix = family->prefixes; *prefix; prefix++) {
        const size_t n = strlen(*prefix);
        if (strncmp(tensor, *prefix, n) == 0 && strcmp(tensor + n, rest) == 0)
            return true;
    }
    return false;
}

static bool is_buffer(const bd_family *family, const char *tensor)
{
    for (const char *const *buffer = family->buffers; *buffer; buffer++)
        if (strstr(tensor, *buffer))
            return true;
    return false;
}

// Looks for the parameters' tensors by another way than the reader.
static void check_weights(const bd_safetensors *file, const bd_parameters *parameters,
                          const float *weights)
{
    const bd_family *family = parameters->config.family;
    size_t n_used = 0;
    for (size_t i = 0; i < bd_safetensors_count(file); i++) {
        const bd_tensor_view *view = bd_safetensors_at(file, i);
        size_t n_parameters = 0;
        for (size_t p = 0; p < parameters->n; p++) {
            const bd_parameter *parameter = &parameters->items[p];
            const bool is_tied_head =
                p == 0 && !parameters->config.has_head && !strcmp(view->name, BD_HEAD_NAME);
            if (!is_tied_head && !is_called(family, parameter->name, view->name))
                continue;
            float *values = malloc((size_t)parameter->n * sizeof *values);
            REQUIRE(values && view->n == parameter->n);
            REQUIRE(bd_safetensors_convert(file, view->name, parameter->n_dimensions,
                                           parameter->shape, values, NULL) == BD_OK);
            REQUIRE(memcmp(values, weights + parameter->offset,
                           (size_t)parameter->n * sizeof *values) == 0);
            free(values);
            n_parameters++;
            n_used += !is_tied_head;
        }
        REQUIRE(n_parameters == 1 || (n_parameters == 0 && is_buffer(family, view->name)));
    }
    REQUIRE(n_used == parameters->n);
    for (int64_t i = 0; i < parameters->n_total; i++)
        REQUIRE(isfinite(weights[i]));
}

// The reader promises that a file without the weights is refused before memory is needed for them.
static void check_folder(const char *folder, const bd_parameters *parameters)
{
    bd_error err = {0};
    if (bd_pretrained_read(folder, parameters, NULL, &err) != BD_OK) {
        REQUIRE(strstr(err.message, folder));
        return;
    }
    float *weights = malloc((size_t)parameters->n_total * sizeof *weights);
    REQUIRE(weights);
    if (bd_pretrained_read(folder, parameters, weights, &err) == BD_OK) {
        bd_pretrained_files files;
        REQUIRE(bd_pretrained_files_open(&files, folder, NULL) == BD_OK && files.n == 1);
        check_weights(files.items[0], parameters, weights);
        bd_pretrained_files_close(&files);
    } else {
        REQUIRE(strstr(err.message, folder));
    }
    free(weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *folder;
    if (!folder)
        folder = folder_with(BD_PRETRAINED_TENSORS);
    if (size < 4)
        return 0;
    const char *line = (const char *)data + 4, *end = memchr(line, '\n', size - 4);
    bd_model_config config;
    if (!end || !read_config(&config, line, (size_t)(end - line)))
        return 0;
    bd_parameters parameters;
    if (bd_parameters_init(&parameters, &config, NULL) != BD_OK)
        return 0;  // too large
    set_tensors(data, end + 1, size - 4 - (size_t)(end + 1 - line));
    check_folder(folder, &parameters);
    bd_parameters_release(&parameters);
    return 0;
}
