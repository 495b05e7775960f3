// OLMo 2: norms after both blocks, and of queries and keys over the width of all heads.
#include "trainer/model/llama_names.h"

static const bd_config_field olmo2_fields[] = {
    BD_LLAMA_FIELDS(OPTIONAL, OPTIONAL, 1e-5, 1e4, false),
    BD_LLAMA_SILU,
    BD_ATTENTION_BIAS,
    {0},
};

const bd_family bd_family_olmo2 = {
    .name = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .fields = olmo2_fields,
    BD_LLAMA_NAMES,
    .query_norm = "self_attn.q_norm",
    .key_norm = "self_attn.k_norm",
    .attention_post_norm = "post_attention_layernorm",
    .feed_forward_post_norm = "post_feedforward_layernorm",
    .norms_whole_width = true,
    .activation = BD_ACTIVATION_SILU,
};
