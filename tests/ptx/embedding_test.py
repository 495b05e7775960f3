"""nvcc's PTX of the embedding's kernels, executed:

    embedding_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from documents import Documents
from operation_case import (
    BOUNDARIES, MISALIGNED_SHAPES, SHAPES, TYPE, Case, OperationCase, integers, main, pointers,
)  # fmt: skip
from tensors import BF16, FEW_ROUNDINGS, FLOAT

N_VOCABULARY, N_POSITIONS, FIRST_POSITION = 13, 70, 2  # few, so that ids occur several times
COMMON = [
    BOUNDARIES, TYPE, *pointers("ids"), ("id_bytes", ctypes.c_int32),
    *integers("n_channels n_vocabulary n_positions first_position"),
    ("token_scale", ctypes.c_float),
]  # fmt: skip


class ForwardArguments(ctypes.Structure):  # kernels/embedding.h
    _fields_ = [BOUNDARIES, *pointers("past"), *COMMON[1:],
                *pointers("token_table position_table out")]  # fmt: skip


class BackwardArguments(ctypes.Structure):
    _fields_ = COMMON + pointers("d_out d_token_table d_position_table")


@dataclass(frozen=True)
class Variant:
    id_bytes: int
    token_scale: float = 1.0
    with_positions: bool = True
    with_past: bool = False  # tokens precede the segments

    def tables(self, *addresses: int) -> list:
        """Returns the addresses of the tables; the second is left out without positions."""
        return [addresses[0], addresses[1] if self.with_positions else None]


def sum_of(rows: np.ndarray, scale: float) -> np.ndarray:
    """Sums 64 rows at a time in float, one after the other, and these sums in double; then they are
    scaled."""
    total = np.zeros(rows.shape[1], np.float64)
    for begin in range(0, len(rows), 64):
        block = np.zeros(rows.shape[1], np.float32)
        for row in rows[begin : begin + 64]:
            block += row
        total += block
    return (scale * total).astype(np.float32)


class EmbeddingTest(OperationCase):
    sources = ("embedding",)

    def common(self, case: Case, documents: Documents, ids, width: int, v: Variant) -> tuple:
        places = (N_POSITIONS, FIRST_POSITION) if v.with_positions else (0, 0)
        return (documents.put(case.device), case.kind.number, case.device.memory.put(ids),
                ids.itemsize, width, N_VOCABULARY, *places, v.token_scale)

    def run_forward(self, case: Case, shape: tuple, v: Variant) -> None:
        n_rows, seq_len, width = shape
        documents = case.documents(n_rows, seq_len)
        ids = case.ids(documents.n_tokens, N_VOCABULARY, v.id_bytes)
        tables = [case.numbers(n, width) for n in (N_VOCABULARY, N_POSITIONS)]
        given = [case.tensor(table).address for table in tables]
        out = case.room(documents.n_tokens, width)
        past = documents.random_past(case.rng, 3) if v.with_past else None
        boundaries, *common = self.common(case, documents, ids, width, v)
        case.device.run("embedding_forward", ForwardArguments(
            boundaries, case.device.memory.put(past) if v.with_past else None, *common,
            *v.tables(*given), out.address))
        exact = v.token_scale * tables[0][ids].astype(np.float64)
        size = np.abs(exact)
        if v.with_positions:
            places = tables[1][FIRST_POSITION + documents.positions(past)]
            exact, size = exact + places, size + np.abs(places)
        self.assert_right(out, exact, FEW_ROUNDINGS * size, documents.padding)

    def run_backward(self, case: Case, shape: tuple, v: Variant) -> None:
        """To the last bit, because the sums are in the order of the tokens."""
        n_rows, seq_len, width = shape
        documents = case.documents(n_rows, seq_len)
        ids = case.ids(documents.n_tokens, N_VOCABULARY, v.id_bytes)
        d_out = case.numbers(documents.n_tokens, width)
        d_out[documents.padding] = np.nan
        wanted = [case.rng.standard_normal((n, width)).astype(np.float32)
                  for n in (N_VOCABULARY, N_POSITIONS)]  # fmt: skip
        tables = [case.floats(table) for table in wanted]
        case.device.run("embedding_backward", BackwardArguments(
            *self.common(case, documents, ids, width, v), case.tensor(d_out).address,
            *v.tables(*[table.address for table in tables])))
        sums = [(ids, v.token_scale), (FIRST_POSITION + documents.positions(), 1.0)]
        for table, exact, (rows, scale) in zip(tables, wanted, sums[: 1 + v.with_positions]):
            for row in np.unique(rows[~documents.padding]):
                exact[row] += sum_of(d_out[~documents.padding & (rows == row)], scale)
            self.assert_right(table, exact, 0.0)

    def check_both(self, kind, shape, variant, **more):
        for run in (self.run_forward, self.run_backward):
            self.check(run, kind, shape, variant, **more)

    def test_agrees(self):
        for i, shape in enumerate(SHAPES):
            self.check_both(BF16, shape, Variant(2 + 2 * (i % 2)))
        for shape in MISALIGNED_SHAPES:
            self.check_both(BF16, shape, Variant(2), misaligned=True)
        self.check_both(FLOAT, (1, 20, 36), Variant(4))

    def test_agrees_after_other_tokens(self):
        for shape in ((3, 31, 33), (2, 33, 264)):
            self.check(self.run_forward, BF16, shape, Variant(4, with_past=True))
        self.check(self.run_forward, FLOAT, (2, 20, 36), Variant(4, with_past=True))

    def test_agrees_without_positions(self):
        for shape in ((2, 9, 65), (3, 3, 1288)):
            self.check_both(BF16, shape, Variant(2, 27.75, with_positions=False))
        self.check_both(FLOAT, (2, 20, 36), Variant(4, 0.3125))


if __name__ == "__main__":
    main()
