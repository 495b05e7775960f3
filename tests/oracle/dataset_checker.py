"""Checks a dataset against every numbered invariant of `schemas/shard-v1.md`.

    python dataset_checker.py DATASET        # a line per violation; exit 1 if there is any

It reads with pyarrow, recomputes every figure from the rows, and shares nothing with the C
program: it was written from the document alone. D4 (what a tokenizer's file means) is left to
the tests of the tokenizers.
"""

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

FORMAT = "1.0"
BATCH_BYTES = 4 << 20
ALIGNMENT = 8  # what Arrow's own writers give a buffer, whatever alignment they are asked for

METADATA_KEYS = ["format", "packing", "unit", "figures"]
PACKING_KEYS = [
    "seq_len", "vocab_size", "separator", "bos", "padding", "batch_rows", "strategy", "long",
    "tokenizer",
]
TOKENIZER_KEYS = ["name", "fingerprint"]
UNIT_KEYS = ["input", "slice", "inputs"]
FIGURE_KEYS = [
    "rows", "segments", "documents", "text", "bos", "separators", "repeated", "packed",
    "padding", "truncated", "dropped", "targets", "empty_documents", "split_documents",
    "truncated_documents", "dropped_documents", "separator_collisions",
    "invalid_utf8_documents", "longest_segment", "attention_pairs",
    "document_length_histogram", "segments_per_row_histogram",
]


class Violation(NamedTuple):
    """A broken invariant: its number, where, and what was found."""

    rule: str
    place: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.found}"


@dataclass(frozen=True)
class Piece:
    """A segment: what `documents` says of it, and its tokens."""

    input: int
    position: int
    offset: int
    length: int
    tokens: tuple[int, ...]

    @property
    def document(self) -> tuple[int, int]:
        return self.input, self.position

    @property
    def end(self) -> int:
        return self.offset + len(self.tokens)


@dataclass(frozen=True)
class Row:
    """A row as it is stored."""

    ids: np.ndarray
    boundaries: list[int]
    documents: list[dict[str, int]]
    checksum: int

    @property
    def has_segments(self) -> bool:
        """R1 and R2: the row can be taken apart into segments."""
        b = self.boundaries
        return (
            len(b) >= 2
            and b[0] == 0
            and all(x < y for x, y in zip(b, b[1:]))
            and b[-1] <= len(self.ids)
            and len(self.documents) == len(b) - 1
        )

    def pieces(self) -> list[Piece]:
        """The row's segments. Needs `has_segments`."""
        return [
            Piece(**document, tokens=tuple(self.ids[begin:end].tolist()))
            for document, begin, end in zip(
                self.documents, self.boundaries, self.boundaries[1:]
            )
        ]


@dataclass(frozen=True)
class Shard:
    """A shard's file as pyarrow reads it."""

    name: str
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    mapping: pa.Buffer  # the whole file; keeps the batches' memory alive
    metadata: dict

    def rows(self) -> Iterator[Row]:
        for batch in self.batches:
            values = batch.column("input_ids").flatten().to_numpy()
            ids = values.reshape(batch.num_rows, -1) if batch.num_rows else values
            yield from map(
                Row,
                ids,
                batch.column("cu_seqlens").to_pylist(),
                batch.column("documents").to_pylist(),
                batch.column("checksum").to_pylist(),
            )


def read_shard(path: Path) -> Shard:
    """Raises pa.ArrowInvalid, OSError or ValueError for what is not a shard at all."""
    with pa.memory_map(str(path)) as stream:
        mapping = stream.read_buffer()
    reader = pa.ipc.open_file(mapping)
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    for batch in batches:
        batch.validate(full=True)
    metadata = json.loads((reader.schema.metadata or {}).get(b"bindery", b"null"))
    if not isinstance(metadata, dict):
        raise ValueError("the schema has no metadata 'bindery'")
    return Shard(path.name, reader.schema, batches, mapping, metadata)


# ---- R: of a row -----------------------------------------------------------------


