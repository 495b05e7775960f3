#!/usr/bin/env python3
"""Reads unpacked Debian packages and writes one mixed corpus as JSONL: {"id": …, "text": …}.

    bench/corpus.py PACKAGES UNPACKED CORPUS.jsonl        (bench/corpus calls it)

PACKAGES names a reader and a package in each line; UNPACKED/<package> is the package's tree.
BUDGET limits the bytes of each kind of document. Documents are chosen in the order of a hash of
their ids and written in that order: kinds and packages are mixed, and the order of a folder does
not matter. A text that occurred before is left out.
"""

import gzip
import hashlib
import html
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Bytes of text.
BUDGET = {
    "html": 77_000_000,
    "man": 50_000_000,
    "code": 50_000_000,
    "dictionary": 22_000_000,
    "fortunes": 3_000_000,
}
SHORTEST = 20  # characters; less is a stub
LONGEST = 4_000_000  # bytes; more is a table or the data of a test

# A document that has not been read yet: its id, and the function that reads it.
Candidate = tuple[str, Callable[[], str]]


# ---- Files ---------------------------------------------------------------------------


def files(tree: Path, *endings: str) -> Iterator[tuple[str, Path]]:
    """Yields regular files below `tree` with one of these endings, and their ids."""
    for path in tree.rglob("*"):
        if path.name.endswith(endings) and path.is_file() and not path.is_symlink():
            name = os.fsencode(path.relative_to(tree)).decode(errors="replace")
            yield f"{tree.name}/{name}", path


def read_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.endswith((".gz", ".dz")) else data


