// llama_names.h - what the families that follow Llama have in common: names, fields, layout.
#ifndef BINDERY_TRAINER_MODEL_LLAMA_NAMES_H
#define BINDERY_TRAINER_MODEL_LLAMA_NAMES_H

#include "trainer/model/model_config.h"

// The fields of config.json. Families differ in whether the numbers of key heads and of channels in
// a head may be left out (OPTIONAL) or not (NUMBER), and in the values of the others if they are.
#define BD_LLAMA_FIELDS(kv_heads, head_size_, epsilon, theta_, tied)               \
    {"vocab_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_vocabulary)},                 \
        {"num_hidden_layers", BD_FIELD_READ, BD_CONFIG_NUMBER(n_layers)},          \
        {"hidden_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_channels)},              \
        {"num_attention_heads", BD_FIELD_READ, BD_CONFIG_NUMBER(n_heads)},         \
        {"num_key_value_heads", BD_FIELD_READ, BD_CONFIG_##kv_heads(n_kv_heads)},  \
        {"head_dim", BD_FIELD_READ, BD_CONFIG_##head_size_(head_size)},            \
        {"intermediate_size", BD_FIELD_READ, BD_CONFIG_NUMBER(n_feed_forward)},    \
        {"max_position_embeddings", BD_FIELD_READ, BD_CONFIG_NUMBER(n_positions)}, \
        {"rms_norm_eps", BD_FIELD_READ, BD_CONFIG_MEASURE(norm_epsilon, epsilon)}, \
        {"rope_theta", BD_FIELD_READ, BD_CONFIG_MEASURE(rotation.theta, theta_)},  \
        {"tie_word_embeddings", BD_FIELD_READ, BD_CONFIG_TIED(tied)},              \
        {"partial_rotary_factor", BD_FIELD_IMPLIED, BD_CONFIG_REAL(1.0)},          \
    {                                                                              \
        "attention_dropout", BD_FIELD_EXPORTED, BD_CONFIG_REAL(0.0)                \
    }

// Fields that not all of them have: biases of q, k, v and the projection, and of the feed-forward
// block.
#define BD_ATTENTION_BIAS                                                        \
    {                                                                            \
        "attention_bias", BD_FIELD_READ, BD_CONFIG_SWITCH(attention_bias, false) \
    }
#define BD_MLP_BIAS                                                           \
    {                                                                         \
        "mlp_bias", BD_FIELD_READ, BD_CONFIG_SWITCH(feed_forward_bias, false) \
    }
#define BD_LLAMA_SILU                                        \
    {                                                        \
        "hidden_act", BD_FIELD_FIXED, BD_CONFIG_TEXT("silu") \
    }

// Everything but norms.
#define BD_LLAMA_NAMES                                                                  \
    .prefixes = {"model.", ""}, .layers = "layers", .token_table = "embed_tokens",      \
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},                \
    .projection = "self_attn.o_proj", .gate = "mlp.gate_proj", .expand = "mlp.up_proj", \
    .contract = "mlp.down_proj", .final_norm = "norm",                                  \
    .buffers = {"self_attn.rotary_emb.inv_freq"}, .layout = BD_WEIGHT_OUT_IN

// Norms before both blocks.
#define BD_LLAMA_NORMS \
    .attention_norm = "input_layernorm", .feed_forward_norm = "post_attention_layernorm"

#endif