def row_checksum(row: Row) -> int:
    """XXH3-64 over ids, boundaries and documents, as stored."""
    state = xxhash.xxh3_64()
    state.update(row.ids.tobytes())
    state.update(np.array(row.boundaries, dtype="<i4").tobytes())
    for d in row.documents:
        state.update(struct.pack("<IQII", d["input"], d["position"], d["offset"], d["length"]))
    return state.intdigest()


def check_boundaries(row: Row) -> Iterator[tuple[str, str]]:
    b = row.boundaries
    if len(b) < 2:
        yield "R1", f"cu_seqlens has {len(b)} entries"
        return
    if b[0] != 0:
        yield "R1", f"cu_seqlens begins with {b[0]}"
    if any(x >= y for x, y in zip(b, b[1:])):
        yield "R1", f"cu_seqlens does not increase: {b}"
    if b[-1] > len(row.ids):
        yield "R1", f"cu_seqlens ends at {b[-1]} in a row of {len(row.ids)}"
    if len(row.documents) != len(b) - 1:
        yield "R2", f"{len(row.documents)} documents for {len(b) - 1} segments"


def check_segments(row: Row, packing: dict) -> Iterator[tuple[str, str]]:
    pieces = row.pieces()
    padding = row.ids[row.boundaries[-1] :]
    if (padding != packing["padding"]).any():
        yield "R3", f"padding holds {sorted(set(padding.tolist()))}"
    for k, piece in enumerate(pieces):
        if piece.end > piece.length:
            yield "R4", f"segment {k} ends at token {piece.end} of {piece.length}"
        if len(piece.tokens) == 1 and (piece.offset != 0 or piece.length != 1):
            yield "R4", f"segment {k} is 1 token of {piece.length} at {piece.offset}"
        if piece.end == piece.length and piece.tokens[-1] != packing["separator"]:
            yield "R5", f"segment {k} ends its document with {piece.tokens[-1]}"
        if piece.offset == 0 and packing["bos"] not in (None, piece.tokens[0]):
            yield "R6", f"segment {k} begins its document with {piece.tokens[0]}"
    for k, (piece, after) in enumerate(zip(pieces, pieces[1:])):
        if after.document < piece.document:
            yield "R8", f"segment {k + 1} is of an earlier document than segment {k}"
        if after.document == piece.document:
            yield "R8", f"segments {k} and {k + 1} are of one document"


def check_row(row: Row, packing: dict) -> Iterator[tuple[str, str]]:
    """(rule, found) of every broken invariant of one row."""
    if (row.ids >= packing["vocab_size"]).any():
        yield "R3", f"an id of {row.ids.max()} in a vocabulary of {packing['vocab_size']}"
    if row.checksum != row_checksum(row):
        yield "R7", f"checksum is {row.checksum:016x}, the row's is {row_checksum(row):016x}"
    yield from check_boundaries(row)
    if row.has_segments:
        yield from check_segments(row, packing)


# ---- S: of a shard ---------------------------------------------------------------


