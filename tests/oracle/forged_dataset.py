"""Datasets with one thing wrong and every checksum right.

A forgery is loaded from a good dataset, changed in memory, and written with every checksum,
size and total made to fit again, so that only the changed thing is left to be found.

    forgery = Forgery.load(dataset)
    forgery.shards[0].rows[0].ids[0] = 300
    forgery.write(folder)
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from dataset_checker import (
    FORMAT,
    Row,
    expected_schema,
    figures_of_rows,
    read_shard,
    row_checksum,
    sum_figures,
)


@dataclass
class ForgedRow:
    """A row that can be changed. Its checksum is the right one unless it is given."""

    ids: list[int]
    boundaries: list[int]
    documents: list[dict[str, int]]
    checksum: int | None = None

    def stored(self, packing: dict) -> Row:
        kind = np.uint16 if packing["vocab_size"] <= 65536 else np.uint32
        ids = np.array(self.ids, dtype=kind)
        row = Row(ids, self.boundaries, self.documents, 0)
        checksum = row_checksum(row) if self.checksum is None else self.checksum
        return Row(ids, self.boundaries, self.documents, checksum)


@dataclass
class ForgedShard:
    rows: list[ForgedRow]
    unit: dict
    figures: dict
    schema: pa.Schema
    metadata: dict = field(default_factory=dict)  # replaces entries of what is written

    @property
    def name(self) -> str:
        return f"{self.unit['input']:05d}-{self.unit['slice']:05d}.arrow"

    def recount(self, packing: dict) -> None:
        """Makes the figures those of the rows again."""
        rows = [row.stored(packing).pieces() for row in self.rows]
        self.figures = figures_of_rows(rows, packing, self.figures)


@dataclass
class Forgery:
    packing: dict
    plan: dict
    tokenizer: bytes
    inputs: list[dict]
    shards: list[ForgedShard]
    totals: dict = field(default_factory=dict)  # replaces entries of the right totals
    batch_rows: int | None = None  # of the batches that are written, if not the stated number

    @classmethod
    def load(cls, dataset: Path) -> "Forgery":
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        shards = []
        for entry in manifest["shards"]:
            rows = [
                ForgedRow(row.ids.tolist(), list(row.boundaries), list(row.documents))
                for row in read_shard(dataset / entry["file"]).rows()
            ]
            schema = expected_schema(manifest["packing"])
            shards.append(ForgedShard(rows, entry["unit"], entry["figures"], schema))
        return cls(
            packing=manifest["packing"],
            plan=json.loads((dataset / "plan.json").read_bytes()),
            tokenizer=(dataset / "tokenizer.json").read_bytes(),
            inputs=manifest["inputs"],
            shards=shards,
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
            "format": FORMAT,
            "packing": self.packing,
            "unit": shard.unit,
            "figures": shard.figures,
            **shard.metadata,
        }
        compact = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
        schema = shard.schema.with_metadata({"bindery": compact})
        batch_rows = self.batch_rows or self.packing["batch_rows"]
        with pa.ipc.new_file(str(folder / shard.name), schema) as writer:
            for begin in range(0, len(shard.rows), batch_rows):
                rows = [r.stored(self.packing) for r in shard.rows[begin : begin + batch_rows]]
                writer.write_batch(record_batch(rows, schema))

    def write_manifest(self, folder: Path) -> None:
        def described(name: str) -> dict:
            return {"file": name, "checksum": checksum_of(folder / name)}

        manifest = {
            "format": FORMAT,
            "packing": self.packing,
            "plan": described("plan.json"),
            "tokenizer": described("tokenizer.json"),
            "inputs": self.inputs,
            "shards": [
                {
                    **described(shard.name),
                    "bytes": (folder / shard.name).stat().st_size,
                    "unit": shard.unit,
                    "figures": shard.figures,
                }
                for shard in self.shards
            ],
            "totals": {**sum_figures([shard.figures for shard in self.shards]), **self.totals},
        }
        seal(folder / "manifest.json", manifest)


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
        [row.checksum for row in rows],
    ]
    arrays = [pa.array(column, type=f.type) for column, f in zip(columns, schema)]
    return pa.record_batch(arrays, schema=schema)
