// SmolLM3: Llama with every fourth layer unrotated.
#include "trainer/model/llama_names.h"

static const bd_config_field smollm3_fields[] = {
    BD_LLAMA_FIELDS(NUMBER, OPTIONAL, 1e-6, 2e6, true),
    BD_LLAMA_SILU,
    BD_ATTENTION_BIAS,
    BD_MLP_BIAS,
    {0},
};

const bd_family bd_family_smollm3 = {
    .name = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .fields = smollm3_fields,
    BD_LLAMA_NAMES,
    BD_LLAMA_NORMS,
    .activation = BD_ACTIVATION_SILU,
    .windows = BD_WINDOWS_UNROTATED,
    .has_unrotated_layers = true,
};