def expected_schema(packing: dict) -> pa.Schema:
    def item(kind: pa.DataType) -> pa.Field:
        return pa.field("item", kind, nullable=False)

    def field(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    token = pa.uint16() if packing["vocab_size"] <= 65536 else pa.uint32()
    document = pa.struct([
        field("input", pa.uint32()),
        field("position", pa.uint64()),
        field("offset", pa.uint32()),
        field("length", pa.uint32()),
    ])
    return pa.schema([
        field("input_ids", pa.list_(item(token), packing["seq_len"])),
        field("cu_seqlens", pa.list_(item(pa.int32()))),
        field("documents", pa.list_(item(document))),
        field("checksum", pa.uint64()),
    ])


def check_buffers(shard: Shard) -> Iterator[str]:
    """No nulls; every buffer lies in the mapped file itself, aligned."""
    begin, end = shard.mapping.address, shard.mapping.address + shard.mapping.size
    for batch in shard.batches:
        for name, column in zip(batch.schema.names, batch.columns):
            if column.null_count > 0:
                yield f"column {name} has nulls"
            for buffer in column.buffers():
                if buffer is None or buffer.size == 0:
                    continue
                if not begin <= buffer.address < end:
                    yield f"a buffer of {name} is not stored as it is used"
                elif (buffer.address - begin) % ALIGNMENT != 0:
                    yield f"a buffer of {name} is not aligned to {ALIGNMENT} bytes"


def check_batches(shard: Shard, packing: dict) -> Iterator[str]:
    batch_rows = packing["batch_rows"]
    sizes = [batch.num_rows for batch in shard.batches]
    if any(n != batch_rows for n in sizes[:-1]) or any(n > batch_rows for n in sizes[-1:]):
        yield f"batches of {sizes} rows where batch_rows is {batch_rows}"
    if len(sizes) > 1 and sizes[-1] == 0:
        yield "the last batch is empty"
    row_bytes = packing["seq_len"] * (2 if packing["vocab_size"] <= 65536 else 4)
    if batch_rows < 1 or not (
        batch_rows == 1 or BATCH_BYTES // 2 <= batch_rows * row_bytes <= BATCH_BYTES * 2
    ):
        yield f"batch_rows {batch_rows} makes batches of {batch_rows * row_bytes} bytes of ids"


def check_metadata(shard: Shard) -> Iterator[str]:
    """The metadata's form; what it says is compared with manifest and rows elsewhere."""
    raw = shard.schema.metadata
    if set(raw) != {b"bindery"}:
        yield f"schema metadata has the keys {sorted(raw)}"
    metadata = shard.metadata
    compact = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    if compact.encode() != raw[b"bindery"]:
        yield "metadata is not compact JSON"
    for found, expected in [
        (metadata, METADATA_KEYS),
        (metadata.get("packing", {}), PACKING_KEYS),
        (metadata.get("packing", {}).get("tokenizer", {}), TOKENIZER_KEYS),
        (metadata.get("unit", {}), UNIT_KEYS),
        (metadata.get("figures", {}), FIGURE_KEYS),
    ]:
        if list(found) != expected:
            yield f"metadata has the keys {list(found)} where {expected} belong"
    if metadata.get("format") != FORMAT:
        yield f"format is {metadata.get('format')!r}"


def pieces_by_document(pieces: list[Piece]) -> dict[tuple[int, int], list[Piece]]:
    """Each document's pieces by offset."""
    found: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.document, []).append(piece)
    for own in found.values():
        own.sort(key=lambda piece: piece.offset)
    return found


def check_document(own: list[Piece], packing: dict) -> Iterator[str]:
    """S3 of one document, its pieces sorted by offset."""
    if own[0].offset != 0:
        yield f"its first piece begins at token {own[0].offset}"
    if len({piece.length for piece in own}) > 1:
        yield f"its pieces disagree on its length: {[piece.length for piece in own]}"
    for piece, after in zip(own, own[1:]):
        if after.offset != piece.end - 1:
            yield f"a piece ends at token {piece.end} and the next begins at {after.offset}"
        elif after.tokens[0] != piece.tokens[-1]:
            yield f"token {after.offset} is {piece.tokens[-1]}, repeated as {after.tokens[0]}"
    last = own[-1]
    if last.end < last.length:
        if packing["long"] != "truncate":
            yield f"only {last.end} of its {last.length} tokens are there"
        elif last.end != packing["seq_len"]:
            yield f"it is truncated to {last.end} tokens, not to {packing['seq_len']}"


def histogram(values: list[int]) -> list[int]:
    """Entry i counts the values from 2^i to 2^(i+1) - 1; no trailing zeros."""
    logs = [value.bit_length() - 1 for value in values]
    return [logs.count(i) for i in range(max(logs, default=-1) + 1)]


def text_tokens(piece: Piece, packing: dict) -> tuple[int, ...]:
    """A piece's tokens without BOS, the document's own separator and the repeated token."""
    begins_with_other = piece.offset > 0 or packing["bos"] is not None
    ends_with_separator = piece.end == piece.length
    end = len(piece.tokens) - int(ends_with_separator)
    return piece.tokens[int(begins_with_other) : end]


