// GPT-2. Its matrices lie transposed (Conv1D), and old files store the causal masks as well.
#include "trainer/model/model_config.h"

static const bd_config_field gpt2_fields[] = {
    {"vocab_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_vocabulary)},
    {"n_layer", BD_FIELD_READ, BD_CONFIG_NUMBER(n_layers)},
    {"n_embd", BD_FIELD_READ, BD_CONFIG_NUMBER(n_channels)},
    {"n_head", BD_FIELD_READ, BD_CONFIG_NUMBER(n_heads)},
    {"n_inner", BD_FIELD_READ, BD_CONFIG_NUMBER(n_feed_forward), .default_channels = 4},
    {"n_positions", BD_FIELD_READ, BD_CONFIG_NUMBER(n_positions)},
    {"tie_word_embeddings", BD_FIELD_FIXED, BD_CONFIG_BOOL(true)},
    {"activation_function", BD_FIELD_FIXED, BD_CONFIG_TEXT("gelu_new")},
    {"scale_attn_weights", BD_FIELD_IMPLIED, BD_CONFIG_BOOL(true)},
    {"scale_attn_by_inverse_layer_idx", BD_FIELD_IMPLIED, BD_CONFIG_BOOL(false)},
    {"layer_norm_epsilon", BD_FIELD_IMPLIED, BD_CONFIG_REAL(1e-5)},
    {"resid_pdrop", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {"attn_pdrop", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {"embd_pdrop", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {0},
};

const bd_family bd_family_gpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .fields = gpt2_fields,
    .prefixes = {"transformer.", ""},
    .layers = "h",
    .token_table = "wte",
    .position_table = "wpe",
    .attention_norm = "ln_1",
    .qkv = {"attn.c_attn"},
    .projection = "attn.c_proj",
    .feed_forward_norm = "ln_2",
    .expand = "mlp.c_fc",
    .contract = "mlp.c_proj",
    .final_norm = "ln_f",
    .buffers = {"attn.bias", "attn.masked_bias"},
    .layout = BD_WEIGHT_IN_OUT,
    .first_position = 0,
    .norm_epsilon = 1e-5,
    .activation = BD_ACTIVATION_GELU,
    .scales_residual = true,
};
