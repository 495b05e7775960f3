"""Checks a shard against the invariants R and S of `schemas/shard-v1.md`.

It reads with pyarrow, recomputes every figure from the rows, and shares nothing with the C
program: it was written from the document alone.
"""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

FORMAT = "1.2"  # the version that is written today
MASKED_FORMAT = "2.0"  # the same for datasets with loss masks
BATCH_BYTES = 4 << 20
ALIGNMENT = 8  # the alignment of Arrow's own writers, whatever they are asked for

TOKENIZER_KEYS = ["name", "fingerprint"]
METADATA_KEYS = ["format", "packing", "unit", "records", "positions", "figures"]
PACKING_KEYS = [
    "seq_len", "vocab_size", "separator", "bos", "padding", "batch_rows", "strategy", "long",
    "max_documents", "min_tokens", "shuffle", "holdout", "part", "codec", "tokenizer",
]
UNIT_KEYS = ["input", "slice", "inputs", "last"]
FIGURE_KEYS = [
    "rows", "segments", "documents", "text", "bos", "separators", "repeated", "packed",
    "padding", "truncated", "dropped", "too_short", "held_out", "targets", "empty_documents",
    "split_documents", "truncated_documents", "dropped_documents", "too_short_documents",
    "held_out_documents", "headless_documents", "separator_collisions",
    "invalid_utf8_documents", "bad_missing_text", "bad_json", "bad_utf8", "bad_too_large",
    "bad_pattern", "longest_segment", "attention_pairs", "added_tokens", "added_tokens_other",
    "document_length_histogram", "segments_per_row_histogram",
]


def after(keys: list[str], key: str, *added: str) -> list[str]:
    place = keys.index(key) + 1
    return [*keys[:place], *added, *keys[place:]]


# Keys of a dataset with loss masks, and of no other.
MASK_FIGURES = ["untrained", "masked", "untrained_documents"]
MASKED_PACKING_KEYS = after(PACKING_KEYS, "codec", "loss_mask")
MASKED_FIGURE_KEYS = after(
    after(FIGURE_KEYS, "held_out", "untrained", "masked"), "held_out_documents",
    "untrained_documents",
)

BAD_FIGURES = ["bad_missing_text", "bad_json", "bad_utf8", "bad_too_large", "bad_pattern"]
NOT_ALWAYS_COUNTED = {"added_tokens", "added_tokens_other"}  # not before 1.2
COUNTED_IDS = 32  # the lowest ids of added tokens are counted one by one

# Keys that 1.0 did not have, and their values for it; below, those that 1.1 did not have either.
ADDED_PACKING = {
    "max_documents": None, "min_tokens": 0, "shuffle": None, "holdout": 0, "part": "all",
    "codec": "none",
}
ADDED_UNIT = {"last": True}
ADDED_FIGURES = {
    "too_short": 0, "held_out": 0, "too_short_documents": 0, "held_out_documents": 0,
    "headless_documents": 0, **dict.fromkeys(BAD_FIGURES, 0), "added_tokens": [],
    "added_tokens_other": 0,
}
ADDED_METADATA = {"records": "", "positions": ""}
ADDED_SECOND = {"positions", *BAD_FIGURES}


class Violation(NamedTuple):
    """A broken invariant: its number, the place, and the value found."""

    rule: str
    place: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.found}"


@dataclass(frozen=True)
class Piece:
    """A segment: its entry in `documents`, its tokens and, in a dataset with loss masks, which of
    them are trained."""

    input: int
    position: int
    offset: int
    length: int
    tokens: tuple[int, ...]
    trained: tuple[bool, ...] | None = None

    @property
    def n_targets(self) -> int:
        """Counts the tokens that are predicted from those before them."""
        return len(self.tokens) - 1 if self.trained is None else sum(self.trained[1:])

    @property
    def document(self) -> tuple[int, int]:
        return self.input, self.position

    @property
    def end(self) -> int:
        return self.offset + len(self.tokens)

    def place(self, packing: dict) -> tuple[int, ...]:
        """Returns the sort key of its document in input order."""
        if packing["shuffle"] is None:
            return self.document
        data = struct.pack("<IQ", *self.document)
        return xxhash.xxh3_64_intdigest(data, seed=packing["shuffle"]), *self.document