def figures_of_rows(rows: list[list[Piece]], packing: dict, stated: dict) -> dict:
    """Every figure, recomputed. Rows do not show what was dropped and which bytes were not
    UTF-8: those three are taken as stated, and everything else must agree with them."""
    seq_len = packing["seq_len"]
    pieces = [piece for row in rows for piece in row]
    documents = list(pieces_by_document(pieces).values())
    lengths = [own[0].length for own in documents]
    frame = 1 if packing["bos"] is None else 2  # separator and BOS
    sizes = [len(piece.tokens) for piece in pieces]
    cut_short = [own[-1] for own in documents if own[-1].end < own[-1].length]
    dropped, dropped_documents = stated["dropped"], stated["dropped_documents"]
    given = len(documents) + dropped_documents
    return {
        "rows": len(rows),
        "segments": len(pieces),
        "documents": len(documents),
        "text": sum(lengths) + dropped - frame * given,
        "bos": given * (frame - 1),
        "separators": given,
        "repeated": sum(piece.offset > 0 for piece in pieces),
        "packed": sum(sizes),
        "padding": len(rows) * seq_len - sum(sizes),
        "truncated": sum(last.length - last.end for last in cut_short),
        "dropped": dropped,
        "targets": sum(size - 1 for size in sizes),
        "empty_documents": sum(length == frame for length in lengths),
        "split_documents": sum(len(own) > 1 for own in documents),
        "truncated_documents": len(cut_short),
        "dropped_documents": dropped_documents,
        "separator_collisions": sum(
            text_tokens(piece, packing).count(packing["separator"]) for piece in pieces
        ),
        "invalid_utf8_documents": stated["invalid_utf8_documents"],
        "longest_segment": max(sizes, default=0),
        "attention_pairs": sum(size * (size + 1) // 2 for size in sizes),
        "document_length_histogram": histogram(lengths),
        "segments_per_row_histogram": histogram([len(row) for row in rows]),
    }


def check_dropped(figures: dict, packing: dict) -> Iterator[str]:
    """What can be said of the figures that rows do not show."""
    if packing["long"] != "drop" and (figures["dropped"] or figures["dropped_documents"]):
        yield f"{figures['dropped_documents']} documents dropped under {packing['long']!r}"
    if figures["dropped"] < figures["dropped_documents"] * (packing["seq_len"] + 1):
        yield f"dropped {figures['dropped']} tokens in {figures['dropped_documents']} documents"
    if figures["invalid_utf8_documents"] > figures["documents"] + figures["dropped_documents"]:
        yield f"{figures['invalid_utf8_documents']} documents that were not UTF-8"


def check_ledger(figures: dict, seq_len: int) -> Iterator[str]:
    """S6."""
    f = figures
    given = f["text"] + f["bos"] + f["separators"] + f["repeated"]
    taken = f["packed"] + f["truncated"] + f["dropped"]
    if given != taken:
        yield f"{given} tokens given and {taken} accounted for"
    if f["packed"] + f["padding"] != f["rows"] * seq_len:
        yield f"{f['packed']} packed + {f['padding']} padding in {f['rows']} rows of {seq_len}"
    if f["packed"] - f["segments"] != f["targets"]:
        yield f"{f['packed']} packed in {f['segments']} segments give {f['targets']} targets"


def check_unit(pieces: list[Piece], unit: dict, plan: dict) -> Iterator[str]:
    """S2. An empty input can hold an empty document at its byte 0."""
    inputs, reading = plan["inputs"], plan["reading"]
    first, last = unit["input"], unit["input"] + unit["inputs"] - 1
    sliced = can_be_cut(inputs[first], reading)
    for piece in pieces:
        if not first <= piece.input <= last:
            yield f"input {piece.input} is not of the unit {unit}"
        elif piece.position >= max(inputs[piece.input]["bytes"], 1):
            size = inputs[piece.input]["bytes"]
            yield f"position {piece.position} in an input of {size} bytes"
        elif sliced and piece.position // reading["unit_size"] != unit["slice"]:
            yield f"position {piece.position} is not of slice {unit['slice']}"


def check_order(rows: list[list[Piece]]) -> Iterator[str]:
    """S4."""
    earliest = [min(piece.document for piece in row) for row in rows]
    for i, (document, after) in enumerate(zip(earliest, earliest[1:])):
        if after < document:
            yield f"row {i + 1} has an earlier document than row {i}"


def check_figures(rows: list[list[Piece]], packing: dict, figures: dict) -> Iterator[str]:
    """S5."""
    counted = figures_of_rows(rows, packing, figures)
    for name, value in counted.items():
        if figures[name] != value:
            yield f"{name} is {figures[name]}, the rows give {value}"
    yield from check_dropped(figures, packing)


def check_agreement(shard: Shard, entry: dict, manifest: dict) -> Iterator[str]:
    """S1: the metadata agrees with the manifest."""
    for name, stated in [
        ("packing", manifest["packing"]),
        ("unit", entry["unit"]),
        ("figures", entry["figures"]),
    ]:
        if shard.metadata[name] != stated:
            yield f"{name} is not the manifest's"


def check_shard(shard: Shard, entry: dict, manifest: dict, plan: dict) -> Iterator[Violation]:
    """R and S of one shard."""
    packing, figures = manifest["packing"], entry["figures"]

    def named(rule: str, found: Iterator[str]) -> Iterator[Violation]:
        return (Violation(rule, shard.name, text) for text in found)

    if not shard.schema.equals(expected_schema(packing), check_metadata=False):
        yield Violation("S1", shard.name, f"the schema is {shard.schema.remove_metadata()}")
        return
    malformed = list(check_metadata(shard))
    yield from named("S1", iter(malformed))
    if malformed:
        return
    yield from named("S1", check_agreement(shard, entry, manifest))
    yield from named("S1", check_batches(shard, packing))
    yield from named("S1", check_buffers(shard))

    rows = list(shard.rows())
    for i, row in enumerate(rows):
        for rule, found in check_row(row, packing):
            yield Violation(rule, f"{shard.name} row {i}", found)
    taken_apart = [row.pieces() for row in rows if row.has_segments]
    pieces = [piece for row in taken_apart for piece in row]
    yield from named("S2", check_unit(pieces, entry["unit"], plan))
    for document, own in pieces_by_document(pieces).items():
        for found in check_document(own, packing):
            yield Violation("S3", f"{shard.name} document {document}", found)
    yield from named("S4", check_order(taken_apart))
    if len(taken_apart) == len(rows):
        yield from named("S5", check_figures(taken_apart, packing, figures))
    yield from named("S6", check_ledger(figures, packing["seq_len"]))


# ---- D: of a dataset -------------------------------------------------------------


def manifest_checksum(text: bytes) -> str:
    """XXH3-128 over every byte before the comma that precedes the last member."""
    return xxhash.xxh3_128_hexdigest(text[: text.rindex(b",")])


def check_files(dataset: Path, manifest: dict) -> Iterator[Violation]:
    """D1 of the files that the manifest names."""
    for entry in [manifest["plan"], manifest["tokenizer"], *manifest["shards"]]:
        name = entry["file"]
        if not (dataset / name).is_file():
            yield Violation("D1", name, "there is no such file")
            continue
        data = (dataset / name).read_bytes()
        if "bytes" in entry and entry["bytes"] != len(data):
            yield Violation("D1", name, f"{len(data)} bytes, not {entry['bytes']}")
        if entry["checksum"] != xxhash.xxh3_128_hexdigest(data):
            yield Violation("D1", name, "its checksum is another")


def can_be_cut(item: dict, reading: dict) -> bool:
    """An input larger than a unit is cut, unless it is one document: text without delimiter."""
    is_one_document = item["format"] == "text" and reading["delimiter"] is None
    return item["bytes"] > reading["unit_size"] and not is_one_document


def planned_units(plan: dict) -> list[dict]:
    """The units of a corpus: slices of the large inputs, groups of neighbouring small ones."""
    unit_size = plan["reading"]["unit_size"]
    units: list[dict] = []
    group_bytes = None  # of the group that the last unit is, if it is one
    for index, item in enumerate(plan["inputs"]):
        size = item["bytes"]
        if can_be_cut(item, plan["reading"]):
            group_bytes = None
            for k in range(-(-size // unit_size)):
                units.append({"input": index, "slice": k, "inputs": 1})
        elif group_bytes is not None and group_bytes + size <= unit_size:
            group_bytes += size
            units[-1]["inputs"] += 1
        else:
            group_bytes = size
            units.append({"input": index, "slice": 0, "inputs": 1})
    return units


def check_names(dataset: Path, manifest: dict, plan: dict) -> Iterator[Violation]:
    """D2."""
    named = [entry["file"] for entry in manifest["shards"]]
    for path in dataset.glob("*.arrow"):
        if path.name not in named:
            yield Violation("D2", path.name, "the manifest does not name it")
    planned = planned_units(plan)
    stated = [entry["unit"] for entry in manifest["shards"]]
    if stated != planned:
        yield Violation("D2", "manifest.json", f"units {stated} where {planned} were planned")
    for name, unit in zip(named, stated):
        if name != f"{unit['input']:05d}-{unit['slice']:05d}.arrow":
            yield Violation("D2", name, f"is the shard of {unit}")
    if plan["packing"] != manifest["packing"]:
        yield Violation("D2", "plan.json", "it plans another packing")
    stated_inputs = [{**item, "edges": None} for item in manifest["inputs"]]
    if stated_inputs != [{**item, "edges": None} for item in plan["inputs"]]:
        yield Violation("D2", "plan.json", "it plans other inputs")


def sum_histograms(histograms: list[list[int]]) -> list[int]:
    size = max(map(len, histograms), default=0)
    return [sum(h[i] for h in histograms if i < len(h)) for i in range(size)]


def sum_figures(figures: list[dict]) -> dict:
    """D3: sums; the longest segment is a maximum."""
    total: dict = {}
    for name in FIGURE_KEYS:
        values = [shard[name] for shard in figures]
        if name.endswith("_histogram"):
            total[name] = sum_histograms(values)
        elif name == "longest_segment":
            total[name] = max(values, default=0)
        else:
            total[name] = sum(values)
    return total


def check_totals(manifest: dict) -> Iterator[Violation]:
    expected = sum_figures([entry["figures"] for entry in manifest["shards"]])
    for name, value in expected.items():
        if manifest["totals"].get(name) != value:
            stated = manifest["totals"].get(name)
            yield Violation("D3", "manifest.json", f"total {name} is {stated}, not {value}")
    for found in check_ledger(manifest["totals"], manifest["packing"]["seq_len"]):
        yield Violation("D3", "manifest.json", found)


def check_dataset(dataset: Path) -> list[Violation]:
    """Every violation that can be found; an empty list for a good dataset."""
    text = (dataset / "manifest.json").read_bytes()
    manifest = json.loads(text)
    plan = json.loads((dataset / "plan.json").read_bytes())
    violations = []
    if manifest["checksum"] != manifest_checksum(text):
        violations.append(Violation("D1", "manifest.json", "its own checksum is another"))
    violations += check_files(dataset, manifest)
    violations += check_names(dataset, manifest, plan)
    violations += check_totals(manifest)
    for entry in manifest["shards"]:
        try:
            shard = read_shard(dataset / entry["file"])
        except (pa.ArrowException, OSError, ValueError) as error:
            violations.append(Violation("S1", entry["file"], str(error)))
            continue
        violations += check_shard(shard, entry, manifest, plan)
    return violations


# ---- The documents again ---------------------------------------------------------


def rebuild_documents(dataset: Path) -> dict[tuple[int, int], list[int]]:
    """(input, position) -> the tokens of the document that are in rows, each once."""
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    pieces = [
        piece
        for entry in manifest["shards"]
        for row in read_shard(dataset / entry["file"]).rows()
        for piece in row.pieces()
    ]
    documents: dict[tuple[int, int], list[int]] = {}
    for key, own in pieces_by_document(pieces).items():
        tokens: list[int] = []
        for piece in own:
            if piece.offset != max(len(tokens) - 1, 0):
                raise ValueError(f"document {key} has no token {len(tokens)}")
            tokens[piece.offset :] = piece.tokens
        documents[key] = tokens
    return documents


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DATASET")
    violations = check_dataset(Path(sys.argv[1]))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
