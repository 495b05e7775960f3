"""The models that are exchanged with Hugging Face's transformers: small, random, of awkward sizes.

A name is FAMILY or FAMILY-WHAT_IS_SPECIAL. The fields are those of config.json; what is missing
has the default of transformers. Every model has SHARED, too. The first model of a family is stored
in every way, the others in two.

Where keys have fewer heads than queries, kernels divide the work by the size of the groups: each
family that can have groups has all of GROUPS, and one model whose rotation is scaled.
"""

N_POSITIONS = 33
N_VOCABULARY = 257
GROUPS = (1, 2, 3, 8)  # heads of queries on one of keys
SHARED = {
    "vocab_size": N_VOCABULARY,
    "bos_token_id": N_VOCABULARY - 1,
    "eos_token_id": N_VOCABULARY - 1,
    "pad_token_id": 1,
}


def sizes(
    width: int, n_layers: int, heads: tuple[int, int], hidden: int, epsilon: float = 1e-6
) -> dict:
    """The fields that all families after GPT-2 have; `heads` are those of queries and of keys."""
    return {
        "hidden_size": width,
        "num_hidden_layers": n_layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": hidden,
        "rms_norm_eps": epsilon,
        "max_position_embeddings": N_POSITIONS,
    }


def rotation(kind: str, theta: float, **more: object) -> dict:
    return {"rope_type": kind, "rope_theta": theta, **more}


# Families whose output matrix is the token table unless a field says otherwise.
TIED_BY_DEFAULT = ("opt", "gpt2", "smollm3", "gemma3_text")

