// OPT. Its position table begins with two rows that no token uses.
#include "trainer/model/model_config.h"

static const bd_config_field opt_fields[] = {
    {"vocab_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_vocabulary)},
    {"num_hidden_layers", BD_FIELD_READ, BD_CONFIG_NUMBER(n_layers)},
    {"hidden_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_channels)},
    {"num_attention_heads", BD_FIELD_READ, BD_CONFIG_NUMBER(n_heads)},
    {"ffn_dim", BD_FIELD_READ, BD_CONFIG_NUMBER(n_feed_forward)},
    {"max_position_embeddings", BD_FIELD_READ, BD_CONFIG_NUMBER(n_positions)},
    {"tie_word_embeddings", BD_FIELD_FIXED, BD_CONFIG_BOOL(true)},
    {"do_layer_norm_before", BD_FIELD_FIXED, BD_CONFIG_BOOL(true)},
    {"word_embed_proj_dim", BD_FIELD_FIXED, BD_CONFIG_NUMBER(n_channels)},
    {"activation_function", BD_FIELD_FIXED, BD_CONFIG_TEXT("relu")},
    {"enable_bias", BD_FIELD_IMPLIED, BD_CONFIG_BOOL(true)},
    {"layer_norm_elementwise_affine", BD_FIELD_IMPLIED, BD_CONFIG_BOOL(true)},
    {"_remove_final_layer_norm", BD_FIELD_IMPLIED, BD_CONFIG_BOOL(false)},
    {"dropout", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {"attention_dropout", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {"layerdrop", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)},
    {0},
};

const bd_family bd_family_opt = {
    .name = "opt",
    .architecture = "OPTForCausalLM",
    .fields = opt_fields,
    .prefixes = {"model.decoder.", "decoder.", ""},
    .layers = "layers",
    .token_table = "embed_tokens",
    .position_table = "embed_positions",
    .attention_norm = "self_attn_layer_norm",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .projection = "self_attn.out_proj",
    .feed_forward_norm = "final_layer_norm",
    .expand = "fc1",
    .contract = "fc2",
    .final_norm = "final_layer_norm",
    .layout = BD_WEIGHT_OUT_IN,
    .first_position = 2,
    .norm_epsilon = 1e-5,
    .activation = BD_ACTIVATION_RELU,
};
