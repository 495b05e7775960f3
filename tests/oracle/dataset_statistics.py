"""The expected output of `bindery inspect --scan --duplicates`, computed with pyarrow from the
rows and from the words of `schemas/inspection-v1.schema.json`; shares nothing with the C
program."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dataset_checker import rebuild_documents
from shard_checker import Piece, read_shard

PERCENTS = [1, 10, 50, 90, 99]
TILE_SIZES = [64, 128]
N_FREQUENT = 10
N_MOST_REPEATED = 5


@dataclass(frozen=True)
class Place:
    """The place where a document begins."""

    shard: str
    row: int


def rows_of(dataset: Path) -> list[tuple[Place, int, list[Piece]]]:
    """Yields place, length and segments of every row, in the order of the manifest."""
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    return [
        (Place(entry["file"], number), len(row.ids), row.pieces())
        for entry in manifest["shards"]
        for number, row in enumerate(read_shard(dataset / entry["file"]).rows())
    ]


def tiles(length: int, size: int) -> int:
    """Counts pairs of blocks of which the second does not come after the first."""
    blocks = range(0, length, size)
    return sum(1 for query in blocks for key in blocks if key <= query)


def lengths_of(rows: list[tuple[Place, int, list[Piece]]]) -> dict[str, object]:
    documents = {(p.input, p.position): p.length for _, _, pieces in rows for p in pieces}
    ordered = sorted(documents.values())
    found = {
        f"p{percent}": next(
            (x for n, x in enumerate(ordered, 1) if 100 * n >= percent * len(ordered)), 0
        )
        for percent in PERCENTS
    }
    return {"exact": True, **found, "max": max(ordered, default=0), "max_exact": True}


def padding_of(rows: list[tuple[Place, int, list[Piece]]]) -> list[int]:
    counts = Counter((n - sum(len(p.tokens) for p in ps)).bit_length() for _, n, ps in rows)
    return [counts[i] for i in range(max(counts, default=-1) + 1)]


def tiles_of(rows: list[tuple[Place, int, list[Piece]]]) -> list[dict[str, int]]:
    return [
        {
            "size": size,
            "visited": sum(tiles(len(p.tokens), size) for _, _, ps in rows for p in ps),
            "causal": sum(tiles(n, size) for _, n, _ in rows),
        }
        for size in TILE_SIZES
    ]


def frequent_of(rows: list[tuple[Place, int, list[Piece]]]) -> list[tuple[int, int]]:
    """Returns (id, count), the most frequent first; of equal counts the lower id first."""
    counts = Counter(token for _, _, pieces in rows for p in pieces for token in p.tokens)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:N_FREQUENT]


def duplicates_of(dataset: Path) -> dict[str, object]:
    rows = rows_of(dataset)
    texts = {key: tuple(ids) for key, ids in rebuild_documents(dataset).items()}
    begins = [(p.document, place) for place, _, ps in rows for p in ps if p.offset == 0]
    first: dict[tuple[int, ...], tuple[tuple[int, int], Place]] = {}
    for document, place in begins:
        first.setdefault(texts[document], (document, place))
    counts = Counter(texts[document] for document, _ in begins)
    order = list(first)  # documents whose beginning is in a row
    repeated = sorted((t for t in order if counts[t] > 1), key=lambda t: -counts[t])
    return {
        "exact": True,
        "error": 0.0,
        "documents": len(begins),
        "distinct": len(first),
        "repeated": len(begins) - len(first),
        "tokens": sum(len(text) * n for text, n in counts.items()),
        "repeated_tokens": sum(len(text) * (n - 1) for text, n in counts.items()),
        "most_repeated": [
            {
                "count": counts[text],
                "tokens": len(text),
                "shard": first[text][1].shard,
                "row": first[text][1].row,
                "input": first[text][0][0],
                "position": first[text][0][1],
            }
            for text in repeated[:N_MOST_REPEATED]
        ],
    }
