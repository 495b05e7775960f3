"""OPT, GPT-2, Llama, Qwen 3 and OLMo 2 in plain PyTorch, run on packed rows or on one segment per
sequence.

A model is its configuration and a dictionary of tensors with Hugging Face's names. It was written
from the papers and the names alone; that it equals the published model is checked with

    torch_models.py --check-against-transformers

Both ways of running give the same loss: the sum over targets divided by the number of targets of
the whole batch. Packed, everything that separates documents is built from the boundaries, in
`pack`. Separate, a segment is a sequence of its own under a plain causal mask, so that nothing
needs to be separated.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from torch_loader import Row

Weights = dict[str, Tensor]

MODELS = ("opt", "gpt2", "llama", "qwen3", "olmo2")
TIED = ("opt", "gpt2", "qwen3")  # the output matrix is the token table
EPSILON = 1e-5  # of every norm
THETA = 500.0  # of rotations, small enough for all pairs of channels to turn within 64 tokens
SPREAD = 0.2  # standard deviation of random weights
NO_TARGET = -100
# Bounds on the difference from transformers. Their RMS norms and their angles are float always.
CHECK_BOUND = {"opt": 1e-12, "gpt2": 1e-12, "llama": 2e-6, "qwen3": 2e-6, "olmo2": 2e-6}


@dataclass(frozen=True)
class Config:
    """A model's kind and sizes. n_key_heads heads have keys and values: neighbouring heads of
    queries share one. n_hidden is the width of the feed-forward layer."""

    model: str
    n_layers: int
    n_channels: int
    n_heads: int
    n_key_heads: int
    head_size: int
    n_hidden: int
    n_positions: int
    vocab_size: int

    @property
    def position_table(self) -> str | None:
        """The name of the tensor; None if the model rotates."""
        tables = {
            "opt": "model.decoder.embed_positions.weight",
            "gpt2": "transformer.wpe.weight",
        }
        return tables.get(self.model)

    @property
    def first_position_row(self) -> int:
        """The row of the position table that is position 0."""
        return 2 if self.model == "opt" else 0


def hugging_face_config(config: Config, separator: int) -> dict:
    """config.json with the fields that opt-125m, gpt2, Llama-3.2-1B, Qwen3-0.6B and
    OLMo-2-0425-1B have, without dropout."""
    common = {"bos_token_id": separator, "eos_token_id": separator}
    if config.position_table is None:
        return common | rotary_config(config)
    if config.model == "opt":
        return common | {
            "activation_dropout": 0.0,
            "activation_function": "relu",
            "architectures": ["OPTForCausalLM"],
            "attention_dropout": 0.0,
            "do_layer_norm_before": True,
            "dropout": 0.0,
            "ffn_dim": config.n_hidden,
            "hidden_size": config.n_channels,
            "init_std": 0.02,
            "layerdrop": 0.0,
            "max_position_embeddings": config.n_positions,
            "model_type": "opt",
            "num_attention_heads": config.n_heads,
            "num_hidden_layers": config.n_layers,
            "pad_token_id": separator,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "use_cache": True,
            "vocab_size": config.vocab_size,
            "word_embed_proj_dim": config.n_channels,
        }
    return common | {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": EPSILON,
        "model_type": "gpt2",
        "n_ctx": config.n_positions,
        "n_embd": config.n_channels,
        "n_head": config.n_heads,
        "n_layer": config.n_layers,
        "n_positions": config.n_positions,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": config.vocab_size,
    }


def rotary_config(config: Config) -> dict:
    fields = {
        "architectures": [f"{config.model.capitalize()}ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "hidden_size": config.n_channels,
        "initializer_range": 0.02,
        "intermediate_size": config.n_hidden,
        "max_position_embeddings": config.n_positions,
        "model_type": config.model,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "num_key_value_heads": config.n_key_heads,
        "rms_norm_eps": EPSILON,
        "rope_scaling": None,
        "rope_theta": THETA,
        "tie_word_embeddings": config.model in TIED,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }
    if config.model == "llama":
        return fields | {"mlp_bias": False, "pretraining_tp": 1}
    if config.model == "qwen3":
        window = {"max_window_layers": config.n_layers, "sliding_window": None}
        return fields | window | {"use_sliding_window": False}
    del fields["head_dim"]  # OLMo 2 has none: it is n_channels / n_heads
    return fields


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a model."""
    if config.position_table is None:
        return rotary_shapes(config)
    c, f = config.n_channels, config.n_hidden
    n_position_rows = config.n_positions + config.first_position_row
    if config.model == "opt":
        top, layer, end = "model.decoder", "model.decoder.layers", "final_layer_norm"
        tables = {"embed_tokens": config.vocab_size, "embed_positions": n_position_rows}
        parts = {f"self_attn.{p}_proj": (c, c) for p in ("q", "k", "v", "out")}
        parts |= {"self_attn_layer_norm": (c,), "fc1": (f, c), "fc2": (c, f)}
        parts |= {"final_layer_norm": (c,)}
        outputs = 0  # nn.Linear is [out, in]
    else:
        top, layer, end = "transformer", "transformer.h", "ln_f"
        tables = {"wte": config.vocab_size, "wpe": n_position_rows}
        parts = {"ln_1": (c,), "attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c)}
        parts |= {"ln_2": (c,), "mlp.c_fc": (c, f), "mlp.c_proj": (f, c)}
        outputs = -1  # Conv1D is [in, out]

    result: dict[str, tuple[int, ...]] = {}
    for name, n_rows in tables.items():
        result[f"{top}.{name}.weight"] = (n_rows, c)
    for n in range(config.n_layers):
        for part, shape in parts.items():
            result[f"{layer}.{n}.{part}.weight"] = shape
            result[f"{layer}.{n}.{part}.bias"] = (shape[outputs],)
    result[f"{top}.{end}.weight"] = result[f"{top}.{end}.bias"] = (c,)
    return result


def rotary_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Nothing here has a bias."""
    c, f = config.n_channels, config.n_hidden
    q, k = config.n_heads * config.head_size, config.n_key_heads * config.head_size
    parts: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (q, c),
        "self_attn.k_proj": (k, c),
        "self_attn.v_proj": (k, c),
        "self_attn.o_proj": (c, q),
        "mlp.gate_proj": (f, c),
        "mlp.up_proj": (f, c),
        "mlp.down_proj": (c, f),
        "post_attention_layernorm": (c,),
    }
    if config.model == "olmo2":
        parts |= {"post_feedforward_layernorm": (c,)}
        parts |= {"self_attn.q_norm": (q,), "self_attn.k_norm": (k,)}
    else:
        parts |= {"input_layernorm": (c,)}
    if config.model == "qwen3":
        parts |= {f"self_attn.{p}_norm": (config.head_size,) for p in ("q", "k")}
    result = {"model.embed_tokens.weight": (config.vocab_size, c)}
    for n in range(config.n_layers):
        result |= {f"model.layers.{n}.{part}.weight": shape for part, shape in parts.items()}
    result["model.norm.weight"] = (c,)
    if config.model not in TIED:
        result["lm_head.weight"] = (config.vocab_size, c)
    return result


def random_weights(config: Config, seed: int) -> Weights:
    """Weights of which none is accidentally zero or one; the same bits on every machine.

    Uniform rather than normal numbers, because PyTorch's uniform ones are made of whole numbers.
    """
    torch.manual_seed(seed)
    weights = {}
    for name, shape in shapes(config).items():
        value = (torch.rand(shape) * 2 - 1) * (SPREAD * math.sqrt(3))
        is_scale_of_norm = len(shape) == 1 and name.endswith(".weight")
        weights[name] = value + 1 if is_scale_of_norm else value
    return weights


@dataclass(frozen=True)
class Batch:
    """Sequences as the models take them, and what is to be predicted.

    ids, positions, targets   [sequences][tokens]; a target is an id or NO_TARGET
    query_positions           by which queries are rotated; the same, unless broken on purpose
    visible                   [sequences][tokens][tokens]; query, then key
    """

    ids: Tensor
    positions: Tensor
    query_positions: Tensor
    visible: Tensor
    targets: Tensor

    @property
    def n_targets(self) -> int:
        return int((self.targets != NO_TARGET).sum())


def pack(rows: Iterable[Row]) -> Batch:
    """Rows with document mask, restarting positions and targets inside segments.

    Padding becomes one more segment without targets, so that every query sees a key.
    """
    parts = []
    for row in rows:
        ids = torch.tensor(row.ids)
        index = torch.arange(len(ids))
        boundaries = torch.tensor(row.boundaries)
        segment = torch.searchsorted(boundaries, index, right=True) - 1
        start = boundaries[segment]
        visible = (segment[:, None] == segment[None, :]) & (index[None, :] <= index[:, None])

        targets = torch.full_like(ids, NO_TARGET)
        inside = (segment[1:] == segment[:-1]) & (index[1:] < row.boundaries[-1])
        if row.trained is not None:
            inside &= torch.tensor(row.trained)[1:]
        targets[:-1][inside] = ids[1:][inside]
        parts.append((ids, index - start, index - start, visible, targets))
    return Batch(*(torch.stack(column) for column in zip(*parts, strict=True)))


def separate(rows: Iterable[Row]) -> list[Batch]:
    """Every segment as a batch of one sequence under a plain causal mask."""
    return [
        causal(torch.tensor(row.ids[begin:end]), row.trained and row.trained[begin:end])
        for row in rows
        for begin, end in zip(row.boundaries, row.boundaries[1:], strict=False)
    ]


def causal(ids: Tensor, trained: list[bool] | None) -> Batch:
    """One sequence of one document."""
    n = len(ids)
    labels = ids if trained is None else ids.masked_fill(~torch.tensor(trained), NO_TARGET)
    targets = torch.cat([labels[1:], torch.tensor([NO_TARGET])])
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    positions = torch.arange(n)[None]
    return Batch(ids[None], positions, positions, visible[None], targets[None])


def break_positions(batch: Batch) -> Batch:
    """A fault: positions count through the row. To rotations it makes no difference."""
    through = torch.arange(batch.ids.shape[1]).expand_as(batch.ids)
    return replace(batch, positions=through, query_positions=through)


def break_rotation(batch: Batch) -> Batch:
    """A fault: queries are rotated by positions in the row, keys by those in the document."""
    through = torch.arange(batch.ids.shape[1]).expand_as(batch.ids)
    return replace(batch, query_positions=through)


def break_mask(batch: Batch) -> Batch:
    """A fault: a token sees everything before it in the row."""
    return replace(batch, visible=torch.ones_like(batch.visible).tril())


def break_targets(batch: Batch, rows: Iterable[Row]) -> Batch:
    """A fault: a segment's last token predicts the next segment's first."""
    targets = batch.targets.clone()
    for r, row in enumerate(rows):
        for b in row.boundaries[1:-1]:
            targets[r, b - 1] = row.ids[b]
    return replace(batch, targets=targets)


def attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, n_heads: int, n_key_heads: int
) -> Tensor:
    """[sequences][tokens][channels], in and out."""
    n_sequences, n_tokens, n_channels = q.shape
    q, k, v = (
        x.view(n_sequences, n_tokens, n, -1).transpose(1, 2)
        for x, n in ((q, n_heads), (k, n_key_heads), (v, n_key_heads))
    )
    shared_by = [head * n_key_heads // n_heads for head in range(n_heads)]
    k, v = k[:, shared_by], v[:, shared_by]
    scores = q @ k.transpose(2, 3) / math.sqrt(n_channels // n_heads)
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    mixed = scores.softmax(dim=-1) @ v
    return mixed.transpose(1, 2).reshape(n_sequences, n_tokens, n_channels)


def layer_norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    return functional.layer_norm(
        x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON
    )


def opt_logits(config: Config, weights: Weights, batch: Batch) -> Tensor:
    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    tokens = weights["model.decoder.embed_tokens.weight"]
    positions = weights["model.decoder.embed_positions.weight"]
    x = tokens[batch.ids] + positions[batch.positions + 2]
    for n in range(config.n_layers):
        layer = f"model.decoder.layers.{n}"
        y = layer_norm(x, weights, f"{layer}.self_attn_layer_norm")
        q, k, v = (linear(y, f"{layer}.self_attn.{p}_proj") for p in ("q", "k", "v"))
        y = attention(q, k, v, batch.visible, config.n_heads, config.n_key_heads)
        x = x + linear(y, f"{layer}.self_attn.out_proj")
        y = layer_norm(x, weights, f"{layer}.final_layer_norm")
        x = x + linear(linear(y, f"{layer}.fc1").relu(), f"{layer}.fc2")
    return layer_norm(x, weights, "model.decoder.final_layer_norm") @ tokens.T


def gpt2_logits(config: Config, weights: Weights, batch: Batch) -> Tensor:
    def conv1d(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    tokens, positions = weights["transformer.wte.weight"], weights["transformer.wpe.weight"]
    x = tokens[batch.ids] + positions[batch.positions]
    for n in range(config.n_layers):
        layer = f"transformer.h.{n}"
        y = conv1d(layer_norm(x, weights, f"{layer}.ln_1"), f"{layer}.attn.c_attn")
        q, k, v = y.chunk(3, dim=-1)
        y = attention(q, k, v, batch.visible, config.n_heads, config.n_key_heads)
        x = x + conv1d(y, f"{layer}.attn.c_proj")
        y = conv1d(layer_norm(x, weights, f"{layer}.ln_2"), f"{layer}.mlp.c_fc")
        x = x + conv1d(functional.gelu(y, approximate="tanh"), f"{layer}.mlp.c_proj")
    return layer_norm(x, weights, "transformer.ln_f") @ tokens.T


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + EPSILON).sqrt() * scale


def rotate(x: Tensor, positions: Tensor, head_size: int) -> Tensor:
    """Turns channel i and channel i + head_size / 2 of every head, as a plane, by position times
    THETA^(-2 i / head_size). Angles are double, and so are their sines and cosines."""
    pairs = torch.arange(head_size // 2, dtype=torch.float64)
    angles = positions[..., None, None] * THETA ** (-2 * pairs / head_size)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.view(*x.shape[:2], -1, 2, head_size // 2).unbind(dim=3)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=3).reshape(x.shape)


def norm_queries(config: Config, x: Tensor, scale: Tensor | None) -> Tensor:
    """Norms queries or keys: all channels of a token together, each head, or not at all."""
    if config.model == "olmo2":
        return rms_norm(x, scale)
    if config.model == "qwen3":
        return rms_norm(x.view(*x.shape[:2], -1, config.head_size), scale).reshape(x.shape)
    return x


def rotary_attention(config: Config, part: Weights, x: Tensor, batch: Batch) -> Tensor:
    q, k, v = (x @ part[f"self_attn.{p}_proj"].T for p in ("q", "k", "v"))
    q = norm_queries(config, q, part.get("self_attn.q_norm"))
    k = norm_queries(config, k, part.get("self_attn.k_norm"))
    q = rotate(q, batch.query_positions, config.head_size)
    k = rotate(k, batch.positions, config.head_size)
    y = attention(q, k, v, batch.visible, config.n_heads, config.n_key_heads)
    return y @ part["self_attn.o_proj"].T


def gated_layer(part: Weights, x: Tensor) -> Tensor:
    gate, up = x @ part["mlp.gate_proj"].T, x @ part["mlp.up_proj"].T
    return (gate * gate.sigmoid() * up) @ part["mlp.down_proj"].T


def rotary_logits(config: Config, weights: Weights, batch: Batch) -> Tensor:
    tokens = weights["model.embed_tokens.weight"]
    x = tokens[batch.ids]
    for n in range(config.n_layers):
        prefix = f"model.layers.{n}."
        part = {
            name.removeprefix(prefix).removesuffix(".weight"): weight
            for name, weight in weights.items()
            if name.startswith(prefix)
        }
        after_attention = part["post_attention_layernorm"]
        if config.model == "olmo2":
            x = x + rms_norm(rotary_attention(config, part, x, batch), after_attention)
            x = x + rms_norm(gated_layer(part, x), part["post_feedforward_layernorm"])
        else:
            y = rms_norm(x, part["input_layernorm"])
            x = x + rotary_attention(config, part, y, batch)
            x = x + gated_layer(part, rms_norm(x, after_attention))
    return rms_norm(x, weights["model.norm.weight"]) @ weights.get("lm_head.weight", tokens).T


def logits(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """[sequences][tokens][vocab_size]"""
    kinds = {"opt": opt_logits, "gpt2": gpt2_logits}
    return kinds.get(config.model, rotary_logits)(config, weights, batch)


def token_losses(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """[sequences][tokens]: the cross-entropy of each target, 0 where there is none."""
    scores = logits(config, weights, batch).transpose(1, 2)
    return functional.cross_entropy(
        scores, batch.targets, ignore_index=NO_TARGET, reduction="none"
    )


def loss(config: Config, weights: Weights, batches: Iterable[Batch]) -> Tensor:
    """The sum over all targets of all batches, divided by their number."""
    batches = list(batches)
    total = sum(token_losses(config, weights, batch).sum() for batch in batches)
    return total / sum(batch.n_targets for batch in batches)


def mean_of_documents(config: Config, weights: Weights, documents: Iterable[Batch]) -> Tensor:
    """The mean over the documents that have a target of the mean over the targets of each."""
    means = [loss(config, weights, [document]) for document in documents if document.n_targets > 0]
    return torch.stack(means).mean()


def mean_of_row_means(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """A fault: every row has the same weight, whatever its number of targets."""
    n_targets = (batch.targets != NO_TARGET).sum(dim=1)
    return (token_losses(config, weights, batch).sum(dim=1) / n_targets).mean()


def cast(weights: Weights, dtype: torch.dtype) -> Weights:
    """A copy whose tensors collect gradients."""
    return {name: w.detach().clone().to(dtype).requires_grad_() for name, w in weights.items()}


def gradients(value: Tensor, weights: Weights) -> Weights:
    """The gradient of a value for every tensor, by name."""
    return dict(zip(weights, torch.autograd.grad(value, list(weights.values())), strict=True))


def largest(tensor: Tensor) -> float:
    """The largest absolute value."""
    return float(tensor.abs().max())


def check_against_transformers(model: str) -> float:
    """The largest difference in logits or gradients, relative to the largest of their kind.

    Computed in double, where rounding can neither look like another model nor hide one.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    heads = {"llama": (4, 2, 10), "qwen3": (8, 1, 14)}
    n_heads, n_key_heads, head_size = heads.get(model, (5, 5, 8))
    n_hidden = 160 if model in ("opt", "gpt2") else 77
    config = Config(model, 3, 40, n_heads, n_key_heads, head_size, n_hidden, 48, vocab_size=101)
    stored = random_weights(config, seed=1)
    ids = torch.randint(config.vocab_size - 1, (config.n_positions,))
    with tempfile.TemporaryDirectory() as folder:
        fields = hugging_face_config(config, separator=config.vocab_size - 1)
        (Path(folder) / "config.json").write_text(json.dumps(fields), encoding="utf-8")
        save_file(stored, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        # Their loss is always in float, and so is the softmax of their eager attention.
        other = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="sdpa"
        )
    their_weights = dict(other.named_parameters())
    their_logits = other(input_ids=ids[None]).logits[0]
    theirs = gradients(functional.cross_entropy(their_logits[:-1], ids[1:]), their_weights)

    weights = cast(stored, torch.float64)
    if set(theirs) != set(weights):
        raise ValueError(
            f"tensors that only one side has: {sorted(set(theirs) ^ set(weights))}"
        )
    our_logits = logits(config, weights, causal(ids))[0]
    ours = gradients(loss(config, weights, [causal(ids)]), weights)
    return max(
        largest((our_logits - their_logits).detach()) / largest(our_logits.detach()),
        max(largest(ours[name] - g) for name, g in theirs.items())
        / max(largest(g) for g in ours.values()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the models with transformers'.")
    parser.add_argument("--check-against-transformers", action="store_true", required=True)
    parser.parse_args()
    failed = False
    for model in MODELS:
        difference = check_against_transformers(model)
        failed |= not difference <= CHECK_BOUND[model]
        print(f"{model}: differs by {difference:.1e}, allowed {CHECK_BOUND[model]:.0e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
