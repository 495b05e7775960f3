"""nvcc's PTX of the rotary positions' kernels, executed and compared with double precision:

    rotary_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from operation_case import (
    BOUNDARIES, TYPE, Case, OperationCase, integers, main, pointers,
)  # fmt: skip
from tensors import BF16, FEW_ROUNDINGS, FLOAT

SCALE = 1.25


class Arguments(ctypes.Structure):  # kernels/rotary.h
    _fields_ = [
        BOUNDARIES, *pointers("past"), TYPE, *integers("n_heads head_size stride"),
        *pointers("turns"),
        ("scale", ctypes.c_float), ("inverse", ctypes.c_int32), *pointers("x"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    head_size: int
    n_heads: int = 3
    gap: int = 0  # numbers between tokens
    n_rows: int = 2
    seq_len: int = 9
    inverse: bool = False
    with_past: bool = False  # tokens precede the segments


def make_turns(rng, n_pairs: int) -> np.ndarray:
    """Returns any part of a turn, and ever smaller ones, as pairs have them."""
    shifts = np.arange(n_pairs, dtype=np.uint64) % np.uint64(41)
    return rng.integers(2**63, 2**64 - 1, n_pairs, np.uint64) >> shifts


def angles(positions: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Returns the angle of each token and pair, by integers of any size."""
    fractions = [[int(p) * int(turn) % 2**64 / 2**64 for turn in turns] for p in positions]
    return 2 * np.pi * np.array(fractions)


class RotaryTest(OperationCase):
    sources = ("rotary",)

    def run_rotary(self, case: Case, s: Shape) -> None:
        documents = case.documents(s.n_rows, s.seq_len)
        n, half = documents.n_tokens, s.head_size // 2
        before, turns = case.numbers(n, s.n_heads * s.head_size), make_turns(case.rng, half)
        stride = s.n_heads * s.head_size + s.gap
        given = case.tensor(before, stride)
        past = documents.random_past(case.rng, 2**31 - 100) if s.with_past else None
        case.device.run("rotary", Arguments(
            documents.put(case.device), case.device.memory.put(past) if s.with_past else None,
            case.kind.number, s.n_heads, s.head_size, stride,
            case.device.memory.put(turns), SCALE, s.inverse, given.address))
        angle = angles(documents.positions(past), turns)[:, None] * (-1 if s.inverse else 1)
        x, y = np.moveaxis(before.astype(np.float64).reshape(n, s.n_heads, 2, half), 2, 0)
        turned = [x * np.cos(angle) - y * np.sin(angle), y * np.cos(angle) + x * np.sin(angle)]
        exact = SCALE * np.stack(turned, 2)
        size = np.broadcast_to((np.abs(x) + np.abs(y))[:, :, None], exact.shape)
        tolerance = FEW_ROUNDINGS * SCALE * size.reshape(before.shape)
        exact = exact.reshape(before.shape)
        exact[documents.padding] = before[documents.padding]
        tolerance[documents.padding] = 0.0
        self.assert_right(given, exact, tolerance)

    def test_agrees(self):
        """Single values and packs, of which a head has a power of two or another number."""
        for shape in (
            Shape(2, n_heads=40), Shape(30, gap=3), Shape(64, n_heads=9, n_rows=3),
            Shape(48, n_heads=7, gap=8, inverse=True), Shape(66, n_rows=3, inverse=True),
            Shape(128, gap=5), Shape(256, n_heads=2, n_rows=1, seq_len=20), Shape(254, n_heads=1),
        ):  # fmt: skip
            self.check(self.run_rotary, BF16, shape)
        self.check(self.run_rotary, BF16, Shape(64, gap=8), misaligned=True)
        self.check(self.run_rotary, FLOAT, Shape(64, n_heads=5, gap=4, inverse=True))
        self.check(self.run_rotary, FLOAT, Shape(30, n_heads=2))
        self.check(self.run_rotary, BF16, Shape(64, n_rows=3, with_past=True))
        self.check(self.run_rotary, FLOAT, Shape(30, seq_len=33, with_past=True))


if __name__ == "__main__":
    main()
