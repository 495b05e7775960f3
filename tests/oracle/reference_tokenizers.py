"""tiktoken and Hugging Face's tokenizers with real vocabularies: the references for ids.

Vocabularies come from `scripts/setup --test` (scripts/vocabularies.py); patterns and special
tokens are those that their makers publish.
"""

import base64
import json
import os
from functools import cache
from pathlib import Path

import tiktoken
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

FOLDER = Path(
    os.environ.get("BINDERY_DEPS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "bindery"),
    "vocabularies",
)

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"""
    r""" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
])
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"""
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# name: file, tiktoken's pattern, Bindery's name of the pattern, special tokens by tiktoken.
KNOWN = {
    "gpt2": ("gpt2.tiktoken", GPT2, "gpt2", {"<|endoftext|>": 50256}),
    "cl100k": ("cl100k_base.tiktoken", CL100K, "cl100k",
               {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259,
                "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}),
    "o200k": ("o200k_base.tiktoken", O200K, "o200k",
              {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
    "llama3": ("llama3.tiktoken", LLAMA3, "llama3", {}),
    "qwen2": ("qwen.tiktoken", QWEN2, "qwen2", {}),
}


def spec(name: str) -> str:
    """Returns the name for `bindery --tokenizer`."""
    file, _, pattern, _ = KNOWN[name]
    return f"{FOLDER / file}:{pattern}"


@cache
def ranks(name: str) -> dict[bytes, int]:
    found = {}
    for line in (FOLDER / KNOWN[name][0]).read_bytes().splitlines():
        token, rank = line.split()
        found[base64.b64decode(token)] = int(rank)
    return found


@cache
def encoding(name: str) -> tiktoken.Encoding:
    _, pattern, _, specials = KNOWN[name]
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks(name),
                             special_tokens=specials)


def visible(token: bytes) -> str:
    return "".join(BYTE_CHARACTERS[byte] for byte in token)


def byte_characters() -> dict[int, str]:
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(others)}


BYTE_CHARACTERS = byte_characters()


def byte_level(model: models.BPE, pattern: str | None = None) -> tokenizers.Tokenizer:
    """Makes a tokenizer like GPT-2's, or with another pattern."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern is not None:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cache
def gpt2_hugging_face() -> tokenizers.Tokenizer:
    """Made from vocab.json and merges.txt."""
    folder = FOLDER / "gpt2"
    model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = byte_level(model)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def merges(name: str) -> list[tuple[bytes, bytes]]:
    """Returns the parts that each token is last merged from, in the order of ranks."""
    found = []
    known = ranks(name)
    for token, rank in sorted(known.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            best, i = min((known.get(parts[i] + parts[i + 1], rank), i)
                          for i in range(len(parts) - 1))
            if best >= rank:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


@cache
def cl100k_hugging_face() -> tokenizers.Tokenizer:
    model = models.BPE({visible(token): rank for token, rank in ranks("cl100k").items()},
                       [(visible(a), visible(b)) for a, b in merges("cl100k")],
                       ignore_merges=True)
    return byte_level(model, LLAMA3)


def trained(texts: list[str], pattern: str | None, vocab_size: int,
            specials: list[str]) -> tokenizers.Tokenizer:
    """Trains a small model for `pattern`, the same every time."""
    from tokenizers import trainers

    tokenizer = byte_level(models.BPE(), pattern)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def canonical(tokenizer: tokenizers.Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())
