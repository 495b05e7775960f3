"""Shared by the tests of operations: each case is executed on every architecture and in several
orders, and at the end every kernel with inline assembly must have been executed."""

import ctypes
import itertools
import sys
import unittest
from pathlib import Path

import numpy as np

from device import Boundaries, Device, executed, with_inline_assembly
from documents import Documents, random_rows
from machine import ORDERS, Settings
from tensors import FLOAT, Kind, Tensor
from toolchain import ARCHITECTURES, LONG

# Rows, tokens of a row, values of a token: packs or single values, for one turn of a warp, for
# less, and for as many as the compiler unrolls; with three rows, one has only padding.
SHAPES = (
    (1, 1, 64), (3, 31, 33), (2, 33, 264), (1, 65, 31), (2, 20, 1), (2, 9, 65), (3, 3, 165),
    (3, 3, 1288),
)  # fmt: skip
MISALIGNED_SHAPES = ((3, 47, 64), (3, 3, 1288))  # the first has more tokens than a chunk
# Warps that run in step would hide a missing barrier.
TRIED_ORDERS = ORDERS[1:]


def fields(kind, names: str) -> list[tuple]:
    """Returns the fields of a ctypes structure."""
    return [(name, kind) for name in names.split()]


def pointers(names: str) -> list[tuple]:
    return fields(ctypes.c_void_p, names)


def integers(names: str) -> list[tuple]:
    return fields(ctypes.c_int64, names)


BOUNDARIES = ("boundaries", Boundaries)
TYPE = ("type", ctypes.c_int)


class Case:
    """One run: a device, and random numbers for it."""

    def __init__(self, device: Device, seed: int, kind: Kind, misaligned: bool):
        self.device, self.kind, self.misaligned = device, kind, misaligned
        self.rng = np.random.default_rng(seed)

    def numbers(self, n: int, width: int, scale: float = 1.0) -> np.ndarray:
        """Returns random values of the kind."""
        return self.kind.rounded(scale * self.rng.standard_normal((n, width)))

    def tensor(self, values: np.ndarray, stride=None) -> Tensor:
        room = Tensor(self.device, self.kind, *values.shape, stride, self.misaligned)
        return room.fill(values)

    def room(self, n: int, width: int, stride=None) -> Tensor:
        return Tensor(self.device, self.kind, n, width, stride, self.misaligned)

    def floats(self, values: np.ndarray) -> Tensor:
        return Tensor(self.device, FLOAT, *values.shape, None, self.misaligned).fill(values)

    def documents(self, n_rows: int, seq_len: int) -> Documents:
        """A single row is full, so that sums are long; of three rows the last is padding."""
        rows = random_rows(self.rng, n_rows, seq_len)
        if n_rows == 1:
            rows = [sorted({*rows[0], seq_len})]
        return Documents(seq_len, rows if n_rows < 3 else [*rows[:-1], [0]])

    def ids(self, n: int, n_vocabulary: int, id_bytes: int) -> np.ndarray:
        dtype = np.uint16 if id_bytes == 2 else np.uint32
        return self.rng.integers(0, n_vocabulary, n).astype(dtype)


class OperationCase(unittest.TestCase):
    sources: tuple[str] = ()  # sources under test: their kernels must be executed
    others: tuple[str] = ()  # further sources whose kernels the operations launch
    folder: Path  # the output folder of toolchain.py

    @classmethod
    def setUpClass(cls):
        cls.seeds = itertools.count(20250120)

    @classmethod
    def tearDownClass(cls):
        for architecture in ARCHITECTURES:
            wanted = with_inline_assembly(cls.folder, architecture, cls.sources)
            missing = {name for name in wanted if (architecture, name) not in executed}
            if not wanted or missing:
                raise AssertionError(f"never executed for sm_{architecture}: {missing}")

    def check(self, run, kind: Kind, *parameters, misaligned: bool = False) -> None:
        """Calls run(case, *parameters) for each architecture with the same numbers: in every order
        if BINDERY_TEST_LONG is set, otherwise in one order, which changes with the parameters."""
        seed = next(self.seeds)
        turned = TRIED_ORDERS[seed % len(TRIED_ORDERS):] + TRIED_ORDERS
        for architecture, order in (
            itertools.product(ARCHITECTURES, TRIED_ORDERS) if LONG else zip(ARCHITECTURES, turned)
        ):
            with self.subTest(architecture=architecture, kind=kind.name, misaligned=misaligned,
                              parameters=parameters, order=order):  # fmt: skip
                device = Device(self.folder, architecture, Settings(order),
                                self.sources + self.others)  # fmt: skip
                run(Case(device, seed, kind, misaligned), *parameters)
                self.assertTrue(device.memory.gaps_are_untouched())

    def assert_right(self, tensor: Tensor, exact, tolerance, zeros=None) -> None:
        self.assertEqual(tensor.errors(exact, tolerance, zeros), [])


def main() -> None:
    OperationCase.folder = Path(sys.argv.pop())
    unittest.main()
