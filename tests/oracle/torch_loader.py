"""The rows of a dataset and the order in which the trainer takes them.

Written from the documents alone, with pyarrow and whole numbers of Python; it shares nothing with
the C program. Two things decide the order: the dataset's blocks (the record batches of its shards,
in the manifest's order) and a seed.

    rows, blocks = read_dataset(Path("dataset"))
    rows_of_step(blocks, seed=1234, step=1, rows_per_step=4)      # four indices into rows
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

WINDOW_BLOCKS = 16
WORD = (1 << 64) - 1


class Row(NamedTuple):
    """A row as it is stored: its ids, padding included, its boundaries, and which of its tokens are
    trained (None: all)."""

    ids: list[int]
    boundaries: list[int]
    trained: list[bool] | None = None


def read_dataset(folder: Path) -> tuple[list[Row], tuple[int, ...]]:
    """Returns every row in the order of the shards, and the number of rows of every block."""
    rows: list[Row] = []
    blocks: list[int] = []
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for shard in manifest["shards"]:
        reader = pa.ipc.open_file(folder / shard["file"])
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            blocks.append(batch.num_rows)
            ids, boundaries = batch["input_ids"].to_pylist(), batch["cu_seqlens"].to_pylist()
            trained = [None] * batch.num_rows
            if "loss_mask" in batch.schema.names:
                trained = batch["loss_mask"].to_pylist()
            rows += [Row(*columns) for columns in zip(ids, boundaries, trained, strict=True)]
    return rows, tuple(blocks)


class Splitmix64:
    """The generator splitmix64."""

    def __init__(self, state: int) -> None:
        self.state = state

    def next(self) -> int:
        """Returns 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        return z ^ (z >> 31)

    def bounded(self, n: int) -> int:
        """Returns a number from 0 to n - 1, for n below 2^32."""
        return ((self.next() >> 32) * n) >> 32

    def shuffle(self, items: list[int]) -> None:
        """Shuffles in place (Fisher-Yates)."""
        for i in range(len(items) - 1, 0, -1):
            j = self.bounded(i + 1)
            items[i], items[j] = items[j], items[i]


def mix(x: int) -> int:
    """Returns the first number of a generator whose state is x."""
    return Splitmix64(x).next()


@cache
def epoch_order(blocks: tuple[int, ...], seed: int, epoch: int) -> list[int]:
    """Returns every row once: blocks shuffled, then rows shuffled inside windows of blocks."""
    first_row = [sum(blocks[:b]) for b in range(len(blocks))]
    state = mix((mix(seed) + epoch) % 2**64)
    shuffled = list(range(len(blocks)))
    Splitmix64(state).shuffle(shuffled)

    order: list[int] = []
    for begin in range(0, len(shuffled), WINDOW_BLOCKS):
        window = [
            first_row[b] + i
            for b in shuffled[begin : begin + WINDOW_BLOCKS]
            for i in range(blocks[b])
        ]
        Splitmix64(mix((state + 1 + begin // WINDOW_BLOCKS) % 2**64)).shuffle(window)
        order += window
    return order


def rows_of_step(
    blocks: tuple[int, ...], seed: int, step: int, rows_per_step: int
) -> list[int]:
    """Returns the rows of a step, counted from 1; a step may continue in the next epoch."""
    n_rows = sum(blocks)
    first = (step - 1) * rows_per_step
    return [
        epoch_order(blocks, seed, g // n_rows)[g % n_rows]
        for g in range(first, first + rows_per_step)
    ]