@dataclass(frozen=True)
class Row:
    """A stored row."""

    ids: np.ndarray
    boundaries: list[int]
    documents: list[dict[str, int]]
    checksum: int
    mask: np.ndarray | None = None

    @property
    def has_segments(self) -> bool:
        """R1 and R2: tells whether the row can be divided into segments."""
        b = self.boundaries
        return (
            len(b) >= 2
            and b[0] == 0
            and all(x < y for x, y in zip(b, b[1:]))
            and b[-1] <= len(self.ids)
            and len(self.documents) == len(b) - 1
        )

    def pieces(self) -> list[Piece]:
        """Returns the row's segments. Needs `has_segments`."""
        return [
            Piece(
                **document,
                tokens=tuple(self.ids[begin:end].tolist()),
                trained=None if self.mask is None else tuple(self.mask[begin:end].tolist()),
            )
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

    @property
    def is_first_minor(self) -> bool:
        """Tells whether the shard has format 1.0."""
        return self.metadata.get("format") == "1.0"

    def rows(self) -> Iterator[Row]:
        for batch in self.batches:
            values = batch.column("input_ids").flatten().to_numpy()
            ids = values.reshape(batch.num_rows, -1) if batch.num_rows else values
            masks = [None] * batch.num_rows
            if "loss_mask" in batch.schema.names and batch.num_rows:
                bits = batch.column("loss_mask").flatten().to_numpy(zero_copy_only=False)
                masks = bits.reshape(batch.num_rows, -1)
            yield from map(
                Row,
                ids,
                batch.column("cu_seqlens").to_pylist(),
                batch.column("documents").to_pylist(),
                batch.column("checksum").to_pylist(),
                masks,
            )


def read_shard(path: Path) -> Shard:
    """Raises pa.ArrowInvalid, OSError or ValueError if the file is not a shard."""
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


# ---- R: rules of a row -----------------------------------------------------------


def row_checksum(row: Row) -> int:
    """Returns XXH3-64 over ids, boundaries and documents, as stored, and then over the mask as
    bytes, of which the first token's bit is the lowest."""
    state = xxhash.xxh3_64()
    state.update(row.ids.tobytes())
    state.update(np.array(row.boundaries, dtype="<i4").tobytes())
    for d in row.documents:
        state.update(struct.pack("<IQII", d["input"], d["position"], d["offset"], d["length"]))
    if row.mask is not None:
        state.update(np.packbits(row.mask, bitorder="little").tobytes())
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
    for k, (piece, later) in enumerate(zip(pieces, pieces[1:])):
        if later.place(packing) < piece.place(packing):
            yield "R8", f"segment {k + 1} is of an earlier document than segment {k}"
        if later.document == piece.document:
            yield "R8", f"segments {k} and {k + 1} are of one document"
    if packing["max_documents"] is not None and len(pieces) > packing["max_documents"]:
        yield "R9", f"{len(pieces)} segments where {packing['max_documents']} are the most"
    if row.mask is not None:
        for k, piece in enumerate(pieces):
            if piece.trained[0]:
                yield "R10", f"the first token of segment {k} is trained"
        if row.mask[row.boundaries[-1] :].any():
            yield "R10", "padding is trained"


def check_row(row: Row, packing: dict) -> Iterator[tuple[str, str]]:
    """Yields (rule, found) for every broken invariant of one row."""
    if (row.ids >= packing["vocab_size"]).any():
        yield "R3", f"an id of {row.ids.max()} in a vocabulary of {packing['vocab_size']}"
    if row.checksum != row_checksum(row):
        yield "R7", f"checksum is {row.checksum:016x}, the row's is {row_checksum(row):016x}"
    yield from check_boundaries(row)
    if row.has_segments:
        yield from check_segments(row, packing)


# ---- S: rules of a shard ---------------------------------------------------------


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
    masks = [field("loss_mask", pa.list_(item(pa.bool_()), packing["seq_len"]))]
    return pa.schema([
        field("input_ids", pa.list_(item(token), packing["seq_len"])),
        field("cu_seqlens", pa.list_(item(pa.int32()))),
        field("documents", pa.list_(item(document))),
        *(masks if packing.get("loss_mask") else []),
        field("checksum", pa.uint64()),
    ])


def check_buffers(shard: Shard, codec: str) -> Iterator[str]:
    """No nulls; every buffer lies in the mapped file, aligned, or all are compressed."""
    begin, end = shard.mapping.address, shard.mapping.address + shard.mapping.size
    for batch in shard.batches:
        for name, column in zip(batch.schema.names, batch.columns):
            if column.null_count > 0:
                yield f"column {name} has nulls"
            for buffer in column.buffers():
                if buffer is None or buffer.size == 0:
                    continue
                is_mapped = begin <= buffer.address < end
                if is_mapped != (codec == "none"):
                    yield f"a buffer of {name} is stored with another codec than {codec!r}"
                elif is_mapped and (buffer.address - begin) % ALIGNMENT != 0:
                    yield f"a buffer of {name} is not aligned to {ALIGNMENT} bytes"
        if "loss_mask" in batch.schema.names:
            bits = batch.column("loss_mask").flatten()
            n = len(bits)
            if n % 8 > 0 and memoryview(bits.buffers()[1])[n // 8] >> n % 8:
                yield "spare bits after the masks of a batch are set"


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
    """Checks the metadata's form; its values are compared with manifest and rows elsewhere."""
    raw = shard.schema.metadata
    if set(raw) != {b"bindery"}:
        yield f"schema metadata has the keys {sorted(raw)}"
    metadata = shard.metadata
    compact = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    if compact.encode() != raw[b"bindery"]:
        yield "metadata is not compact JSON"
    is_old = shard.is_first_minor
    is_masked = metadata.get("packing", {}).get("loss_mask") is True
    figure_keys = MASKED_FIGURE_KEYS if is_masked else FIGURE_KEYS
    packing_keys = MASKED_PACKING_KEYS if is_masked else PACKING_KEYS
    for found, expected, later in [
        (metadata, METADATA_KEYS, ADDED_METADATA),
        (metadata.get("packing", {}), packing_keys, ADDED_PACKING),
        (metadata.get("packing", {}).get("tokenizer", {}), TOKENIZER_KEYS, {}),
        (metadata.get("unit", {}), UNIT_KEYS, ADDED_UNIT),
        (metadata.get("figures", {}), figure_keys, ADDED_FIGURES),
    ]:
        absent = later if is_old else ADDED_SECOND if metadata.get("format") == "1.1" else {}
        keys = [key for key in expected if key not in absent
                and (key not in NOT_ALWAYS_COUNTED or key in found)]
        if list(found) != keys:
            yield f"metadata has the keys {list(found)} where {keys} belong"
    if metadata.get("format") not in ([MASKED_FORMAT] if is_masked else ["1.0", "1.1", FORMAT]):
        yield f"format is {metadata.get('format')!r}"
    # Empty in a dataset that was repacked from an older one.
    for key in ADDED_METADATA:
        if not re.fullmatch("([0-9a-f]{32})?", str(metadata.get(key, ""))):
            yield f"{key} is {metadata.get(key)!r}"


def pieces_by_document(pieces: list[Piece]) -> dict[tuple[int, int], list[Piece]]:
    """Sorts each document's pieces by offset."""
    found: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.document, []).append(piece)
    for own in found.values():
        own.sort(key=lambda piece: piece.offset)
    return found


def check_document(own: list[Piece], packing: dict) -> Iterator[str]:
    """S3 for one document, whose pieces are sorted by offset."""
    if own[0].offset != 0:
        yield f"its first piece begins at token {own[0].offset}"
    if len({piece.length for piece in own}) > 1:
        yield f"its pieces disagree on its length: {[piece.length for piece in own]}"
    for piece, later in zip(own, own[1:]):
        if later.offset != piece.end - 1:
            yield f"a piece ends at token {piece.end} and the next begins at {later.offset}"
        elif later.tokens[0] != piece.tokens[-1]:
            yield f"token {later.offset} is {piece.tokens[-1]}, repeated as {later.tokens[0]}"
    last = own[-1]
    if last.end < last.length:
        if packing["long"] != "truncate":
            yield f"only {last.end} of its {last.length} tokens are there"
        elif last.end != packing["seq_len"]:
            yield f"it is truncated to {last.end} tokens, not to {packing['seq_len']}"


LEFT_OUT = ["dropped", "too_short", "held_out", "untrained"]  # tokens of whole documents


def left_out(figures: dict) -> list[str]:
    """Returns those of the names that a dataset has."""
    return [name for name in LEFT_OUT if name in figures]


def histogram(values: list[int]) -> list[int]:
    """Entry i counts the values from 2^i to 2^(i+1) - 1; no trailing zeros."""
    logs = [value.bit_length() - 1 for value in values]
    return [logs.count(i) for i in range(max(logs, default=-1) + 1)]


def text_tokens(piece: Piece, packing: dict) -> tuple[int, ...]:
    """Returns a piece's tokens without BOS, the document's own separator and the repeated token."""
    begins_with_other = piece.offset > 0 or packing["bos"] is not None
    ends_with_separator = piece.end == piece.length
    end = len(piece.tokens) - int(ends_with_separator)
    return piece.tokens[int(begins_with_other) : end]


def figures_of_rows(rows: list[list[Piece]], packing: dict, stated: dict) -> dict:
    """Computes every figure again. Rows do not show which documents were left out, had lost their
    head or were not UTF-8: these figures are used as stated, and everything else must agree with
    them."""
    seq_len = packing["seq_len"]
    pieces = [piece for row in rows for piece in row]
    documents = list(pieces_by_document(pieces).values())
    lengths = [own[0].length for own in documents]
    frame = 1 if packing["bos"] is None else 2  # separator and BOS
    sizes = [len(piece.tokens) for piece in pieces]
    cut_short = [own[-1] for own in documents if own[-1].end < own[-1].length]
    absent = sum(stated[name] for name in left_out(stated))
    given = len(documents) + sum(stated[f"{name}_documents"] for name in left_out(stated))
    counted = {
        "rows": len(rows),
        "segments": len(pieces),
        "documents": len(documents),
        "text": sum(lengths) + absent - frame * given,
        "bos": given * (frame - 1),
        "separators": given,
        "repeated": sum(piece.offset > 0 for piece in pieces),
        "packed": sum(sizes),
        "padding": len(rows) * seq_len - sum(sizes),
        "truncated": sum(last.length - last.end for last in cut_short),
        "masked": sum(len(piece.tokens) - 1 - piece.n_targets for piece in pieces),
        "targets": sum(piece.n_targets for piece in pieces),
        "empty_documents": sum(length == frame for length in lengths),
        "split_documents": sum(len(own) > 1 for own in documents),
        "truncated_documents": len(cut_short),
        "separator_collisions": sum(
            text_tokens(piece, packing).count(packing["separator"]) for piece in pieces
        ),
        "longest_segment": max(sizes, default=0),
        "attention_pairs": sum(size * (size + 1) // 2 for size in sizes),
        "document_length_histogram": histogram(lengths),
        "segments_per_row_histogram": histogram([len(row) for row in rows]),
    }
    return {name: counted.get(name, stated[name]) for name in stated}


def check_left_out(figures: dict, packing: dict) -> Iterator[str]:
    """Checks the figures that rows do not show, as far as possible."""
    frame = 1 if packing["bos"] is None else 2
    shortest = {
        "dropped": packing["seq_len"] + 1, "too_short": frame, "held_out": frame,
        "untrained": frame,
    }
    has_reason = {
        "untrained": packing.get("loss_mask", False),
        "dropped": packing["long"] == "drop",
        "too_short": packing["min_tokens"] > 0,
        "held_out": packing["part"] == "training",
    }
    for name in left_out(figures):
        tokens, documents = figures[name], figures[f"{name}_documents"]
        if not has_reason[name] and (tokens or documents):
            yield f"{name} has {documents} documents for no reason"
        if tokens < documents * shortest[name] or (tokens > 0 and documents == 0):
            yield f"{name} has {tokens} tokens in {documents} documents"
    longest = packing["min_tokens"] - 1 + frame
    if figures["too_short"] > figures["too_short_documents"] * longest:
        yield f"{figures['too_short']} tokens are too many to be too short"
    own = figures["separators"] - figures["held_out_documents"]
    for name in ["invalid_utf8_documents", "headless_documents"]:
        if figures[name] > own:
            yield f"{name} is {figures[name]} of {own} documents"
    for name in BAD_FIGURES:
        if figures[name] and packing["part"] == "held-out":
            yield f"{name} is {figures[name]} in a held-out dataset"


def check_ledger(figures: dict, seq_len: int) -> Iterator[str]:
    """S6."""
    f = figures
    given = f["text"] + f["bos"] + f["separators"] + f["repeated"]
    taken = f["packed"] + f["truncated"] + sum(f[name] for name in left_out(f))
    if given != taken:
        yield f"{given} tokens given and {taken} accounted for"
    if f["packed"] + f["padding"] != f["rows"] * seq_len:
        yield f"{f['packed']} packed + {f['padding']} padding in {f['rows']} rows of {seq_len}"
    if f["packed"] - f["segments"] - f.get("masked", 0) != f["targets"]:
        yield f"{f['packed']} packed in {f['segments']} segments give {f['targets']} targets"


def n_slices(item: dict) -> int | None:
    """Returns None if only reading finds the number. An empty input has one slice."""
    if "starts" in item:
        return len(item["starts"])
    if item["extent"] is None:
        return None
    return max(-(-item["extent"] // item["stride"]), 1)


def slice_of(item: dict, position: int) -> int:
    """Returns the slice in which a record at `position` lies."""
    if "starts" in item:
        return sum(start <= position for start in item["starts"]) - 1
    return position // item["stride"]


def check_unit(pieces: list[Piece], unit: dict, inputs: list[dict]) -> Iterator[str]:
    """S2. An empty input can contain an empty document at its byte 0."""
    first, last = unit["input"], unit["input"] + unit["inputs"] - 1
    for piece in pieces:
        if not first <= piece.input <= last:
            yield f"input {piece.input} is not of the unit {unit}"
            continue
        item = inputs[piece.input]
        if item["extent"] is not None and piece.position >= max(item["extent"], 1):
            yield f"position {piece.position} in an input of {item['extent']}"
        elif slice_of(item, piece.position) != unit["slice"]:
            yield f"position {piece.position} is not of slice {unit['slice']}"


def check_order(rows: list[list[Piece]], packing: dict) -> Iterator[str]:
    """S4."""
    earliest = [min(piece.place(packing) for piece in row) for row in rows]
    for i, (place, later) in enumerate(zip(earliest, earliest[1:])):
        if later < place:
            yield f"row {i + 1} has an earlier document than row {i}"


def check_figures(rows: list[list[Piece]], packing: dict, figures: dict) -> Iterator[str]:
    """S5."""
    counted = figures_of_rows(rows, packing, figures)
    for name, value in counted.items():
        if figures[name] != value:
            yield f"{name} is {figures[name]}, the rows give {value}"
    yield from check_left_out(figures, packing)


def check_agreement(shard: Shard, entry: dict, packing: dict) -> Iterator[str]:
    """S1: the metadata agrees with the manifest."""
    metadata = {**ADDED_METADATA, **shard.metadata}
    for name, added, stated in [
        ("packing", ADDED_PACKING, packing),
        ("unit", ADDED_UNIT, entry["unit"]),
        ("figures", ADDED_FIGURES, entry["figures"]),
    ]:
        if {**added, **metadata[name]} != stated:
            yield f"{name} is not the manifest's"
    for key in ADDED_METADATA:
        if metadata[key] != entry[key]:
            yield f"{key} is not the manifest's"


def check_shard(
    shard: Shard, entry: dict, packing: dict, inputs: list[dict]
) -> Iterator[Violation]:
    """R and S of one shard."""
    figures = entry["figures"]

    def named(rule: str, found: Iterator[str]) -> Iterator[Violation]:
        return (Violation(rule, shard.name, text) for text in found)

    if not shard.schema.equals(expected_schema(packing), check_metadata=False):
        yield Violation("S1", shard.name, f"the schema is {shard.schema.remove_metadata()}")
        return
    malformed = list(check_metadata(shard))
    yield from named("S1", iter(malformed))
    if malformed:
        return
    yield from named("S1", check_agreement(shard, entry, packing))
    yield from named("S1", check_batches(shard, packing))
    yield from named("S1", check_buffers(shard, packing["codec"]))

    rows = list(shard.rows())
    for i, row in enumerate(rows):
        for rule, found in check_row(row, packing):
            yield Violation(rule, f"{shard.name} row {i}", found)
    taken_apart = [row.pieces() for row in rows if row.has_segments]
    pieces = [piece for row in taken_apart for piece in row]
    yield from named("S2", check_unit(pieces, entry["unit"], inputs))
    for document, own in pieces_by_document(pieces).items():
        for found in check_document(own, packing):
            yield Violation("S3", f"{shard.name} document {document}", found)
        if own[0].length - (1 if packing["bos"] is None else 2) < packing["min_tokens"]:
            yield Violation("S7", f"{shard.name} document {document}", "it is too short")
    yield from named("S4", check_order(taken_apart, packing))
    if len(taken_apart) == len(rows):
        yield from named("S5", check_figures(taken_apart, packing, figures))
    yield from named("S6", check_ledger(figures, packing["seq_len"]))
