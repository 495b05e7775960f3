"""Random corpora with awkward contents, each a function of its seed."""

import json
import random
from dataclasses import dataclass, replace

from corpus_files import COMPRESSIONS, DELIMITER, compressed
from reference_packer import Input, Options, is_utf8

UNIT_SIZES = [200, 4096, 64 << 20]
SOURCES = ["web", "code", "books & <more>"]
WORDS = ["a", "of", "Zug", "Straße", "語", "ключ", "🧵", "\n", "\n\n", " ", "\t", "%", "%%", "\r",
         "\x00", '"', "\\", "é", "\u200b", "<|endoftext|>", "\x7f"]
BROKEN = [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\xa7", b"\xed\xa0\x80", b"\xc0\xaf",
          b"\xf4\x90\x80\x80"]


@dataclass(frozen=True)
class Corpus:
    """The files, and the text of every document in order, as it was written into them."""

    inputs: list[Input]
    texts: list[bytes]


def random_options(rng: random.Random, **fixed: object) -> Options:
    """Chooses the options that select, order and cut at random; the others are given."""
    return Options(
        unit_size=rng.choice(UNIT_SIZES),
        delimiter=rng.choice([None, DELIMITER]),
        invalid_utf8=rng.choice(["error", "keep", "replace"]),
        text_field=rng.choice(["text", "a.b"]),
        padding=rng.choice([None, 0]),
        max_documents=rng.choice([None, None, 1, 2, 5]),
        min_tokens=rng.choice([0, 0, 1, 9]),
        shuffle=rng.choice([None, None, 0, rng.randrange(2**32)]),
        holdout=rng.choice([0, 0, 0, 125_000, 500_000]),
        limit=rng.choice([None, None, None, rng.randint(1, 45)]),
        codec=rng.choice(["none", "none", "zstd"]),
        **fixed,
    )


def text_of_size(rng: random.Random, size: int, broken: bool) -> bytes:
    """Returns `size` bytes of text; if `broken` and there is room, some of it is not UTF-8."""
    parts = [rng.choice(BROKEN)] if broken else []
    room = size - sum(map(len, parts))
    while room > 0:
        word = rng.choice(WORDS).encode()
        if len(word) > room:
            word = b"x"
        parts.append(word)
        room -= len(word)
    rng.shuffle(parts)
    text = b"".join(parts)
    return text if len(text) == size else b"x" * size


def text_sizes(rng: random.Random, options: Options, n_documents: int) -> list[int]:
    """Returns the size of each text: the edges of a row, empty ones, and one giant, among
    others."""
    frame = 1 if options.bos is None else 2
    edges = [options.seq_len + delta - frame for delta in (-1, 0, 1)]
    sizes = [0, 0, *edges, rng.randint(5, 9) * options.seq_len + rng.randint(0, 3)]
    while len(sizes) < n_documents:
        sizes.append(rng.choice([rng.randint(0, 8), rng.randint(0, 2 * options.seq_len)]))
    rng.shuffle(sizes)
    return [max(size, 0) for size in sizes]


def without_delimiter_lines(text: bytes) -> bytes:
    lines = text.split(b"\n")
    return b"\n".join(b"#" * len(line) if line == DELIMITER else line for line in lines)


def delimited_file(rng: random.Random, texts: list[bytes]) -> bytes:
    """Documents between delimiter lines; perhaps none before the first or after the last."""
    parts = [DELIMITER + b"\n"] if rng.random() < 0.2 else []
    for text in texts[:-1]:
        newline = b"" if text == b"" and parts and rng.random() < 0.5 else b"\n"
        parts.append(text + newline + DELIMITER + b"\n")
    last = texts[-1]
    endings = [b"\n", b"\n" + DELIMITER, b"\n" + DELIMITER + b"\n"]
    if last and not last.endswith(b"\n"):
        endings.append(b"")
    return b"".join(parts) + last + rng.choice(endings)


def json_line(rng: random.Random, text: bytes, text_field: str) -> bytes:
    """Makes a record with the text where `text_field` says, and other fields around it."""
    value: object = text.decode("utf-8", "surrogateescape")
    ascii_only = rng.random() < 0.5 and is_utf8(text)
    names = text_field.split(".")
    for name in reversed(names):
        value = {"id": rng.randint(0, 9), "other": {names[-1]: "decoy"}, name: value}
    line = json.dumps(value, ensure_ascii=ascii_only)
    return line.encode("utf-8", "surrogateescape")


def jsonl_file(rng: random.Random, texts: list[bytes], text_field: str) -> bytes:
    """Writes one record per line, with blank lines and CRLF; the last newline may be missing."""
    parts = []
    for text in texts:
        if rng.random() < 0.1:
            parts.append(rng.choice([b"\n", b"  \n", b"\r\n"]))
        parts.append(json_line(rng, text, text_field) + rng.choice([b"\n", b"\n", b"\r\n"]))
    data = b"".join(parts)
    return data.rstrip(b"\r\n") if rng.random() < 0.3 else data


def make_corpus(rng: random.Random, options: Options, n_documents: int = 40) -> Corpus:
    """Makes several inputs: JSONL, and text with one document a file or with delimiter lines. Text
    that is not UTF-8 is used where the options allow it, but not in JSON, which cannot hold it."""
    texts_left = [
        text_of_size(rng, size, broken=options.invalid_utf8 != "error" and rng.random() < 0.2)
        for size in text_sizes(rng, options, n_documents)
    ]
    inputs: list[Input] = []
    texts: list[bytes] = []
    while texts_left:
        name = f"{len(inputs):03d}"
        n = min(len(texts_left), rng.randint(1, 12))
        own = texts_left[:n]
        if rng.random() < 0.4 and (options.invalid_utf8 == "replace" or all(map(is_utf8, own))):
            inputs.append(Input(f"{name}.jsonl", jsonl_file(rng, own, options.text_field)))
        elif options.delimiter is not None:
            own = [without_delimiter_lines(text) for text in own]
            inputs.append(Input(f"{name}.txt", delimited_file(rng, own)))
        else:
            own = own[:1]
            inputs.append(Input(f"{name}.txt", own[0]))
        texts += own
        del texts_left[: len(own)]
    return Corpus(inputs, texts)


def with_compression(rng: random.Random, inputs: list[Input]) -> list[Input]:
    """Compresses some of the inputs."""
    return [
        compressed(rng, item, rng.choice(list(COMPRESSIONS))) if rng.random() < 0.3 else item
        for item in inputs
    ]


def with_sources(rng: random.Random, inputs: list[Input]) -> list[Input]:
    """Gives the last of the inputs sources of their own; a source may return later."""
    first = rng.randint(0, len(inputs))
    labelled = [replace(item, source=rng.choice(SOURCES)) for item in inputs[first:]]
    return inputs[:first] + labelled
