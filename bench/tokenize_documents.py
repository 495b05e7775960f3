"""The documents that bench/tokenize measures on: five sets out of the corpus of bench/corpus.

A set is a file: u64 n, u64 ends[n], and the documents end to end; all little-endian.
"""

import json
import random
import re
import struct
from collections.abc import Iterable
from pathlib import Path

SETS = ("english", "code", "european", "cjk", "mixed")
SET_BYTES = 48_000_000  # of each set; the mixed one is the whole corpus

CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
EUROPEAN = re.compile(r"-(cs|de|es|fr|it|pl|pt|ru)(-dev)?$")
SOURCE_FILE = re.compile(r"\.(go|py|c|h|rs|js)$")


def kind_of(name: str, text: str) -> str:
    """By package and by script, because many translators' files are partly English."""
    package = name.partition("/")[0]
    sample = text[:4000]
    if len(CJK.findall(sample)) * 5 > len(sample):
        return "cjk"
    if EUROPEAN.search(package):
        return "european"
    return "code" if SOURCE_FILE.search(name) else "english"


def write_set(path: Path, documents: Iterable[bytes]) -> None:
    ends, chunks, n_bytes = [], [], 0
    for document in documents:
        n_bytes += len(document)
        ends.append(n_bytes)
        chunks.append(document)
    temporary = path.with_suffix(".part")
    with open(temporary, "wb") as file:
        file.write(struct.pack(f"<Q{len(ends)}Q", len(ends), *ends))
        file.writelines(chunks)
    temporary.rename(path)


def make_sets(corpus: Path, folder: Path) -> dict[str, Path]:
    """Makes the sets that are missing."""
    paths = {name: folder / f"{name}.documents" for name in SETS}
    folder.mkdir(parents=True, exist_ok=True)
    if all(p.exists() and p.stat().st_mtime >= corpus.stat().st_mtime for p in paths.values()):
        return paths
    found: dict[str, list[bytes]] = {name: [] for name in SETS}
    sizes = dict.fromkeys(SETS, 0)
    with open(corpus, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            text = record["text"].encode()
            found["mixed"].append(text)
            kind = kind_of(record["id"], record["text"])
            if sizes[kind] + len(text) <= SET_BYTES:
                sizes[kind] += len(text)
                found[kind].append(text)
    for name, path in paths.items():
        write_set(path, found[name])
    return paths


def make_worst_sets(folder: Path) -> dict[str, Path]:
    """Documents that are slow in careless code: 10 MB that are one word, or not text at all."""
    rng = random.Random(8)
    n = 10_000_000
    worst = {
        "one letter": b"a" * n,
        "no spaces": bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=n)),
        "random bytes": rng.randbytes(n),
    }
    paths = {}
    for name, document in worst.items():
        paths[name] = folder / f"worst-{name.replace(' ', '-')}.documents"
        if not paths[name].exists():
            write_set(paths[name], [document])
    return paths


def text_bytes(path: Path) -> int:
    with open(path, "rb") as file:
        n = int.from_bytes(file.read(8), "little")
    return path.stat().st_size - 8 * (n + 1)
