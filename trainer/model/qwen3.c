// Qwen 3 (dense): Llama with norms of each head's queries and keys.
#include "trainer/model/llama_names.h"

static const bd_config_field qwen3_fields[] = {
    BD_LLAMA_FIELDS(NUMBER, NUMBER, 1e-6, 1e4, false),
    BD_LLAMA_SILU,
    BD_ATTENTION_BIAS,
    {0},
};

const bd_family bd_family_qwen3 = {
    .name = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .fields = qwen3_fields,
    BD_LLAMA_NAMES,
    BD_LLAMA_NORMS,
    .query_norm = "self_attn.q_norm",
    .key_norm = "self_attn.k_norm",
    .activation = BD_ACTIVATION_SILU,
    .windows = BD_WINDOWS_LATER,
};
