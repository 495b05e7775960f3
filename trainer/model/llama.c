// Llama 2 and 3, TinyLlama, SmolLM2 and the many models of their form.
#include "trainer/model/llama_names.h"

static const bd_config_field llama_fields[] = {
    BD_LLAMA_FIELDS(OPTIONAL, OPTIONAL, 1e-6, 1e4, false),
    BD_LLAMA_SILU,
    BD_ATTENTION_BIAS,
    BD_MLP_BIAS,
    {0},
};

const bd_family bd_family_llama = {
    .name = "llama",
    .architecture = "LlamaForCausalLM",
    .fields = llama_fields,
    BD_LLAMA_NAMES,
    BD_LLAMA_NORMS,
    .activation = BD_ACTIVATION_SILU,
};
