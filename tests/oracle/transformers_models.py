"""Hugging Face's transformers as the reference for exchanged models. Runs under the Python that has
it ($BINDERY_DEPS/transformers), not under that of the other tests.

    transformers_models.py make FOLDER       FOLDER/FAMILY-VARIANT: models as transformers save
                                             them, random and of awkward sizes
    transformers_models.py answer FOLDER...  their results for the sequences on standard input
    transformers_models.py tokenize FOLDER...  the result of AutoTokenizer for the text there

`answer` reads {"sequences": [[id, ...], ...], "text": "..."} and prints one line of JSON for
each folder: the logits of every sequence, [tokens][vocabulary] as base64 of floats, the
cross-entropy of predicting each sequence, summed, what was wrong with the files, and the ids of
the text if the folder has a tokenizer. `tokenize` reads {"text": "..."} and prints for each folder
the ids, the text that they give back, and the tokens that have a meaning of their own.
"""

import base64
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.nn import functional  # noqa: E402

SPREAD = 0.15  # standard deviation of random weights
SIZES = {"vocab_size": 257, "bos_token_id": 256, "eos_token_id": 256}
CONFIGS = {
    "opt": transformers.OPTConfig(
        hidden_size=48,
        word_embed_proj_dim=48,
        num_attention_heads=3,
        num_hidden_layers=2,
        ffn_dim=100,
        max_position_embeddings=33,
        pad_token_id=1,
        **SIZES,
    ),
    "gpt2": transformers.GPT2Config(
        n_embd=48, n_head=3, n_layer=2, n_inner=100, n_positions=33, **SIZES
    ),
}


def random_model(family: str) -> transformers.PreTrainedModel:
    """Makes a model in which no parameter is zero or one by accident."""
    torch.manual_seed(20240612)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = parameter.dim() == 1 and name.endswith(".weight")
            parameter.copy_(torch.randn(parameter.shape) * SPREAD + is_gain)
    return model.eval()


def save_old(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Saves a model with all peculiarities of old files: names without any prefix, the output
    matrix beside the token table, the masks of GPT-2's attention. (Transformers themselves do not
    load all of this.)"""
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    prefixes = ("model.decoder.", "transformer.")
    tensors = {}
    for name, tensor in load_file(path).items():
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        tensors[name] = tensor
    tensors["lm_head.weight"] = model.get_input_embeddings().weight.detach().clone()
    if model.config.model_type == "gpt2":
        for n in range(model.config.n_layer):
            tensors[f"h.{n}.attn.bias"] = torch.ones(1, 1, 33, 33, dtype=torch.uint8).tril()
            tensors[f"h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path, metadata={"format": "pt"})


def make(folder: Path) -> None:
    for family in CONFIGS:
        model = random_model(family)
        model.save_pretrained(folder / f"{family}-plain")
        model.save_pretrained(folder / f"{family}-sharded", max_shard_size="40KB")
        model.base_model.save_pretrained(folder / f"{family}-base")
        save_old(model, folder / f"{family}-old")
        for kind in (torch.float16, torch.bfloat16):
            name = str(kind).removeprefix("torch.")
            model.to(kind).save_pretrained(folder / f"{family}-{name}")


def text_ids(folder: Path, text: str) -> dict:
    if not (folder / "tokenizer.json").exists():
        return {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return {"ids": tokenizer(text)["input_ids"], "eos": tokenizer.eos_token_id}


def tokenize(folder: Path, text: str) -> dict:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    return {
        "ids": ids,
        "text": tokenizer.decode(ids),
        "special": tokenizer.special_tokens_map,
        "has_limit": tokenizer.model_max_length < 10**9,
    }


@torch.no_grad()
def answer(folder: Path, sequences: list[list[int]], text: str) -> dict:
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, output_loading_info=True
    )
    model.eval()
    logits, loss_sum = [], 0.0
    for sequence in sequences:
        ids = torch.tensor(sequence)
        scores = model(input_ids=ids[None]).logits[0]
        logits.append(base64.b64encode(scores.numpy().tobytes()).decode())
        loss_sum += float(functional.cross_entropy(scores[:-1], ids[1:], reduction="sum"))
    problems = {key: sorted(map(str, value)) for key, value in loading.items() if value}
    rows = model.get_input_embeddings().weight.shape[0]
    return {"logits": logits, "loss_sum": loss_sum, "problems": problems, "rows": rows} | (
        text_ids(folder, text)
    )


def main() -> None:
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    command, *folders = sys.argv[1:]
    if command == "make":
        make(Path(folders[0]))
        return
    question = json.load(sys.stdin)
    ask = {"answer": answer, "tokenize": tokenize}[command]
    for folder in folders:
        print(json.dumps(ask(Path(folder), **question)))


if __name__ == "__main__":
    main()
