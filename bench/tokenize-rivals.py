#!/usr/bin/env python3
"""One rival tokenizer over documents in memory: user CPU seconds of each pass.

    PYTHON bench/tokenize-rivals.py RIVAL VOCABULARY VOCABULARIES DOCUMENTS THREADS PASSES

bench/tokenize calls it, in a process of its own for each measurement. RIVAL is gigatoken,
fastokens, tiktoken or tokenizers; VOCABULARY gpt2 or cl100k; VOCABULARIES the folder that
scripts/setup --test makes; DOCUMENTS a file as bench/tokenize makes it. It prints JSON: the
seconds of each pass, the number of ids, and their hash.

Each rival is called in the way that is fastest for a whole batch. Its input (bytes or str) is
made before the clock starts, so that no conversion is timed. The result should be an array of u32;
joining the parts for the hash is not timed for anybody. Rivals that return only lists of Python
integers pay for making those, since nothing else can be requested from them.
"""

import base64
import concurrent.futures
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = sys.argv[5] if len(sys.argv) > 5 else "1"
# Set before the libraries are loaded, because they read it once.
os.environ["RAYON_NUM_THREADS"] = THREADS
os.environ["TOKENIZERS_PARALLELISM"] = "false" if THREADS == "1" else "true"

import numpy  # noqa: E402
import xxhash  # noqa: E402

PATTERNS = {
    "gpt2": (
        r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|"""
        r"""\s++$|\s+(?!\S)|\s"""
    ),
    "cl100k": (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"""
        r""" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
    ),
}
# The pattern as Hugging Face's files write it.
PLAIN_CL100K = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"""
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
FILES = {"gpt2": "gpt2.tiktoken", "cl100k": "cl100k_base.tiktoken"}
SPECIALS = {
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k": {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
}

# From the documents to an object that `flatten` turns into one array of u32.
Encode = Callable[[Any], Any]


def read_documents(path: str) -> list[bytes]:
    data = Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    ends = numpy.frombuffer(data, "<u8", n, 8)
    begin = 8 + 8 * n
    text = data[begin:]
    documents, before = [], 0
    for end in ends.tolist():
        documents.append(text[before:end])
        before = end
    return documents


def read_ranks(path: Path) -> dict[bytes, int]:
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


def gigatoken(vocabulary: str, folder: Path) -> tuple[Encode, Callable, type]:
    import gigatoken as library

    tokenizer = library.Tokenizer.from_tiktoken(
        folder / FILES[vocabulary], pretokenizer=vocabulary, special_tokens=SPECIALS[vocabulary]
    )

    def encode(documents: list[bytes]) -> Any:
        return tokenizer.encode_batch(library.BytesSource(documents), parallel=THREADS != "1")

    return encode, lambda found: numpy.asarray(found.layout.content.data), bytes


def tiktoken(vocabulary: str, folder: Path) -> tuple[Encode, Callable, type]:
    import tiktoken as library

    encoding = library.Encoding(
        vocabulary, pat_str=PATTERNS[vocabulary],
        mergeable_ranks=read_ranks(folder / FILES[vocabulary]),
        special_tokens=SPECIALS[vocabulary],
    )

    def one(text: str) -> Any:
        return encoding.encode_to_numpy(text, allowed_special="all")

    def encode(documents: list[str]) -> Any:
        if THREADS == "1":
            return [one(text) for text in documents]
        with concurrent.futures.ThreadPoolExecutor(int(THREADS)) as pool:
            return list(pool.map(one, documents))

    return encode, numpy.concatenate, str


def byte_characters() -> dict[int, str]:
    """Returns the visible character of each byte in byte-level vocabularies."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Returns the two parts that each token is last merged from, in the order of ranks."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            found = [
                (ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1)
            ]
            best, i = min(found)
            if best >= rank:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def hugging_face(vocabulary: str, folder: Path) -> Any:
    """Makes a tokenizers.Tokenizer as its users do."""
    import tokenizers as library
    from tokenizers import models, pre_tokenizers

    if vocabulary == "gpt2":
        model = models.BPE.from_file(str(folder / "gpt2/vocab.json"),
                                     str(folder / "gpt2/merges.txt"))
        split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        ranks = read_ranks(folder / FILES[vocabulary])
        letters = byte_characters()

        def visible(token: bytes) -> str:
            return "".join(letters[byte] for byte in token)

        model = models.BPE(
            {visible(token): rank for token, rank in ranks.items()},
            [(visible(left), visible(right)) for left, right in merges_of(ranks)],
            ignore_merges=True,
        )
        split = pre_tokenizers.Sequence([
            pre_tokenizers.Split(library.Regex(PLAIN_CL100K), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = split
    if vocabulary == "gpt2":  # the other special tokens have ids that cannot be chosen
        tokenizer.add_special_tokens(list(SPECIALS[vocabulary]))
    return tokenizer


def tokenizers(vocabulary: str, folder: Path) -> tuple[Encode, Callable, type]:
    tokenizer = hugging_face(vocabulary, folder)

    def encode(documents: list[str]) -> Any:
        found = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        return [numpy.array(encoding.ids, numpy.uint32) for encoding in found]

    return encode, numpy.concatenate, str


def fastokens(vocabulary: str, folder: Path) -> tuple[Encode, Callable, type]:
    """Its fast code recognises patterns by their text: tiktoken's spelling takes thrice as long."""
    import fastokens as library

    if vocabulary == "cl100k":
        tokenizer = library.Tokenizer.from_tiktoken(
            str(folder / FILES[vocabulary]), encoding="cl100k_base")
    else:
        tokenizer = library.Tokenizer.from_json_str(hugging_face(vocabulary, folder).to_str())
    return tokenizer.encode_batch_flat, lambda found: numpy.frombuffer(found[0], "<u4"), str


RIVALS = {f.__name__: f for f in (gigatoken, fastokens, tiktoken, tokenizers)}


def main() -> None:
    rival, vocabulary, folder, path, _, n_passes = sys.argv[1:]
    encode, flatten, kind = RIVALS[rival](vocabulary, Path(folder))
    documents: list[Any] = read_documents(path)
    if kind is str:
        documents = [text.decode() for text in documents]
    seconds, ids = [], numpy.empty(0, numpy.uint32)
    for _ in range(int(n_passes)):
        before = resource.getrusage(resource.RUSAGE_SELF)
        found = encode(documents)
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds.append(after.ru_utime - before.ru_utime)
        ids = numpy.ascontiguousarray(flatten(found), "<u4")
        del found
    print(json.dumps({
        "user_seconds": seconds, "n_ids": int(ids.size),
        "hash": xxhash.xxh3_64_hexdigest(ids.tobytes()),
    }))


if __name__ == "__main__":
    main()