def read_text(path: Path) -> str:
    """Returns the text, or "" if the file is not UTF-8: no encoding is guessed."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        return ""


# ---- Readers: one per kind, each yields the candidates of a package ---------------------

UNSEEN = re.compile(r"<(head|script|style|nav|svg)\b.*?</\1\s*>|<!--.*?-->", re.S | re.I)
BLOCK = re.compile(
    r"</?(?:p|div|br|hr|li|ul|ol|dl|dt|dd|tr|table|h[1-6]|pre|section|article|blockquote)\b"
    r"[^>]*>",
    re.I,
)
TAG = re.compile(r"<[^>]*>")


def html_text(page: str) -> str:
    page = BLOCK.sub("\n", UNSEEN.sub(" ", page))
    text = html.unescape(TAG.sub("", page)).replace("\xa0", " ")
    return re.sub(r"\n\s*\n", "\n\n", re.sub(r"[ \t\r]+\n", "\n", text))


def html_pages(tree: Path) -> Iterator[Candidate]:
    for name, path in files(tree, ".html", ".html.gz"):
        # Indexes are lists of links.
        if not path.name.startswith(("genindex", "search")):
            yield name, lambda path=path: html_text(read_text(path))


ROFF_NAMES = {"aq": "'", "dq": '"', "lq": "“", "rq": "”", "co": "©", "bu": "•", "em": "—",
              "en": "–", "ha": "^", "ti": "~", "ga": "`", "rs": "\\", "->": "→"}
ROFF_ESCAPE = re.compile(
    r"\\(?:f(?:\[\w*\]|\(..|.)|s[+-]?\d+|\((?P<two>..)|\[(?P<long>[^]]*)\]|(?P<other>.))"
)
ROFF_SILENT = {"TP", "RS", "RE", "br", "nf", "fi", "ad", "na", "hy", "nh", "ne", "in", "ti",
               "ta", "so", "de", "ie", "if", "el", "ds", "nr", "EX", "EE", "TS", "TE", "UE",
               "ME", "."}


def roff_character(match: re.Match) -> str:
    name = match["two"] or match["long"]
    if name is not None:
        return ROFF_NAMES.get(name, "")
    return {"-": "-", "e": "\\", " ": " ", "~": " ", "0": " "}.get(match["other"], "")


def roff_text(page: str) -> str:
    """Removes the markup of a manual page roughly: requests go, their arguments stay."""
    lines = []
    for line in page.split("\n"):
        if line[:1] in (".", "'"):
            request, _, rest = line[1:].strip().partition(" ")
            if request.startswith('\\"') or request in ROFF_SILENT:
                continue
            line = ("\n" if request in ("SH", "SS", "Sh", "Ss") else "") + rest.replace('"', "")
        lines.append(ROFF_ESCAPE.sub(roff_character, line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def manual_pages(tree: Path) -> Iterator[Candidate]:
    for name, path in files(tree, ".gz"):
        if "/man/" in name:
            yield name, lambda path=path: roff_text(read_text(path))
    for name, path in files(tree, ".pod"):
        yield name, lambda path=path: read_text(path)


def source_files(tree: Path) -> Iterator[Candidate]:
    for name, path in files(tree, ".py", ".pyx", ".go", ".js", ".c", ".h", ".s"):
        yield name, lambda path=path: read_text(path)


DICTD_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def dictd_number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 64 + DICTD_DIGITS.index(digit)
    return number


def dictionary_places(index: Path) -> list[tuple[int, int]]:
    """Returns begin and size of every entry in order; several headwords may share one entry."""
    places = set()
    for line in index.read_text(encoding="utf-8", errors="replace").splitlines():
        word, begin, size = line.split("\t")[:3]
        if not word.startswith("00"):  # these entries describe the dictionary itself
            places.add((dictd_number(begin), dictd_number(size)))
    return sorted(places)


def dictionary_entries(tree: Path) -> Iterator[Candidate]:
    """Groups up to 40 neighbouring entries, because single ones would outnumber other documents."""
    for name, index in files(tree, ".index"):
        data = read_bytes(index.with_suffix(".dict.dz"))
        places = dictionary_places(index)
        first = 0
        while first < len(places):
            page_id = f"{name}/{places[first][0]}"
            n = 1 + hash_of(page_id)[-1] ** 2 * 40 // 256**2  # often few, sometimes many
            page = places[first : first + n]
            text = "\n".join(data[b : b + size].decode(errors="replace") for b, size in page)
            yield page_id, lambda text=text: text
            first += n


def fortune_texts(tree: Path) -> Iterator[Candidate]:
    for name, path in files(tree, ""):
        # .dat is strfile's index; .u8 is the same text again.
        if "/games/fortunes/" in name and not name.endswith((".dat", ".u8")):
            for number, text in enumerate(re.split(r"^%\n", read_text(path), flags=re.M)):
                yield f"{name}/{number}", lambda text=text: text


READERS = {
    "html": html_pages,
    "man": manual_pages,
    "code": source_files,
    "dictionary": dictionary_entries,
    "fortunes": fortune_texts,
}


# ---- The corpus ------------------------------------------------------------------------


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def taken(
    candidates: list[Candidate], budget: int, seen: set[bytes]
) -> Iterator[tuple[str, str]]:
    """Reads candidates in the order of their hashes until the budget is spent."""
    for name, read in sorted(candidates, key=lambda candidate: hash_of(candidate[0])):
        text = read().strip()
        size = len(text.encode())
        if len(text) < SHORTEST or hash_of(text) in seen or size > LONGEST:
            continue
        if size > budget:
            return
        seen.add(hash_of(text))
        budget -= size
        yield name, text


def packages_by_kind(path: Path) -> dict[str, list[str]]:
    packages: dict[str, list[str]] = {kind: [] for kind in READERS}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, package = line.split()
            packages[kind].append(package)
    return packages


def collect(packages: dict[str, list[str]], unpacked: Path) -> list[tuple[str, str]]:
    documents, seen = [], set()
    for kind, names in packages.items():
        candidates = [c for name in names for c in READERS[kind](unpacked / name)]
        own = list(taken(candidates, BUDGET[kind], seen))
        n_bytes = sum(len(text.encode()) for _, text in own)
        print(f"{kind:<10} {len(candidates):>8} found {len(own):>8} taken {n_bytes:>12,} bytes")
        documents += own
    return sorted(documents, key=lambda document: hash_of(document[0]))


def write(documents: list[tuple[str, str]], path: Path) -> str:
    """Writes the corpus and returns its checksum."""
    checksum = hashlib.sha256()
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        for name, text in documents:
            line = json.dumps({"id": name, "text": text}, ensure_ascii=False).encode() + b"\n"
            file.write(line)
            checksum.update(line)
    os.replace(partial, path)
    return checksum.hexdigest()


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("Usage: corpus.py PACKAGES UNPACKED CORPUS.jsonl")
    packages, unpacked, path = map(Path, sys.argv[1:])
    documents = collect(packages_by_kind(packages), unpacked)
    checksum = write(documents, path)
    sizes = sorted(len(text.encode()) for _, text in documents)
    print(f"{len(sizes):,} documents, {sum(sizes):,} bytes of text")
    parts = {"median": 0.5, "90 %": 0.9, "99 %": 0.99}
    shown = [f"{name} {sizes[int(part * len(sizes))]:,}" for name, part in parts.items()]
    print(f"bytes of a document: {', '.join(shown)}, largest {sizes[-1]:,}")
    print(f"{path}: {path.stat().st_size:,} bytes\nsha256 {checksum}")


if __name__ == "__main__":
    main()
