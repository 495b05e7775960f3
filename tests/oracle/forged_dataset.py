"""Datasets with one thing wrong and every checksum right.

A forgery is loaded from a good dataset, changed in memory, and written with every checksum,
size and total made to fit again, so that only the changed thing is left to be found.

    forgery = Forgery.load(dataset)
    forgery.shards[0].rows[0].ids[0] = 300
    forgery.write(folder)

A dataset can also be made of what the reference packer says, without the program at all:

    reference_dataset(inputs, Options(seq_len=8)).write(folder)
"""

import dataclasses
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from dataset_checker import sum_figures, sum_sources
from reference_packer import (
    VOCAB_SIZE,
    Input,
    Options,
    PackedUnit,
    Segment,
    cut_of,
    has_masks,
    pack,
)
from shard_checker import (
    ADDED_FIGURES,
    BATCH_BYTES,
    FORMAT,
    MASKED_FORMAT,
    Row,
    expected_schema,
    figures_of_rows,
    read_shard,
    row_checksum,
)


@dataclass
class ForgedRow:
    """A row that can be changed. Its checksum is the right one unless another is given."""

    ids: list[int]
    boundaries: list[int]
    documents: list[dict[str, int]]
    checksum: int | None = None
    mask: list[bool] | None = None  # None: the dataset has no loss masks

    def stored(self, packing: dict) -> Row:
        kind = np.uint16 if packing["vocab_size"] <= 65536 else np.uint32
        ids = np.array(self.ids, dtype=kind)
        mask = None if self.mask is None else np.array(self.mask, dtype=bool)
        row = Row(ids, self.boundaries, self.documents, 0, mask)
        checksum = row_checksum(row) if self.checksum is None else self.checksum
        return dataclasses.replace(row, checksum=checksum)


@dataclass
class ForgedShard:
    rows: list[ForgedRow]
    unit: dict
    figures: dict
    schema: pa.Schema
    records: str | None = None  # None: as in format 1.0
    positions: str | None = None  # None: as in format 1.1
    metadata: dict = field(default_factory=dict)  # replaces written entries

    @property
    def name(self) -> str:
        return f"{self.unit['input']:05d}-{self.unit['slice']:05d}.arrow"

    def recount(self, packing: dict) -> None:
        """Sets the figures to those of the rows."""
        rows = [row.stored(packing).pieces() for row in self.rows]
        counted = figures_of_rows(rows, packing, {**ADDED_FIGURES, **self.figures})
        self.figures = {name: counted[name] for name in self.figures}

    def described(self) -> dict:
        """Returns the entries that shard and manifest have in common."""
        records = {} if self.records is None else {"records": self.records}
        positions = {} if self.positions is None else {"positions": self.positions}
        return {"unit": self.unit, **records, **positions, "figures": self.figures}


