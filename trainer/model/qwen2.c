// Qwen 2 and 2.5: Llama with biases of queries, keys and values.
#include "trainer/model/llama_names.h"

static const bd_config_field qwen2_fields[] = {
    BD_LLAMA_FIELDS(NUMBER, OPTIONAL, 1e-6, 1e4, false),
    BD_LLAMA_SILU,
    {0},
};

const bd_family bd_family_qwen2 = {
    .name = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .fields = qwen2_fields,
    BD_LLAMA_NAMES,
    BD_LLAMA_NORMS,
    .qkv_bias = true,
    .activation = BD_ACTIVATION_SILU,
    .windows = BD_WINDOWS_LATER,
};
