// A config.json made of any bytes is refused with its name, or is a model: it survives being
// written and read again, and its parameters lie one after the other.
#include <math.h>
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/model/model_config.h"
#include "trainer/model/parameters.h"
#include "trainer/weights/pretrained_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parameters(const bd_model_config *config)
{
    bd_parameters parameters;
    if (bd_parameters_init(&parameters, config, NULL) != BD_OK)
        return;  // too large
    bd_pretrained_names names;
    REQUIRE(bd_pretrained_names_init(&names, &parameters, NULL) == BD_OK);
    int64_t end = 0;
    for (size_t i = 0; i < parameters.n; i++) {
        const bd_parameter *p = &parameters.items[i];
        size_t index;
        REQUIRE(p->offset == end && p->n > 0);
        REQUIRE(bd_pretrained_meaning(&names, p->name, &index) == BD_TENSOR_PARAMETER);
        REQUIRE(index == i);
        end += p->n;
    }
    REQUIRE(end == parameters.n_total);
    bd_pretrained_names_release(&names);
    bd_parameters_release(&parameters);
}

// No pair turns faster than the first, by more than a radian, or backwards.
static void check_rotation(const bd_model_config *config)
{
    uint64_t turns[128];
    if (config->family->position_table)
        return;
    REQUIRE(config->head_size <= 256);
    bd_rotation_turns(&config->rotation, config->head_size, turns);
    for (int64_t i = 0; i < config->head_size / 2; i++)
        REQUIRE(turns[i] <= UINT64_C(1) << 62);
    REQUIRE(isfinite(bd_rotation_scale(&config->rotation)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bd_model_config config, again;
    bd_error err = {0};
    memory_file_set(data, size);
    if (bd_model_config_read(&config, memory_file_path(), &err) != BD_OK) {
        REQUIRE(strstr(err.message, memory_file_path()));
        return 0;
    }
    REQUIRE(bd_model_config_complete(&config, NULL) == BD_OK);
    bd_json *json = bd_model_config_to_json(&config);
    REQUIRE(bd_model_config_from_json(&again, json, NULL) == BD_OK);
    REQUIRE(memcmp(&config, &again, sizeof config) == 0);
    bd_json_free(json);
    check_parameters(&config);
    check_rotation(&config);
    return 0;
}