@dataclass
class Forgery:
    packing: dict
    plan: dict
    tokenizer: bytes
    inputs: list[dict]
    shards: list[ForgedShard]
    format: str = FORMAT
    totals: dict = field(default_factory=dict)  # replaces entries of the right totals
    sources: list[dict] | None = None  # replaces the right entries
    batch_rows: int | None = None  # rows of the written batches, if not the stated number
    codec: str | None = None  # the same

    @classmethod
    def load(cls, dataset: Path) -> "Forgery":
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        shards = []
        for entry in manifest["shards"]:
            rows = [
                ForgedRow(
                    row.ids.tolist(), list(row.boundaries), list(row.documents),
                    mask=None if row.mask is None else row.mask.tolist(),
                )
                for row in read_shard(dataset / entry["file"]).rows()
            ]
            schema = expected_schema(manifest["packing"])
            shards.append(
                ForgedShard(
                    rows, entry["unit"], entry["figures"], schema, entry.get("records"),
                    entry.get("positions"),
                )
            )
        return cls(
            packing=manifest["packing"],
            plan=json.loads((dataset / "plan.json").read_bytes()),
            tokenizer=(dataset / "tokenizer.json").read_bytes(),
            inputs=manifest["inputs"],
            shards=shards,
            format=manifest["format"],
        )

    def recount(self) -> None:
        for shard in self.shards:
            shard.recount(self.packing)

    def write(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes(self.tokenizer)
        (folder / "plan.json").write_text(pretty(self.plan), encoding="utf-8")
        for shard in self.shards:
            self.write_shard(folder, shard)
        self.write_manifest(folder)

    def write_shard(self, folder: Path, shard: ForgedShard) -> None:
        metadata = {
            "format": self.format,
            "packing": self.packing,
            **shard.described(),
            **shard.metadata,
        }
        compact = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
        schema = shard.schema.with_metadata({"bindery": compact})
        batch_rows = self.batch_rows or self.packing["batch_rows"]
        codec = self.codec or self.packing.get("codec", "none")
        options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        with pa.ipc.new_file(str(folder / shard.name), schema, options=options) as writer:
            for begin in range(0, len(shard.rows), batch_rows):
                rows = [r.stored(self.packing) for r in shard.rows[begin : begin + batch_rows]]
                writer.write_batch(record_batch(rows, schema))

    def write_manifest(self, folder: Path) -> None:
        def described(name: str) -> dict:
            return {"file": name, "checksum": checksum_of(folder / name)}

        shards = [
            {
                **described(shard.name),
                "bytes": (folder / shard.name).stat().st_size,
                **shard.described(),
            }
            for shard in self.shards
        ]
        manifest = {
            "format": self.format,
            "packing": self.packing,
            "plan": described("plan.json"),
            "tokenizer": described("tokenizer.json"),
            "inputs": self.inputs,
            "shards": shards,
            "totals": {**sum_figures([shard.figures for shard in self.shards]), **self.totals},
        }
        if self.format != "1.0":
            manifest["sources"] = self.sources or sum_sources(self.inputs, shards)
        if self.format not in ("1.0", "1.1"):
            manifest["passed_over"] = []
        seal(folder / "manifest.json", manifest)


# ---- The reference packer's result as a dataset ----------------------------------


def described_packing(options: Options, part: str, is_masked: bool = False) -> dict:
    vocab_size = options.vocab_size or VOCAB_SIZE
    row_bytes = options.seq_len * (2 if vocab_size <= 65536 else 4)
    return {
        "seq_len": options.seq_len,
        "vocab_size": vocab_size,
        "separator": options.separator,
        "bos": options.bos,
        "padding": options.padding_id,
        "batch_rows": max(BATCH_BYTES // row_bytes, 1),
        "strategy": options.strategy,
        "long": options.long,
        "max_documents": options.max_documents,
        "min_tokens": options.min_tokens,
        "shuffle": options.shuffle,
        "holdout": options.holdout,
        "part": part,
        "codec": options.codec,
        **({"loss_mask": True} if is_masked else {}),
        "tokenizer": {
            "name": "bytes" if options.vocab_size is None else "ids",
            "fingerprint": "0" * 32,
        },
    }


def described_reading(options: Options) -> dict:
    delimiter = options.delimiter
    return {
        "text_field": options.text_field,
        "delimiter": None if delimiter is None else delimiter.decode(),
        "invalid_utf8": options.invalid_utf8,
        "special_tokens": "text",
        "unit_size": options.unit_size,
        "max_document_bytes": 256 << 20,
        "separator": options.separators_are,
        "bad_records": "error",
        "max_bad": 0,
        "limit": options.limit,
    }


def described_input(item: Input, options: Options) -> dict:
    cut = cut_of(item, options)
    is_one_document = item.cut is None and not item.is_jsonl and options.delimiter is None
    files = item.stored or {item.name: item.data}
    return {
        "name": item.name,
        "source": item.source,
        "format": "tokens" if item.cut else "jsonl" if item.is_jsonl else "text",
        "compression": item.compression,
        "bytes": sum(map(len, files.values())),
        "weight": cut.weight,
        "extent": cut.extent,
        **(
            {"starts": list(cut.starts)}
            if item.cut or is_one_document
            else {"stride": options.unit_size}
        ),
    }


def described_mask(item: Input) -> dict:
    return {} if item.mask_column is None else {"mask_column": item.mask_column}


def forged_segment(segment: Segment) -> dict[str, int]:
    document = segment.document
    return {
        "input": document.input,
        "position": document.position,
        "offset": segment.offset,
        "length": len(document.tokens),
    }


def forged_shard(packed: PackedUnit, packing: dict) -> ForgedShard:
    rows = []
    for row in packed.rows:
        ids = [token for segment in row for token in segment.tokens]
        boundaries = [0, *itertools.accumulate(segment.n_tokens for segment in row)]
        padding = [packing["padding"]] * (packing["seq_len"] - len(ids))
        mask = None
        if packing.get("loss_mask"):
            mask = [bit for segment in row for bit in segment.trained] + [False] * len(padding)
        documents = list(map(forged_segment, row))
        rows.append(ForgedRow(ids + padding, boundaries, documents, mask=mask))
    unit = dataclasses.asdict(packed.unit)
    schema = expected_schema(packing)
    return ForgedShard(rows, unit, packed.figures, schema, packed.records, packed.positions)


def reference_dataset(inputs: list[Input], options: Options, part: str = "all") -> Forgery:
    """Returns the dataset that the program should write; only its tokenizer has no meaning."""
    packing = described_packing(options, part, has_masks(inputs))
    dataset_format = MASKED_FORMAT if has_masks(inputs) else FORMAT
    described = [described_input(item, options) for item in inputs]
    plan = {
        "format": dataset_format,
        "packing": packing,
        "reading": described_reading(options),
        "inputs": [
            {**item, "edges": "0" * 32, **described_mask(given)}
            for item, given in zip(described, inputs)
        ],
    }
    shards = [forged_shard(packed, packing) for packed in pack(inputs, options, part)]
    return Forgery(packing, plan, b"{}", described, shards, format=dataset_format)


# ---- Files -----------------------------------------------------------------------


def pretty(document: dict) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def checksum_of(path: Path) -> str:
    return xxhash.xxh3_128_hexdigest(path.read_bytes())


def seal(path: Path, manifest: dict) -> None:
    """Writes the manifest with its own checksum as its last member."""
    body = pretty(manifest).removesuffix("\n}\n")
    digest = xxhash.xxh3_128_hexdigest(body.encode())
    path.write_text(f'{body},\n  "checksum": "{digest}"\n}}\n', encoding="utf-8")


def record_batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        [row.ids.tolist() for row in rows],
        [row.boundaries for row in rows],
        [row.documents for row in rows],
        *([[row.mask.tolist() for row in rows]] if rows[0].mask is not None else []),
        [row.checksum for row in rows],
    ]
    arrays = [pa.array(column, type=f.type) for column, f in zip(columns, schema)]
    return pa.record_batch(arrays, schema=schema)
