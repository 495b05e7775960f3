// Gemma 3, text only: norms before and after both blocks, gains stored minus 1, GELU, scaled token
// vectors, and windows with a theta of their own in most layers.
#include "trainer/model/llama_names.h"

static const bd_config_field gemma3_text_fields[] = {
    BD_LLAMA_FIELDS(NUMBER, NUMBER, 1e-6, 1e6, true),
    {"query_pre_attn_scalar", BD_FIELD_READ, BD_CONFIG_MEASURE(query_scale, 256),
     .whole = true},
    {"rope_local_base_freq", BD_FIELD_READ, BD_CONFIG_MEASURE(local_theta, 1e4)},
    {"hidden_activation", BD_FIELD_FIXED, BD_CONFIG_TEXT("gelu_pytorch_tanh")},
    BD_ATTENTION_BIAS,
    BD_CONFIG_IGNORED("hidden_act"),  // some files have both
    {0},
};

const bd_family bd_family_gemma3_text = {
    .name = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .fields = gemma3_text_fields,
    BD_LLAMA_NAMES,
    .attention_norm = "input_layernorm",
    .query_norm = "self_attn.q_norm",
    .key_norm = "self_attn.k_norm",
    .attention_post_norm = "post_attention_layernorm",
    .feed_forward_norm = "pre_feedforward_layernorm",
    .feed_forward_post_norm = "post_feedforward_layernorm",
    .gains_from_one = true,
    .activation = BD_ACTIVATION_GELU,
    .scales_tokens = true,
    .windows = BD_WINDOWS_MOST,
    .has_local_rotation = true,
};