# At these lengths each of the scaled rotations has pairs of channels that it leaves alone, pairs
# that it slows down by the whole factor, and pairs between the two.
LLAMA3 = rotation(
    "llama3",
    500.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = rotation("yarn", 100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=2.0)

MODELS = {
    "opt": {
        "hidden_size": 48,
        "word_embed_proj_dim": 48,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "ffn_dim": 100,
        "max_position_embeddings": N_POSITIONS,
    },
    "gpt2": {
        "n_embd": 48,
        "n_head": 3,
        "n_layer": 2,
        "n_inner": 100,
        "n_positions": N_POSITIONS,
    },
    "llama": sizes(48, 2, (3, 3), 100, 1e-4),
    "llama-llama3": sizes(48, 2, (6, 2), 77)
    | {"rope_parameters": LLAMA3, "head_dim": 16, "tie_word_embeddings": True},
    "llama-linear": sizes(40, 3, (4, 2), 33)
    | {
        "rope_parameters": rotation("linear", 1e3, factor=2.5),
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama-yarn": sizes(64, 2, (8, 1), 31) | {"rope_parameters": YARN, "head_dim": 22},
    "llama-yarn_mscale": sizes(48, 1, (3, 1), 100)
    | {
        "rope_parameters": {**YARN, "mscale": 2.0, "mscale_all_dim": 0.5, "truncate": False},
        "head_dim": 20,
    },
    "llama-yarn_factor": sizes(48, 1, (2, 2), 100)
    | {
        "rope_parameters": rotation(
            "yarn",
            1e4,
            factor=2.0,
            original_max_position_embeddings=16,
            attention_factor=0.75,
        ),
    },
    "mistral": sizes(48, 2, (6, 2), 100) | {"sliding_window": 5},
    "mistral-one_key": sizes(24, 2, (2, 1), 50)
    | {"sliding_window": 1, "tie_word_embeddings": True},
    "mistral-no_window": sizes(48, 2, (4, 4), 100) | {"sliding_window": None, "head_dim": 16},
    "mistral-llama3": sizes(32, 1, (8, 1), 77)
    | {"sliding_window": 7, "head_dim": 16, "rope_parameters": LLAMA3},
    "qwen2": sizes(48, 2, (6, 3), 100) | {"tie_word_embeddings": True},
    "qwen2-window": sizes(32, 3, (8, 1), 77)
    | {
        "use_sliding_window": True,
        "sliding_window": 7,
        "max_window_layers": 1,
        "rope_parameters": rotation(
            "yarn", 1e3, factor=2.0, original_max_position_embeddings=16
        ),
    },
    "qwen2-alone": sizes(48, 1, (3, 3), 50),
    "qwen2-threes": sizes(48, 1, (6, 2), 50),
    "qwen3": sizes(48, 2, (4, 2), 100) | {"head_dim": 20, "tie_word_embeddings": True},
    "qwen3-wide_heads": sizes(24, 2, (8, 1), 77, 1e-4)
    | {"head_dim": 32, "attention_bias": True, "rope_parameters": rotation("default", 1e6)},
    "qwen3-window": sizes(48, 4, (3, 1), 31)
    | {
        "head_dim": 8,
        "use_sliding_window": True,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "qwen3-yarn": sizes(48, 1, (3, 3), 50) | {"head_dim": 16, "rope_parameters": YARN},
    "olmo2": sizes(48, 2, (3, 3), 100, 1e-5),
    "olmo2-grouped": sizes(48, 2, (6, 2), 77, 1e-3)
    | {
        "attention_bias": True,
        "tie_word_embeddings": True,
        "rope_parameters": rotation("linear", 5e2, factor=3.0),
    },
    "olmo2-pairs": sizes(48, 1, (4, 2), 50),
    "olmo2-eights": sizes(48, 1, (8, 1), 50),
    "smollm3": sizes(48, 5, (4, 2), 50),  # without rotation: the fourth
    "smollm3-listed": sizes(48, 3, (3, 1), 77)
    | {
        "no_rope_layers": [0, 1, 0],
        "use_sliding_window": True,
        "sliding_window": 4,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": False,
        "rope_parameters": YARN,
    },
    "smollm3-interval": sizes(48, 4, (8, 1), 31) | {"no_rope_layer_interval": 2},
    "smollm3-alone": sizes(48, 1, (3, 3), 50),
    "gemma3_text": sizes(48, 7, (4, 2), 50)  # global: the sixth
    | {"head_dim": 20, "query_pre_attn_scalar": 30, "sliding_window": 5},
    "gemma3_text-scaled": sizes(48, 3, (6, 2), 77, 1e-4)
    | {
        "head_dim": 16,
        "query_pre_attn_scalar": 8,
        "sliding_window": 3,
        "attention_bias": True,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": rotation("linear", 2e3, factor=8.0),
            "sliding_attention": rotation("default", 50.0),
        },
    },
    "gemma3_text-alone": sizes(48, 1, (3, 3), 50) | {"head_dim": 8},
    "gemma3_text-eights": sizes(48, 1, (8, 1), 50) | {"head_dim": 8},
}

# Ways of storing a model.
PLAIN, SHARDED, BASE = "plain", "sharded", "base"
V4 = "v4"  # the configuration in the words of transformers 4
OLD = "old"  # what files of all ages have, more than transformers themselves load
HALVES = ("float16", "bfloat16")


def family(name: str) -> str:
    return name.partition("-")[0]


def is_first(name: str) -> bool:
    """Whether a model is the first of its family."""
    return name == family(name)


def is_tied(name: str) -> bool:
    """Whether the output matrix is the token table."""
    return MODELS[name].get("tie_word_embeddings", family(name) in TIED_BY_DEFAULT)


def group(name: str) -> int:
    """How many heads of queries share one of keys."""
    fields = MODELS[name]
    return fields["num_attention_heads"] // fields["num_key_value_heads"]


def has_scaled_rotation(name: str) -> bool:
    """Whether a rotation is scaled. Gemma 3 has one for each type of layer."""
    parameters = MODELS[name].get("rope_parameters", {})
    parts = [parameters, *(part for part in parameters.values() if isinstance(part, dict))]
    return any(part.get("rope_type", "default") != "default" for part in parts)


def variants(name: str) -> list[str]:
    """The ways in which a model is stored. Its base has no output matrix of its own."""
    if not is_first(name):
        return [PLAIN, V4]
    return [PLAIN, V4, SHARDED, OLD, *HALVES] + [BASE] * is_tied(name)
