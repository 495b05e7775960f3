"""Interrupted runs of `bindery pack` and `repack`, and the state that each of them must leave.

A run may end at any moment and for any reason; every file under a final name is then complete, and
the same commands, given again, end with the bytes of an undisturbed run.
"""

import gzip
import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import program
from program import ProgramTest, Result, bindery, contents

PENDING = ".part"  # endings of the names of files that are being written


def gzip_members(lines: bytes) -> bytes:
    """Makes two members; the first ends in the middle of a line."""
    middle = len(lines) // 2
    return b"".join(gzip.compress(part, 1) for part in (lines[:middle], lines[middle:]))


def zstd_frame(lines: bytes) -> bytes:
    return pa.compress(lines, codec="zstd", asbytes=True)


def parquet_groups(lines: bytes) -> bytes:
    """Makes row groups of 50 documents."""
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=50)
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class Way:
    """A way to make a dataset: how the input is stored, and the command. If there are several
    processes, each has options of its own, and any one of them can do all the work."""

    name: str
    command: str = "pack"
    input_name: str = "corpus.jsonl"
    store: Callable[[bytes], bytes] = bytes  # turns JSON lines into the input file's bytes
    options: tuple[str, ...] = ()
    first: tuple[str, ...] = ()  # further options of the dataset that will be repacked
    n_datasets: int = 1  # datasets that are repacked together, from equal parts of the corpus
    processes: tuple[tuple[str, ...], ...] = ((),)


WAYS = [
    Way("best-fit"),
    Way("concat", options=("--strategy", "concat")),
    Way("gzip", input_name="corpus.jsonl.gz", store=gzip_members),
    Way("zstd", input_name="corpus.jsonl.zst", store=zstd_frame),
    Way("parquet", input_name="corpus.parquet", store=parquet_groups),
    Way("compress", options=("--compress", "zstd")),
    Way("holdout", options=("--holdout", "30%", "--shuffle", "7")),
    Way("limit", input_name="corpus.jsonl.zst", store=zstd_frame, options=("--limit", "3000")),
    Way("ranks", processes=tuple(("--rank", r, "--ranks", "2") for r in "01")),
    Way(
        "repack",
        command="repack",
        options=("--seq-len", "100", "--threads", "2"),
        first=("--holdout", "30%"),
    ),
    Way(
        "join",
        command="repack",
        options=("--seq-len", "100", "--threads", "2"),
        first=("--holdout", "30%"),
        n_datasets=2,
    ),
]


def json_lines(seed: str, size_bytes: int) -> bytes:
    """Makes about this many bytes of records, most of them short."""
    rng = random.Random(seed)
    lines, size = [], 0
    while size < size_bytes:
        text = rng.randbytes(min(30_000, int(rng.lognormvariate(5, 1.5)))).hex()
        lines.append(json.dumps({"text": text}).encode() + b"\n")
        size += len(lines[-1])
    return b"".join(lines)


def published(dataset: Path) -> dict[str, bytes]:
    """Returns the files under final names, except the logs, which describe the run."""
    return {
        name: data
        for name, data in contents(dataset).items()
        if not name.endswith(PENDING) and not Path(name).name.startswith("pack-log")
    }


class UnfinishedTest(ProgramTest):
    """A test of one way to make a dataset at a time."""

    def prepare(self, way: Way, seed: str, size_bytes: int, *options: str) -> None:
        """Writes the corpus and packs it undisturbed, which gives `self.whole` to compare with.
        `options` are those of `pack`, also if its dataset is repacked afterwards."""
        folder = self.folder / way.name
        folder.mkdir()
        self.way, self.options = way, [*options, *way.options]
        self.inputs = []
        for n in range(way.n_datasets):
            path = folder / f"{n}" / way.input_name
            path.parent.mkdir()
            path.write_bytes(way.store(json_lines(f"{seed}-{n}", size_bytes // way.n_datasets)))
            if way.command == "repack":
                path = self.pack(folder / f"first-{n}", [path], *options, *way.first)
            self.inputs.append(path)
        if way.command == "repack":
            self.options = way.options
        undisturbed = folder / "undisturbed"
        self.succeeds(*self.commands(undisturbed)[0])
        self.succeeds("verify", undisturbed)
        self.whole = published(undisturbed)
        self.assertIn("manifest.json", self.whole)
        for shard in undisturbed.rglob("*.arrow"):
            pa.ipc.open_file(shard).read_all().validate(full=True)

    def commands(self, dataset: Path) -> list[list[object]]:
        """Returns the program's arguments for each process of the way."""
        fixed = [self.way.command, "-q", "-o", dataset, *self.options]
        return [[*fixed, *process, *self.inputs] for process in self.way.processes]

    def start(self, arguments: list[object], **popen: object) -> subprocess.Popen:
        command = [program.program(), *map(os.fspath, map(program.as_argument, arguments))]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **quiet, **popen)

    def run_alone(self, dataset: Path, **popen: object) -> Result:
        """Runs only the first of the processes."""
        return bindery(*self.commands(dataset)[0], **popen)

    def is_finished(self, dataset: Path) -> bool:
        return (dataset / "manifest.json").exists()

    def assert_nothing_damaged(self, dataset: Path) -> None:
        """Files under final names equal those of the undisturbed dataset byte for byte, and
        if there is a manifest, none is missing."""
        found = published(dataset)
        self.assertEqual([name for name in found if found[name] != self.whole.get(name)], [])
        if self.is_finished(dataset):
            self.assertEqual(found.keys(), self.whole.keys())

    def assert_nothing_pending(self, dataset: Path) -> None:
        self.assertEqual([n for n in contents(dataset) if n.endswith(PENDING)], [])

    def assert_finishes(self, dataset: Path) -> None:
        """The same command, undisturbed, ends with the right bytes and no other file."""
        result = self.run_alone(dataset)
        self.assertEqual(result.status, 0, result)
        self.assertTrue(self.is_finished(dataset))
        self.assert_nothing_damaged(dataset)
        self.assert_nothing_pending(dataset)
