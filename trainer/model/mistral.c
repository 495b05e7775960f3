// Mistral: Llama's mathematics, with a window in every layer of the first models.
#include "trainer/model/llama_names.h"

static const bd_config_field mistral_fields[] = {
    BD_LLAMA_FIELDS(NUMBER, OPTIONAL, 1e-6, 1e4, false),
    BD_LLAMA_SILU,
    {0},
};

const bd_family bd_family_mistral = {
    .name = "mistral",
    .architecture = "MistralForCausalLM",
    .fields = mistral_fields,
    BD_LLAMA_NAMES,
    BD_LLAMA_NORMS,
    .activation = BD_ACTIVATION_SILU,
    .windows = BD_WINDOWS_ALL,
};
